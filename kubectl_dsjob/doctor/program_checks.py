"""Checks controller and terminator: Deployments, their pods, and the Leases they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden
from daemonset_job.kube.client.resource import LEASES, PODS
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read, read_all
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.crds import is_older
from kubectl_dsjob.system.installed import (
    CONTROLLER,
    LABELS,
    TERMINATOR,
    describe,
    present_components,
)
from kubectl_dsjob.system.render import version
from kubectl_dsjob.system.resources import DEPLOYMENTS
from kubectl_dsjob.system.rollout import Cause, find_cause, pod_selector
from kubectl_dsjob.tables import duration

_PODS_LIMIT: Final = 20
# A Lease is renewed every few seconds. The clocks of two machines may differ by that much.
_CLOCK_SECONDS: Final = 10.0
# Within this a leader renews its Lease, and another one takes a Lease that is free.
RENEWAL_SECONDS: Final = 6.0
_WORK: Final = {CONTROLLER: "no Job starts", TERMINATOR: "no node completes"}


async def check_programs(client: KubeClient, namespace: str, now: datetime) -> list[Finding]:
    """Return what there is to say about both programs in the namespace of the system."""
    deployments = [await read(client, DEPLOYMENTS, n, namespace) for n in (CONTROLLER, TERMINATOR)]
    if deployments[0] is Missing.ABSENT:
        way = f"kubectl dsjob install{CLUSTER}; or name its namespace with --system-namespace."
        text = f"there is no Deployment {CONTROLLER} in namespace {namespace}: {_WORK[CONTROLLER]}"
        return [Finding(Area.PROGRAMS, Level.PROBLEM, text, way)]
    found: list[Finding] = []
    for name, deployment in zip((CONTROLLER, TERMINATOR), deployments, strict=True):
        if deployment is Missing.FORBIDDEN:
            text = f"you may not read the Deployment {name} in namespace {namespace}"
            found.append(Finding(Area.PROGRAMS, Level.UNKNOWN, text))
        elif not isinstance(deployment, Missing):
            selector = pod_selector(deployment)
            pods = await read_all(client, Selection(PODS, namespace, selector), _PODS_LIMIT)
            found.append(judge_deployment(deployment, () if isinstance(pods, Missing) else pods[0]))
    found += judge_terminator(deployments, namespace)
    # Without a Deployment of its own, the terminator is in the pods of the controller.
    selectors = [LABELS if isinstance(d, Missing) else pod_selector(d) for d in deployments]
    found += await asyncio.gather(
        *(
            _check_lease(client, (namespace, name), now, selector)
            for name, selector in zip((CONTROLLER, TERMINATOR), selectors, strict=True)
        )
    )
    return [*found, await _components(client, namespace)]


def judge_terminator(
    deployments: Sequence[Mapping[str, Any] | Missing], namespace: str
) -> list[Finding]:
    """Return a finding if none of the Deployments that exist has a terminator. Pure.

    It is in the controller's, unless the system is split.
    """
    known = [each for each in deployments if not isinstance(each, Missing)]
    if Missing.FORBIDDEN in deployments or any(TERMINATOR in _programs(each) for each in known):
        return []
    text = f"no Deployment in namespace {namespace} has a terminator: {_WORK[TERMINATOR]}"
    way = f"Apply the manifests again: kubectl dsjob upgrade{CLUSTER}, or your kustomization."
    return [Finding(Area.PROGRAMS, Level.PROBLEM, text, way)]


def _programs(deployment: Mapping[str, Any]) -> list[str]:
    """Return which of both programs the pods of a Deployment have; both, unless it is split."""
    containers = [c.get("name") for c in deployment["spec"]["template"]["spec"]["containers"]]
    return [each for each in (CONTROLLER, TERMINATOR) if each.rpartition("-")[2] in containers]


def judge_deployment(deployment: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Finding:
    """Return what there is to say about a Deployment and its pods. Pure."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    name, namespace = metadata["name"], metadata["namespace"]
    status = deployment.get("status") or {}
    there = _programs(deployment)
    who = " and ".join(each.rpartition("-")[2] for each in there)
    work = " and ".join(_WORK[each] for each in there)
    replicas, ready = int(spec.get("replicas", 1)), int(status.get("readyReplicas") or 0)
    if replicas == 0:
        text = f"{name} has 0 replicas, so there is no {who}: {work}"
        way = f"kubectl scale -n {namespace}{CLUSTER} deployment/{name} --replicas=1"
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    cause = find_cause(deployment, pods)
    why, way = f": {cause.text}" if cause else "", _way_out(deployment, cause)
    if ready == 0:
        text = f"{name}: no pod is ready, so {work}{why}"
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    found = describe(deployment, namespace).version
    text = f"{name} ({who}): {ready} of {replicas} pods are ready"
    text += f", version {found}" if found else ""
    if ready < replicas:
        return Finding(Area.PROGRAMS, Level.NOTE, text + why, way)
    if int(status.get("replicas") or 0) > ready or (cause and cause.is_refused):
        # The pods of before the change go on until the newer ones are ready.
        text += f"; a pod of a change is not ready{why}"
        return Finding(Area.PROGRAMS, Level.NOTE, text, way)
    return _judge_version(text, found)


def _judge_version(text: str, found: str) -> Finding:
    """Return what there is to say about a program that is ready and has that version."""
    if is_older(found, version()):
        text += f"; this program is {version()}"
        return Finding(Area.PROGRAMS, Level.NOTE, text, f"kubectl dsjob upgrade{CLUSTER}")
    if is_older(version(), found):
        text += f"; this program is {version()}, and may misjudge it"
        way = "Install the version of kubectl dsjob that the cluster has."
        return Finding(Area.PROGRAMS, Level.NOTE, text, way)
    return Finding(Area.PROGRAMS, Level.OK, text)


async def _check_lease(
    client: KubeClient, key: tuple[str, str], now: datetime, selector: str
) -> Finding:
    """Return what there is to say about a Lease. One that seems to be lost is read once more.

    The times in it are by another clock than `now`, which may be far off.
    """
    namespace, name = key
    lease = await read(client, LEASES, name, namespace)
    found = judge_lease(lease, name, namespace, now, selector)
    if found.level != Level.PROBLEM or isinstance(lease, Missing):
        return found
    await asyncio.sleep(RENEWAL_SECONDS)
    later = await read(client, LEASES, name, namespace)
    renewed = judge_renewal(lease, later, name, now)
    return renewed or judge_lease(later, name, namespace, now, selector)


def judge_renewal(
    before: Mapping[str, Any], after: Mapping[str, Any] | Missing, name: str, now: datetime
) -> Finding | None:
    """Return that a Lease was renewed between two reads, None if it was not. Pure."""
    spec = {} if isinstance(after, Missing) else after.get("spec") or {}
    renewed, holder = parse_time(spec.get("renewTime")), spec.get("holderIdentity")
    if not holder or renewed is None:
        return None
    if renewed == parse_time((before.get("spec") or {}).get("renewTime")):
        return None
    text = f"{holder} holds the Lease {name}"
    apart = abs(now - renewed).total_seconds()
    if apart <= RENEWAL_SECONDS + _CLOCK_SECONDS:
        return Finding(Area.PROGRAMS, Level.OK, text)
    text += f"; its clock and yours differ by {duration(apart)}"
    way = "Correct the wrong clock: doctor tells by yours how long something takes."
    return Finding(Area.PROGRAMS, Level.NOTE, text, way)


def judge_lease(
    lease: Mapping[str, Any] | Missing,
    name: str,
    namespace: str,
    now: datetime,
    selector: str = LABELS,
) -> Finding:
    """Return what there is to say about the Lease of a program; `selector`: of its pods. Pure."""
    if lease is Missing.FORBIDDEN:
        text = f"you may not read the Lease {name} in namespace {namespace}"
        return Finding(Area.PROGRAMS, Level.UNKNOWN, text)
    way = f"kubectl logs -n {namespace}{CLUSTER} -l {selector} --all-containers"
    if isinstance(lease, Missing):
        text = f"the Lease {name} does not exist: the program has never led, and {_WORK[name]}"
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime"))
    seconds = float(spec.get("leaseDurationSeconds") or 0)
    if not spec.get("holderIdentity") or renewed is None:
        text = f"no process holds the Lease {name}: {_WORK[name]}"
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    holder = spec["holderIdentity"]
    if renewed - now > timedelta(seconds=_CLOCK_SECONDS):
        text = (
            f"{holder} does not renew the Lease {name}, whose last renewal is in the future by "
            f"your clock: {_WORK[name]}"
        )
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    if now - renewed > timedelta(seconds=seconds + _CLOCK_SECONDS):
        age = duration((now - renewed).total_seconds())
        text = f"{holder} has not renewed the Lease {name} for {age}: {_WORK[name]}"
        return Finding(Area.PROGRAMS, Level.PROBLEM, text, way)
    return Finding(Area.PROGRAMS, Level.OK, f"{holder} holds the Lease {name}")


async def _components(client: KubeClient, namespace: str) -> Finding:
    try:
        present = await present_components(client, namespace)
    except Forbidden:
        text = "you may not read which components are installed"
        return Finding(Area.PROGRAMS, Level.UNKNOWN, text)
    return Finding(
        Area.PROGRAMS, Level.OK, f"components with objects: {', '.join(present) or 'none'}"
    )


def _way_out(deployment: Mapping[str, Any], cause: Cause | None) -> str:
    """Return what shows why pods are missing or not ready."""
    namespace, selector = deployment["metadata"]["namespace"], pod_selector(deployment)
    pods = f"kubectl describe pods -n {namespace}{CLUSTER} -l {selector}"
    if cause is not None and cause.is_refused:
        # There is no pod that could be described.
        more = f"kubectl describe replicasets -n {namespace}{CLUSTER} -l {selector}"
        return f"Correct what the message names; more: {more}"
    if cause is not None and cause.pod:
        log = f"kubectl logs -n {namespace}{CLUSTER} {cause.pod} -c {cause.container}"
        return f"Its last lines say why: {log}; more: {pods}"
    return pods
