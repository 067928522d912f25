"""Finds Jobs that are stuck, with the cause that their status has, and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from daemonset_job.api.job import Job, parse_job
from daemonset_job.api.rollback import has_open_rollback
from daemonset_job.api.states import ConditionType, Phase
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOBS
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read_all
from kubectl_dsjob.doctor.rollback_checks import judge_rollback
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.rollback_view import is_rolled_back
from kubectl_dsjob.tables import duration

JOBS_LIMIT: Final = 2000
SHOWN_LIMIT: Final = 20
# The controller writes a status within seconds.
_UNSEEN: Final = timedelta(minutes=1)
_NO_STATUS: Final = (
    "See the programs above. If they are well, the controller does not look after this namespace, "
    "or its log says why it cannot write the status."
)


async def check_jobs(
    client: KubeClient, namespace: str | None, now: datetime, limit: timedelta
) -> list[Finding]:
    """Return the Jobs of a namespace, or of all, that are stuck for longer than `limit`."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    listed = await read_all(client, Selection(JOBS, namespace), JOBS_LIMIT)
    if listed is Missing.FORBIDDEN:
        return [Finding(Area.JOBS, Level.UNKNOWN, f"you may not list the Jobs {where}")]
    if isinstance(listed, Missing):
        return []
    jobs, has_more = listed
    found = judge_jobs(jobs, now, limit)
    if not found:
        text = f"none of {len(jobs)} Jobs {where} is stuck"
        found = [Finding(Area.JOBS, Level.OK, text)]
    if has_more:
        text = f"only the first {JOBS_LIMIT} Jobs were looked at"
        found.append(Finding(Area.JOBS, Level.NOTE, text, "Name a namespace with -n."))
    return found


def judge_jobs(jobs: Sequence[Mapping[str, Any]], now: datetime, limit: timedelta) -> list[Finding]:
    """Return a finding for each Job that is stuck, 20 at most. Pure."""
    found = [each for raw in jobs if (each := judge_job(raw, now, limit)) is not None]
    left = len(found) - SHOWN_LIMIT
    words = f"{left} more Job{' is' if left == 1 else 's are'} stuck"
    more = [Finding(Area.JOBS, Level.PROBLEM, words)] if left > 0 else []
    return found[:SHOWN_LIMIT] + more


def judge_job(raw: Mapping[str, Any], now: datetime, limit: timedelta) -> Finding | None:
    """Return why a Job is stuck and the way out, None if it is not. Pure."""
    metadata = raw["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        job = parse_job(raw)
    except ValueError as error:
        text = f"{namespace}/{name} cannot be read: {error}"
        return _stuck(text, f"kubectl edit dsj {at_job(name, namespace)}")
    deleted = parse_time(metadata.get("deletionTimestamp"))
    if deleted is not None:
        if now - deleted <= limit:
            return None
        kept = ", ".join(metadata.get("finalizers") or ()) or "none"
        text = f"{namespace}/{name} is being deleted for {_since(deleted, now)}; finalizers: {kept}"
        return _stuck(text, "Another client set them: ask it to remove them.")
    if not job.status.conditions:
        created = parse_time(metadata.get("creationTimestamp"))
        if created is None or now - created <= _UNSEEN:
            return None
        text = f"{namespace}/{name} has had no status for {_since(created, now)}"
        return _stuck(text, _NO_STATUS)
    return _by_conditions(job, now, limit)


def _by_conditions(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    stuck_rollback = judge_rollback(job, now, limit)
    if stuck_rollback is not None or has_open_rollback(job):
        return stuck_rollback
    if job.status.is_true(ConditionType.FAILED):
        return _failed(job, now, limit)
    if job.status.is_true(ConditionType.COMPLETE):
        return _not_deleted(job, now, limit)
    if job.spec.suspend or job.status.phase == Phase.PAUSED:
        return _paused(job, now, limit)
    return _without_progress(job, now, limit)


def _without_progress(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    progressing = job.status.condition(ConditionType.PROGRESSING)
    if progressing is None or progressing.status is not False:
        return None
    since = progressing.last_transition_time
    if not _is_long(since, now, limit):
        return None
    text = f"{_head(job)} makes no progress for {_since(since, now)}"
    way = f"Correct what the message names. More: kubectl dsjob status {_where(job)}"
    return _stuck(f"{text}: {progressing.reason}: {progressing.message}", way)


def _failed(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    failed = job.status.condition(ConditionType.FAILED)
    # With a time to live it is deleted by itself.
    if failed is None or job.spec.ttl_seconds_after_finished is not None:
        return None
    since = failed.last_transition_time
    if not _is_long(since, now, limit):
        return None
    text = f"{_head(job)} has failed, {_since(since, now)} ago: {failed.reason}: {failed.message}"
    delete = f"kubectl delete dsj {_where(job)}"
    if job.is_aborted or is_rolled_back(job):
        return _stuck(text, f"No retry revives it. Read its report, then: {delete}")
    return _stuck(text, f"kubectl dsjob retry {_where(job)} --failed; or {delete}")


def _paused(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    suspended = job.status.condition(ConditionType.SUSPENDED)
    since = suspended.last_transition_time if suspended is not None else None
    if suspended is None or not _is_long(since, now, limit):
        return None
    text = f"{_head(job)} is paused for {_since(since, now)}: {suspended.message}"
    way = f"kubectl dsjob status {_where(job)} says what it waits for"
    return Finding(Area.JOBS, Level.NOTE, text, way)


def _not_deleted(job: Job, now: datetime, limit: timedelta) -> Finding | None:
    """Return a finding for a completed Job that the terminator should have deleted."""
    ended = job.status.completion_time
    if job.spec.is_continuous or ended is None:
        return None
    if job.status.rollback is not None:
        ended = max(ended, job.status.rollback.completion_time or ended)
    due = ended + timedelta(seconds=job.spec.ttl_seconds_after_finished or 0)
    if now - due <= limit:
        return None
    text = f"{_head(job)} is complete, and should have been deleted {_since(due, now)} ago"
    way = "The terminator does that: see the programs above, and its log."
    return _stuck(text, way)


def _is_long(since: datetime | None, now: datetime, limit: timedelta) -> bool:
    return since is not None and now - since > limit


def _since(moment: datetime | None, now: datetime) -> str:
    return duration((now - moment).total_seconds()) if moment else "some time"


def _head(job: Job) -> str:
    return f"{job.namespace}/{job.name}"


def _where(job: Job) -> str:
    return at_job(job.name, job.namespace)


def _stuck(text: str, way: str) -> Finding:
    return Finding(Area.JOBS, Level.PROBLEM, text, way)
