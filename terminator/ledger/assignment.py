"""What to write into the ledger: which report gets which node, and the patch that says it.

Pure. A node keeps the report (shard) that it stands in; otherwise it goes to the lowest one with
room. An entry is written whole, with null for every field that stood there and no longer does: a
merge patch would keep those of a former node of the same name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from daemonset_job.api.objects import Pod
from daemonset_job.api.report import (
    Evidence,
    JobReport,
    NodeRecord,
    metadata_without_managed_fields,
)
from daemonset_job.api.times import format_time
from terminator.logs.tail_read import Findings, bounded_results, readable_lines

# Nodes per report: 5,000 nodes with results stay well below etcd's 1.5 MiB per object.
SHARD_NODES = 1000

Entries = dict[str, Evidence]


def is_recorded(entry: Evidence | None, new: Evidence) -> bool:
    """Return whether `entry` already says what `new` does, so that nothing is to be written.

    The first completion of a node stays: that a later read found another one (a token printed
    twice, another start, the log of a successor), or a failure, is not news. A result of the first
    one is.
    """
    if entry is None or entry.node_uid != new.node_uid:
        return False
    if not entry.is_completed:
        return combine_evidence(entry, new) == entry
    return not _is_same_completion(entry, new) or new.results.items() <= entry.results.items()


def _is_same_completion(entry: Evidence, new: Evidence) -> bool:
    """Return whether both speak of the same completion."""
    return (entry.pod_uid, entry.completed_at) == (new.pod_uid, new.completed_at)


def combine_evidence(entry: Evidence | None, new: Evidence) -> Evidence:
    """Return what to write where `entry` stands and `new` was found: nothing true gets lost."""
    if entry is None or entry.node_uid != new.node_uid:
        return new
    if entry.is_completed:
        if not _is_same_completion(entry, new):
            return entry
        return replace(entry, results={**entry.results, **new.results})
    if new.is_completed or new.failed_at or entry.pod_uid != new.pod_uid:
        return new
    # Two ends of one pod's task without a token: the newer one, and lines if there are any.
    if entry.failed_at or entry.attempt > new.attempt:
        return replace(entry, last_lines=entry.last_lines or new.last_lines)
    return replace(new, last_lines=new.last_lines or entry.last_lines)


def log_evidence(
    pod: Pod, node_uid: str, found: Findings, failure_log_lines: int, *, with_attempt: bool
) -> Evidence | None:
    """Return what a pod's log proves about its node, None if nothing worth an entry.

    The last lines are kept of a log that did not end with the token, and `with_attempt` the number
    of the start that it is of, with or without lines.
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

    A task that is stopped may exit with code 0 as well, in answer to TERM: in a pod that is being
    deleted, evicted, preempted or shut down with its node. There, the start of the container that
    holds the pod is the proof: kubelets start it only after the task has succeeded, and never in a
    pod that is to end. The times of the pod are of two clocks, and prove nothing.
    """
    container = pod.container
    if container is None or container.state != "terminated" or container.exit_code != 0:
        return False
    return pod.hold_started or not (pod.is_terminating or pod.is_disrupted)


def is_failure(record: NodeRecord, node_uid: str, retry_request: str) -> bool:
    """Return whether the controller has this node on record as failed, for the retry of now."""
    return record.uid == node_uid and record.has_failed(retry_request)


def exit_evidence(pod: Pod, node_uid: str) -> Evidence:
    """Return the evidence of a task that ended with exit code 0, for a Job of mode Exit."""
    container = pod.container
    moment = container and (container.finished_at or container.started_at)
    # A kubelet always says when; the epoch is a time too, and completed is completed.
    completed_at = format_time(moment or datetime.fromtimestamp(0, UTC))
    return Evidence(node_uid, completed_at=completed_at, pod=pod.name, pod_uid=pod.uid)


def is_of_latest_exit(entry: Evidence, pod: Pod) -> bool:
    """Return whether an entry of mode Exit is of the end of the task that the pod's status tells.

    After a reboot the kubelet runs the task of a completed node again, in the same pod. What it
    prints then is of another start, and the results of the first one stay.
    """
    ended = exit_evidence(pod, entry.node_uid)
    return (entry.pod_uid, entry.completed_at) == (ended.pod_uid, ended.completed_at)


def assign_to_shards(
    pending: Mapping[str, Evidence],
    shards: Iterable[JobReport],
    limit: int = SHARD_NODES,
    *,
    unconfirmed: Mapping[str, str] | None = None,
    full: Collection[str] = (),
) -> dict[str, Entries]:
    """Return what is new of `pending`, by name of the report that it goes to.

    A node stays in the shard that has its evidence, or that it was sent to before and may have
    reached (`unconfirmed`, report by node). Others go to the shard that has their record, if it has room,
    else to the first with room. What finds none stays pending until the controller makes one.
    Reports that are `full` have no room, however few nodes they have.
    """
    ordered = sorted(shards, key=lambda report: report.shard)
    by_name = {report.name: report for report in ordered}
    home = {node: by_name[name] for node, name in (unconfirmed or {}).items() if name in by_name}
    home |= {node: report for report in reversed(ordered) for node in report.evidence}
    on_record = {
        node: report
        for report in reversed(ordered)
        for node in report.status.get("nodeStates") or ()
        if node in pending
    }
    room = {
        report.name: limit
        - len(report.evidence.keys() | {n for n, r in home.items() if r is report})
        for report in ordered
    }
    room |= dict.fromkeys(full, 0)
    result: dict[str, Entries] = {}
    # Who has a place by its record goes first, so that no one else takes it.
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
    """Return the merge patch that enters `entries`; the report's UID is its precondition."""
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
        # A map inside the entry is merged too: names that are gone need their own null.
        raw["results"] = {**dict.fromkeys(before["results"]), **raw["results"]}
    return {**dict.fromkeys(before), **raw}
