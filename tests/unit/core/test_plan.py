"""What of a plan may wait: records that only tell that the run gets on."""

from dataclasses import replace

import pytest

from job_controller.core.plan import (
    ApplyDaemonSet,
    DeletePods,
    Event,
    Plan,
    WriteReportStatus,
    WriteStatus,
    without_progress,
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
REPORT = WriteReportStatus("report", "uid", {"nodeStates": {}})


@pytest.mark.parametrize("actions", [(REPORT,), (REPORT, WriteStatus(NEW)), (WriteStatus(NEW),)])
@pytest.mark.parametrize(("requeue", "again"), [(None, 2.0), (1.0, 1.0), (9.0, 2.0)])
def test_progress_waits_and_is_looked_for_again(actions, requeue, again):
    plan = Plan(actions=actions, requeue_after=requeue)
    assert without_progress(plan, OLD, 2.0) == Plan(requeue_after=again)


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Succeeded"},
        {"completionTime": "2026-01-02T03:04:05Z"},
        {"observedGeneration": 2},
        {"nodes": {**NEW["nodes"], "failed": 1, "failedNames": "b"}},
        {"nodes": {**NEW["nodes"], "unreachable": 1}},
        {"nodes": {**NEW["nodes"], "desired": 4}},
        {"conditions": [{**NEW["conditions"][0], "status": "False"}]},
        {"conditions": [{**NEW["conditions"][0], "reason": "ImagePullFailed"}]},
        {"conditions": [*NEW["conditions"], {"type": "Complete", "status": "True"}]},
    ],
)
def test_what_says_more_than_progress_is_written_at_once(change):
    plan = Plan(actions=(REPORT, WriteStatus({**NEW, **change})))
    assert without_progress(plan, OLD, 2.0) == plan


def test_a_plan_that_does_or_tells_something_is_carried_out_whole():
    plan = Plan(actions=(REPORT, WriteStatus(NEW)))
    for other in (
        replace(plan, actions=(ApplyDaemonSet({}), *plan.actions)),
        replace(plan, actions=(DeletePods(()), *plan.actions)),
        replace(plan, events=(Event("Normal", "Resumed", "the run goes on"),)),
        Plan(requeue_after=3.0),
    ):
        assert without_progress(other, OLD, 2.0) == other
