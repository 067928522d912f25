"""The start of a run: recorded once the API server would take what the run is going to write."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.reasons import EventReason, ProgressingReason
from daemonset_job.api.rollback import is_rollback_requested
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.desired.pod_images import find_image_problem
from job_controller.core.drain_actions import (
    DryRunCordon,
    UncordonNodes,
)
from job_controller.core.plan import (
    CheckJobUnchanged,
    DryRunDaemonSet,
    DryRunNodeChange,
    Event,
    Plan,
    RefusedWrite,
    WriteStatus,
)
from job_controller.core.render.events import start_blocker_events
from job_controller.core.render.job_status import first_status, unstarted_status
from job_controller.core.rollout.holds import find_window_problem
from job_controller.core.rollout.preview import PREVIEW_SECONDS, plan_batches
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.blockers import find_start_blocker
from job_controller.core.state.cordons import find_own_cordons, find_trial_cordon
from job_controller.core.state.node_changes import find_trial_change
from job_controller.core.state.predecessors import find_waiting
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.taken_back_start import (
    plan_leftovers,
    plan_record_of_begin,
    plan_taking_back,
    without_orphans,
)
from job_controller.core.text.sanitize import single_line


def plan_unstarted(snapshot: Snapshot, now: datetime) -> Plan | None:
    """Return the plan for a Job that has not started, or whose start is taken back; else None.

    A begin that only this process knows of is recorded first: no such start may be taken back.
    """
    if snapshot.job.status.start_time is None:
        return plan_start(snapshot, now)
    return plan_record_of_begin(snapshot) or plan_taking_back(snapshot, now)


def plan_start(snapshot: Snapshot, now: datetime) -> Plan:
    """Return the first step of a run: the start is recorded before anything is created.

    From then on the CRD refuses changes of what runs. The write fails if the Job was changed since
    it was read, so the newest spec is the one that runs. Before it, in the same reconcile, the API
    server is asked whether it would accept the DaemonSet, and the change of a completed node. If it
    refuses, or the DaemonSet cannot be built, the run does not start and nothing is created, so
    that the user can correct the Job. The answer can take long (webhooks), and the run's time
    begins after it.
    """
    if (leftovers := plan_leftovers(snapshot, now)) is not None:
        return leftovers
    if snapshot.owned_daemon_set is not None:
        return _recorded_again(snapshot, now)
    plan = without_orphans(snapshot.job, _plan_first_step(snapshot, now))
    return _without_cordons(snapshot, plan)


def _without_cordons(snapshot: Snapshot, plan: Plan) -> Plan:
    """Return the plan of a Job that has not started, which also lifts the cordons of the Job.

    A start may be taken back before the cache of nodes has its last cordons. The Job may have
    started without the cache having that.
    """
    found = find_own_cordons(snapshot)
    if not found or RefusedWrite.CORDON in snapshot.refusals:
        return plan
    return replace(plan, actions=(CheckJobUnchanged(), UncordonNodes(found), *plan.actions))


def _plan_first_step(snapshot: Snapshot, now: datetime) -> Plan:
    job = snapshot.job
    start_blocker = (
        _find_request_blocker(snapshot)
        or find_start_blocker(snapshot)
        or find_waiting(job, snapshot.predecessors)
    )
    if job.is_suspended or start_blocker is not None:
        preview = plan_batches(snapshot) if job.spec.suspend else None
        status = unstarted_status(job, start_blocker, now, preview)
        waits = [snapshot.retry_seconds] if snapshot.refusals else []
        waits += [PREVIEW_SECONDS] if preview is not None else []
        return Plan(
            actions=() if status == job.status else (WriteStatus(status),),
            events=tuple(start_blocker_events(job, start_blocker)),
            requeue_after=min(waits, default=None),
            has_preview=preview is not None,
        )
    if not snapshot.is_dry_run_done:
        desired = build_daemon_set(
            job, gated=job.spec.rollout is not None, settings=snapshot.settings
        )
        change = find_trial_change(snapshot)
        trial = (DryRunNodeChange(change),) if change is not None else ()
        cordon = find_trial_cordon(snapshot)
        cordon_trial = (DryRunCordon(cordon),) if cordon is not None else ()
        return Plan(actions=(DryRunDaemonSet(desired), *trial, *cordon_trial))
    return Plan(
        actions=(WriteStatus(first_status(job, now, snapshot.settings.token)),),
        events=(
            Event(
                "Normal",
                EventReason.STARTED,
                f"the run is recorded in JobReport {job.report_name}",
            ),
        ),
    )


def _recorded_again(snapshot: Snapshot, now: datetime) -> Plan:
    """Return the write of a start that the status has lost. The run goes on from there.

    Only a Job that has started has a DaemonSet. Its pods run, so nothing can hold up the start.
    """
    status = first_status(snapshot.job, now, snapshot.settings.token)
    if (first := snapshot.first_report) is not None:
        status = replace(
            status,
            start_time=first.status.start_time or status.start_time,
            observed_retry=first.status.observed_retry,
        )
    return Plan(actions=(WriteStatus(status),))


def _find_request_blocker(snapshot: Snapshot) -> Blocker | None:
    """Return that a person has aborted the run, or that its rollout cannot be as it is.

    A request for a rollback is an abort, too.
    """
    job = snapshot.job
    if why := job.requests.abort:
        words = f"aborted before it started: {single_line(why)}; remove the annotation, or the Job"
        return Blocker(ProgressingReason.ABORTED, words)
    if is_rollback_requested(job):
        why = single_line(job.requests.rollback)
        words = (
            f"a rollback was requested before it started, so there is nothing to undo: {why}; "
            "remove the annotation, or the Job"
        )
        return Blocker(ProgressingReason.ABORTED, words)
    if problem := find_window_problem(job):
        return Blocker(ProgressingReason.INVALID_WINDOW, problem)
    if problem := find_image_problem(job, snapshot.settings):
        return Blocker(ProgressingReason.TOO_MANY_IMAGES, problem)
    return None
