"""How pods ended that are gone, by their last status in the cache."""

from dataclasses import replace

import pytest

from job_controller.core.state.ended_pods import NO_ENDED_PODS, EndedPods
from job_controller.ended_pods import PODS_LIMIT, EndedPodStore
from tests.unit.builders import make_job, make_pod, started

JOB = started(make_job())
SUSPENDED = replace(JOB, spec=replace(JOB.spec, suspend=True))
ENDED = make_pod("a", state="", phase="Failed", is_terminating=True)


def test_a_pod_that_ended_without_a_start_is_kept():
    store = EndedPodStore()
    store.record(SUSPENDED, ENDED)
    assert store.of(SUSPENDED) == EndedPods(frozenset({"pod-a-1"}))


@pytest.mark.parametrize(
    "pod",
    [
        replace(ENDED, phase="Pending"),
        replace(ENDED, phase="Pending", is_terminating=False),
        replace(ENDED, disruption_reason="DeletionByPodGC"),
    ],
    ids=["removed by force", "taken from its DaemonSet", "of a lost node"],
)
def test_a_pod_without_the_last_status_of_its_kubelet_may_have_run(pod):
    store = EndedPodStore()
    store.record(JOB, pod)
    assert store.of(JOB) == EndedPods(ran_on="a")


def test_a_pod_that_its_kubelet_has_rejected_or_evicted_has_not_run():
    store = EndedPodStore()
    store.record(JOB, replace(ENDED, is_terminating=False))
    store.record(JOB, replace(ENDED, uid="evicted", disruption_reason="TerminationByKubelet"))
    assert store.of(JOB) == EndedPods(frozenset({"pod-a-1", "evicted"}))


def test_a_pod_without_a_node_has_not_run_and_needs_no_record():
    store = EndedPodStore()
    store.record(JOB, replace(ENDED, phase="Pending", is_scheduled=False))
    assert store.of(JOB) == NO_ENDED_PODS


def test_a_pod_that_has_run_is_kept_whether_or_not_the_job_is_suspended():
    store = EndedPodStore()
    store.record(JOB, replace(ENDED, has_run=True))
    assert store.of(JOB) == EndedPods(ran_on="a")


def test_nothing_is_kept_of_a_job_that_has_not_started():
    store = EndedPodStore()
    store.record(SUSPENDED, ENDED)
    store.record(JOB, replace(ENDED, has_run=True))
    assert store.of(make_job()) == NO_ENDED_PODS
    assert store.of(SUSPENDED) == NO_ENDED_PODS
    store.record(make_job(), ENDED)
    assert store.of(SUSPENDED) == NO_ENDED_PODS


def test_what_is_kept_of_one_job_has_a_bound():
    store = EndedPodStore()
    for number in range(PODS_LIMIT + 1):
        store.record(SUSPENDED, replace(ENDED, uid=str(number)))
    assert len(store.of(SUSPENDED).without_start) == PODS_LIMIT
