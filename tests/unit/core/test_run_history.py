"""The history of a run: each change once, in order of time, whatever happens in between."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.notifications import Delivery
from daemonset_job.api.report_status import ReportStatus, parse_report_status
from job_controller.core.decide import decide
from job_controller.core.history import closed_status
from job_controller.core.plan import WriteReportStatus, WriteStatus, defer_progress_writes
from job_controller.core.render.run_history import FIRST_KEPT, NEWEST_KEPT, append_history
from tests.unit.builders import NOW, done, make_cluster, make_pod, seen_before
from tests.unit.core.runs import FAILED
from tests.unit.core.standing_jobs import request, standing


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def run(cluster, seconds=0, *, writes_job=True):
    """Decide and take over what is written; without `writes_job` a crash comes in between."""
    now = at(seconds)
    plan = decide(seen_before(cluster.snapshot(), timedelta(hours=1), now), now)
    for action in plan.actions:
        if isinstance(action, WriteStatus) and writes_job:
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return plan


def history(cluster):
    return [
        (entry["reason"], int((parse(entry) - NOW).total_seconds()), entry.get("by", ""))
        for entry in cluster.report_status.get("history", ())
    ]


def parse(entry):
    return parse_report_status({"history": [entry]}).history[0].time


def change(cluster, manager="", **spec):
    job = cluster.job
    cluster.job = replace(
        job,
        spec=replace(job.spec, **spec),
        generation=job.generation + 1,
        spec_manager=manager,
    )


def retry(cluster, value, manager="kubectl-annotate"):
    cluster.job = replace(
        cluster.job, annotations={names.ANNOTATION_RETRY: value}, retry_manager=manager
    )


def failed_run():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.pods[1] = make_pod("b", container=FAILED)
    run(cluster)
    assert history(cluster) == [("Failed", 0, "")]
    return cluster


def test_the_abort_of_a_failed_run_is_in_its_history_once_with_the_client():
    cluster = failed_run()
    requests = replace(cluster.job.requests, abort="enough", aborted_by="kubectl-annotate")
    cluster.job = replace(cluster.job, requests=requests)
    run(cluster, 30, writes_job=False)
    for seconds in (31, 40):
        run(cluster, seconds)
    assert history(cluster) == [("Failed", 0, ""), ("Failed", 30, "kubectl-annotate")]
    words = [entry["message"] for entry in cluster.report_status["history"]]
    assert words[1] == "aborted after 1 of 2 nodes: enough"
    assert cluster.job.status.completion_time == NOW


def test_an_abort_on_record_is_not_new_if_a_report_does_not_have_it():
    cluster = failed_run()
    cluster.job = replace(cluster.job, requests=replace(cluster.job.requests, abort="enough"))
    run(cluster, 30)
    del cluster.report_status["conditions"]
    run(cluster, 31)
    assert len(history(cluster)) == 2


def test_a_retry_that_succeeds_leaves_the_failure_in_history_and_timeline():
    cluster = failed_run()
    retry(cluster, "1")
    run(cluster, 30)
    cluster.pods[1] = make_pod("b", serial=2)
    cluster.evidence["b"] = replace(
        done("b", at="2026-01-02T03:04:37Z"), pod_uid="pod-b-2", pod="sample-b-2"
    )
    run(cluster, 33)
    assert history(cluster) == [
        ("Failed", 0, ""),
        ("RetryRequested", 30, "kubectl-annotate"),
        ("Completed", 33, ""),
    ]
    assert cluster.report_status["timeline"] == [
        "2026-01-02T03:03:05Z started on 2 nodes",
        "+0s b failed: exit 2 after 10 attempts",
        "+55s a completed, the first",
        "+60s the run failed: 1 of 2 nodes failed: b exit 2 after 10 attempts",
        "+90s retry requested: 1 (by kubectl-annotate)",
        "+92s b completed, the last of 2",
        "+92s b completed at attempt 11",
        "+93s the run succeeded: 2 of 2 nodes completed",
    ]


def test_nothing_is_added_while_nothing_happens():
    cluster = failed_run()
    before = cluster.report_status
    run(cluster, 60)
    assert cluster.report_status == before


def rerun_words(cluster):
    entries = cluster.report_status.get("history", ())
    return [e["message"] for e in entries if e["reason"] == "RerunRequested"]


def test_the_history_has_the_nodes_of_each_rerun_request_once():
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    cluster.job = replace(cluster.job, rerun_manager="kubectl-annotate")
    request(cluster, "b@1")
    for seconds in (30, 31, 32):
        run(cluster, seconds, writes_job=False)
    for seconds in (33, 34, 35):
        run(cluster, seconds)
    assert rerun_words(cluster) == ["rerun requested: 1 node: b"]
    assert [by for reason, _, by in history(cluster) if reason == "RerunRequested"] == [
        "kubectl-annotate"
    ]
    cluster.job = replace(cluster.job, annotations={})
    run(cluster, 40)
    request(cluster, "*@2")
    for seconds in (50, 51, 52):
        run(cluster, seconds)
    request(cluster, ",".join(f"rack{n}-{'x' * n}" for n in range(1, 99)))
    for seconds in (60, 61, 62):
        run(cluster, seconds)
    assert rerun_words(cluster)[1] == "rerun requested: all nodes"
    assert rerun_words(cluster)[2].startswith("rerun requested: 98 nodes: rack1-x,")
    assert "more" in rerun_words(cluster)[2]
    assert len(rerun_words(cluster)[2]) < 250
    assert any("requested: 1 node: b (by" in line for line in cluster.report_status["timeline"])


def test_a_rerun_request_of_before_an_upgrade_is_no_new_one():
    cluster = request(standing("a", completed=("a",)), "a@1")
    for _ in range(3):
        run(cluster)
    del cluster.report_status["observedRerun"]
    cluster.report_status.pop("history", None)
    run(cluster, 30)
    assert rerun_words(cluster) == []
    request(cluster, "a@2")
    for seconds in (60, 61, 62):
        run(cluster, seconds)
    assert rerun_words(cluster) == ["rerun requested: 1 node: a"]


def test_a_crash_between_report_and_job_doubles_nothing():
    cluster = failed_run()
    retry(cluster, "1")
    for seconds in (30, 31):
        run(cluster, seconds, writes_job=False)
        assert history(cluster)[1:] == [("RetryRequested", 30, "kubectl-annotate")]
    run(cluster, 32)
    assert len(history(cluster)) == 2


def test_a_suspension_and_its_end_are_recorded_with_the_client():
    cluster = make_cluster("a", "b", gated=True)
    run(cluster)
    change(cluster, "kubectl-patch", suspend=True)
    run(cluster, 5)
    change(cluster, "argocd", suspend=False)
    run(cluster, 9)
    assert history(cluster) == [
        ("SpecChanged", 5, "kubectl-patch"),
        ("Paused", 5, "kubectl-patch"),
        ("SpecChanged", 9, "argocd"),
        ("Resumed", 9, "argocd"),
    ]


def test_a_pause_by_policy_is_nobodys_request():
    cluster = make_cluster("a", "b", gated=True)
    change(cluster, "x", failure_policy=FailurePolicy("Pause", 0))
    run(cluster)
    cluster.pods[1] = make_pod("b", container=FAILED)
    run(cluster, 7)
    assert history(cluster) == [("Paused", 7, "")]
    assert cluster.report_status["history"][0]["message"].startswith("1 of 2 nodes failed: b ")


def test_what_a_new_report_finds_is_no_request():
    """The Job was created with the annotation, or an upgrade came in mid-run."""
    cluster = make_cluster("a", gated=True)
    retry(cluster, "1")
    cluster.job = replace(cluster.job, generation=4)
    run(cluster)
    assert history(cluster) == []
    assert cluster.report_status["observedRetry"] == "1"
    assert cluster.report_status["jobGeneration"] == 4


def test_an_alteration_is_recorded_once(monkeypatch):
    cluster = make_cluster("a", gated=True)
    run(cluster)
    altered = replace(cluster.daemon_set(), alteration="kubectl-edit: template.spec.hostPID")
    monkeypatch.setattr(cluster, "daemon_set", lambda: altered)
    for seconds in (3, 4):
        run(cluster, seconds, writes_job=False)
    run(cluster, 5)
    run(cluster, 6)
    assert history(cluster) == [("DaemonSetAltered", 3, "")]


def test_an_entry_is_not_deferred_as_progress_is():
    cluster = make_cluster("a", "b", gated=True)
    run(cluster)
    change(cluster, suspend=True)
    plan = decide(cluster.snapshot(), at(5))
    assert plan.is_urgent
    assert defer_progress_writes(plan, cluster.job.status, 10.0) == plan


def test_the_first_entry_is_not_older_than_the_start():
    """By its time a receiver is known to have been notified of what came later."""
    before = ReportStatus(start_time=at(60))
    after = append_history(before, before, [HistoryEntry(at(5), "Completed")])
    assert after.history[0].time == at(60)


def test_times_do_not_go_back():
    before = ReportStatus(history=(HistoryEntry(at(10), "Paused"),))
    after = append_history(before, before, [HistoryEntry(at(5), "Resumed")])
    assert [entry.time for entry in after.history] == [at(10), at(10)]


def test_two_pauses_of_one_second_are_two_to_a_receiver():
    """A receiver knows them by reason and time, and so does the record of what it was sent."""
    history = (HistoryEntry(at(10), "Paused"), HistoryEntry(at(10), "Resumed"))
    before = ReportStatus(start_time=NOW, history=history)
    after = append_history(before, before, [HistoryEntry(at(5), "Paused", "again")])
    assert after.history[-1].time == at(11)
    sent = Delivery(events=("Paused",), event="Paused", time=at(10))
    (due,) = replace(after, notifications={"ops": sent}).due_notifications("ops")
    assert due.message == "again"


@pytest.mark.parametrize("count", [50, 51, 120])
def test_a_long_history_loses_its_middle_and_counts_it(count):
    status = ReportStatus()
    for number in range(count):
        status = append_history(status, status, [HistoryEntry(at(number), "Paused", f"{number}")])
    kept = [int(entry.message) for entry in status.history]
    assert kept[:FIRST_KEPT] == list(range(FIRST_KEPT))
    assert kept[FIRST_KEPT:] == list(range(count - NEWEST_KEPT, count))
    assert status.omitted_history == count - FIRST_KEPT - NEWEST_KEPT


def test_texts_of_clients_are_made_safe():
    entry = HistoryEntry(NOW, "Paused", "x\x1b[31m\n" * 1000, "evil\n\u202emanager" * 50)
    (kept,) = append_history(ReportStatus(), ReportStatus(), [entry]).history
    assert kept.message.isprintable()
    assert kept.by.isprintable()
    assert len(kept.message.encode()) <= 400
    assert len(kept.by.encode()) <= 128


def test_the_history_of_a_cancelled_run_ends_with_that():
    cluster = failed_run()
    retry(cluster, "1")
    run(cluster, 30)
    report = cluster.report()
    closed = closed_status(report, at(40))
    assert [entry.reason for entry in closed.history] == ["Failed", "RetryRequested", "Cancelled"]
    assert closed.history[-1].time == at(40)


def test_the_number_of_nodes_at_the_start_is_not_entered_again():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    run(cluster)
    assert cluster.report_status["timeline"][0].endswith(" started on 1 node")
    late = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes, cluster.pods = late.nodes, late.pods
    run(cluster, 60)
    assert cluster.report_status["nodes"]["desired"] == 2
    assert cluster.report_status["timeline"][0].endswith(" started on 1 node")
