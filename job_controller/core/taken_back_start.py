"""The start of a run taken back: no task has begun, and the Job is suspended to be corrected.

Layer: core. Without `status.startTime` the CRD lets every field change, and the Job starts as a new
one. So the time may only go when no container of the run can start any more, and none has. The pods
of a DaemonSet with the gate cannot start. One that is bound to a node can until it is gone, and its
last status shows whether it did. Before it is deleted, its node's record has it as an attempt. So
if that last status is missed, as in a crash, the run counts as begun, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from daemonset_job.api import report as reports_api
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import EventReason
from daemonset_job.api.rollback import is_rollback_requested
from daemonset_job.api.shard_room import nodes_per_shard
from daemonset_job.api.states import FINAL_PHASES, ConditionType, NodeState, Phase
from job_controller.core.desired.part import purpose_of
from job_controller.core.job_actions import DeleteJob
from job_controller.core.plan import (
    Action,
    CheckJobUnchanged,
    CheckNoPodMayStart,
    DeleteDaemonSet,
    DeletePods,
    DeleteReport,
    Event,
    Plan,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.render.shards import assign_to_shards
from job_controller.core.render.suspension import has_taken_back, is_taken_back
from job_controller.core.render.taken_back import (
    leftovers_status,
    taken_back_status,
    waiting_status,
)
from job_controller.core.state.begun import find_begun, find_unrecorded_begin
from job_controller.core.state.cordons import mark_of
from job_controller.core.state.ended_pods import has_failed_unstarted, is_marked, mark
from job_controller.core.state.left_nodes import LEFT_PODS_SECONDS
from job_controller.core.state.snapshot import Snapshot

_WHY: Final = "the start of the run is taken back"
# Without one of these writes a start cannot be taken back; the status of the run says what is
# refused.
_NEEDED: Final = (RefusedWrite.REPORT, RefusedWrite.DELETION)


def plan_taking_back(snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the next step by which the start of a run is taken back, None if it is not.

    It is not while new pods are not gated, or while all pods are and a node has the cordon of this
    Job. The ordinary decision about a suspended run sees to both.
    """
    if not may_be_taken_back(snapshot.job) or find_begun(snapshot) or not _is_ready(snapshot):
        return None
    may_start = [pod for pod in snapshot.all_pods if not pod.is_gated]
    may_start += snapshot.orphans
    if not may_start and _has_cordon(snapshot):
        return None
    if not may_start:
        status = taken_back_status(snapshot.job, now)
        return Plan(
            actions=(CheckNoPodMayStart(), WriteStatus(status)),
            events=_paused_events(snapshot.job, status),
            is_urgent=True,
        )
    unmarked = _unmarked(snapshot)
    if len({pod.node_name for pod in unmarked}) < len(unmarked):
        return None  # one of two pods of a node is about to be removed
    actions: list[Action] = []
    if unmarked:
        # The pods are deleted when the report is read back with the marks.
        actions += _mark_actions(snapshot, unmarked)
    else:
        actions += _deletion([p for p in (*snapshot.pods, *snapshot.orphans) if p in may_start])
    status = waiting_status(snapshot.job, may_start, _unreachable(snapshot, may_start), now)
    if status != snapshot.job.status:
        actions.append(WriteStatus(status))
    return Plan(
        actions=tuple(actions),
        events=_paused_events(snapshot.job, status),
        requeue_after=LEFT_PODS_SECONDS if snapshot.left_pods or snapshot.orphans else None,
        is_urgent=True,
    )


def may_be_taken_back(job: Job) -> bool:
    """Return whether the start of such a run is taken back if no task has begun.

    A person asks for it by `spec.suspend`; a stop of all Jobs is no request to correct this one.
    Of policy Continuous all can be changed in any case. A Job that another one owns is a part of
    that one's run. A run that has succeeded has its result on record, and one that a person has
    ended is over. One that has failed may have done so because it could not start.
    """
    if not job.spec.suspend or job.spec.is_continuous or job.owner_uid:
        return False
    if job.requests.abort or job.is_aborted:
        return False
    if job.status.rollback is not None or is_rollback_requested(job):
        return False
    return not job.is_true(ConditionType.COMPLETE) and job.status.phase != Phase.SUCCEEDED


def plan_record_of_begin(snapshot: Snapshot) -> Plan | None:
    """Return the write that records that a task may have begun, None if nothing is to be recorded.

    Only this process knows of it, and it may end at any moment. Of the runs whose start is never
    taken back, no later decision depends on it.
    """
    job, first = snapshot.job, snapshot.first_report
    if first is None or job.spec.is_continuous or job.owner_uid:
        return None
    node = find_unrecorded_begin(snapshot)
    if not node or RefusedWrite.REPORT in snapshot.refusals:
        return None
    status = replace(first.status, may_have_begun_on=node)
    return Plan(actions=(WriteReportStatus(first.name, first.uid, status),), is_urgent=True)


def find_uncorrectable(snapshot: Snapshot) -> str:
    """Return why a suspended run cannot be corrected, "" if it can, or no user asks for it."""
    return find_begun(snapshot) if may_be_taken_back(snapshot.job) else ""


def _is_ready(snapshot: Snapshot) -> bool:
    """Return whether nothing but pods keeps the start from being taken back."""
    job, ours, first = snapshot.job, snapshot.owned_daemon_set, snapshot.first_report
    has_failed = job.is_true(ConditionType.FAILED)
    if any(write in snapshot.refusals for write in _NEEDED):
        return False
    if first is not None and first.status.phase in FINAL_PHASES and not has_failed:
        return False  # the Job has yet to say how the run ended
    if ours is not None:
        is_gated = ours.is_gated and ours.is_observed
        is_known = all(not pod.is_scheduled or _has_node(snapshot, pod) for pod in snapshot.pods)
        return is_gated and is_known and first is not None
    # One that was there is created again first: it shows what is left of its pods. That of a failed
    # run is not.
    found = snapshot.daemon_set
    is_own = found is not None and found.owner_uid == job.uid
    return not is_own and (has_failed or job.reported_desired is None)


def _has_cordon(snapshot: Snapshot) -> bool:
    mark = str(mark_of(snapshot.job))
    marked = any(node.cordoned_by == mark for node in snapshot.nodes.values())
    return snapshot.job.spec.cordons and marked


def _has_node(snapshot: Snapshot, pod: Pod) -> bool:
    return pod.node_name in snapshot.nodes


def _unreachable(snapshot: Snapshot, pods: Iterable[Pod]) -> set[str]:
    """Return the nodes that are not Ready, and whose pod is being deleted and has not ended."""
    return {
        pod.node_name
        for pod in pods
        if pod.is_terminating
        and not pod.is_terminal
        and (node := snapshot.nodes.get(pod.node_name)) is not None
        and not node.ready
    }


def _unmarked(snapshot: Snapshot) -> list[Pod]:
    """Return the pods that may start before they are gone, and of which no record has that.

    The record of a node that has failed without a start has the pod in which it did.
    """
    records = reports_api.merge_records(snapshot.reports).values()
    known = {each.pod_uid for each in records if is_marked(each) or has_failed_unstarted(each)}
    return [pod for pod in snapshot.pods if pod.is_scheduled and pod.uid not in known]


def _deletion(pods: Iterable[Pod]) -> list[Action]:
    doomed = tuple(pod for pod in pods if not pod.is_terminating)
    return [DeletePods(doomed, {pod.uid: _WHY for pod in doomed})] if doomed else []


def _mark_actions(snapshot: Snapshot, pods: Sequence[Pod]) -> list[Action]:
    """Return the writes that record these pods as attempts, before they are deleted."""
    records: dict[str, NodeRecord] = reports_api.merge_records(snapshot.reports)
    for pod in pods:
        node = snapshot.nodes[pod.node_name]
        known = records.get(pod.node_name)
        if known is None or known.uid != node.uid:
            known = NodeRecord(node.uid, NodeState.WAITING)
        records[pod.node_name] = mark(known, pod.uid, snapshot.job.retry_request)
    reports = sorted(snapshot.reports, key=lambda report: report.shard)
    shares = assign_to_shards(reports, records, nodes_per_shard(snapshot.job.spec))
    return [
        WriteReportStatus(
            report.name, report.uid, replace(report.status, node_states=shares[report.shard])
        )
        for report in reports
        if shares[report.shard] != report.records
    ]


def _paused_events(job: Job, status: JobStatus) -> tuple[Event, ...]:
    """Return the event that the run is paused, and that its start is taken back, if either is new.

    They go out with the write of the status.
    """
    before = job.condition(ConditionType.SUSPENDED)
    after = status.condition(ConditionType.SUSPENDED)
    if after is None or (
        before is not None and (before.status, before.reason) == (True, after.reason)
    ):
        return ()
    return (Event("Normal", EventReason.PAUSED, after.message),)


def plan_leftovers(snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return what deletes the objects of a start that was taken back, None if there are none.

    They are of what the Job ran before. It starts again only when all of them are gone. But it does
    not wait for a pod without an owner that is being deleted, whose machine may never come back. No
    DaemonSet adopts such a pod (kubernetes pkg/controller/controller_ref_manager.go).
    """
    job, found = snapshot.job, snapshot.daemon_set
    if not is_taken_back(job):
        return None
    has_daemon_set = found is not None and found.owner_uid == job.uid
    parts = [owned for owned in snapshot.owned_jobs if purpose_of(owned)]
    adoptable = [pod for pod in snapshot.orphans if not pod.is_terminating]
    if not (has_daemon_set or parts or snapshot.reports or adoptable):
        return None
    refused = next(iter(snapshot.refusals.values()), "")
    status = leftovers_status(job, refused, now)
    # If the Job has started again, and only the cache does not have that, these are the objects of
    # the new start.
    actions: list[Action] = [CheckJobUnchanged()]
    if not refused:
        ours = snapshot.owned_daemon_set
        actions += [DeleteDaemonSet(ours.uid, why=_WHY)] if ours is not None else []
        actions += [DeleteJob(part.name, part.uid) for part in parts if not part.is_terminating]
        actions += [DeleteReport(report.name, report.uid) for report in snapshot.reports]
        actions += _deletion(adoptable)
    # Last, so that a deletion that is refused again changes nothing in the status.
    actions += [WriteStatus(status)] if status != job.status else []
    again = LEFT_PODS_SECONDS if adoptable else None
    return Plan(
        actions=tuple(actions),
        requeue_after=snapshot.retry_seconds if refused else again,
        is_urgent=True,
    )


def without_orphans(job: Job, plan: Plan) -> Plan:
    """Return the plan, with a check before its status says no more that the start was taken back.

    From then on nothing looks for pods that the next DaemonSet would adopt.
    """
    ends = any(
        isinstance(action, WriteStatus) and not has_taken_back(action.status)
        for action in plan.actions
    )
    if not ends or not is_taken_back(job):
        return plan
    return replace(plan, actions=(CheckNoPodMayStart(is_taken_back=True), *plan.actions))
