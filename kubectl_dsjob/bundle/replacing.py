"""Puts the Job of a bundle into the cluster, in place of an earlier one of the bundle."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.proposals import CLUSTER, at_job
from kubectl_dsjob.target import USER_AGENT

# A task has 10 s to end, unless its template says otherwise; nodes that are down take minutes.
GONE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5


async def put_job(client: KubeClient, body: dict[str, Any], namespace: str) -> tuple[str, str]:
    """Create or change the Job so that it runs this image; return its UID, and what was done.

    A Job runs once, and what has run cannot be changed: it is deleted with its pods, and created
    again. With policy Continuous it is changed, which is a new revision. CliError if another client
    created it: it is not deleted.
    """
    name = body["metadata"]["name"]
    before = await _find(client, name, namespace)
    if before is not None:
        _check_origin(before, body, namespace)
        if _is_continuous(before) and _is_continuous(body):
            changed = await client.apply(JOBS, name, body, namespace, field_manager=USER_AGENT)
            return changed["metadata"]["uid"], f"changed Job {name}: a new revision"
        with suppress(NotFound):
            await client.delete(JOBS, name, namespace, uid=before["metadata"]["uid"])
    await _wait_until_gone(client, name, namespace)
    created = await client.create(JOBS, body, namespace)
    if before is None:
        return created["metadata"]["uid"], f"created Job {name} in namespace {namespace}"
    return created["metadata"]["uid"], f"deleted Job {name} of the earlier image, created it again"


async def _find(client: KubeClient, name: str, namespace: str) -> dict[str, Any] | None:
    try:
        return await client.get(JOBS, name, namespace)
    except NotFound as error:
        if error.details.get("name"):
            return None
        raise


def _check_origin(before: dict[str, Any], body: dict[str, Any], namespace: str) -> None:
    bundle = body["metadata"]["labels"][names.LABEL_BUNDLE]
    labels = before["metadata"].get("labels") or {}
    if labels.get(names.LABEL_BUNDLE) != bundle:
        name = body["metadata"]["name"]
        delete = f"kubectl delete dsj {at_job(name, namespace)}"
        way = f"Use another --name, or delete it yourself: {delete}"
        message = f"there is a Job {name!r} in {namespace!r} that is not of the bundle {bundle!r}"
        raise CliError(message, way)


def _is_continuous(raw: dict[str, Any]) -> bool:
    completion = (raw.get("spec") or {}).get("completion") or {}
    return bool(completion.get("policy") == "Continuous")


async def _wait_until_gone(client: KubeClient, name: str, namespace: str) -> None:
    """Return once no Job, DaemonSet or pod of the name is left: two runs do not overlap."""
    selector = f"{names.MANAGED_SELECTOR},{names.LABEL_JOB}={names.job_label(name)}"
    deadline = time.monotonic() + GONE_SECONDS
    while left := await _left(client, name, namespace, selector):
        if time.monotonic() > deadline:
            way = f"Look at them: kubectl get pods -n {namespace}{CLUSTER} -l {selector}"
            raise CliError(f"the earlier run of {name} has not ended: {left} exists", way)
        await asyncio.sleep(_POLL_SECONDS)


async def _left(client: KubeClient, name: str, namespace: str, selector: str) -> str:
    """Return what is left of a run, "" for nothing. What the user may not read counts as gone."""
    if await _find(client, name, namespace) is not None:
        return "the Job"
    for resource, word in ((DAEMON_SETS, "its DaemonSet"), (PODS, "a pod")):
        try:
            page = await client.list(
                resource, namespace, label_selector=selector, metadata_only=True
            )
        except Forbidden:
            continue
        if page.get("items"):
            return word
    return ""
