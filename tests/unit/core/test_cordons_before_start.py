"""The cordons of a Job that has not started: a start was taken back before the cache had them."""

from dataclasses import replace

from job_controller.core.decide import decide
from job_controller.core.drain_actions import UncordonNodes
from job_controller.core.plan import (
    CheckJobUnchanged,
    DryRunDaemonSet,
    RefusedWrite,
    RemoveSchedulingGates,
)
from tests.unit.builders import NOW, make_job
from tests.unit.core.runs import acts, reason_of, spec
from tests.unit.core.test_preparation import marked, uncordoned, waiting


def unstarted(**changes):
    """Return a cluster whose node a has the mark of a Job that has not started."""
    cluster = marked(waiting("a", "b"))
    cluster.job = make_job(spec=replace(cluster.job.spec, **changes))
    cluster.pods, cluster.has_daemon_set, cluster.has_report = [], False, False
    return cluster


def kinds(plan):
    return [type(action) for action in plan.actions]


def test_a_suspended_job_lifts_a_cordon_that_outlived_its_start():
    plan = decide(unstarted(suspend=True).snapshot(), NOW)
    assert uncordoned(plan) == ["a"]
    # The Job may have started, and only the cache does not have that.
    assert kinds(plan)[:2] == [CheckJobUnchanged, UncordonNodes]


def test_a_job_lifts_it_before_it_starts_again_also_if_it_has_no_cordons_any_more():
    for changes in ({}, {"drain": None, "cordon": False}):
        plan = decide(unstarted(**changes).snapshot(), NOW)
        assert uncordoned(plan) == ["a"]
        assert kinds(plan).index(UncordonNodes) < kinds(plan).index(DryRunDaemonSet)


def test_a_job_whose_cordon_cannot_be_lifted_says_so_and_tries_again():
    refused = {RefusedWrite.CORDON: "the webhook says no"}
    plan = decide(unstarted(drain=None).snapshot(refusals=refused), NOW)
    assert uncordoned(plan) == []
    assert reason_of(plan) == "CordonRefused"
    assert plan.requeue_after is not None


def test_a_run_without_cordons_lifts_one_of_its_earlier_start():
    """The cache of nodes had it only after the Job, which was corrected, had started again."""
    cluster = spec(marked(waiting("a", "b")), drain=None, rollout=None)
    plan = decide(cluster.snapshot(), NOW)
    assert len(acts(plan, RemoveSchedulingGates)[0].pods) == 2
    assert uncordoned(plan) == []
    cluster.pods = []
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a"]
