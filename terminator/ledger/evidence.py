"""The evidence that a log or a pod's status gives about a node, and how it joins older evidence.

Pure.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeGuard

from daemonset_job.api.choices import RuleAction
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.numbered import number_of
from daemonset_job.api.pod import Pod
from daemonset_job.api.result_limits import bounded_results, stored_bytes
from daemonset_job.api.task_progress import TaskProgress
from daemonset_job.api.times import format_time
from terminator.logs.findings import Findings
from terminator.logs.report_limits import is_cut_from, readable_lines


def is_recorded(entry: Evidence | None, new: Evidence) -> bool:
    """Return whether `entry` already contains `new`, so that nothing has to be written.

    A node's first completion is final. Another completion (a token printed twice, another attempt,
    the log of the next pod) or a later failure is ignored; new results of the first are not.
    """
    if entry is None or entry.node_uid != new.node_uid or _is_of_later_try(entry, new):
        return False
    return combine_evidence(entry, new) == entry


def _is_of_later_try(entry: Evidence, new: Evidence) -> bool:
    """Return whether the node is due again since `entry`, and `new` is about its next try."""
    if entry.revision != new.revision:
        return number_of(entry.revision) < number_of(new.revision)
    return entry.pod_uid != new.pod_uid and entry.pod_uid in new.replaces


def is_of_earlier_try(entry: Evidence, revision: str, earlier_pods: Collection[str]) -> bool:
    """Return whether an entry no longer counts, for a Job of policy Continuous.

    `earlier_pods` are those of the controller's record, which is written before the next pod of the
    node may start.
    """
    return bool(revision) and (entry.revision != revision or entry.pod_uid in earlier_pods)


def _is_same_completion(entry: Evidence, new: Evidence) -> bool:
    """Return whether both are evidence of the same completion."""
    return (entry.pod_uid, entry.completed_at) == (new.pod_uid, new.completed_at)


def combine_evidence(entry: Evidence | None, new: Evidence) -> Evidence:
    """Return the evidence to write if `entry` is recorded and `new` was found."""
    if entry is None or entry.node_uid != new.node_uid:
        return new
    combined = entry if new.is_only_progress else _combine(entry, new)
    progress = new.progress or entry.progress
    if combined.last_lines and not entry.last_lines:
        # Both are for a limited number of nodes, which only new progress is counted against.
        progress = new.progress
    if progress == combined.progress and not _is_over(combined, progress):
        return combined
    return replace(combined, progress=None if _is_over(combined, progress) else progress)


def _is_over(entry: Evidence, progress: TaskProgress | None) -> bool:
    """Return whether the attempt with this progress has ended, or its node needs no other."""
    if progress is None:
        return False
    if progress.pod_uid != entry.pod_uid:
        # Only a Job of policy Continuous runs the task again after a completion.
        return entry.is_completed and not entry.revision
    return entry.is_completed or bool(entry.failed_at) or progress.attempt <= entry.attempt


def _combine(entry: Evidence, new: Evidence) -> Evidence:
    """Return both together, with the progress of either."""
    if _is_of_later_try(entry, new):
        return new
    if entry.is_completed or entry.revision != new.revision:
        if not _is_same_completion(entry, new):
            return entry
        return _with_late_results(entry, new)
    return new if entry.pod_uid != new.pod_uid else _combine_of_pod(entry, new)


def with_results(evidence: Evidence, results: Mapping[str, str | None]) -> Evidence:
    """Return the evidence with the results that fit, and the names of the others."""
    kept, omitted = bounded_results(results)
    return replace(evidence, results=kept, omitted_results=omitted)


def with_fewer_results(evidence: Evidence, room: int) -> Evidence:
    """Return the evidence with results that take `room` bytes of a report at most.

    They are kept in order of their names. Those that do not fit are named, as far as there is room.
    """
    kept: dict[str, str | None] = {}
    for name in sorted({*evidence.omitted_results, *evidence.results}):
        size = stored_bytes({}, (name,))
        if size <= room:
            kept[name] = None
            room -= size
    for name in kept:
        value = evidence.results.get(name)
        if value is not None and json_bytes(value) <= room:
            kept[name] = value
            room -= json_bytes(value)
    return with_results(evidence, kept)


def _with_late_results(entry: Evidence, new: Evidence) -> Evidence:
    """Return a completion with results that were found after it was recorded."""
    if new.results.items() <= entry.results.items() and not new.omitted_results:
        return entry
    missing = dict.fromkeys((*entry.omitted_results, *new.omitted_results))
    return with_results(entry, {**missing, **entry.results, **new.results})


def _combine_of_pod(entry: Evidence, new: Evidence) -> Evidence:
    """Return the evidence to write of a pod that has not completed in `entry`."""
    if new.is_completed:
        # It stays known how many attempts ended before the one that printed the token.
        return replace(new, attempt=max(entry.attempt, new.attempt))
    is_same_attempt = (entry.attempt, entry.failed_at) == (new.attempt, new.failed_at)
    if is_same_attempt and is_cut_from(entry.last_lines, new.last_lines):
        # A report that has the lines of enough nodes keeps the last one of this node, or a part.
        new = replace(new, last_lines=entry.last_lines)
    if new.failed_at:
        return new
    # Two failed attempts: the newer one is kept, and lines if either has some.
    if entry.failed_at or entry.attempt > new.attempt:
        return replace(entry, last_lines=entry.last_lines or new.last_lines)
    return replace(new, last_lines=new.last_lines or entry.last_lines)


def log_evidence(
    pod: Pod, node_uid: str, found: Findings, failure_log_lines: int
) -> Evidence | None:
    """Return the evidence that a pod's log gives about its node, None if there is none.

    If the log has no completion token, its last lines are kept, and the number of the attempt, with
    or without lines.
    """
    about = Evidence(node_uid, pod=pod.name, pod_uid=pod.uid, revision=pod.revision)
    if found.completed_at:
        return with_results(replace(about, completed_at=found.completed_at), found.all_results)
    lines = readable_lines(found.last_lines, failure_log_lines)
    attempt = found.attempt if not found.failed_at else 0
    if not found.failed_at and not lines and not attempt:
        return None
    return replace(about, failed_at=found.failed_at, last_lines=lines, attempt=attempt)


def has_succeeded(pod: Pod) -> bool:
    """Return whether the task in the pod has ended with exit code 0 of its own accord.

    A task may also exit with code 0 in answer to TERM: if its pod is being deleted, evicted,
    preempted or shut down with its node. So it may if a restarted kubelet does not admit the pod.
    In such a pod, the start of the pause container is the proof. Kubelets start it only after the
    task has succeeded, and never in a pod that is to end. The times in the pod are of two clocks,
    and prove nothing. That the kubelet ends the pod, its sandbox may show before anything else.
    """
    container = pod.container
    if container is None or container.state != "terminated" or container.exit_code != 0:
        return False
    is_to_end = pod.is_terminating or pod.is_ended_by_cluster
    return pod.hold_started or not (is_to_end or pod.sandbox_ended)


def is_beyond_limit(spec: JobSpec, pod: Pod, evidence: Evidence) -> bool:
    """Return whether this attempt started although `backoffLimit` allows no further one.

    If a rule ignores failures, it is not known how many count. Evidence without a number has lines
    that are at most as old as what the pod's status shows.
    """
    if any(rule.action == RuleAction.IGNORE for rule in spec.failure_policy.rules):
        return False
    restarts = pod.container.restart_count if pod.container is not None else 0
    return (evidence.attempt or restarts + 1) > spec.backoff_limit + 1


def is_failure(record: NodeRecord, node_uid: str, job: Job) -> bool:
    """Return whether the controller recorded this node as failed since the newest retry."""
    if record.uid != node_uid or record.revision != job.revision:
        return False
    return record.has_failed(job.retry_request)


def is_failure_of_pod(entry: Evidence | None, pod: Pod) -> TypeGuard[Evidence]:
    """Return whether an entry says that the task in this pod has printed the failure token."""
    return entry is not None and bool(entry.failed_at) and entry.pod_uid == pod.uid


def exit_evidence(pod: Pod, node_uid: str) -> Evidence:
    """Return the evidence of a task that ended with exit code 0, for a Job of mode Exit."""
    container = pod.container
    moment = container and (container.finished_at or container.started_at)
    # Kubelets always set a time. Without one the node is completed too, at the epoch.
    completed_at = format_time(moment or datetime.fromtimestamp(0, UTC))
    return Evidence(
        node_uid,
        completed_at=completed_at,
        pod=pod.name,
        pod_uid=pod.uid,
        revision=pod.revision,
    )


def is_of_latest_exit(entry: Evidence, pod: Pod) -> bool:
    """Return whether evidence of mode Exit is of the end of the task that the pod's status shows.

    After a reboot the kubelet runs the task of a completed node again, in the same pod. Its output
    is that of another attempt, and the results of the first one are kept.
    """
    ended = exit_evidence(pod, entry.node_uid)
    return (entry.pod_uid, entry.completed_at) == (ended.pod_uid, ended.completed_at)
