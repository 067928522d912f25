"""Jobs that stay and roll out in steps: each revision has its own turns, and its own cordons."""

from dataclasses import replace

from daemonset_job.api import names
from daemonset_job.api.pod import Pod
from daemonset_job.api.rollout import Rollout, Step
from job_controller.core.drain_actions import UncordonNodes
from job_controller.core.state.cordons import mark_of
from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import acts, run
from tests.unit.core.standing_jobs import CONTINUOUS, change, completed_by, deleted, standing


class StandingWorld(RolloutWorld):
    """A cluster whose DaemonSet creates pods of the newest revision at once."""

    def __init__(self, *node_names: str, rollout: Rollout) -> None:
        super().__init__(*node_names, rollout=rollout)
        change(self.cluster, completion=CONTINUOUS)
        job = self.cluster.job
        self.cluster.job = replace(job, status=replace(job.status, revision=job.revision))
        self.replace_pods(1)

    def replace_pods(self, serial: int) -> None:
        revision = self.cluster.job.revision
        self.cluster.pods = [
            gated_pod(name, serial=serial, revision=revision) for name in self.cluster.nodes
        ]

    def put(self, pod: Pod) -> None:
        super().put(replace(pod, revision=self.cluster.job.revision))

    def complete(self, *node_names: str) -> None:
        super().complete(*node_names)
        for name in node_names:
            completed_by(self.cluster, name, self.cluster.job.revision)


def test_a_new_revision_begins_with_its_own_canary() -> None:
    """Nodes that had their turn, and had not started, wait for the steps like all others."""
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1, needs_approval=True)))
    world.step(4)
    world.complete("a")
    world.step(4)
    world.request(approved_step=1)
    while world.turns() != {"a": 1, "b": 2, "c": 2}:
        world.step()
    assert world.started == ["a"]
    # Before their gates are removed, the user corrects the task.
    world.request()
    change(world.cluster, command=("new",))
    world.step()
    world.replace_pods(2)
    world.step(10)
    assert world.started == ["a", "a"]
    assert world.turns() == {"a": 1}
    world.complete("a")
    world.step(10)
    assert world.started == ["a", "a"]
    assert world.condition("Suspended")[1] == "WaitingForApproval"


def test_a_rerun_of_the_node_of_a_step_gives_no_other_node_a_turn_in_its_place() -> None:
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1, soak_seconds=100)))
    world.step(4)
    world.complete("a")
    world.step(4)
    job = world.cluster.job
    world.cluster.job = replace(job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.step(2)
    # Its next pod is not there yet.
    world.take_pod("a")
    world.step(10)
    assert world.started == ["a"]
    world.put(replace(gated_pod("a", serial=9), revision=job.revision))
    world.step(10)
    assert world.started == ["a", "a"]


def test_a_cordon_stays_while_the_task_of_an_earlier_revision_is_at_work() -> None:
    cluster = standing("a", "b")
    change(cluster, cordon=True)
    run(cluster)
    mark = str(mark_of(cluster.job))
    cluster.nodes["a"] = make_node("a", is_cordoned=True, cordoned_by=mark)
    assert acts(run(cluster), UncordonNodes) == []
    change(cluster, command=("new",), suspend=True)
    for _ in range(3):
        plan = run(cluster)
        assert deleted(plan) == []
        assert acts(plan, UncordonNodes) == []
    change(cluster, suspend=False)
    plans = [run(cluster), run(cluster)]
    assert any("a" in deleted(plan) for plan in plans)
    assert [acts(plan, UncordonNodes) for plan in plans] == [[], []]
