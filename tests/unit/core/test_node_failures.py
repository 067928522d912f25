"""The earlier failures of nodes: appended when a retry or a token replaces them, never changed."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.names import ANNOTATION_RETRY
from daemonset_job.api.node_failure import NodeFailure
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.decide import decide
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.render import node_failures
from job_controller.core.render.node_failures import (
    FAILURES_KEPT,
    FAILURES_LIMIT_BYTES,
    keep_failures,
)
from job_controller.core.render.node_list import build_node_list
from job_controller.core.render.report_status import ARGUMENTS_LIMIT
from job_controller.core.render.shard_size import has_room_for_list
from job_controller.core.text.sanitize import DETAIL_LIMIT
from tests.mutation.schema import OBJECT_BYTES, stored_bytes
from tests.unit.builders import NOW, START, done, make_cluster, make_pod, seen_before
from tests.unit.core.full_shards import ledger_of

FAILED = NodeRecord(
    "uid",
    NodeState.FAILED,
    reason="BackoffLimitExceeded",
    message="exit 2 after 4 attempts: 'disk full'",
    attempts=4,
    exit_code=2,
    finished_at=NOW,
)
FAILURE = NodeFailure(
    NOW, "BackoffLimitExceeded", "exit 2 after 4 attempts: 'disk full'", exit_code=2, attempts=4
)
WAITING = NodeRecord("uid", NodeState.WAITING, attempts=4, retry="1")


def shard(records, number=0):
    status = ReportStatus(node_states=records)
    return JobReport(
        "default", f"r-{number}", f"u-{number}", "1", "job", "j", number, status=status
    )


def keep(known, record):
    return keep_failures([shard({"a": known})], {"a": record})["a"]


def test_a_failure_that_still_holds_is_no_earlier_one():
    assert keep(FAILED, replace(FAILED, message="the last line was added")).failures == ()


def test_what_follows_a_failure_keeps_it():
    for state in NodeState:
        if state != NodeState.FAILED:
            assert keep(FAILED, replace(WAITING, state=state)).failures == (FAILURE,)
    again = replace(FAILED, retry="1", message="exit 3")
    assert keep(FAILED, again).failures == (FAILURE,)


def test_failures_are_appended_and_the_oldest_are_only_counted_then():
    record = FAILED
    for number in range(FAILURES_KEPT + 2):
        record = keep(record, replace(FAILED, retry=f"{number + 1}"))
    assert [failure.retry for failure in record.failures] == ["2", "3", "4", "5", "6"]
    assert record.omitted_failures == 2
    assert keep(record, replace(record, failures=(), omitted_failures=0)) == record


def test_another_node_of_the_name_keeps_what_failed_before():
    known = replace(WAITING, failures=(FAILURE,), omitted_failures=3)
    other = NodeRecord("other", NodeState.WAITING)
    kept = replace(other, failures=(FAILURE,), omitted_failures=3)
    assert keep(known, other) == kept
    assert keep(FAILED, other).failures == (FAILURE,)
    assert keep(FAILED, replace(FAILED, uid="other", message="exit 3")).failures == (FAILURE,)
    stranger = replace(other, failures=(FAILURE,))
    assert keep_failures([shard({})], {"a": stranger})["a"].failures == ()


def test_a_failure_that_another_shard_has_in_its_list_is_not_added_again():
    after = replace(WAITING, failures=(FAILURE,))
    reports = [shard({"a": FAILED}, 0), shard({"a": after}, 1)]
    assert keep_failures(reports, {"a": WAITING})["a"].failures == (FAILURE,)


def test_the_failures_of_a_node_in_two_shards_are_the_longer_list():
    """Its record is moving: one of the shards was written before the other."""
    reports = [
        shard({"a": WAITING}, 0),
        shard({"a": replace(WAITING, failures=(FAILURE,))}, 1),
    ]
    assert keep_failures(reports, {"a": WAITING})["a"].failures == (FAILURE,)


def test_long_texts_are_shortened():
    known = replace(FAILED, message="x" * 300 + ": 'the last line'", retry="r" * 256)
    (failure,) = keep(known, WAITING).failures
    assert len(failure.message.encode()) == node_failures.MESSAGE_LIMIT
    assert failure.message.endswith(": 'the last line'")
    assert len(failure.retry) == node_failures.RETRY_LIMIT


def test_the_failures_of_a_shard_are_bounded_and_all_are_counted():
    message = "<" * 50
    records = {
        f"n{n}": replace(FAILED, message=message, retry="x" * 200, uid=f"u{n}") for n in range(1000)
    }
    for attempt in range(6):
        after = {name: replace(r, retry=f"{attempt}") for name, r in records.items()}
        records = keep_failures([shard(records)], after)
        total = [len(r.failures) + r.omitted_failures for r in records.values()]
        assert total == [attempt + 1] * 1000
    raw = [f.to_raw() for record in records.values() for f in record.failures]
    assert len(json.dumps(raw, separators=(",", ":"))) < 1.1 * FAILURES_LIMIT_BYTES
    assert len(raw) > 500


def test_a_thousand_ordinary_failures_are_all_kept():
    records = {f"n{n}": replace(FAILED, uid=f"u{n}") for n in range(1000)}
    after = {name: replace(WAITING, uid=record.uid) for name, record in records.items()}
    kept = keep_failures([shard(records)], after).values()
    assert all(len(record.failures) == 1 for record in kept)


@pytest.mark.parametrize(
    ("characters", "line", "least"), [(DETAIL_LIMIT, 120, 0), (25, 60, 500), (25, 20, 700)]
)
def test_the_fullest_shard_fits_into_etcd(characters, line, least):
    """A thousand nodes that failed six times, with texts at their limits, or of ordinary length."""
    name = "ip-10-0-{:04}.eu-central-1.compute.internal"
    records = {
        name.format(n): NodeRecord(
            uid=f"{n:036}",
            state=NodeState.FAILED,
            reason="BackoffLimitExceeded",
            message="m" * characters + f": '{'l' * line}'",
            attempts=100,
            attempts_in_earlier_pods=90,
            finished_in_pod=10,
            exit_code=137,
            started_at=NOW,
            finished_at=NOW + timedelta(seconds=9),
            pod_uid=f"{n:036}",
            retry="0",
        )
        for n in range(1000)
    }
    ledger = ledger_of(records)
    for attempt in range(5):
        after = {name: replace(r, retry=f"{attempt + 1}") for name, r in records.items()}
        records = keep_failures([replace(shard(records), evidence=ledger)], after)
    rows = build_node_list(records, ledger)
    if not has_room_for_list(replace(shard(records), evidence=ledger), records, rows):
        rows = ()
    raw = {
        "spec": {"manifest": "x" * SPEC_LIMIT_BYTES, "args": ["x" * ARGUMENTS_LIMIT]},
        "evidence": {name: entry.to_raw() for name, entry in ledger.items()},
        "status": ReportStatus(node_states=records, node_list=rows).to_raw(),
    }
    assert stored_bytes(raw) < OBJECT_BYTES
    assert sum(len(record.failures) for record in records.values()) >= least


def reconcile(cluster):
    plan = decide(seen_before(cluster.snapshot(), timedelta(minutes=1)), NOW)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return cluster.report_status["nodeStates"].get("a", {})


def failed_pull():
    """Return a cluster whose node failed before its task was started, and is to be retried."""
    waiting = Container(state="waiting", reason="ErrImagePull", message="no such image")
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods[0] = make_pod("a", container=waiting)
    cluster.seen = timedelta(hours=1)
    plan = decide(cluster.snapshot(), NOW)
    (written,) = [each for each in plan.actions if isinstance(each, WriteReportStatus)]
    cluster.report_status = written.status.to_raw()
    (status,) = [each for each in plan.actions if isinstance(each, WriteStatus)]
    cluster.job = replace(cluster.job, status=status.status, annotations={ANNOTATION_RETRY: "1"})
    assert cluster.report_status["nodeStates"]["a"]["state"] == "Failed"
    return cluster


def test_a_retry_and_a_success_keep_what_failed():
    cluster = failed_pull()
    assert reconcile(cluster)["state"] == "Failed"  # until the retry's pod is there
    cluster.pods[0] = make_pod("a", serial=2, container=Container(state="", started_at=None))
    (failure,) = reconcile(cluster)["failures"]
    assert (failure["reason"], failure["message"]) == ("ImagePullFailed", "no such image")
    cluster.pods[0] = make_pod("a", serial=2)
    cluster.evidence = {"a": replace(done("a"), pod_uid="pod-a-2")}
    record = reconcile(cluster)
    assert (record["state"], record["failures"]) == ("Completed", [failure])


def test_a_token_after_the_failure_keeps_the_failure():
    container = Container(
        state="running", last_exit_code=2, last_finished_at=START, restart_count=9
    )
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods[0] = make_pod("a", container=container)
    assert reconcile(cluster)["state"] == "Failed"
    cluster.evidence = {"a": done("a")}
    record = reconcile(cluster)
    assert record["state"] == "Completed"
    assert [each["exitCode"] for each in record["failures"]] == [2]


def test_a_retried_node_that_leaves_keeps_its_failure():
    cluster = failed_pull()
    cluster.pods[0] = make_pod("a", serial=2, state="", container=None)
    assert reconcile(cluster)["failures"]
    del cluster.nodes["a"], cluster.pods[0]
    record = reconcile(cluster)
    assert (record["state"], len(record["failures"])) == ("Removed", 1)
