"""Assigns evidence to the shards of a run's report, and builds the patches.

Pure. A node keeps the shard that it is recorded in; otherwise it goes to the lowest shard with
room. Evidence is written whole, with null for every former field that it lacks: a merge patch would
keep the fields of an older node of the same name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import NODES_PER_SHARD, JobReport, metadata_without_managed_fields
from daemonset_job.api.times import format_time
from terminator.logs.tail_read import Findings, bounded_results, readable_lines

Entries = dict[str, Evidence]


def is_recorded(entry: Evidence | None, new: Evidence) -> bool:
    """Return whether `entry` already contains `new`, so that nothing has to be written.

    A node's first completion is final. Another completion (a token printed twice, another attempt,
    the log of the next pod) or a later failure is ignored; new results of the first are not.
    """
    if entry is None or entry.node_uid != new.node_uid:
        return False
    if not entry.is_completed:
        return combine_evidence(entry, new) == entry
    return not _is_same_completion(entry, new) or new.results.items() <= entry.results.items()


def _is_same_completion(entry: Evidence, new: Evidence) -> bool:
    """Return whether both are evidence of the same completion."""
    return (entry.pod_uid, entry.completed_at) == (new.pod_uid, new.completed_at)


def combine_evidence(entry: Evidence | None, new: Evidence) -> Evidence:
    """Return the evidence to write if `entry` is recorded and `new` was found."""
    if entry is None or entry.node_uid != new.node_uid:
        return new
    if entry.is_completed:
        if not _is_same_completion(entry, new):
            return entry
        return replace(entry, results={**entry.results, **new.results})
    if new.is_completed or new.failed_at or entry.pod_uid != new.pod_uid:
        return new
    # Two failed attempts of one pod: the newer one is kept, and lines if either has some.
    if entry.failed_at or entry.attempt > new.attempt:
        return replace(entry, last_lines=entry.last_lines or new.last_lines)
    return replace(new, last_lines=new.last_lines or entry.last_lines)


def log_evidence(
    pod: Pod, node_uid: str, found: Findings, failure_log_lines: int, *, with_attempt: bool
) -> Evidence | None:
    """Return the evidence that a pod's log gives about its node, None if there is none.

    If the log has no completion token, its last lines are kept, and `with_attempt` also the number
    of the attempt, with or without lines.
    """
    about = Evidence(node_uid, pod=pod.name, pod_uid=pod.uid)
    if found.completed_at:
        return replace(
            about, completed_at=found.completed_at, results=bounded_results(found.results)
        )
    lines = readable_lines(found.last_lines, failure_log_lines)
    attempt = found.attempt if with_attempt and not found.failed_at else 0
    if not found.failed_at and not lines and not attempt:
        return None
    return replace(about, failed_at=found.failed_at, last_lines=lines, attempt=attempt)


def has_succeeded(pod: Pod) -> bool:
    """Return whether the task in the pod has ended with exit code 0 of its own accord.

    A task may also exit with code 0 in answer to TERM, if its pod is being deleted, evicted,
    preempted or shut down with its node. In such a pod, the start of the pause container is the
    proof: kubelets start it only after the task has succeeded, and never in a pod that is to end.
    The times in the pod are of two clocks, and prove nothing.
    """
    container = pod.container
    if container is None or container.state != "terminated" or container.exit_code != 0:
        return False
    return pod.hold_started or not (pod.is_terminating or pod.is_disrupted)


def is_failure(record: NodeRecord, node_uid: str, retry_request: str) -> bool:
    """Return whether the controller recorded this node as failed since the newest retry."""
    return record.uid == node_uid and record.has_failed(retry_request)


def exit_evidence(pod: Pod, node_uid: str) -> Evidence:
    """Return the evidence of a task that ended with exit code 0, for a Job of mode Exit."""
    container = pod.container
    moment = container and (container.finished_at or container.started_at)
    # Kubelets always set a time. Without one the node is completed too, at the epoch.
    completed_at = format_time(moment or datetime.fromtimestamp(0, UTC))
    return Evidence(node_uid, completed_at=completed_at, pod=pod.name, pod_uid=pod.uid)


def is_of_latest_exit(entry: Evidence, pod: Pod) -> bool:
    """Return whether evidence of mode Exit is of the end of the task that the pod's status shows.

    After a reboot the kubelet runs the task of a completed node again, in the same pod. Its output
    is that of another attempt, and the results of the first one are kept.
    """
    ended = exit_evidence(pod, entry.node_uid)
    return (entry.pod_uid, entry.completed_at) == (ended.pod_uid, ended.completed_at)


def assign_to_shards(
    pending: Mapping[str, Evidence],
    shards: Iterable[JobReport],
    limit: int = NODES_PER_SHARD,
    *,
    unconfirmed: Mapping[str, str] | None = None,
    full: Collection[str] = (),
) -> dict[str, Entries]:
    """Return the new evidence in `pending`, by name of the report that it goes to.

    A node stays in the shard that has its evidence, or that a patch without an answer was sent to
    (`unconfirmed`, report by node). Other nodes go to the shard of their record if it has room,
    else to the first shard with room. Evidence without a shard stays pending until the controller
    creates one. Reports in `full` have no room, however few nodes they have.
    """
    ordered = sorted(shards, key=lambda report: report.shard)
    by_name = {report.name: report for report in ordered}
    home = {node: by_name[name] for node, name in (unconfirmed or {}).items() if name in by_name}
    home |= {node: report for report in reversed(ordered) for node in report.evidence}
    on_record = {
        node: report for report in reversed(ordered) for node in report.records if node in pending
    }
    room = {
        report.name: limit
        - len(report.evidence.keys() | {n for n, r in home.items() if r is report})
        for report in ordered
    }
    room |= dict.fromkeys(full, 0)
    result: dict[str, Entries] = {}
    # Nodes with a record go first, so that no other node takes the room in its shard.
    for node in sorted(pending, key=lambda node: (node not in on_record, node)):
        entry, report = pending[node], home.get(node)
        if report is None:
            report = on_record.get(node)
            if report is None or room[report.name] <= 0:
                report = next((r for r in ordered if room[r.name] > 0), None)
            if report is None:
                continue
            room[report.name] -= 1
        elif is_recorded(report.evidence.get(node), entry):
            continue
        result.setdefault(report.name, {})[node] = entry
    return result


def build_patch(report: JobReport, entries: Mapping[str, Evidence]) -> dict[str, Any]:
    """Return the merge patch that records `entries`; the report's UID is its precondition."""
    return {
        "metadata": metadata_without_managed_fields(report.uid),
        "evidence": {
            node: _raw_entry(report.evidence.get(node), entry) for node, entry in entries.items()
        },
    }


def _raw_entry(old: Evidence | None, new: Evidence) -> dict[str, Any]:
    raw = combine_evidence(old, new).to_raw()
    before = old.to_raw() if old is not None else {}
    if "results" in raw and "results" in before:
        # The map of results is merged too: names to be removed need their own null.
        raw["results"] = {**dict.fromkeys(before["results"]), **raw["results"]}
    return {**dict.fromkeys(before), **raw}
