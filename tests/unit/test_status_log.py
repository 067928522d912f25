"""What the log says about a written status: each change once, and which of them are warnings."""

from dataclasses import replace

import pytest
from loguru import logger

from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from job_controller.actions.status_log import log_conditions, log_failed_nodes


@pytest.fixture
def lines():
    found = []

    def keep(message):
        record = message.record
        found.append((record["level"].name, record["message"], record["extra"]))

    sink = logger.add(keep, level="DEBUG")
    yield found
    logger.remove(sink)


def status(*conditions):
    return JobStatus(conditions=tuple(Condition(*each) for each in conditions))


NONE = status()
ACTIVE = ("Progressing", True, "NodesActive", "0 of 2 nodes completed")


@pytest.mark.parametrize(
    ("condition", "level", "message"),
    [
        (("Progressing", True, "Starting"), "INFO", "the run starts"),
        (ACTIVE[:3], "INFO", "the run progresses"),
        (("Progressing", False, "ImagePullFailed"), "WARNING", "the run is blocked"),
        (("Progressing", False, "Paused"), "INFO", "the run is paused"),
        (("Progressing", False, "Completed"), "INFO", "the run has ended"),
        (("Complete", True, "AllNodesCompleted"), "INFO", "the run succeeded"),
        (("Complete", False, "NodesAdded"), "INFO", "the run goes on with further nodes"),
        (("Failed", True, "DeadlineExceeded"), "WARNING", "the run failed"),
        (("Failed", False, "Retrying"), "INFO", "the failed run is retried"),
        (("Suspended", True, "Suspended"), "INFO", "the run is paused"),
        (("Suspended", True, "MaxFailedNodesExceeded"), "WARNING", "the run is paused"),
        (("Suspended", False, "Resumed"), "INFO", "the run is resumed"),
        (
            ("DaemonSetAltered", True, "DaemonSetAltered"),
            "WARNING",
            "another client changed the DaemonSet",
        ),
        (("OfAnotherProgram", True, "Any"), "INFO", "a condition changed"),
    ],
)
def test_a_change_has_one_line(lines, condition, level, message):
    log_conditions(NONE, status((*condition, "words")))
    ((found_level, found_message, fields),) = lines
    assert (found_level, found_message) == (level, message)
    assert fields == {
        "condition": condition[0],
        "status": str(condition[1]),
        "reason": condition[2],
        "detail": "words",
    }


def test_another_message_or_time_has_no_line(lines):
    after = status(("Progressing", True, "NodesActive", "1 of 2 nodes completed"))
    log_conditions(status(ACTIVE), replace(after, observed_generation=2))
    assert lines == []


@pytest.mark.parametrize(
    ("reason", "type_"), [("Completed", "Complete"), ("Failed", "Failed"), ("Paused", "Suspended")]
)
def test_what_another_condition_says_in_the_same_write_has_one_line(lines, reason, type_):
    after = status(("Progressing", False, reason, "words"), (type_, True, "Any", "words"))
    log_conditions(status(ACTIVE), after)
    assert [fields["condition"] for _, _, fields in lines] == [type_]


def test_nodes_that_failed_are_one_line_for_each_reason_however_many(lines):
    def record(reason):
        return NodeRecord(state=NodeState.FAILED, uid="u", reason=reason, message=f"{reason}!")

    failed = [(f"node-{number:04}", record("DeadlineExceeded")) for number in range(0, 5000, 2)]
    log_failed_nodes([*failed, ("x", record("FailureToken"))])
    (_, _, many), (level, message, one) = lines
    assert (level, message) == ("WARNING", "nodes failed")
    assert one == {"reason": "FailureToken", "count": 1, "nodes": "x", "detail": "FailureToken!"}
    assert many["count"] == 2500
    assert len(many["nodes"]) < 450


def test_no_failed_node_has_no_line(lines):
    log_failed_nodes([])
    assert lines == []
