"""The verb uninstall: what the system needs to run goes, what it recorded stays.

Deleting twice is deleting once: what is gone is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, NotFound
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    JOB_REPORTS,
    JOBS,
    SCHEDULED_JOBS,
    Resource,
)
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.paging import list_objects
from kubectl_dsjob.system import cordons
from kubectl_dsjob.system.installed import (
    CONTROLLER,
    LABELS,
    find_namespace,
    is_ours,
    with_admin_rights,
)
from kubectl_dsjob.system.kustomize import Manifest
from kubectl_dsjob.system.render import SystemWish, component_names, component_objects, render
from kubectl_dsjob.system.resources import CRDS, DEPLOYMENTS, resource_of, title
from kubectl_dsjob.tables import counted
from kubectl_dsjob.target import Target

_POLL_SECONDS: Final = 0.5
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class UninstallWish:
    """What is asked for: Jobs are an error, unless they are deleted or kept on purpose."""

    namespace: str = ""
    has_reports_deleted: bool = False
    has_jobs_deleted: bool = False
    has_jobs_kept: bool = False
    is_dry_run: bool = False
    limit_seconds: float = 120.0


async def uninstall(target: Target, wish: UninstallWish) -> Answer:
    """Delete the system; say what was deleted, and what is left."""
    _check(wish)
    async with with_admin_rights(), await target.connect() as client:
        namespace = await find_namespace(client, "")
        if wish.namespace and wish.namespace != namespace:
            if await _exists(client, DEPLOYMENTS, CONTROLLER, namespace):
                way = f"Name that one: --namespace {namespace}"
                text = f"the system is not in namespace {wish.namespace}, but in {namespace}"
                raise CliError(text, way, ExitCode.USAGE)
            namespace = wish.namespace
        schedules, jobs = await _list(client, SCHEDULED_JOBS), await _list(client, JOBS)
        if (schedules or jobs) and not (wish.has_jobs_deleted or wish.has_jobs_kept):
            raise _has_jobs(schedules, jobs)
        objects = _to_delete(namespace, has_crds=wish.has_reports_deleted)
        if wish.is_dry_run:
            lost = [("ScheduledJob", each) for each in schedules]
            lost += [("Job", each) for each in jobs]
            return await _dry_run(client, lost if wish.has_jobs_deleted else [], objects)
        if (schedules or jobs) and wish.has_jobs_deleted:
            await _delete_jobs(client, schedules, wish.limit_seconds)
        if not wish.has_jobs_kept and await _exists(client, DEPLOYMENTS, CONTROLLER, namespace):
            await cordons.wait_until_lifted(client, wish.limit_seconds)
        deleted = await _delete_all(client, objects)
        await _wait_until_gone(client, deleted, wish.limit_seconds)
        left = await _left(client)
    count = len(deleted)
    return Answer(words=f"{count} objects deleted. {left}" if count else f"Nothing to do. {left}")


def _check(wish: UninstallWish) -> None:
    if wish.has_jobs_kept and (wish.has_jobs_deleted or wish.has_reports_deleted):
        text = "--keep-jobs excludes --delete-jobs and --delete-reports"
        raise CliError(text, "With the CRDs go all Jobs.", ExitCode.USAGE)


def _to_delete(namespace: str, *, has_crds: bool) -> list[Manifest]:
    """Return all that may be installed, in the order of deletion: the programs first.

    The policies are deleted after the accounts that they confine, and the namespace last.
    """
    wish = SystemWish(namespace=namespace)
    found = [each for name in component_names() for each in component_objects(name, wish)]
    base = [each for each in render(wish) if has_crds or each["kind"] != CRDS.kind]
    programs = [each for each in [*found, *base] if each["kind"] == DEPLOYMENTS.kind]
    others = [each for each in [*base, *found] if each["kind"] != DEPLOYMENTS.kind]
    return [*programs, *reversed(others)]


async def _delete_all(client: KubeClient, objects: Sequence[Manifest]) -> list[Manifest]:
    deleted = []
    for manifest in objects:
        metadata = manifest["metadata"]
        resource, where = resource_of(manifest), metadata.get("namespace")
        try:
            there = await client.get(resource, metadata["name"], where)
            if not is_ours(there):
                say(f"{title(manifest)} stays: it has not the label {LABELS}")
                continue
            if "deletionTimestamp" not in there["metadata"]:
                uid = there["metadata"]["uid"]
                await client.delete(resource, metadata["name"], where, uid=uid)
        except NotFound:
            continue
        except Conflict as error:
            # A namespace that is being deleted, or an object that was created again meanwhile.
            raise CliError(f"{title(manifest)}: {error.message}", "Repeat the command.") from error
        deleted.append(manifest)
        say(f"{title(manifest)} deleted")
    return deleted


async def _delete_jobs(
    client: KubeClient, schedules: Sequence[dict[str, Any]], limit_seconds: float
) -> None:
    """Delete all Jobs while the controller is there to close their reports, and wait for it.

    The ScheduledJobs go first: they would create further Jobs.
    """
    await _delete_each(client, SCHEDULED_JOBS, schedules)
    await _delete_each(client, JOBS, await _list(client, JOBS))
    deadline = time.monotonic() + limit_seconds
    while left := [*await _list(client, JOBS), *await _list(client, DAEMON_SETS, _MANAGED)]:
        if time.monotonic() > deadline:
            shown = _names(left)
            way = "Look at what keeps them, and repeat the command."
            raise CliError(f"Jobs or their DaemonSets are left: {shown}", way, ExitCode.TIMEOUT)
        await asyncio.sleep(_POLL_SECONDS)


async def _delete_each(
    client: KubeClient, resource: Resource, found: Sequence[dict[str, Any]]
) -> None:
    for each in found:
        metadata = each["metadata"]
        name, where = metadata["name"], metadata["namespace"]
        try:
            await client.delete(resource, name, where, uid=metadata["uid"])
        except (NotFound, Conflict):
            continue  # It was deleted meanwhile, or is another one now, which the wait finds.
        say(f"{resource.kind} {where}/{name} deleted")


# Other kinds are gone at once, unless another client has given them a finalizer.
_SLOW: Final = frozenset({CRDS.kind, DEPLOYMENTS.kind, "Namespace"})
_MANAGED: Final = names.MANAGED_SELECTOR


async def _wait_until_gone(
    client: KubeClient, deleted: Sequence[Manifest], limit_seconds: float
) -> None:
    deadline = time.monotonic() + limit_seconds
    slow = [each for each in deleted if each["kind"] in _SLOW]
    for manifest in slow:
        name, where = manifest["metadata"]["name"], manifest["metadata"].get("namespace")
        while await _exists(client, resource_of(manifest), name, where):
            if time.monotonic() > deadline:
                text = f"{title(manifest)} is still being deleted after {limit_seconds:g} s"
                way = "Look at its conditions and finalizers, and repeat the command."
                raise CliError(text, way, ExitCode.TIMEOUT)
            await asyncio.sleep(_POLL_SECONDS)


async def _dry_run(
    client: KubeClient, lost: Sequence[tuple[str, dict[str, Any]]], objects: Sequence[Manifest]
) -> Answer:
    lines = [
        f"{kind} {each['metadata']['namespace']}/{each['metadata']['name']} would be deleted"
        for kind, each in lost
    ]
    for manifest in objects:
        metadata = manifest["metadata"]
        if await _exists(
            client, resource_of(manifest), metadata["name"], metadata.get("namespace")
        ):
            lines.append(f"{title(manifest)} would be deleted")
    return Answer("\n".join(lines), f"{_count(lines, 'object')} would be deleted (dry run)")


async def _left(client: KubeClient) -> str:
    text = await _left_objects(client)
    if nodes := await cordons.list_cordoned(client):
        text += f" Jobs have left cordons on {cordons.shown(nodes)}: {cordons.LIFT}."
    return text


async def _left_objects(client: KubeClient) -> str:
    if not await _exists(client, CRDS, f"{JOB_REPORTS.plural}.{JOB_REPORTS.group}", None):
        return "Nothing is left."
    reports, jobs = await _list(client, JOB_REPORTS), await _list(client, JOBS)
    text = f"Left are the CRDs and {_count(reports, 'report')}. They go with --delete-reports."
    if jobs:
        left = f"{_count(jobs, 'Job')} {'is' if len(jobs) == 1 else 'are'}"
        text += f" {left} left without a controller: pods run until they are deleted."
    if schedules := await _list(client, SCHEDULED_JOBS):
        start = f"{_count(schedules, 'ScheduledJob')} start{'s' if len(schedules) == 1 else ''}"
        text += f" {start} nothing until a controller is installed."
    return text


async def _exists(client: KubeClient, resource: Resource, name: str, namespace: str | None) -> bool:
    try:
        await client.get(resource, name, namespace)
    except NotFound:
        return False
    return True


async def _list(
    client: KubeClient, resource: Resource, labels: str | None = None
) -> list[dict[str, Any]]:
    """Return the metadata of all objects; none if the cluster does not know the type."""
    what = Selection(resource, None, labels, metadata_only=True)
    try:
        return [each async for each in list_objects(client, what)]
    except NotFound:
        return []


def _has_jobs(schedules: Sequence[dict[str, Any]], jobs: Sequence[dict[str, Any]]) -> CliError:
    way = (
        "Wait until they have ended, delete them with --delete-jobs, or leave them without a "
        "controller with --keep-jobs."
    )
    found = [f"{_count(jobs, 'Job')}: {_names(jobs)}"] if jobs else []
    found += [f"{_count(schedules, 'ScheduledJob')}: {_names(schedules)}"] if schedules else []
    return CliError(f"the cluster has {'; and '.join(found)}", way)


def _names(objects: Sequence[dict[str, Any]]) -> str:
    shown = [f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in objects[:_SHOWN]]
    more = f" and {len(objects) - _SHOWN} more" if len(objects) > _SHOWN else ""
    return ", ".join(shown) + more


def _count(objects: Sequence[object], kind: str) -> str:
    return counted(len(objects), kind)
