"""The verbs that write: run, pause, resume, retry and rerun.

Each writes what the user could write with kubectl, and with the user's own rights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import SuspendedReason
from daemonset_job.api.states import Phase
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, Unavailable
from daemonset_job.kube.client.messages import clean_text
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS
from kubectl_dsjob import manifests
from kubectl_dsjob.cluster import find_job, find_near, read_history, read_run
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.node_tables import format_objects
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.reading import Show, follow
from kubectl_dsjob.rerun_nodes import check_nodes
from kubectl_dsjob.rollback_view import is_rolled_back
from kubectl_dsjob.run_view import TEXT_LIMIT, find_pause
from kubectl_dsjob.target import Target

# What pauses a run that its own spec does not suspend. The message of each says what answers.
_OTHER_PAUSES: Final[frozenset[str]] = frozenset(SuspendedReason) - {
    SuspendedReason.SUSPENDED,
    SuspendedReason.START_TAKEN_BACK,
    SuspendedReason.RESUMED,
}


async def run_job(
    target: Target,
    wish: manifests.Wish,
    show: Show | None,
    limit_seconds: float | None,
) -> Answer:
    """Create the Job, and show its run until the end; without `show`, return at once."""
    namespace = target.find_namespace()
    body = manifests.build_job(wish, namespace)
    async with await target.connect() as client:
        created = await _create(client, body, namespace)
    say(f"created {wish.name} in namespace {namespace}")
    if show is None:
        where = at_job(wish.name, namespace)
        return Answer(words=f"follow it: kubectl dsjob status {where} --watch")
    return await follow(target, wish.name, limit_seconds, show, created["metadata"]["uid"])


async def dry_run(target: Target, wish: manifests.Wish, output: Output, *, server: bool) -> Answer:
    """Return the manifest of the Job, as the API server would store it with `server`."""
    if output not in (Output.YAML, Output.JSON):
        message = "a dry run prints a manifest"
        raise CliError(message, "Use it with -o yaml or -o json.", ExitCode.USAGE)
    namespace = target.find_namespace()
    body = manifests.build_job(wish, namespace)
    if server:
        async with await target.connect() as client:
            body = await _create(client, body, namespace, dry_run=True)
    return Answer(format_objects(body, output))


async def suspend(target: Target, name: str, *, is_suspended: bool) -> Answer:
    """Pause or resume a run."""
    patch_for = pause_patch_for if is_suspended else resume_patch_for
    job = await patch_job(target, name, patch_for)
    if is_suspended and _has_succeeded(job):
        words = f"{name} is suspended, and has succeeded: there is no further node."
    elif is_suspended:
        words = f"{name} is suspended: no further node starts, and running tasks continue."
    else:
        words = _resume_words(job)
    return Answer(words=words)


def pause_patch_for(job: Job) -> dict[str, Any]:
    """Return the patch that pauses a run; CliError if a person has ended it for good."""
    if job.is_aborted:
        way = f"See how it ended: kubectl dsjob status {at_job(job.name, job.namespace)}"
        raise CliError(f"{job.name} is aborted: no further node starts in any case", way)
    return manifests.suspend_patch(is_suspended=True)


def resume_patch_for(job: Job) -> dict[str, Any]:
    """Return the patch that lets a run go on; CliError if that does not let it go on."""
    if job.is_aborted or job.requests.abort:
        check_going_on(job)
    pause = find_pause(job)
    if not job.spec.suspend and pause is not None and pause.reason in _OTHER_PAUSES:
        words = f"{job.name} is not suspended, and pauses for another reason: {pause.message}"
        raise CliError(words, f"More: kubectl dsjob status {at_job(job.name, job.namespace)}")
    return manifests.suspend_patch(is_suspended=False)


def _resume_words(job: Job) -> str:
    """Return what a resume does, by the Job's status of before."""
    pause = find_pause(job)
    if pause is not None and pause.reason == SuspendedReason.CLUSTER_STOPPED:
        why = clean_text(pause.message, TEXT_LIMIT)
        return f"{job.name} is no longer suspended, and waits: {why}"
    if job.status.phase == Phase.FAILED:
        retry = f"kubectl dsjob retry {at_job(job.name, job.namespace)}"
        return (
            f"{job.name} is no longer suspended. It has failed, and goes on after a retry: {retry}"
        )
    if _has_succeeded(job):
        return f"{job.name} is not suspended, and has succeeded."
    return f"{job.name} goes on."


def _has_succeeded(job: Job) -> bool:
    """Return whether a run has succeeded for good. One of policy Continuous has no end."""
    return job.status.phase == Phase.SUCCEEDED and not job.spec.is_continuous


async def retry(target: Target, name: str) -> Answer:
    """Request a retry of the failed nodes."""
    job = await patch_job(target, name, retry_patch_for)
    return Answer(words=retry_words(job))


def retry_words(job: Job) -> str:
    """Return what a retry does that was requested, by the Job's status of before."""
    if job.status.nodes is not None and job.status.nodes.failed:
        return f"requested a retry of the failed nodes of {job.name}"
    if job.status.phase == Phase.FAILED:
        return f"requested a retry of {job.name}: no node has failed, and the failed run goes on"
    return (
        f"requested a retry of {job.name}; by its status no node has failed: only pods that cannot "
        "start are replaced, and a check or an image pull that failed is tried again"
    )


def retry_patch_for(job: Job) -> dict[str, Any]:
    """Return the patch that requests a retry; CliError if none is acted on."""
    check_going_on(job)
    return manifests.retry_patch(_request())


def check_going_on(job: Job) -> None:
    """Raise CliError if the run of a Job is ended for good, or is about to be."""
    if is_rolled_back(job) or job.is_aborted or job.requests.abort:
        what = "is rolled back" if is_rolled_back(job) else "is aborted"
        way = (
            "Apply its manifest under another name, or delete the Job and apply it again: "
            f"kubectl delete dsj {at_job(job.name, job.namespace)}"
        )
        raise CliError(f"{job.name} {what}, and no retry revives it", way)


async def rerun(target: Target, name: str, nodes: tuple[str, ...]) -> Answer:
    """Run a Job again: by a request if it is Continuous, else from the manifest in its report."""
    namespace = target.find_namespace()
    async with await target.connect() as client:
        job = await find_job(client, namespace, name)
        if job is not None:
            patch = _rerun_patch(job, nodes)
            note = await check_nodes(client, job, nodes)
            patch["metadata"]["uid"] = job.uid
            await client.merge_patch(JOBS, name, patch, namespace)
            words = f"requested another run of {name}"
            return Answer(words=f"{words}; {note}" if note else words)
        if nodes:
            way = "Leave --node out to run the whole Job again."
            raise CliError(f"there is no Job {name!r} in {namespace!r}", way, ExitCode.USAGE)
        manifest = await _last_manifest(client, namespace, name)
        await _create(client, manifest, namespace)
    return Answer(words=f"created {name} in namespace {namespace}")


def _rerun_patch(job: Job, nodes: tuple[str, ...]) -> dict[str, Any]:
    _check_not_going(job)
    if job.spec.is_continuous:
        return manifests.rerun_patch(nodes, _request())
    way = (
        "Wait until it is deleted, or delete it yourself: "
        f"kubectl delete dsj {at_job(job.name, job.namespace)}"
    )
    raise CliError(f"{job.name} still exists, and its policy is not Continuous", way)


async def _last_manifest(client: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    runs = await read_history(client, namespace, name)
    if not runs:
        way = await find_near(client, namespace, name)
        raise CliError(f"there is no Job and no report of {name!r} in {namespace!r}", way)
    raw = await client.get(JOB_REPORTS, runs[-1].report, namespace)
    text = (raw.get("spec") or {}).get("manifest")
    way = "Apply its manifest again with kubectl apply."
    if not text:
        raise CliError(f"no report has the manifest of {name!r}", way)
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError):
        spec = None
    if not isinstance(spec, dict):
        raise CliError(f"the manifest in the report of {name!r} cannot be read", way)
    # A report never says where to write to: name and namespace are those that were asked for.
    return {**spec, "metadata": {"name": name, "namespace": namespace}}


async def _create(
    client: KubeClient, body: dict[str, Any], namespace: str, *, dry_run: bool = False
) -> dict[str, Any]:
    name = body["metadata"]["name"]
    try:
        return await client.create(JOBS, body, namespace, dry_run=dry_run)
    except Unavailable as error:
        if dry_run:
            raise
        message = f"the API server does not answer: {error.message}. The Job may have been created"
        way = f"Look before you repeat the command: kubectl get dsj {at_job(name, namespace)}"
        raise CliError(message, way) from error
    except AlreadyExists:
        way = f"Use another name, or delete it: kubectl delete dsj {at_job(name, namespace)}"
        raise CliError(f"there is a Job {name!r} in {namespace!r} already", way) from None


async def patch_job(target: Target, name: str, patch: Callable[[Job], dict[str, Any]]) -> Job:
    """Write a merge patch to a Job, and return it as it was; CliError if it does not exist."""
    namespace = target.find_namespace()
    async with await target.connect() as client:
        job = await find_job(client, namespace, name)
        if job is None:
            way = await find_near(client, namespace, name)
            if await read_run(client, namespace, name) is not None:
                read = f"kubectl dsjob report {at_job(name, namespace)}"
                way = f"It is deleted. Read its report: {read}"
            raise CliError(f"there is no Job {name!r} in {namespace!r}", way)
        _check_not_going(job)
        # The UID is a precondition: a Job that was created again under the name stays as it is.
        body = patch(job)
        body = {**body, "metadata": {**body.get("metadata", {}), "uid": job.uid}}
        await client.merge_patch(JOBS, name, body, namespace)
        return job


def _check_not_going(job: Job) -> None:
    """Raise CliError if a Job is being deleted: the controller acts on no request any more."""
    if job.is_terminating:
        way = "Wait until it is gone: kubectl wait --for=delete dsj/"
        way += at_job(job.name, job.namespace)
        raise CliError(f"{job.name} is being deleted: no request is acted on any more", way)


def _request() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
