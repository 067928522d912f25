"""A task may have begun in a pod that is gone: a restarted controller has to know that, too."""

from dataclasses import replace

import pytest

from daemonset_job.api.job_spec import Completion
from job_controller.core.decide import decide
from job_controller.core.plan import RefusedWrite, WriteReportStatus
from job_controller.core.state.ended_pods import EndedPods
from tests.unit.builders import NOW, done, gated_pod, make_cluster
from tests.unit.core.runs import run, spec
from tests.unit.core.standing_jobs import CONTINUOUS
from tests.unit.core.test_taken_back_start import apply, condition, suspended_cluster, written

LOST = EndedPods(ran_on="b")


def lost(**changes):
    """Return a run whose pod on b was removed without a last status, and what it had become."""
    cluster = make_cluster("a", "b", running=False, gated=True, **changes)
    cluster.pods = [gated_pod("a"), gated_pod("b", serial=3)]
    return cluster


def recorded(cluster):
    return (cluster.report_status or {}).get("mayHaveBegunOn")


def test_it_is_on_record_at_once_and_before_the_job_is_suspended():
    cluster = lost()
    plan = run(cluster, ended_pods=LOST)
    assert [type(action) for action in plan.actions] == [WriteReportStatus]
    assert recorded(cluster) == "b"
    run(cluster, ended_pods=LOST)
    assert recorded(cluster) == "b"
    assert not [a for a in run(cluster, ended_pods=LOST).actions if type(a) is WriteReportStatus]


def test_a_controller_that_did_not_see_it_takes_no_start_back():
    cluster = spec(lost(), suspend=True)
    run(cluster, ended_pods=LOST)
    run(cluster, ended_pods=LOST)
    said = condition(cluster.job.status).message
    assert "may have, on b" in said
    run(cluster)
    assert cluster.job.status.start_time is not None
    assert condition(cluster.job.status).message == said


def test_without_it_the_start_is_taken_back():
    cluster = suspended_cluster(gated_pod("a"), gated_pod("b", serial=3))
    plan = decide(cluster.snapshot(), NOW)
    assert written(plan).start_time is None


def test_a_later_pod_of_which_nothing_is_known_does_not_change_what_is_said():
    cluster = spec(lost(), suspend=True)
    run(cluster, ended_pods=LOST)
    run(cluster, ended_pods=EndedPods(ran_on="a"))
    assert recorded(cluster) == "b"
    assert "may have, on b" in condition(cluster.job.status).message


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_completed_node_shows_enough(is_suspended):
    cluster = spec(lost(evidence={"a": done("a")}), suspend=is_suspended)
    run(cluster, ended_pods=LOST)
    assert recorded(cluster) is None
    if is_suspended:
        assert "may have, on a" in condition(cluster.job.status).message


def test_a_run_that_is_never_taken_back_has_no_need_of_it():
    for cluster in (spec(lost(), completion=CONTINUOUS), lost()):
        if cluster.job.spec.completion == Completion():
            cluster.job = replace(cluster.job, owner_uid="owner-uid")
        run(cluster, ended_pods=LOST)
        assert recorded(cluster) is None


def test_the_run_goes_on_while_the_report_is_refused():
    cluster = lost()
    snapshot = cluster.snapshot(ended_pods=LOST).with_refusal(RefusedWrite.REPORT, "quota")
    plan = decide(snapshot, NOW)
    assert plan.actions
    assert not [a for a in plan.actions if type(a) is WriteReportStatus]
    apply(cluster, plan)
    assert "quota" in str(cluster.job.status.to_raw())
