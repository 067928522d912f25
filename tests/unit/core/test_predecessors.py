"""spec.after: for which run the start of a Job waits, and what the condition says."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.job_status import Condition
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.rollout_requests import RolloutRequests
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.decide import decide
from job_controller.core.plan import DryRunDaemonSet, WriteStatus
from job_controller.core.state.predecessors import (
    CHAIN_LIMIT,
    Predecessor,
    find_waiting,
    newest_run,
)
from tests.unit.builders import NOW, START, SampleCluster, make_job, started
from tests.unit.core.runs import acts, reason_of

JOB = make_job(name="second", spec=replace(make_job().spec, after=("first",)))


def message(*known, job=JOB):
    found = find_waiting(job, {each.name: each for each in known})
    return found.message if found is not None else ""


def job_with(type_, status=True):
    job = started(make_job())
    conditions = (Condition(type_, status, "Why", "", NOW),)
    return replace(job, status=replace(job.status, conditions=conditions))


def report(phase, minutes, shard=0):
    found = SampleCluster().report()
    created = START + timedelta(minutes=minutes)
    name = f"sample-{minutes:03}-{shard}"
    return replace(
        found, name=name, shard=shard, created_at=created, status=ReportStatus(phase=phase)
    )


# --- which run counts --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "phase"),
    [
        (make_job(), Phase.PENDING),
        (job_with(ConditionType.COMPLETE), Phase.SUCCEEDED),
        (job_with(ConditionType.COMPLETE, status=False), Phase.PENDING),
        (job_with(ConditionType.FAILED), Phase.FAILED),
    ],
)
def test_a_job_that_exists_is_the_newest_run_whatever_reports_say(job, phase):
    reports = (report(Phase.SUCCEEDED, 9), report(Phase.FAILED, 10))
    assert newest_run("sample", job, reports).phase == phase


def test_a_job_whose_change_is_not_in_its_status_has_not_succeeded():
    """Its nodes and the next Job may be changed together, as in one commit."""
    job = replace(job_with(ConditionType.COMPLETE), generation=2)
    words = "the run starts after Job first has succeeded, which is running"
    assert message(newest_run("first", job, ())) == words
    job = replace(job, status=replace(job.status, observed_generation=2))
    assert message(newest_run("first", job, ())) == ""


@pytest.mark.parametrize("type_", [ConditionType.COMPLETE, ConditionType.FAILED])
def test_a_run_that_is_rolled_back_has_not_succeeded(type_):
    """What the next run builds on is undone, or about to be; and no retry revives it."""
    job = job_with(type_)
    undone = replace(job, status=replace(job.status, rollback=RollbackStatus()))
    found = newest_run("first", undone, ())
    assert "its newest run is rolled back, or is to be: create Job first again" in message(found)
    asked = replace(
        job,
        requests=RolloutRequests(rollback="slower"),
        spec=replace(job.spec, rollback=True),
    )
    assert "is rolled back, or is to be" in message(newest_run("first", asked, ()))


def test_a_deleted_job_whose_run_was_rolled_back_has_not_succeeded():
    found = report(Phase.SUCCEEDED, 3)
    undone = replace(found, status=replace(found.status, rollback=RollbackStatus()))
    assert "is rolled back" in message(newest_run("first", None, (undone,)))


def test_a_retry_of_an_aborted_run_is_not_advised():
    job = job_with(ConditionType.FAILED)
    aborted = Condition(ConditionType.FAILED, True, FailedReason.ABORTED, "stop")
    job = replace(job, status=replace(job.status, conditions=(aborted,)))
    assert "was aborted: create Job first again" in message(newest_run("first", job, ()))


def test_of_deleted_jobs_the_newest_report_counts():
    reports = (
        report(Phase.FAILED, 1),
        report(Phase.SUCCEEDED, 3),
        report(Phase.CANCELLED, 2),
        report(None, 3, shard=1),
    )
    assert newest_run("sample", None, reports).phase == Phase.SUCCEEDED
    assert newest_run("sample", None, reports[:1]).phase == Phase.FAILED
    assert newest_run("sample", None, ()).phase is None


def test_a_report_that_was_put_back_from_a_backup_is_not_the_newest_run():
    older = replace(report(Phase.SUCCEEDED, 9), name="sample-20260101000000-aaaaa")
    newer = replace(report(Phase.FAILED, 1), name="sample-20260102000000-bbbbb")
    assert newest_run("sample", None, (older, newer)).phase == Phase.FAILED


def test_a_job_that_has_started_waits_for_none():
    job = make_job(spec=JOB.spec)
    assert newest_run("sample", job, ()).waits_for == ("first",)
    assert newest_run("sample", started(job), ()).waits_for == ()


# --- the condition -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Predecessor("first"), "and there is neither a Job nor a report of that name"),
        (Predecessor("first", Phase.RUNNING), "which is running"),
        (Predecessor("first", Phase.PAUSED), "which is paused"),
        (Predecessor("first", Phase.PENDING), "which is pending"),
        (Predecessor("first", Phase.PENDING, ("zero",)), "which itself waits for zero"),
        (Predecessor("first", Phase.FAILED), "retry Job first, or create it again"),
        (Predecessor("first", Phase.CANCELLED), "was deleted before its end"),
    ],
)
def test_the_condition_names_the_job_and_what_to_do(found, words):
    assert message(found).startswith("the run starts after Job first has succeeded, ")
    assert words in message(found)


def test_all_of_them_have_to_succeed():
    job = replace(JOB, spec=replace(JOB.spec, after=("first", "other")))
    done = Predecessor("first", Phase.SUCCEEDED)
    assert "after Job other" in message(done, Predecessor("other", Phase.RUNNING), job=job)
    assert message(done, Predecessor("other", Phase.SUCCEEDED), job=job) == ""


def test_a_circle_is_named():
    known = (
        Predecessor("first", Phase.PENDING, ("x", "third")),
        Predecessor("third", Phase.PENDING, ("second",)),
    )
    assert "(second -> first -> third -> second)" in message(*known)
    assert "change spec.after of one of them" in message(*known)


def test_a_circle_of_others_and_long_chains_end():
    circle = (
        Predecessor("first", Phase.PENDING, ("a",)),
        Predecessor("a", Phase.PENDING, ("first",)),
    )
    assert "which itself waits for a" in message(*circle)
    many = [Predecessor("first", Phase.PENDING, ("n0",))]
    many += [Predecessor(f"n{i}", Phase.PENDING, (f"n{i + 1}",)) for i in range(3 * CHAIN_LIMIT)]
    assert "which itself waits for n0" in message(*many)


# --- the start ---------------------------------------------------------------------------


def cluster():
    return SampleCluster(job=JOB, has_daemon_set=False, has_report=False)


def test_nothing_is_created_while_a_run_waits():
    known = {"first": Predecessor("first", Phase.RUNNING)}
    plan = decide(cluster().snapshot(predecessors=known), NOW)
    (write,) = plan.actions
    assert isinstance(write, WriteStatus)
    assert write.status.start_time is None
    assert reason_of(plan) == "WaitingForJob"
    assert [(event.type, event.reason) for event in plan.events] == [("Normal", "WaitingForJob")]


def test_a_run_starts_once_the_others_have_succeeded():
    known = {"first": Predecessor("first", Phase.SUCCEEDED)}
    assert acts(decide(cluster().snapshot(predecessors=known), NOW), DryRunDaemonSet)


def test_a_run_that_has_started_does_not_wait_any_more():
    found = cluster()
    found.job = started(JOB)
    known = {"first": Predecessor("first", Phase.FAILED)}
    plan = decide(found.snapshot(predecessors=known), NOW)
    assert reason_of(plan) != "WaitingForJob"
