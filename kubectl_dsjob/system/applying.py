"""Applies the objects of the system in their order, and says what changes.

Server-side apply with a field manager of its own: fields of other clients stay theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, Forbidden, NotFound
from daemonset_job.kube.client.resource import PODS
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.kustomize import Manifest
from kubectl_dsjob.system.resources import CRDS, DEPLOYMENTS, resource_of, title
from kubectl_dsjob.system.rollout import find_cause, is_rolled_out, pod_selector

FIELD_MANAGER: Final = "kubectl-dsjob"
_CRD_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
_PARALLEL: Final = 8


class Effect(StrEnum):
    """What an apply does to an object."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Change:
    """One object, and what an apply does to it."""

    manifest: Manifest
    effect: Effect

    @property
    def title(self) -> str:
        """What users read of the object."""
        return title(self.manifest)


async def check_apply(
    client: KubeClient, manifests: Sequence[Manifest], *, is_forced: bool
) -> list[Change]:
    """Return what an apply would do, and write nothing. CliError for a conflict.

    An object that does not exist is not sent: its namespace or its type may not exist yet.
    """
    slots = asyncio.Semaphore(_PARALLEL)

    async def check(manifest: Manifest) -> Change:
        async with slots:
            before = await _find(client, manifest)
            if before is None:
                await _check_type(client, manifest)
                return Change(manifest, Effect.CREATED)
            after = await _apply(client, manifest, is_forced=is_forced, dry_run=True)
            is_same = _content(before) == _content(after)
            return Change(manifest, Effect.UNCHANGED if is_same else Effect.CHANGED)

    tasks = [asyncio.create_task(check(manifest)) for manifest in manifests]
    try:
        return [await task for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def apply_all(
    client: KubeClient,
    changes: Sequence[Change],
    say: Callable[[Change], object],
    *,
    is_forced: bool,
) -> None:
    """Apply the objects one after the other; repeating it continues where it has failed.

    What is guarded by the policies comes after them, and after the CRDs serve. An object that does
    not change is applied too: its fields then have this field manager.
    """
    crds: list[str] = []
    for change in changes:
        is_crd = change.manifest["kind"] == CRDS.kind
        if crds and not is_crd:
            await _wait_for_crds(client, crds)
            crds = []
        await _apply(client, change.manifest, is_forced=is_forced)
        say(change)
        if is_crd:
            crds.append(change.manifest["metadata"]["name"])


async def wait_for_programs(
    client: KubeClient, manifests: Sequence[Manifest], limit_seconds: float
) -> None:
    """Return once each Deployment is rolled out. CliError with the cause after the limit."""
    deadline = time.monotonic() + limit_seconds
    for manifest in manifests:
        if manifest["kind"] != DEPLOYMENTS.kind:
            continue
        name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        while True:
            found = await client.get(DEPLOYMENTS, name, namespace)
            if is_rolled_out(found):
                break
            if time.monotonic() > deadline:
                raise await _late(client, found, limit_seconds)
            await asyncio.sleep(_POLL_SECONDS)


async def _late(client: KubeClient, deployment: Mapping[str, Any], limit: float) -> CliError:
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    selector = pod_selector(deployment)
    try:
        pods = (await client.list(PODS, namespace, label_selector=selector)).get("items") or ()
    except Forbidden:
        pods = ()
    cause = find_cause(deployment, pods)
    message = f"{name} is not ready after {limit:g} s" + (f": {cause.text}" if cause else "")
    way = (
        "All objects are applied. An image that cannot be pulled: repeat with --image-prefix. "
        f"Otherwise: kubectl describe pods -n {namespace}{CLUSTER} -l {selector}"
    )
    return CliError(message, way, ExitCode.TIMEOUT)


async def _wait_for_crds(client: KubeClient, names: Sequence[str]) -> None:
    deadline = time.monotonic() + _CRD_SECONDS
    for name in names:
        while True:
            conditions = ((await client.get(CRDS, name)).get("status") or {}).get("conditions")
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions or ()):
                break
            if time.monotonic() > deadline:
                way = f"Read its conditions: kubectl describe crd {name}{CLUSTER}"
                raise CliError(f"the CRD {name} is not established", way, ExitCode.TIMEOUT)
            await asyncio.sleep(_POLL_SECONDS)


async def _find(client: KubeClient, manifest: Manifest) -> dict[str, Any] | None:
    metadata = manifest["metadata"]
    try:
        return await client.get(resource_of(manifest), metadata["name"], metadata.get("namespace"))
    except NotFound:
        return None


async def _check_type(client: KubeClient, manifest: Manifest) -> None:
    """Raise CliError if the cluster does not know the type, which a CRD of others defines."""
    if manifest["kind"] != "PrometheusRule":
        return
    try:
        await client.list(resource_of(manifest), metadata_only=True)
    except NotFound:
        way = "Install the Prometheus Operator first, or leave the component monitoring out."
        raise CliError("the cluster does not know PrometheusRules", way) from None


async def _apply(
    client: KubeClient, manifest: Manifest, *, is_forced: bool, dry_run: bool = False
) -> dict[str, Any]:
    metadata = manifest["metadata"]
    try:
        apply = client.apply if is_forced else client.apply_unless_conflict
        return await apply(
            resource_of(manifest),
            metadata["name"],
            manifest,
            metadata.get("namespace"),
            field_manager=FIELD_MANAGER,
            dry_run=dry_run,
        )
    except Conflict as error:
        way = (
            "If the system was installed with a kustomization, apply that again instead. To keep "
            "what was changed, write an overlay; to overwrite it, add --force-conflicts."
        )
        message = f"fields of {title(manifest)} belong to another client: {error.message}"
        raise CliError(message, way) from error


def _content(manifest: Mapping[str, Any]) -> dict[str, Any]:
    ignored = {"managedFields", "resourceVersion", "generation"}
    metadata = {key: each for key, each in manifest["metadata"].items() if key not in ignored}
    return {**{k: v for k, v in manifest.items() if k != "status"}, "metadata": metadata}
