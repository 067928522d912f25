"""The last lines of a failed check, which may come after its Job has failed."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import parse_report_status
from tests.unit.core.rollout_parts import PartsWorld
from tests.unit.core.test_script_check import CHECK, progress, world

PLAIN = "a exit 3 at the first attempt"
QUOTED = f"{PLAIN}: 'kernel is 5.10'"
LINES = ("checking", "kernel is 5.10")


def failed(message=PLAIN, **record):
    """Return a world whose check has failed a moment ago; no line of its task is there yet."""
    found: PartsWorld = world()
    found.seen = timedelta()
    found.end_owned(CHECK, f"1 of 1 nodes failed: {message}")
    report(found, record={"message": message.removeprefix("a "), **record})
    return found


def report(found, record, **entry):
    """Give the check's Job a report with the record of its node, and what its log has shown."""
    about = {
        "uid": "a-uid",
        "state": "Failed",
        "attempts": 1,
        "podUID": "check-pod",
        "finishedInPod": 1,
        **record,
    }
    evidence = {"a": Evidence("a-uid", **{"pod_uid": "check-pod", **entry})} if entry else {}
    found.extra["owned_reports"] = (
        JobReport(
            namespace="default",
            name="check-report",
            uid="check-report-uid",
            resource_version="1",
            job_name=CHECK,
            job_uid=found.owned[CHECK].uid,
            evidence=evidence,
            status=parse_report_status({"nodeStates": {"a": about}}),
            selection_hash="",
        ),
    )


def assert_waits(found):
    plan = found.step(2)
    assert progress(found).check_failure == ""
    assert list(found.owned) == [CHECK]
    assert "the last lines of its log are read" in found.condition("Progressing")[2]
    return plan


def assert_has_failed(found, words):
    found.step(3)
    assert found.condition("Failed")[1:] == (
        "CheckFailed",
        f"the check of step 1 of 1 failed: its script: 1 of 1 nodes failed: {words}",
    )
    assert (found.owned, found.created) == ({}, [CHECK])


def test_a_failure_waits_for_the_line_of_its_task():
    found = failed()
    assert_waits(found)
    # The line is in the ledger, then in the record, and then in the message of the Job.
    report(found, {"message": PLAIN.removeprefix("a ")}, last_lines=LINES, attempt=1)
    assert_waits(found)
    report(found, {"message": QUOTED.removeprefix("a ")}, last_lines=LINES, attempt=1)
    assert_waits(found)
    found.end_owned(CHECK, f"1 of 1 nodes failed: {QUOTED}")
    assert_has_failed(found, QUOTED)


def test_it_waits_for_five_seconds_from_when_the_controller_saw_it():
    found = failed()
    found.seen = timedelta(seconds=4)
    assert assert_waits(found).requeue_after == 1.0
    found.seen = timedelta(seconds=5)
    assert_has_failed(found, PLAIN)


def test_no_time_of_a_node_and_none_of_another_replica_counts():
    """The Job says that it failed long ago, or in an hour."""
    for ago in (timedelta(days=1), timedelta(hours=-1)):
        found = failed(finishedAt="2001-01-01T00:00:00Z")
        job = found.owned[CHECK]
        moved = tuple(
            replace(each, last_transition_time=found.now - ago) for each in job.status.conditions
        )
        found.owned[CHECK] = replace(job, status=replace(job.status, conditions=moved))
        assert_waits(found)
        found.seen = timedelta(seconds=5)
        assert_has_failed(found, PLAIN)


@pytest.mark.parametrize(
    ("record", "entry"),
    [
        # Its log was read to the end, and is empty.
        ({}, {"attempt": 1}),
        # Its task has not started.
        ({"attempts": 0, "finishedInPod": 0}, {}),
    ],
)
def test_it_does_not_wait_where_no_line_is_to_come(record, entry):
    found = failed()
    report(found, {"message": PLAIN.removeprefix("a "), **record}, **entry)
    assert_has_failed(found, PLAIN)


def test_it_waits_for_the_record_of_the_failure():
    found = failed()
    report(found, {"state": "Active"})
    assert_waits(found)
    found.extra["owned_reports"] = ()
    assert_waits(found)


def test_the_end_of_a_check_by_a_person_is_judged_at_once():
    found = failed()
    found.end_owned(CHECK, "aborted after 0 of 1 nodes: a mistake", reason="Aborted")
    found.step(2)
    assert found.condition("Suspended")[1] == "CheckInconclusive"


def test_it_does_not_wait_for_lines_that_the_job_does_not_keep():
    found = failed()
    job = found.owned[CHECK]
    found.owned[CHECK] = replace(job, spec=replace(job.spec, failure_log_lines=0))
    found.step(3)
    assert found.condition("Failed")[1] == "CheckFailed"


@pytest.mark.parametrize("entry", [{"pod_uid": "another-pod"}, {"attempt": 1}])
def test_lines_of_another_pod_or_attempt_are_not_those_of_the_failure(entry):
    found = failed()
    record = {"message": PLAIN.removeprefix("a "), "finishedInPod": 2}
    report(found, record, last_lines=LINES, **entry)
    assert_waits(found)


def test_a_message_with_a_line_of_its_own_is_judged_at_once():
    found = failed(QUOTED)
    assert_has_failed(found, QUOTED)
