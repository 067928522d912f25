"""What keeps a run from making progress, worded for the person who has to correct it."""

from __future__ import annotations

from collections import defaultdict
from typing import assert_never

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason, ProgressingReason
from daemonset_job.api.states import NodeState
from job_controller.core.desired.daemon_set import is_of_earlier_spec
from job_controller.core.desired.limits import (
    SPEC_LIMIT_BYTES,
    TERMS_LIMIT_BYTES,
    measure_terms,
    spec_bytes,
)
from job_controller.core.desired.template_conflict import find_template_conflict
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.placement_blockers import (
    find_overlooked_blocker,
    find_placement_blocker,
)
from job_controller.core.state.run_state import find_excess_failures
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.state.validate import find_token_error
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# Reasons in a node's record that a person has to act on, the most important first. Each maps to the
# condition's reason and to the words after "2 of 3 nodes".
_NODE_BLOCKERS = {
    NodeReason.DRAIN_BLOCKED: (
        ProgressingReason.DRAIN_BLOCKED,
        "{nodes} cannot be drained",
    ),
    NodeReason.NODE_IN_USE: (ProgressingReason.NODE_IN_USE, "{nodes} wait for another Job"),
    NodeReason.IMAGE_PULL_FAILED: (
        ProgressingReason.IMAGE_PULL_FAILED,
        "{nodes} cannot pull the image",
    ),
    NodeReason.CONTAINER_START_FAILED: (
        ProgressingReason.CONTAINER_START_FAILED,
        "{nodes} cannot start the container",
    ),
    NodeReason.POD_REJECTED: (ProgressingReason.POD_REJECTED, "{nodes} reject the pod"),
    NodeReason.TASK_NOT_STARTED: (
        ProgressingReason.TASK_NOT_STARTED,
        "{nodes} have not started the task",
    ),
    NodeReason.NOT_SCHEDULED: (
        ProgressingReason.NOT_SCHEDULED,
        "{nodes} have a pod that no scheduler has looked at",
    ),
    NodeReason.FOREIGN_SCHEDULING_GATE: (
        ProgressingReason.FOREIGN_SCHEDULING_GATE,
        "{nodes} have pods with scheduling gates of another system",
    ),
    NodeReason.UNSCHEDULABLE: (ProgressingReason.UNSCHEDULABLE, "{nodes} have no room for the pod"),
    NodeReason.NODE_NOT_READY: (ProgressingReason.NODES_UNREACHABLE, "{nodes} are unreachable"),
    NodeReason.NODE_TAINTED: (
        ProgressingReason.NODES_UNREACHABLE,
        "{nodes} have a taint that keeps the pod off",
    ),
    NodeReason.RESTARTING: (
        ProgressingReason.TASK_FAILING,
        "the task is failing on {nodes}",
    ),
}

# RBAC's own words, without those of an admission policy (apiserver, responsewriters.Forbidden).
_NO_RIGHT = ('cannot patch resource "nodes"', 'cannot create resource "pods/eviction"')
_HOW_TO_ALLOW = (
    "; an administrator allows it by kubectl apply --server-side -k deploy/components/{}"
)


def find_blocker(snapshot: Snapshot, counts: NodeCounts) -> Blocker | None:
    """Return the first blocker of the run, None without one.

    The order follows cause and effect: without a DaemonSet there are no pods, and without pods no
    containers.
    """
    return (
        _token_blocker(snapshot)
        or _changed_template_blocker(snapshot.job)
        or _daemon_set_blocker(snapshot)
        or _write_blocker(snapshot)
        or _altered_blocker(snapshot, counts)
        or find_placement_blocker(snapshot, counts)
        or _node_blocker(counts)
        or _failures_blocker(snapshot.job, counts)
        or find_overlooked_blocker(snapshot, counts)
    )


def find_start_blocker(snapshot: Snapshot) -> Blocker | None:
    """Return why a Job cannot start as it is, None when it can.

    What a Job runs can be changed until it starts.
    """
    size = spec_bytes(snapshot.job)
    if size > SPEC_LIMIT_BYTES:
        return Blocker(
            ProgressingReason.SPEC_TOO_LARGE,
            f"spec without spec.nodes has {_kib(size)} as JSON, the limit is "
            f"{_kib(SPEC_LIMIT_BYTES)}: move long values to a ConfigMap or into the image",
        )
    return (
        _token_blocker(snapshot)
        or _template_blocker(snapshot.job)
        or _daemon_set_blocker(snapshot)
        or _node_change_blocker(snapshot)
        or _cordon_blocker(snapshot)
    )


def _token_blocker(snapshot: Snapshot) -> Blocker | None:
    error = find_token_error(snapshot)
    return Blocker(ProgressingReason.INVALID_COMPLETION_TOKEN, error) if error else None


def _template_blocker(job: Job) -> Blocker | None:
    conflict = find_template_conflict(job.spec)
    return Blocker(ProgressingReason.TEMPLATE_CONFLICT, conflict) if conflict else None


def _changed_template_blocker(job: Job) -> Blocker | None:
    """Return a conflict that a run can have got after its start: what it runs may change."""
    return _template_blocker(job) if job.spec.is_continuous else None


def _terms_blocker(job: Job) -> Blocker | None:
    count, size = measure_terms(job)
    if size <= TERMS_LIMIT_BYTES:
        return None
    return Blocker(
        ProgressingReason.TOO_MANY_NODE_SELECTOR_TERMS,
        f"spec.nodes and the node affinity of spec.template make {count} nodeSelectorTerms of "
        f"{_kib(size)}, the limit is {_kib(TERMS_LIMIT_BYTES)}: name fewer nodes, or select them "
        "by label with spec.nodes.selector",
    )


def _kib(size: int) -> str:
    return f"{-(-size // 1024)} KiB"


def _daemon_set_blocker(snapshot: Snapshot) -> Blocker | None:
    found = snapshot.daemon_set
    if found is not None and found.owner_uid != snapshot.job.uid:
        return _foreign_blocker(found)
    if excess := _terms_blocker(snapshot.job):
        return excess
    if refusal := snapshot.refusals.get(RefusedWrite.DAEMON_SET):
        return Blocker(
            ProgressingReason.DAEMON_SET_REFUSED,
            f"the API server refuses the DaemonSet: {single_line(refusal, REFUSAL_LIMIT)}",
        )
    return None


def _write_blocker(snapshot: Snapshot) -> Blocker | None:
    """Return which other writes the API server refuses (quota, admission policy, size)."""
    if refusal := snapshot.refusals.get(RefusedWrite.REPORT):
        return Blocker(
            ProgressingReason.REPORT_REFUSED,
            f"the API server refuses the JobReport: {single_line(refusal, REFUSAL_LIMIT)}",
        )
    words = _refused_pod_changes(snapshot)
    if words:
        return Blocker(ProgressingReason.POD_CHANGE_REFUSED, words)
    return _node_change_blocker(snapshot) or _cordon_blocker(snapshot)


def _node_change_blocker(snapshot: Snapshot) -> Blocker | None:
    """Return that the API server refuses to change nodes; without a right, how to get it."""
    refusal = snapshot.refusals.get(RefusedWrite.NODE_CHANGE)
    if refusal is None:
        return None
    words = f"the API server refuses to change nodes (spec.onSuccess, results): {refusal}"
    return Blocker(
        ProgressingReason.NODE_CHANGE_REFUSED, _with_hint(words, refusal, "node-changes")
    )


def _cordon_blocker(snapshot: Snapshot) -> Blocker | None:
    """Return that the API server refuses a cordon; without a right, how to get it."""
    refusal = snapshot.refusals.get(RefusedWrite.CORDON)
    if refusal is None:
        return None
    words = f"the API server refuses to cordon or drain nodes (spec.cordon, spec.drain): {refusal}"
    return Blocker(ProgressingReason.CORDON_REFUSED, _with_hint(words, refusal, "drain"))


def _with_hint(words: str, refusal: str, component: str) -> str:
    """Return the words, with the component that grants the right if that is what lacks."""
    is_about_rights = any(no_right in refusal for no_right in _NO_RIGHT)
    hint = _HOW_TO_ALLOW.format(component) if is_about_rights else ""
    return single_line(words, REFUSAL_LIMIT - len(hint)) + hint


def _refused_pod_changes(snapshot: Snapshot) -> str:
    """Return which changes of pods the API server refuses and why, "" for none.

    The two kinds of change are independent, so both are reported.
    """
    refused = {
        change: snapshot.refusals[write]
        for write in RefusedWrite  # always in the same order
        if write in snapshot.refusals and (change := _pod_change(write))
    }
    return "; ".join(
        f"the API server refuses {change}: {single_line(refusal, REFUSAL_LIMIT // len(refused))}"
        for change, refusal in refused.items()
    )


def _pod_change(write: RefusedWrite) -> str:
    """Return the words for a change of pods, "" for a write that has a reason of its own."""
    match write:
        case RefusedWrite.GATE_REMOVAL:
            return "the removal of scheduling gates"
        case RefusedWrite.DELETION:
            return "the deletion of pods"
        case RefusedWrite.DAEMON_SET | RefusedWrite.REPORT:
            return ""
        case RefusedWrite.NODE_CHANGE | RefusedWrite.CORDON:
            return ""
        case RefusedWrite.OWNED_JOB | RefusedWrite.OWNED_JOB_NAME:
            return ""
        case _ as unreachable:
            assert_never(unreachable)


def _altered_blocker(snapshot: Snapshot, counts: NodeCounts) -> Blocker | None:
    if not counts.is_altered or _awaits_apply(snapshot):
        return None
    name = snapshot.job.daemon_set_name
    return Blocker(
        ProgressingReason.DAEMON_SET_ALTERED,
        f"another client changed the affinity, nodeSelector or tolerations of DaemonSet {name}; "
        "the controller is reverting that: if it keeps coming back, find and stop that client",
    )


def _awaits_apply(snapshot: Snapshot) -> bool:
    """Return whether the DaemonSet differs because the Job was changed, as far as is known."""
    found = snapshot.owned_daemon_set
    if found is None or found.alteration:
        return False
    return is_of_earlier_spec(found, snapshot.job, snapshot.settings)


def _foreign_blocker(found: DaemonSet) -> Blocker:
    if found.owner_uid:
        return Blocker(
            ProgressingReason.PREVIOUS_RUN_ENDING,
            f"DaemonSet {found.name} of an earlier Job of this name is still being deleted",
        )
    return Blocker(
        ProgressingReason.DAEMON_SET_ALREADY_EXISTS,
        f"a DaemonSet {found.name} exists that is not this Job's: delete it, or create "
        "the Job under another name",
    )


def find_unexplained_pod(counts: NodeCounts) -> str:
    """Return the UID of the pod on the first node, by name, whose task does not start, "" if none.

    The status quotes what is known of that node.
    """
    names = [
        name
        for name, node in counts.nodes.items()
        if node.record.reason == NodeReason.TASK_NOT_STARTED and not node.replace_pod
    ]
    return counts.nodes[min(names)].pod.uid if names else ""


def _failures_blocker(job: Job, counts: NodeCounts) -> Blocker | None:
    """Return that nodes have failed in a run of policy Continuous, which no failure ends."""
    allowed = find_excess_failures(job, counts)
    if allowed is None:
        return None
    failed = counts.names(NodeState.FAILED)
    message = counts.record(failed[0]).message
    return Blocker(
        ProgressingReason.NODES_FAILED,
        f"{len(failed)} of {counts.desired} nodes failed ({fold(failed, limit=200)}): {message}; "
        f"retry them, or change what the Job runs (maxFailedNodes allows {allowed})",
    )


def _reason_of(record: NodeRecord) -> str:
    """Return why a node makes no progress. While it is away, nothing else it waits for matters."""
    is_away = record.state == NodeState.UNREACHABLE and record.reason != NodeReason.NODE_TAINTED
    return NodeReason.NODE_NOT_READY if is_away else record.reason


def _node_blocker(counts: NodeCounts) -> Blocker | None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    open_ = {name: node.record for name, node in counts.nodes.items() if not node.replace_pod}
    for name, record in (*open_.items(), *counts.absent.items()):
        if record.state in {NodeState.WAITING, NodeState.ACTIVE, NodeState.UNREACHABLE}:
            by_reason[_reason_of(record)].append(name)
    for reason, (condition, words) in _NODE_BLOCKERS.items():
        if nodes := by_reason.get(reason):
            message = counts.record(min(nodes)).message
            count = f"{len(nodes)} of {counts.desired} nodes"
            return Blocker(
                condition, f"{words.format(nodes=count)} ({fold(nodes, limit=200)}): {message}"
            )
    return None
