"""The start of a Job: tried first, refused with a reason, recorded once."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.job_spec import Completion, JobSpec
from daemonset_job.api.job_status import JobStatus, parse_job_status
from job_controller.core.decide import decide
from job_controller.core.plan import ApplyDaemonSet, CreateReport, DryRunDaemonSet, Plan
from tests.unit.builders import NOW, make_cluster, make_job
from tests.unit.core.plans import condition, kinds, status_of, written_status
from tests.unit.core.runs import run


def test_new_job_is_dry_run_and_then_only_recorded_as_started():
    cluster = make_cluster("a", job=make_job(), has_daemon_set=False, has_report=False)
    tried = decide(cluster.snapshot(), NOW - timedelta(minutes=1))
    assert kinds(tried) == ["DryRunDaemonSet"]
    assert not tried.events

    plan = decide(cluster.snapshot(is_dry_run_done=True), NOW)

    assert kinds(plan) == ["WriteStatus"]
    status = status_of(plan)
    assert status["startTime"] == "2026-01-02T03:04:05Z"
    assert status["phase"] == "Pending"
    assert status["report"] == "sample-20260102030305-12345"
    assert [e.reason for e in plan.events] == ["Started"]


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_start_that_the_status_has_lost_is_recorded_again(is_suspended):
    """A run with a DaemonSet is not held up as one that has not started: its pods run."""
    cluster = make_cluster("a", gated=True)
    run(cluster)
    before = cluster.job.status
    cluster.report_status = {**cluster.report_status, "observedRetry": "5"}
    spec = replace(cluster.job.spec, suspend=is_suspended, after=("other",))
    cluster.job = replace(cluster.job, status=JobStatus(), spec=spec)
    plan = decide(cluster.snapshot(), NOW + timedelta(hours=1))
    assert kinds(plan) == ["WriteStatus"]
    assert not plan.events
    (action,) = plan.actions
    assert action.status.start_time == before.start_time
    assert action.status.observed_retry == "5"
    assert action.status.report == before.report


def test_a_run_that_the_first_version_started_keeps_the_name_of_its_report():
    """An upgrade in mid-run: the report may exist, or be missing because a crash came before it."""
    earlier = "sample-12345678"
    cluster = make_cluster("a", gated=True)
    cluster.job = replace(cluster.job, status=replace(cluster.job.status, report=earlier))
    assert status_of(decide(cluster.snapshot(), NOW))["report"] == earlier
    cluster.has_report = False
    plan = decide(cluster.snapshot(), NOW)
    (created,) = [action for action in plan.actions if isinstance(action, CreateReport)]
    assert created.body["metadata"]["name"] == earlier


def test_no_other_text_in_the_status_names_the_report():
    """A user who can write the status of a Job cannot have another run's report written."""
    cluster = make_cluster("a", gated=True)
    status = replace(cluster.job.status, report="other-20260102030305-54321")
    cluster.job = replace(cluster.job, status=status)
    assert status_of(decide(cluster.snapshot(), NOW))["report"] == "sample-20260102030305-12345"


LARGE = Completion(token="\\pL{900}", match="Regex")


def unstarted(**changes):
    job = make_job(spec=JobSpec(image="example/task:1", **changes))
    return make_cluster("a", job=job, has_daemon_set=False, has_report=False, running=False)


def test_a_job_whose_token_cannot_be_used_does_not_start_and_says_why():
    cluster = unstarted(completion=LARGE)
    plan = decide(cluster.snapshot(), NOW)

    assert kinds(plan) == ["WriteStatus"]
    status = status_of(plan)
    assert "startTime" not in status  # so that the token may still be changed
    assert (status["phase"], status["observedGeneration"]) == ("Pending", 1)
    progressing = condition(plan, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "InvalidCompletionToken")
    assert "spec.completion.token: pattern too large" in progressing["message"]
    assert len(progressing["message"]) < 1024
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "InvalidCompletionToken")]
    cluster.job = replace(cluster.job, status=parse_job_status(status))
    assert decide(cluster.snapshot(), NOW) == Plan()

    cluster.job = replace(cluster.job, spec=JobSpec(image="example/task:1"), generation=2)
    plan = decide(cluster.snapshot(is_dry_run_done=True), NOW)
    assert status_of(plan)["startTime"]
    assert condition(plan, "Progressing")["reason"] == "Starting"


def test_a_suspended_job_whose_token_cannot_be_used_says_both():
    cluster = unstarted(completion=LARGE, suspend=True)
    plan = decide(cluster.snapshot(), NOW)
    assert status_of(plan)["phase"] == "Paused"
    assert condition(plan, "Suspended")["status"] == "True"
    assert condition(plan, "Progressing")["reason"] == "InvalidCompletionToken"

    cluster.job = replace(
        cluster.job, status=written_status(plan), spec=JobSpec(image="x", suspend=True)
    )
    plan = decide(cluster.snapshot(), NOW)
    assert condition(plan, "Progressing")["reason"] == "Paused"
    assert condition(plan, "Suspended")["status"] == "True"

    cluster.job = replace(
        cluster.job,
        status=written_status(plan),
        spec=JobSpec(image="x", completion=LARGE),
    )
    plan = decide(cluster.snapshot(), NOW)
    assert condition(plan, "Suspended")["status"] == "False"
    assert status_of(plan)["phase"] == "Pending"


def test_a_run_that_was_started_with_such_a_token_says_so_as_well():
    cluster = make_cluster("a", gated=True)
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, completion=LARGE))
    assert (
        condition(decide(cluster.snapshot(), NOW), "Progressing")["reason"]
        == "InvalidCompletionToken"
    )


def test_what_the_api_server_refuses_has_not_started():
    cluster = make_cluster(
        "a", job=make_job(), has_daemon_set=False, has_report=False, running=False
    )
    cluster.refusal = "foo: no"
    plan = decide(cluster.snapshot(), NOW)

    assert kinds(plan) == ["WriteStatus"]
    assert plan.requeue_after == 15.0
    assert "startTime" not in status_of(plan)
    assert condition(plan, "Progressing")["reason"] == "DaemonSetRefused"
    assert "foo: no" in condition(plan, "Progressing")["message"]
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", "DaemonSetRefused")]
    cluster.job = replace(cluster.job, status=written_status(plan))
    again = decide(cluster.snapshot(), NOW)
    assert again.actions == again.events == ()

    cluster.refusal = ""
    assert kinds(decide(cluster.snapshot(), NOW)) == ["DryRunDaemonSet"]
    started_now = decide(cluster.snapshot(is_dry_run_done=True), NOW)
    assert kinds(started_now) == ["WriteStatus"]
    assert status_of(started_now)["startTime"]
    assert condition(started_now, "Progressing")["status"] == "True"


@pytest.mark.parametrize("owner", ["other-job", ""])
def test_job_does_not_start_while_a_foreign_daemon_set_has_its_name(owner):
    cluster = make_cluster("a")
    foreign = replace(cluster.daemon_set(), owner_uid=owner)
    cluster.job = make_job()

    plan = decide(cluster.snapshot(daemon_set=foreign, pods=(), reports=()), NOW)

    assert kinds(plan) == ["WriteStatus"]
    assert "startTime" not in status_of(plan)
    expected = "PreviousRunEnding" if owner else "DaemonSetAlreadyExists"
    assert condition(plan, "Progressing")["reason"] == expected


def test_what_is_tried_is_what_is_then_applied():
    first = decide(
        make_cluster("a", job=make_job(), has_daemon_set=False, has_report=False).snapshot(), NOW
    )
    second = decide(make_cluster("a", has_daemon_set=False, has_report=False).snapshot(), NOW)

    (tried,) = [a.body for a in first.actions if isinstance(a, DryRunDaemonSet)]
    (applied,) = [a.body for a in second.actions if isinstance(a, ApplyDaemonSet)]
    assert tried == applied
