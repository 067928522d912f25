"""Checks that one controller looks after a Job: neither two, nor none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read, read_all
from kubectl_dsjob.doctor.rights_checks import watched_namespaces
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.installed import CONTROLLER, LABELS, is_system_namespace
from kubectl_dsjob.system.resources import DEPLOYMENTS

_DEPLOYMENTS_LIMIT = 500


async def check_installations(
    client: KubeClient, system: str, namespace: str | None
) -> list[Finding]:
    """Return other controllers for the same Jobs, and whether any is for those of `namespace`.

    Without the right to read Deployments there is nothing to say: `check_programs` names it.
    """
    own = await read(client, DEPLOYMENTS, CONTROLLER, system)
    if isinstance(own, Missing):
        return []
    listed = await read_all(client, Selection(DEPLOYMENTS, None, LABELS), _DEPLOYMENTS_LIMIT)
    candidates = [] if isinstance(listed, Missing) else listed[0]
    # A tenant can give a Deployment this name and label, and not a namespace.
    others = [
        each
        for each in candidates
        if _is_another(own, each) and await is_system_namespace(client, _place(each))
    ]
    same = [each for each in others if acts_on_same_jobs(own, each)]
    return judge_watch(own, others, namespace) + judge_others(same, system)


def judge_watch(
    own: Mapping[str, Any], others: Sequence[Mapping[str, Any]], namespace: str | None
) -> list[Finding]:
    """Return a finding if the controller does not look after a namespace. Pure."""
    if namespace is None or _looks_after(own, namespace):
        return []
    if elsewhere := [_place(each) for each in others if _looks_after(each, namespace)]:
        text = f"the controller in namespace {elsewhere[0]} looks after namespace {namespace}"
        way = f"To check that one: kubectl dsjob doctor{CLUSTER} --system-namespace {elsewhere[0]}"
        return [Finding(Area.PROGRAMS, Level.NOTE, text, way)]
    text = (
        f"no controller that was found looks after namespace {namespace}: no Job starts there. "
        f"{CONTROLLER} looks after: {', '.join(watched_namespaces(own))}"
    )
    way = f"Use one of these, or add it to WATCH_NAMESPACES and NAMESPACE of {CONTROLLER}."
    return [Finding(Area.PROGRAMS, Level.NOTE, text, way)]


def _looks_after(controller: Mapping[str, Any], namespace: str) -> bool:
    watched = watched_namespaces(controller)
    return not watched or namespace in watched


def _is_another(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether another Deployment is a controller with pods."""
    is_controller = other["metadata"]["name"] == CONTROLLER
    return is_controller and _place(other) != _place(own) and _has_pods(other)


def _has_pods(controller: Mapping[str, Any]) -> bool:
    return bool(controller["spec"].get("replicas", 1))


def acts_on_same_jobs(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether another Deployment is a controller that looks after Jobs of this one. Pure."""
    if not _is_another(own, other) or not _has_pods(own):
        return False
    left, right = watched_namespaces(own), watched_namespaces(other)
    return not left or not right or not set(left).isdisjoint(right)


def judge_others(others: Sequence[Mapping[str, Any]], system: str) -> list[Finding]:
    """Return a finding for each other controller. Pure."""
    return [
        Finding(
            Area.PROGRAMS,
            Level.PROBLEM,
            f"there is another {CONTROLLER} in namespace {_place(each)}: it and that of namespace "
            f"{system} act on the same Jobs, against each other",
            "Keep one of them. This stops the other: "
            f"kubectl scale -n {_place(each)}{CLUSTER} deployment/{CONTROLLER} --replicas=0",
        )
        for each in others
    ]


def _place(deployment: Mapping[str, Any]) -> str:
    return str(deployment["metadata"]["namespace"])
