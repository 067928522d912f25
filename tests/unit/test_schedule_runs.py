"""Which Jobs of a ScheduledJob have ended, and of which a person wants more."""

from datetime import UTC, datetime

import pytest

from daemonset_job.api import names
from daemonset_job.api.states import Phase
from job_controller.schedules.runs import read_run

ENDED = "2026-01-02T03:04:05Z"
FAILED = {"type": "Failed", "status": "True", "reason": "MaxFailedNodesExceeded"}


def raw_job(phase="Failed", *, generation=1, retry="", **spec):
    annotations = {names.ANNOTATION_RETRY: retry} if retry else {}
    meta = {"name": "sweep-1", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    return {
        "metadata": {**meta, "generation": generation, "annotations": annotations},
        "spec": {"image": "x", **spec},
        "status": {
            "phase": phase,
            "completionTime": ENDED,
            "observedGeneration": 1,
            "conditions": [FAILED] if phase == "Failed" else [],
        },
    }


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_run_that_has_ended_is_read_with_its_version(phase):
    run = read_run(raw_job(phase))
    assert (run.name, run.uid, run.resource_version) == ("sweep-1", "u", "7")
    assert (run.phase, run.is_due_again) == (Phase(phase), False)
    assert run.ended_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_run_whose_job_is_being_deleted_is_known():
    raw = raw_job("Running")
    assert not read_run(raw).is_being_deleted
    raw["metadata"]["deletionTimestamp"] = ENDED
    assert read_run(raw).is_being_deleted


@pytest.mark.parametrize(
    "raw",
    [
        raw_job(retry="1"),
        raw_job(generation=2),
        raw_job("Succeeded", generation=2),
        raw_job(suspend=True),
    ],
    ids=["retry", "changed", "nodes added", "to be corrected"],
)
def test_a_run_of_which_a_person_wants_more_is_due_again(raw):
    assert read_run(raw).is_due_again


@pytest.mark.parametrize(
    "raw", [raw_job("Succeeded", retry="1"), raw_job("Succeeded", suspend=True)]
)
def test_a_run_that_has_succeeded_is_not_tried_again(raw):
    assert not read_run(raw).is_due_again


def test_a_retry_that_has_failed_again_is_no_request():
    raw = raw_job(retry="1")
    raw["status"]["observedRetry"] = "1"
    assert not read_run(raw).is_due_again


def test_a_run_that_has_not_ended_is_not_due_again():
    run = read_run(raw_job("Running", generation=2))
    assert (run.has_ended, run.is_due_again) == (False, False)


def completed_job(reason="AllNodesCompleted", **spec):
    raw = raw_job("Succeeded", **spec)
    raw["status"]["conditions"] = [{"type": "Complete", "status": "True", "reason": reason}]
    return raw


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (completed_job(), True),
        (completed_job(ttlSecondsAfterFinished=0), True),
        (completed_job(ttlSecondsAfterFinished=60), False),
        (completed_job("CompletedWithinFailureLimit"), False),
        (completed_job("MinCompletedReached"), False),
        (completed_job(completion={"policy": "Continuous"}), False),
        (raw_job("Failed"), False),
    ],
    ids=["", "at once", "stays", "failures", "enough", "no end", "failed"],
)
def test_which_jobs_the_terminator_deletes_by_itself(raw, expected):
    assert read_run(raw).deletes_itself is expected


def test_a_job_that_was_rolled_back_stays():
    raw = completed_job(rollback={"script": "undo"})
    times = {"startTime": ENDED, "completionTime": ENDED}
    raw["status"]["rollback"] = {**times, "reason": "Requested"}
    assert not read_run(raw).deletes_itself


@pytest.mark.parametrize(
    ("reason", "retry", "nodes", "expected"),
    [
        ("CompletedWithinFailureLimit", "", {"failed": 1}, False),
        ("CompletedWithinFailureLimit", "1", {"failed": 1}, True),
        ("CompletedWithinFailureLimit", "", {"waiting": 1}, True),
        ("CompletedWithinFailureLimit", "", {"active": 1}, True),
        ("AllNodesCompleted", "", {"active": 1}, True),
        ("AllNodesCompleted", "1", {}, False),
        ("MinCompletedReached", "1", {"waiting": 1}, False),
    ],
)
def test_a_run_that_has_succeeded_stays_while_its_failed_nodes_are_retried(
    reason, retry, nodes, expected
):
    raw = completed_job(reason, retry=retry)
    raw["status"]["nodes"] = nodes
    assert read_run(raw).is_due_again is expected
