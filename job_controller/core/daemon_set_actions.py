"""What to do with the DaemonSet of a Job: create it, change it, delete it, or have pods created."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.states import NodeState
from job_controller.core.desired.comparison import is_up_to_date
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.owned_jobs.rollback_targets import (
    is_end_recorded,
    lacks_counted_pods,
    lacks_starts,
    may_lack_pods,
)
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    CreatePodsAgain,
    DeleteDaemonSet,
    RefusedWrite,
)
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.scheduling_gates import should_gate_new_pods
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.desired_count import has_changed_selection
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import single_line


def daemon_set_actions(
    snapshot: Snapshot,
    counts: NodeCounts,
    run: RunState,
    rollout: RolloutState,
    stays_until: datetime | None,
) -> list[Action]:
    """Return the action for the DaemonSet: create, change or delete it, or none.

    `stays_until`: for how long that of a failed run is kept for the last lines of its tasks, None
    if it is not.
    """
    found, ours = snapshot.daemon_set, snapshot.owned_daemon_set
    is_refused = RefusedWrite.DAEMON_SET in snapshot.refusals
    if run.outcome == RunOutcome.FAILED:
        # The DaemonSet of a failed run is not created again, and no node starts any more: see
        # should_gate_new_pods. Tasks at work continue, unless the user wants them to end.
        if ours is None:
            return []
        # Without the DaemonSet only the Job says that the run has failed, under the newest retry.
        ends_all = snapshot.job.ends_all_tasks and _logs_are_recorded(counts)
        ends_all = ends_all and not _lacks_starts_to_undo(snapshot, counts)
        # The gate comes first: the API server may refuse the deletion. It may refuse the gate, too.
        is_settled = ours.is_gated and not _lacks_pods_to_undo(snapshot, counts)
        if ends_all and stays_until is None and (is_settled or is_refused):
            return [DeleteDaemonSet(ours.uid)]
    is_foreign = found is not None and ours is None
    if is_refused or is_foreign or has_too_many_terms(snapshot.job):
        # Refused, of another owner, or too large: a change of it causes the next reconcile.
        return []
    if RefusedWrite.REPORT in snapshot.refusals and not snapshot.reports:
        # No work without a place to record it.
        return []
    gated = should_gate_new_pods(snapshot, counts, run, rollout)
    desired = build_daemon_set(
        snapshot.job,
        gated=gated,
        settings=snapshot.settings,
        selection_changed=has_changed_selection(snapshot),
    )
    if ours is None:
        was_there = bool(snapshot.job.reported_desired)
        why = "it was deleted during the run" if was_there else "the run starts"
        return [ApplyDaemonSet(desired, why=why)]
    why = _why_changed(ours, snapshot.job, gated=gated)
    change = ApplyDaemonSet(desired, ours.uid, takes_ownership=bool(ours.alteration), why=why)
    return [] if is_up_to_date(ours, desired) else [change]


def _lacks_pods_to_undo(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether a rollback may need pods that only the DaemonSet shows to be there."""
    return snapshot.job.spec.rollback and may_lack_pods(snapshot, counts)


def _lacks_starts_to_undo(snapshot: Snapshot, counts: NodeCounts) -> bool:
    """Return whether only pods may show on which nodes a rollback has something to undo.

    The API server may have refused the report since a task started, or the cache lacks the pods.
    """
    if not snapshot.job.spec.rollback:
        return False
    lacks_pods = not is_end_recorded(snapshot) or lacks_counted_pods(snapshot)
    return lacks_pods or lacks_starts(snapshot, counts)


def _why_changed(ours: DaemonSet, job: Job, *, gated: bool) -> str:
    if ours.alteration:
        return f"another client changed it: {single_line(ours.alteration)}"
    if ours.nodes_hash != job.nodes_hash:
        return "spec.nodes was changed"
    if gated and not ours.is_gated:
        return "from now on new pods wait until they may start"
    return "it is not what the Job asks for"


# Pods are created again after each of the first reads, those of about ten minutes, and then after
# every fourth one.
_OFTEN_READS: Final = 40
_RARELY: Final = 4


def create_again_actions(
    snapshot: Snapshot, counts: NodeCounts, run: RunState, blocker: Blocker | None
) -> list[Action]:
    """Return the action that has the DaemonSet controller create refused pods again, if it is due.

    After a refusal that controller waits for up to 15 minutes (client-go's default rate limiter),
    although a quota may have been raised meanwhile. It acts at once on a change of the DaemonSet.
    Such a change follows each read of the events, and these are made at growing intervals. While
    there are surplus pods, a pod may be missing because the one before it is there still.
    """
    ours, reads = snapshot.owned_daemon_set, snapshot.failed_create_reads
    if (
        counts.surplus_pods
        or ours is None
        or run.outcome == RunOutcome.FAILED
        or blocker is None
        or not reads
    ):
        return []
    if reads > _OFTEN_READS and reads % _RARELY:
        return []
    is_refused = blocker.reason == ProgressingReason.FAILED_CREATE
    if not is_refused or ours.annotations.get(names.ANNOTATION_CREATE_AGAIN) == str(reads):
        return []
    return [CreatePodsAgain(ours.uid, reads)]


def _logs_are_recorded(counts: NodeCounts) -> bool:
    """Return whether the last lines of all failed nodes' pods are recorded."""
    return all(
        node.delete_pod or node.pod.uid != node.record.pod_uid
        for node in counts.nodes.values()
        if node.state == NodeState.FAILED
    )
