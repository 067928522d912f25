"""The status of a JobReport from and to JSON, for all statuses that the CRD allows.

As in `test_job_status`: a patch is empty if two statuses are equal as parsed values, and only then.
"""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given

from daemonset_job.api.node_record import COUNT_LIMIT, NodeRecord, parse_record
from daemonset_job.api.report_status import ReportStatus, parse_report_status
from job_controller.core.desired.strategic_merge import diff_merge_patch
from job_controller.core.render.report_status import build_status_patch
from tests.fakekube.patches import merge_patch
from tests.mutation.schema import part, problems
from tests.unit.api.crd_values import values

SCHEMA = part("jobreports", "status")
RAW = values(SCHEMA)
RECORD = SCHEMA["properties"]["nodeStates"]["additionalProperties"]


@given(RAW)
def test_a_status_survives_its_json(raw):
    status = parse_report_status(raw)
    assert parse_report_status(status.to_raw()) == status
    assert list(problems(SCHEMA, status.to_raw(), "status")) == []


@given(RAW, RAW)
def test_the_patch_between_two_statuses_is_empty_only_if_they_are_equal(stored, desired):
    stored = {**stored, "ofAnotherVersion": [1]}
    before, after = parse_report_status(stored), parse_report_status(desired)
    patch = build_status_patch(before, after)
    assert patch == diff_merge_patch(before.to_raw(), after.to_raw())
    assert (patch == {}) == (before == after)
    written = merge_patch(deepcopy(stored), patch)
    assert parse_report_status(written) == after
    assert written["ofAnotherVersion"] == [1]


def test_every_field_of_the_crd_is_read_and_written():
    record = {
        "uid": "u",
        "state": "Failed",
        "reason": "R",
        "message": "m",
        "attempts": 4,
        "attemptsInEarlierPods": 2,
        "finishedInPod": 2,
        "ignoredFailures": 1,
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:09Z",
        "activeSince": "2026-01-01T00:00:01Z",
        "durationSeconds": 9,
        "podUID": "p",
        "observedRetry": "1",
        "failures": [
            {
                "finishedAt": "2026-01-01T00:00:03Z",
                "reason": "R",
                "message": "m",
                "exitCode": 0,
                "attempts": 2,
                "observedRetry": "0",
            }
        ],
        "omittedFailures": 1,
        "exitCode": 0,
        "revision": "r",
        "selection": "s",
        "observedRerun": "2",
        "earlierPods": ["o"],
        "nodeChangedAt": "2026-01-01T00:00:10Z",
        "drainStartedAt": "2026-01-01T00:00:00Z",
        "turnAt": "2026-01-01T00:00:01Z",
        "step": 1,
        "setAsideAt": "2026-01-01T00:00:11Z",
    }
    delivery = {
        "events": ["Started", "Failed"],
        "event": "Started",
        "time": "2026-01-01T00:00:00Z",
        "sent": 1,
        "failed": 2,
        "message": "m",
    }
    row = {
        "name": "a",
        "state": "Completed",
        "reason": "R",
        "attempts": 2,
        "exitCode": 0,
        "finishedAt": "2026-01-01T00:00:09Z",
        "results": {"kernel": "6.1"},
    }
    raw = {
        "phase": "Failed",
        "jobGeneration": 3,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:01:00Z",
        "nodes": dict.fromkeys(
            ("desired", "waiting", "active", "completed", "failed", "unreachable"), 1
        ),
        "durationSeconds": 60,
        "message": "m",
        "observedRetry": "1",
        "observedRerun": "1-0123456789abcdef",
        "timeline": ["it ran"],
        "history": [
            {"time": "2026-01-01T00:00:30Z", "reason": "Paused", "message": "m", "by": "kubectl"}
        ],
        "omittedHistory": 2,
        "mayHaveBegunOn": "a",
        "conditions": [
            {
                "type": "Cancelled",
                "status": "True",
                "reason": "JobDeleted",
                "message": "m",
                "lastTransitionTime": "2026-01-01T00:01:00Z",
            }
        ],
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
        "notifications": {"ops": delivery},
        "nodeList": [row],
        "nodeStates": {"a": record},
    }
    assert set(row) == set(SCHEMA["properties"]["nodeList"]["items"]["properties"])
    assert set(record) == set(RECORD["properties"])
    deliveries = SCHEMA["properties"]["notifications"]["additionalProperties"]
    assert set(delivery) == set(deliveries["properties"])
    assert set(raw) == set(SCHEMA["properties"])
    assert parse_report_status(raw).to_raw() == raw


def test_an_empty_status_has_no_fields():
    assert parse_report_status({}) == ReportStatus()
    assert ReportStatus().to_raw() == {}


def test_a_run_that_took_no_second_has_a_duration():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    status = ReportStatus(start_time=now, completion_time=now)
    assert status.to_raw()["durationSeconds"] == 0
    assert replace(status, start_time=datetime(2027, 1, 1, tzinfo=UTC)).duration_seconds == 0


@pytest.mark.parametrize(
    "field",
    [
        "attempts",
        "attempts_in_earlier_pods",
        "finished_in_pod",
        "ignored_failures",
        "omitted_failures",
    ],
)
def test_counts_stay_within_what_the_crd_takes(field):
    record = replace(NodeRecord("u", "Active"), **{field: COUNT_LIMIT + 1})
    assert getattr(record, field) == COUNT_LIMIT
    assert parse_record(record.to_raw()) == record


@pytest.mark.parametrize(
    "raw", [{"phase": 1}, {"timeline": "x"}, {"nodeStates": {"a": {"startedAt": "x"}}}]
)
def test_what_the_crd_does_not_allow_is_refused(raw):
    with pytest.raises(ValueError, match=r"instead of|isoformat"):
        parse_report_status(raw)
