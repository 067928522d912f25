"""`completion.release`: the pod of a completed node goes, its successor waits at the gate."""

from dataclasses import replace
from datetime import timedelta

from daemonset_job.api.choices import CompletionMode, FailureAction
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import Completion, FailurePolicy
from job_controller.core.decide import decide
from job_controller.core.plan import ApplyDaemonSet, DeletePods, RemoveSchedulingGates
from tests.unit.builders import NOW, START, done, gated_pod, make_cluster, make_pod
from tests.unit.core.node_states import SPEC, assess
from tests.unit.core.runs import acts, failing, run, spec

RELEASE = Completion(release=True)
EXITED = Container(state="terminated", exit_code=0, started_at=START, finished_at=START)


def test_the_pod_of_a_completed_node_is_deleted_once_new_pods_wait() -> None:
    cluster = spec(
        make_cluster("a", "b", gated=True, evidence={"a": done("a")}), completion=RELEASE
    )
    (deletion,) = acts(decide(cluster.snapshot(), NOW), DeletePods)
    assert [pod.node_name for pod in deletion.pods] == ["a"]
    assert "completion.release" in next(iter(deletion.why.values()))


def test_no_completed_pod_is_deleted_while_its_successor_would_start() -> None:
    cluster = spec(make_cluster("a", "b", evidence={"a": done("a")}), completion=RELEASE)
    plan = decide(cluster.snapshot(), NOW)
    assert not acts(plan, DeletePods)
    assert acts(plan, ApplyDaemonSet)


def test_no_failed_pod_is_deleted_while_its_successor_would_start() -> None:
    cluster = make_cluster("a", "b", "c")
    cluster.pods = [failing("a"), cluster.pods[1]]
    cluster = spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE, 3))
    run(cluster)
    plan = run(cluster, NOW + timedelta(seconds=30))
    assert acts(plan, ApplyDaemonSet)
    assert not acts(plan, DeletePods)


def test_the_successor_of_a_released_pod_waits() -> None:
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.pods[0] = gated_pod("a", serial=2)
    plan = decide(spec(cluster, completion=RELEASE).snapshot(), NOW)
    assert not acts(plan, RemoveSchedulingGates)
    assert not acts(plan, DeletePods)


def test_pods_stay_without_release() -> None:
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    assert not acts(decide(cluster.snapshot(), NOW), DeletePods)


def test_a_released_pod_that_is_ending_does_not_delay_the_end_of_the_run() -> None:
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    cluster.pods[0] = make_pod("a", is_terminating=True)
    plan = decide(spec(cluster, completion=RELEASE).snapshot(), NOW)
    assert any("Complete" in str(action) for action in plan.actions)


def test_in_mode_exit_the_results_are_awaited_for_ten_seconds() -> None:
    job = replace(
        SPEC, completion=Completion(mode=CompletionMode.EXIT, release=True), results=("size",)
    )
    pod = make_pod("a", container=EXITED)
    bare = done("a")
    waiting = assess(pod, evidence=bare, spec=job, seen=1)
    assert not waiting.delete_pod
    assert waiting.wake_at == NOW + timedelta(seconds=9)
    assert assess(pod, evidence=replace(bare, results={"size": "1"}), spec=job, seen=1).delete_pod
    assert assess(pod, evidence=bare, spec=job, seen=11).delete_pod
