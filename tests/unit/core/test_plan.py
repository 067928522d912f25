"""What of a plan may wait: records of nothing but progress."""

from dataclasses import replace

import pytest

from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.report_status import ReportStatus
from job_controller.core.plan import (
    ApplyDaemonSet,
    DeletePods,
    Event,
    Plan,
    WriteReportStatus,
    WriteStatus,
    defer_progress_writes,
)

OLD = {
    "phase": "Running",
    "nodes": {"desired": 3, "waiting": 1, "active": 2, "completed": 0, "failed": 0},
    "conditions": [
        {"type": "Progressing", "status": "True", "reason": "NodesActive", "message": "0 of 3"}
    ],
}
NEW = {
    "phase": "Running",
    "nodes": {
        "desired": 3,
        "waiting": 0,
        "active": 2,
        "completed": 1,
        "failed": 0,
        "completedNames": "a",
    },
    "conditions": [
        {"type": "Progressing", "status": "True", "reason": "NodesActive", "message": "1 of 3"}
    ],
}
BEFORE, AFTER = parse_job_status(OLD), WriteStatus(parse_job_status(NEW))
REPORT = WriteReportStatus("report", "uid", ReportStatus())


@pytest.mark.parametrize(
    "actions",
    [
        (REPORT,),
        (REPORT, AFTER),
        (AFTER,),
    ],
)
@pytest.mark.parametrize(("requeue", "again"), [(None, 2.0), (1.0, 1.0), (9.0, 2.0)])
def test_progress_waits_and_is_looked_for_again(actions, requeue, again):
    plan = Plan(actions=actions, requeue_after=requeue)
    assert defer_progress_writes(plan, BEFORE, 2.0) == Plan(requeue_after=again)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Succeeded"},
        {"completionTime": "2026-01-02T03:04:05Z"},
        {"nodes": {**NEW["nodes"], "failed": 1, "failedNames": "b"}},
        {"nodes": {**NEW["nodes"], "unreachable": 1}},
        {"conditions": [*NEW["conditions"], {"type": "Complete", "status": "True"}]},
    ],
)
def test_end_of_run_and_node_problems_are_recorded_at_once(change):
    plan = Plan(actions=(REPORT, WriteStatus(parse_job_status({**NEW, **change}))))
    assert defer_progress_writes(plan, BEFORE, 2.0) == plan


@pytest.mark.parametrize(
    "change",
    [
        {"observedGeneration": 2},
        {"nodes": {**NEW["nodes"], "desired": 4}},
        {"conditions": [{**NEW["conditions"][0], "status": "False"}]},
        {"conditions": [{**NEW["conditions"][0], "reason": "ImagePullFailed"}]},
    ],
)
def test_status_beyond_progress_does_not_wait_for_the_report(change):
    status = WriteStatus(parse_job_status({**NEW, **change}))
    plan = Plan(actions=(REPORT, status))
    assert defer_progress_writes(plan, BEFORE, 2.0) == Plan((status,), requeue_after=2.0)


def test_what_is_to_be_done_is_done_without_the_records_of_progress():
    apply = ApplyDaemonSet({})
    plan = Plan(actions=(apply, REPORT, AFTER), requeue_after=1.0)
    assert defer_progress_writes(plan, BEFORE, 2.0) == Plan((apply,), requeue_after=1.0)


def test_taints_that_come_and_go_cause_no_more_writes_than_progress():
    skipped = {**NEW["nodes"], "skipped": 1, "skippedNames": "z"}
    plan = Plan(actions=(REPORT, WriteStatus(parse_job_status({**NEW, "nodes": skipped}))))
    assert defer_progress_writes(plan, BEFORE, 2.0) == Plan(requeue_after=2.0)


def test_plan_with_pods_or_events_is_executed_unchanged():
    plan = Plan(actions=(REPORT, AFTER))
    for other in (
        replace(plan, actions=(*plan.actions, DeletePods(()))),
        replace(plan, events=(Event("Normal", "Resumed", "run resumed"),)),
        replace(plan, is_urgent=True),
        Plan(requeue_after=3.0),
    ):
        assert defer_progress_writes(other, BEFORE, 2.0) == other
