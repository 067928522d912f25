"""A JobReport from and to JSON: what is written is what is read."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.evidence import Evidence, parse_evidence
from daemonset_job.api.names import LABEL_JOB, LABEL_JOB_UID, LABEL_SCHEDULED_JOB, LABEL_SHARD
from daemonset_job.api.node_record import NodeRecord, parse_record
from daemonset_job.api.report import (
    JobReport,
    find_evidence,
    merge_evidence,
    merge_records,
    new_report,
    of_schedule,
    parse_report,
)
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.times import format_time, parse_time

TEXTS = st.text(max_size=20)
COUNTS = st.integers(0, 10_000)
MOMENTS = st.none() | st.integers(1_600_000_000, 2_200_000_000).map(
    lambda seconds: datetime.fromtimestamp(seconds, UTC)
)
TIMES = MOMENTS.map(lambda moment: format_time(moment) if moment else "")
EVIDENCE = st.builds(
    Evidence,
    node_uid=TEXTS,
    completed_at=TIMES,
    pod=TEXTS,
    pod_uid=TEXTS,
    failed_at=TIMES,
    results=st.dictionaries(TEXTS, TEXTS, max_size=4),
    last_lines=st.lists(TEXTS, max_size=5).map(tuple),
    attempt=COUNTS,
)
RECORDS = st.builds(
    NodeRecord,
    uid=TEXTS,
    state=st.sampled_from(["Waiting", "Active", "Completed", "Failed", "Unreachable", "Removed"]),
    reason=TEXTS,
    message=TEXTS,
    attempts=COUNTS,
    attempts_in_earlier_pods=COUNTS,
    finished_in_pod=COUNTS,
    ignored_failures=COUNTS,
    exit_code=st.none() | st.integers(0, 255),
    started_at=MOMENTS,
    finished_at=MOMENTS,
    pod_uid=TEXTS,
    retry=TEXTS,
)


@given(EVIDENCE)
def test_evidence_survives_its_json(evidence):
    assert parse_evidence(evidence.to_raw()) == evidence


@given(RECORDS)
def test_a_record_survives_its_json(record):
    assert parse_record(record.to_raw()) == record


@given(EVIDENCE)
def test_empty_fields_of_evidence_are_left_out(evidence):
    assert all(evidence.to_raw().values())


@given(RECORDS)
def test_of_a_record_only_the_uid_and_the_exit_code_may_be_empty(record):
    may_be_empty = {"uid", "exitCode"}
    assert all(value for key, value in record.to_raw().items() if key not in may_be_empty)


def test_exit_code_0_is_recorded():
    record = NodeRecord("uid", "Completed", exit_code=0)
    assert record.to_raw() == {"uid": "uid", "state": "Completed", "exitCode": 0}


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z", 90),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", 0),
        ("", "2026-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00Z", "", 0),
    ],
)
def test_a_duration_is_never_negative_and_needs_both_ends(start, end, seconds):
    record = NodeRecord(
        "uid", "Completed", started_at=parse_time(start), finished_at=parse_time(end)
    )
    assert record.duration_seconds == seconds
    assert record.to_raw().get("durationSeconds", 0) == seconds


def test_empty_evidence_completes_no_node():
    assert parse_evidence({}) == Evidence("")
    assert not Evidence("uid", failed_at="2026-01-01T00:00:00Z").is_completed
    assert Evidence("uid", completed_at="2026-01-01T00:00:00Z").is_completed


def raw_report(**changes):
    return {
        **new_report(
            namespace="here",
            name="sample-12345",
            job_name="sample",
            job_uid="12345678-9",
            spec={"image": "x"},
        ),
        **changes,
    }


def test_new_report_has_the_name_and_labels_of_its_run_and_no_owner():
    raw = raw_report()
    meta = raw["metadata"]
    assert meta["name"] == "sample-12345"
    assert meta["labels"] == {LABEL_JOB: "sample", LABEL_JOB_UID: "12345678-9", LABEL_SHARD: "0"}
    assert "ownerReferences" not in meta
    assert raw["spec"] == {"job": {"name": "sample", "uid": "12345678-9"}, "shard": 0, "image": "x"}


def test_the_report_of_a_scheduled_run_names_the_scheduled_job():
    raw = of_schedule(raw_report(), "sweep")
    assert raw["metadata"]["labels"][LABEL_SCHEDULED_JOB] == "sweep"
    assert parse_report(raw).scheduled_by == "sweep"
    assert of_schedule(raw_report(), "") == raw_report()
    assert parse_report(raw_report()).scheduled_by == ""


def test_a_further_shard_has_its_number_in_name_label_and_spec():
    raw = new_report(
        namespace="here", name="sample-12345", job_name="sample", job_uid="12", shard=3, spec={}
    )
    assert raw["metadata"]["name"] == "sample-12345-3"
    assert raw["metadata"]["labels"][LABEL_SHARD] == "3"
    assert parse_report(raw).shard == 3


def test_a_report_is_read_with_both_halves():
    record = NodeRecord("u-a", "Active", attempts=2)
    evidence = Evidence("u-a", completed_at="2026-01-01T00:00:00Z")
    raw = raw_report(
        evidence={"a": evidence.to_raw()}, status={"nodeStates": {"a": record.to_raw()}}
    )
    raw["metadata"] |= {
        "uid": "r",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    report = parse_report(raw)
    assert (report.namespace, report.name, report.uid) == ("here", "sample-12345", "r")
    assert (report.job_name, report.job_uid, report.resource_version) == (
        "sample",
        "12345678-9",
        "7",
    )
    assert report.evidence == {"a": evidence}
    assert report.records == {"a": record}
    assert report.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert replace(report, status=ReportStatus()).records == {}


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": {"name": "x"}},
        {"spec": {"job": {"uid": "u"}}},
        {"metadata": {"name": "x"}, "spec": {"job": {"name": "y"}}},
    ],
)
def test_what_names_no_run_is_no_report(raw):
    with pytest.raises(ValueError, match=r"spec\.job\.uid"):
        parse_report(raw)


NODE_NAMES = st.sampled_from(["a", "b", "c"])


@st.composite
def shards(draw):
    """Return the shards of one run in any order; a node may be in several."""
    return [
        JobReport(
            namespace="default",
            name=f"sample-{shard}",
            uid=f"report-{shard}",
            resource_version="1",
            job_name="sample",
            job_uid="job-uid",
            shard=shard,
            evidence=draw(st.dictionaries(NODE_NAMES, EVIDENCE)),
            status=ReportStatus(node_states=draw(st.dictionaries(NODE_NAMES, RECORDS))),
        )
        for shard in draw(st.permutations(range(draw(st.integers(0, 3)))))
    ]


@given(shards(), st.randoms())
def test_shards_merge_to_the_same_in_any_order(reports, random):
    shuffled = list(reports)
    random.shuffle(shuffled)
    assert merge_evidence(shuffled) == merge_evidence(reports)
    assert merge_records(shuffled) == merge_records(reports)
    assert merge_evidence([*reports, *shuffled]) == merge_evidence(reports)


@given(shards())
def test_a_merged_node_is_what_the_best_of_its_shards_says(reports):
    merged, records = merge_evidence(reports), merge_records(reports)
    by_shard = sorted(reports, key=lambda report: report.shard)
    for name in ("a", "b", "c"):
        entries = [report.evidence[name] for report in by_shard if name in report.evidence]
        completed = [entry for entry in entries if entry.is_completed]
        assert merged.get(name) == next(iter(completed or entries), None)
        assert find_evidence(reports, name) == merged.get(name)
        found = [report.records[name] for report in by_shard if name in report.records]
        ended = [r for state in ("Completed", "Failed") for r in found if r.state == state]
        assert records.get(name) == next(iter(ended or found), None)
