"""What a Job of policy Continuous runs is changed and changed back: the status never had it."""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_status import Condition
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.states import ConditionType
from job_controller.core.plan import WriteStatus
from tests.unit.builders import NOW, SampleCluster, gated_pod, make_pod
from tests.unit.core.runs import conditions, failing, run
from tests.unit.core.standing_jobs import (
    change,
    deleted,
    released,
    request,
    standing,
    totals_of,
)


def run_refused(cluster: SampleCluster) -> None:
    """Run while the API server refuses the status of the Job."""
    status = cluster.job.status
    run(cluster)
    cluster.job = replace(cluster.job, status=status)


def test_nothing_is_done_for_a_change_before_the_status_has_its_number() -> None:
    cluster = standing("a", "b", completed=("a",))
    run(cluster)
    before, generation = cluster.report_status, cluster.job.status.observed_generation
    change(cluster, image="example/task:2")
    request(cluster, "a")
    plan = run(cluster)
    assert [type(action) for action in plan.actions] == [WriteStatus]
    assert cluster.report_status == before
    # What follows the change and the request is in the report first.
    assert cluster.job.status.observed_generation == generation
    assert cluster.job.status.observed_rerun == ""
    assert totals_of(cluster).completed == 1
    run(cluster)
    assert totals_of(cluster).completed == 0
    assert cluster.job.status.observed_generation == cluster.job.generation


def test_a_failed_run_goes_on_with_the_number_of_the_change() -> None:
    cluster = standing("a")
    run(cluster)
    conditions_ = (
        Condition(ConditionType.FAILED, True, FailedReason.CHECK_FAILED, "the check failed"),
    )
    status = replace(cluster.job.status, conditions=conditions_, completion_time=NOW)
    cluster.job = replace(cluster.job, status=status)
    change(cluster, image="example/task:2")
    run(cluster)
    failed = cluster.job.condition(ConditionType.FAILED)
    assert failed is not None
    assert (failed.status, failed.message) == (False, "what the Job runs was changed")
    assert cluster.job.status.completion_time is None


def test_what_another_client_changed_meanwhile_is_in_the_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    altered = replace(cluster.daemon_set(), alteration="kubectl-edit: template.spec.hostPID")
    monkeypatch.setattr(cluster, "daemon_set", lambda: altered)
    events = [event.reason for _ in range(3) for event in run(cluster).events]
    assert events.count("DaemonSetAltered") == 1
    assert conditions(cluster)["DaemonSetAltered"][0] == "True"
    history = [entry["reason"] for entry in (cluster.report_status or {})["history"]]
    assert history.count("DaemonSetAltered") == 1


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("completed", [(), ("a",)])
def test_a_request_between_them_is_not_lost(
    completed: tuple[str, ...], is_seen_first: bool
) -> None:
    cluster = standing("a", completed=completed)
    run(cluster)
    change(cluster, image="example/task:2")
    if is_seen_first:
        run_refused(cluster)
    request(cluster, "a")
    run_refused(cluster)
    change(cluster, image="example/task:1")
    run_refused(cluster)
    assert deleted(run(cluster)) == ["a"]


def test_without_a_request_no_node_runs_again() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    run_refused(cluster)
    change(cluster, image="example/task:1")
    assert deleted(run(cluster)) == []
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed) == (1, 1)


def test_a_request_that_is_followed_is_not_ended_by_what_completed_before_it() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    request(cluster, "a")
    run(cluster)
    assert deleted(run(cluster)) == ["a"]
    cluster.pods = [make_pod("a", serial=2, revision=cluster.job.revision)]
    run(cluster)
    change(cluster, image="example/task:2")
    run_refused(cluster)
    change(cluster, image="example/task:1")
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert totals_of(cluster).completed == 0


def retry(cluster: SampleCluster) -> None:
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})


@pytest.mark.parametrize("is_seen_first", [True, False])
@pytest.mark.parametrize("is_between", [True, False])
def test_a_retry_of_a_failed_node_is_not_lost(is_between: bool, is_seen_first: bool) -> None:
    """What its pod has shown is of the try before the retry."""
    cluster = standing("a")
    run(cluster)
    cluster.pods = [replace(failing("a"), revision=cluster.job.revision)]
    run(cluster)
    change(cluster, image="example/task:2")
    if is_seen_first:
        run_refused(cluster)
    if is_between:
        retry(cluster)
        run_refused(cluster)
    change(cluster, image="example/task:1")
    retry(cluster)
    run(cluster)
    assert deleted(run(cluster)) == ["a"]
    cluster.pods = [gated_pod("a", revision=cluster.job.revision)]
    assert "a" in released(run(cluster)) + released(run(cluster))
