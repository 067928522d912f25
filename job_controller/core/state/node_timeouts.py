"""Failures of a node by time: its deadline, and a task that does not start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import add_seconds
from job_controller.core.state.causes import PERMANENT_REASONS
from job_controller.core.state.first_seen import (
    REJECTED,
    UNEXPLAINED,
    UNSEEN,
    Fact,
    are_limits_new,
    not_starting,
    pods_rejected,
)
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_exits import READ_LIMIT, decidable_at, failed_record
from job_controller.core.state.node_pods import current_pods
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records

# The time after which a pod on its node without a started task and without a known cause is
# reported. A node that pulls an image looks the same, so such a node fails late: after
# UNEXPLAINED_FACTOR times the start timeout.
UNEXPLAINED_REPORT_AFTER: Final = timedelta(seconds=45)
UNEXPLAINED_FACTOR: Final = 3

# The reasons for which no object says why, by the kind of fact.
SILENT_REASONS: Final[Mapping[str, NodeReason]] = {
    UNEXPLAINED: NodeReason.TASK_NOT_STARTED,
    UNSEEN: NodeReason.NOT_SCHEDULED,
}
# Reasons of waiting nodes that become failures with time, and the reason of the failure.
_START_FAILURES: Final[Mapping[str, NodeReason]] = {
    NodeReason.IMAGE_PULL_FAILED: NodeReason.IMAGE_PULL_FAILED,
    NodeReason.CONTAINER_START_FAILED: NodeReason.CONTAINER_START_FAILED,
    NodeReason.POD_REJECTED: NodeReason.POD_REJECTED,
    NodeReason.TASK_NOT_STARTED: NodeReason.CONTAINER_START_FAILED,
    NodeReason.NOT_SCHEDULED: NodeReason.UNSCHEDULABLE,
    NodeReason.UNSCHEDULABLE: NodeReason.UNSCHEDULABLE,
}


def timeout_failure(
    context: RunContext, record: NodeRecord, inputs: NodeInputs
) -> tuple[NodeRecord | None, datetime | None]:
    """Return a failure by time: the node's deadline or a start timeout."""
    limits: list[tuple[datetime, str, str]] = []
    seconds, pod = context.spec.node_deadline_seconds, inputs.pod
    began = record.active_since
    if seconds is not None and began is not None and not pod.is_gated:
        limits.append(
            (
                add_seconds(began, seconds),
                NodeReason.DEADLINE_EXCEEDED,
                f"not completed within nodeDeadlineSeconds ({seconds} s)"
                + _what_it_waits_for(record),
            )
        )
    if (fact := find_start_fact(context, inputs)) is not None:
        limits.append(_start_deadline(context, record, inputs, fact))
    elif pod.is_gated and (
        before := context.seen.get(pods_rejected(inputs.node, context.retry, pod.revision))
    ):
        limits.append((before.forgotten_at or context.now, "", ""))
    for moment, reason, message in sorted(limits):
        if reason and moment <= context.now:
            return failed_record(record, reason, message, at=context.now), None
    return None, min((moment for moment, _, _ in limits if moment > context.now), default=None)


def _what_it_waits_for(record: NodeRecord) -> str:
    """Return what kept the task from starting, in the kubelet's words, "" for nothing known."""
    is_known = record.reason in _START_FAILURES and record.message
    return f": {record.message}" if is_known else ""


def _start_deadline(
    context: RunContext, record: NodeRecord, inputs: NodeInputs, fact: Fact
) -> tuple[datetime, str, str]:
    """Return when a task that does not start fails its node, with reason and message.

    The reason is "" if only the time of the next report is known.
    """
    silent = SILENT_REASONS.get(fact.kind)
    if record.reason not in _START_FAILURES or silent not in {None, record.reason}:
        return report_at(context, fact), "", ""
    waiting = inputs.pod.container.reason if inputs.pod.container is not None else ""
    factor = UNEXPLAINED_FACTOR if silent else waiting not in PERMANENT_REASONS
    limit = context.first_seen(fact) + timedelta(seconds=context.timeouts.start_seconds * factor)
    # A task that printed the token before its newest end has completed.
    limit = max(limit, decidable_at(context, record, inputs))
    return limit, _START_FAILURES[record.reason], record.message


def find_start_fact(context: RunContext, inputs: NodeInputs) -> Fact | None:
    """Return the fact that keeps the task from starting, if the start timeout applies to it."""
    if inputs.blocking_taint is not None:
        return None
    return not_starting(inputs.node, inputs.pod, context.retry, context.seen)


def report_at(context: RunContext, silent: Fact) -> datetime:
    """Return when to report that a task has not started without a known cause."""
    return context.first_seen(silent) + min(
        UNEXPLAINED_REPORT_AFTER, timedelta(seconds=context.timeouts.start_seconds)
    )


def rejection_limit(snapshot: Snapshot) -> timedelta:
    """Return for how long a node rejects its pods before it fails."""
    return timedelta(seconds=snapshot.settings.timeouts.start_seconds)


def find_rejecting(snapshot: Snapshot, nodes: Iterable[Node], now: datetime) -> dict[str, Fact]:
    """Return the facts of those of the nodes, by name, that may fail now as they reject their pods.

    No other start timeout counts from what an earlier pod of the node has met. The machine may be a
    new one with the name of the old, and the cache may not show that yet.
    """
    since, retry = now - rejection_limit(snapshot), snapshot.job.retry_request
    facts = {
        fact.uid: fact
        for fact, sighting in snapshot.seen.items()
        if fact.kind == REJECTED
        and fact.retry == retry
        and sighting.gone_at is None
        and since - READ_LIMIT < sighting.first <= since
    }
    return {node.name: facts[node.uid] for node in nodes if node.uid in facts} if facts else {}


def find_late(snapshot: Snapshot, nodes: Iterable[Node], now: datetime) -> frozenset[str]:
    """Return the names of those of the nodes that may fail now, as their time is over.

    It counts from the first pod. The machine may be a new one with the name of the old, and the
    cache may not show that yet. A node that is done, or has no pod that may run, does not fail.
    """
    seconds = snapshot.job.spec.node_deadline_seconds
    if seconds is None:
        return frozenset()
    since, records = now - timedelta(seconds=seconds), merge_records(snapshot)
    are_new = are_limits_new(snapshot.seen, snapshot.job.spec, now - READ_LIMIT)
    late = {
        node.name: node
        for node in nodes
        if (record := records.get(node.name)) is not None
        and record.uid == node.uid
        and record.state != NodeState.FAILED
        and record.active_since is not None
        and record.active_since <= since
        and (are_new or since - READ_LIMIT < record.active_since)
    }
    if not late:
        return frozenset()
    ledger, pods = merge_evidence(snapshot), current_pods(snapshot)
    return frozenset(
        name
        for name, node in late.items()
        if name in pods
        and not pods[name].is_gated
        and not ((entry := ledger.get(name)) is not None and entry.completes(node.uid))
    )
