"""The status of a Job from and to JSON, for all statuses that the CRD allows.

A write is a merge patch of two statuses' JSON. So a patch has to be empty if they are equal as
parsed values, and only then. What another version wrote beside is neither changed nor compared.
"""

from copy import deepcopy

import pytest
from hypothesis import given

from daemonset_job.api.job_status import Condition, JobStatus, parse_job_status
from daemonset_job.api.node_totals import NodeTotals
from job_controller.core.desired.strategic_merge import diff_merge_patch
from tests.fakekube.patches import merge_patch
from tests.mutation.schema import part, problems
from tests.unit.api.crd_values import values

SCHEMA = part("jobs", "status")
RAW = values(SCHEMA)


@given(RAW)
def test_a_status_survives_its_json(raw):
    status = parse_job_status(raw)
    assert parse_job_status(status.to_raw()) == status
    assert list(problems(SCHEMA, status.to_raw(), "status")) == []


@given(RAW, RAW)
def test_the_patch_between_two_statuses_is_empty_only_if_they_are_equal(stored, desired):
    stored = {**stored, "ofAnotherVersion": {"kept": True}}
    if "nodes" in stored:
        stored["nodes"]["ofAnotherVersion"] = 1
    before, after = parse_job_status(stored), parse_job_status(desired)
    patch = diff_merge_patch(before.to_raw(), after.to_raw())
    assert (patch == {}) == (before == after)
    written = merge_patch(deepcopy(stored), patch)
    assert parse_job_status(written) == after
    assert written["ofAnotherVersion"] == {"kept": True}


def test_every_field_of_the_crd_is_read_and_written():
    raw = {
        "phase": "Failed",
        "observedGeneration": 3,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:01:00Z",
        "nodes": {
            "desired": 9,
            "waiting": 1,
            "active": 2,
            "completed": 3,
            "failed": 2,
            "unreachable": 1,
            "skipped": 4,
            "completedNames": "a",
            "failedNames": "b",
            "unreachableNames": "c",
            "skippedNames": "d",
        },
        "completionToken": "done",
        "revision": "1-0123456789abcdef",
        "observedRetry": "1",
        "observedRerun": "2",
        "progress": "40%",
        "lowestProgress": "a 1/10",
        "rollout": {
            "step": 2,
            "steps": 3,
            "soakStartedAt": "2026-01-01T00:00:20Z",
            "approvedStep": 1,
            "promoted": True,
            "checkFailure": "not Ready: a",
            "waitsFor": "approval",
            "revision": "r",
            "imagesPulled": True,
            "imagePullFailure": "1 of 2 nodes failed",
            "scriptCheckedUpTo": "a",
            "scriptCheckedNodes": 1,
            "scriptCheckInconclusive": "no result",
            "scriptCheckHash": "fedcba9876543210",
            "checkHash": "0123456789abcdef",
            "checkStartedAt": "2026-01-01T00:00:30Z",
            "checkPassed": "0123456789abcdef",
            "plan": [{"step": 1, "count": 2, "nodes": ["a", "b"]}],
        },
        "rollback": {
            "jobs": ["sample-rollback"],
            "reports": ["sample-rollback-1"],
            "desired": 5,
            "completed": 3,
            "failed": 1,
            "unreachable": 1,
            "completedNames": "a",
            "failedNames": "b",
            "unreachableNames": "c",
            "startTime": "2026-01-01T00:02:00Z",
            "completionTime": "2026-01-01T00:03:00Z",
            "message": "m",
            "requestedBy": "kubectl",
        },
        "report": "sample-1",
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "R",
                "message": "m",
                "observedGeneration": 3,
                "lastTransitionTime": "2026-01-01T00:01:00Z",
            }
        ],
    }
    assert set(raw) == set(SCHEMA["properties"])
    assert set(raw["nodes"]) == set(SCHEMA["properties"]["nodes"]["properties"])
    assert set(raw["conditions"][0]) == set(
        SCHEMA["properties"]["conditions"]["items"]["properties"]
    )
    assert parse_job_status(raw).to_raw() == raw


def test_an_empty_status_has_no_fields():
    assert parse_job_status({}) == JobStatus()
    assert JobStatus().to_raw() == {}
    assert JobStatus(nodes=NodeTotals()).to_raw()["nodes"]["desired"] == 0


@pytest.mark.parametrize(("text", "status"), [("True", True), ("False", False), ("Unknown", None)])
def test_a_condition_of_another_program_keeps_its_type_and_status(text, status):
    raw = {"type": "example.com/Audited", "status": text, "reason": "", "message": ""}
    (condition,) = parse_job_status({"conditions": [raw]}).conditions
    assert condition == Condition("example.com/Audited", status)
    assert condition.to_raw() == raw


def test_a_fraction_of_a_second_makes_no_difference():
    raw = {"startTime": "2026-01-01T02:00:00.75+02:00"}
    assert parse_job_status(raw) == parse_job_status({"startTime": "2026-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    "raw", [{"phase": 1}, {"nodes": {"desired": "1"}}, {"startTime": "x"}, {"conditions": [{}]}]
)
def test_what_the_crd_does_not_allow_is_refused(raw):
    with pytest.raises(ValueError, match=r"instead of|isoformat"):
        parse_job_status(raw)
