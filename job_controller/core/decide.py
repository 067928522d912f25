"""The decision: from everything known about a Job to what shall be done next."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from job_controller.api import names
from job_controller.core.desired import build_daemon_set, is_current
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    CreateReport,
    Event,
    OpenGates,
    Plan,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.report import build_report, next_report_status
from job_controller.core.snapshot import Snapshot
from job_controller.core.status import first_status, next_status
from job_controller.core.tally import Tally, take_tally
from job_controller.core.trouble import find_trouble
from job_controller.core.turns import due_pods, wants_gate

# A refusal by the API server (quota on DaemonSets, a webhook) sends no event when it ends.
_REFUSED_RETRY_SECONDS = 15.0


def decide(snapshot: Snapshot, now: datetime) -> Plan:
    """Return what to do for one Job. Pure: the same snapshot and time give the same plan.

    The order within a plan: what makes the work happen, then the record, then the Job's
    status. `Complete` is thus written only when the report already says so.
    """
    job = snapshot.job
    if job.deleting:
        return Plan()
    if "startTime" not in job.status:
        return _start(snapshot, now)
    tally = take_tally(snapshot)
    work = _work(snapshot, tally)
    trouble = find_trouble(snapshot, tally)
    status = next_status(job, tally, trouble, now)
    record: list[Action] = [
        WriteReportStatus(report.name, report.uid, body)
        for report in snapshot.reports
        if report.shard == 0 and (body := next_report_status(status)) != report.status
    ]
    if status != job.status:
        record.append(WriteStatus(status))
    return Plan(
        actions=(*work, *record),
        events=tuple(_events(snapshot, status, work)),
        requeue_after=_REFUSED_RETRY_SECONDS if snapshot.refusal else None,
    )


def _start(snapshot: Snapshot, now: datetime) -> Plan:
    """Return the first step of a run: the start is on record before anything is made.

    From then on the CRD refuses changes of what runs, and the write itself fails when the Job
    was changed since it was read: what is made next is what the user last said.
    """
    job = snapshot.job
    report = names.report_name(job.name, job.uid)
    return Plan(
        actions=(WriteStatus(first_status(job, now)),),
        events=(Event("Normal", "Started", f"the run is recorded in JobReport {report}"),),
    )


def _work(snapshot: Snapshot, tally: Tally) -> list[Action]:
    """Return what has to be done for the work to go on: report, DaemonSet, gates."""
    job = snapshot.job
    actions: list[Action] = []
    if not any(report.shard == 0 for report in snapshot.reports):
        actions.append(CreateReport(build_report(job)))
    if not snapshot.refusal:
        actions.extend(_daemon_set(snapshot, tally))
    due = due_pods(tally)
    if due:
        actions.append(
            OpenGates(due, {pod.node_name: tally.nodes[pod.node_name].uid for pod in due})
        )
    return actions


def _daemon_set(snapshot: Snapshot, tally: Tally) -> list[Action]:
    """Return the application of the DaemonSet, when there is none or it differs; else nothing."""
    found = snapshot.daemon_set
    if found is None:
        return [ApplyDaemonSet(_wanted(snapshot, tally))]
    if snapshot.owned_daemon_set is None:
        # Somebody else's, or on its way out: what becomes of it wakes us.
        return []
    wanted = _wanted(snapshot, tally)
    return [] if is_current(found, wanted) else [ApplyDaemonSet(wanted, found.uid)]


def _wanted(snapshot: Snapshot, tally: Tally) -> dict[str, Any]:
    return build_daemon_set(
        snapshot.job, gated=wants_gate(snapshot, tally), token=snapshot.settings.token
    )


def _events(snapshot: Snapshot, status: Mapping[str, Any], work: list[Action]) -> list[Event]:
    """Return the events that go with a change: one when trouble changes, one at the end."""
    job = snapshot.job
    events: list[Event] = []
    had_nodes = bool((job.status.get("nodes") or {}).get("desired"))
    if had_nodes and any(isinstance(a, ApplyDaemonSet) and not a.uid for a in work):
        events.append(
            Event(
                "Warning",
                "DaemonSetRecreated",
                f"DaemonSet {job.daemon_set_name} was deleted during the run and is made again; "
                "completed nodes do not run again",
            )
        )
    after = {raw["type"]: raw for raw in status["conditions"]}
    complete = after.get(names.CONDITION_COMPLETE)
    if complete is not None and not job.is_true(names.CONDITION_COMPLETE):
        events.append(Event("Normal", "Completed", complete["message"]))
    progressing = after[names.CONDITION_PROGRESSING]
    before = job.condition(names.CONDITION_PROGRESSING)
    if complete is None and (before is None or before.reason != progressing["reason"]):
        if progressing["status"] == "False":
            events.append(Event("Warning", progressing["reason"], progressing["message"]))
        elif before is not None and not before.status:
            events.append(Event("Normal", "Resumed", "what held the run up is gone"))
    return events
