"""When the cordon of a node goes that has failed: once nothing of its task runs any more."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.names import ANNOTATION_RETRY
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import DeletePods
from tests.unit.builders import NOW, gated_pod, make_pod
from tests.unit.core.runs import acts, spec
from tests.unit.core.test_preparation import at_work, turns, uncordoned

UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoSchedule")
ENDED = Container("terminated", exit_code=1)


def failed(pod, **changes):
    """Return a cluster whose node a has failed by its deadline, with its pod or without one."""
    cluster = at_work(**changes)
    cluster.pods = [*([pod] if pod is not None else []), gated_pod("b")]
    record = {"state": "Failed", "reason": "NodeDeadlineExceeded", "attempts": 1}
    return turns(cluster, "a", podUID="pod-a-1", **record)


@pytest.mark.parametrize("action", [FailureAction.CONTINUE, FailureAction.FAIL_FAST])
@pytest.mark.parametrize(
    ("pod", "is_lifted"),
    [
        (make_pod("a"), False),
        (make_pod("a", is_terminating=True), False),
        (make_pod("a", container=ENDED), False),
        (make_pod("a", container=ENDED, is_terminating=True), True),
        (make_pod("a", is_terminating=True, phase="Failed"), True),
        (gated_pod("a", serial=3), True),
        (None, True),
    ],
    ids=["runs", "deleted", "ended", "deleted and ended", "terminal", "gated", "none"],
)
def test_a_failed_node_is_uncordoned_when_nothing_of_its_task_runs_any_more(pod, is_lifted, action):
    """A kubelet starts the task of a pod again, until the pod is being deleted."""
    cluster = spec(failed(pod), failure_policy=FailurePolicy(action=action))
    assert ("a" in uncordoned(decide(cluster.snapshot(), NOW))) == is_lifted


@pytest.mark.parametrize("is_deleted", [False, True], ids=["runs", "deleted"])
def test_the_task_of_a_failed_node_is_not_waited_for_on_a_machine_that_is_down(is_deleted):
    cluster = failed(make_pod("a", is_terminating=is_deleted))
    down = {"ready": False, "ready_changed_at": NOW - timedelta(days=1), "taints": (UNREACHABLE,)}
    cluster.nodes["a"] = replace(cluster.nodes["a"], **down)
    spec(cluster, failure_policy=FailurePolicy(action=FailureAction.CONTINUE))
    assert uncordoned(decide(cluster.snapshot(), NOW)) == []
    spec(cluster, failure_policy=FailurePolicy(action=FailureAction.FAIL_FAST))
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a"]


def test_a_node_that_is_tried_again_stays_cordoned_until_its_earlier_try_has_ended():
    cluster = failed(make_pod("a"))
    cluster.job = replace(cluster.job, annotations={ANNOTATION_RETRY: "1"})
    plan = decide(cluster.snapshot(), NOW)
    assert [pod.node_name for action in acts(plan, DeletePods) for pod in action.pods] == ["a"]
    assert uncordoned(plan) == []


def test_a_task_whose_daemon_set_was_deleted_with_its_run_keeps_the_cordon_until_it_ends():
    cluster = failed(None, has_daemon_set=False)
    cluster.pods = []
    policy = FailurePolicy(action=FailureAction.FAIL_FAST, pods=PodPolicy.DELETE)
    spec(cluster, failure_policy=policy)
    pod = make_pod("a", owner_uid="deleted", is_terminating=True)
    plan = decide(cluster.snapshot(left_pods=(pod,)), NOW)
    assert uncordoned(plan) == []
    # No event comes from such a pod.
    assert plan.requeue_after <= 10
    ended = replace(pod, container=ENDED)
    assert uncordoned(decide(cluster.snapshot(left_pods=(ended,)), NOW)) == ["a"]
