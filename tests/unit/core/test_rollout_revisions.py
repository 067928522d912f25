"""A change of what a Job that stays runs is rolled out from its first step on."""

from dataclasses import replace
from typing import Any

from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.rollout import Rollout, Step
from job_controller.core.plan import RemoveSchedulingGates
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.standing_jobs import CONTINUOUS, change

NODES = ("a", "b", "c", "d")
CANARY = Step(nodes=1, needs_approval=True)


class StandingWorld(RolloutWorld):
    """A Job of policy Continuous; `ran` has the nodes and the revisions of their pods."""

    def __init__(self, *node_names: str, rollout: Rollout, **changes: Any) -> None:
        super().__init__(*node_names, rollout=rollout)
        change(self.cluster, completion=CONTINUOUS, **changes)
        job = self.cluster.job
        self.cluster.job = replace(job, status=replace(job.status, revision=job.revision))
        self.cluster.pods = [replace(pod, revision=self.revision) for pod in self.cluster.pods]
        self.ran: list[tuple[str, str]] = []

    @property
    def revision(self) -> str:
        return self.cluster.job.revision

    def put(self, pod: Any) -> None:
        super().put(replace(pod, revision=self.revision))

    def _execute(self, action: Any) -> None:
        if isinstance(action, RemoveSchedulingGates):
            self.ran += [(pod.node_name, pod.revision) for pod in action.pods]
        super()._execute(action)

    def complete(self, *node_names: str) -> None:
        super().complete(*node_names)
        for name in node_names:
            entry = replace(self.cluster.evidence[name], revision=self.revision)
            self.cluster.evidence[name] = entry

    @property
    def at_work(self) -> list[str]:
        done = {entry.pod_uid for entry in self.cluster.evidence.values()}
        return sorted(
            pod.node_name for pod in self.cluster.pods if not pod.is_gated and pod.uid not in done
        )

    def finish(self, limit: int = 60) -> None:
        """Complete and approve whatever there is, and take the approval back."""
        for _ in range(limit):
            self.step()
            self.complete(*self.at_work)
            self.request(approved_step=1)
        assert self.phase == "Succeeded"
        self.request()

    def ran_newest(self) -> list[str]:
        return [name for name, revision in self.ran if revision == self.revision]

    def change_and_lag(self) -> None:
        """Change what the Job runs; the DaemonSet controller sees it some passes later."""
        change(self.cluster, args=("x",))
        self.cluster.observed = False
        self.step(4)
        self.cluster.observed = True
        self.step(10)


def test_pods_of_the_revision_before_give_their_nodes_no_turn():
    world = StandingWorld(*NODES, rollout=steps(CANARY))
    world.finish()
    world.change_and_lag()
    assert world.ran_newest() == ["a"]
    world.complete("a")
    world.step(10)
    assert world.condition("Suspended")[1] == "WaitingForApproval"
    assert world.ran_newest() == ["a"]
    world.finish()
    assert world.ran_newest() == list(NODES)


def test_nodes_at_work_in_the_revision_before_wait_for_their_step():
    world = StandingWorld(*NODES, rollout=steps(Step(nodes=1), max_parallel=2))
    while len(world.at_work) < 2:
        world.complete(*world.at_work)
        world.step()
    world.step(20)
    world.change_and_lag()
    assert world.ran_newest() == ["a"]


def test_a_turn_that_was_not_taken_ends_with_its_revision():
    world = StandingWorld(*NODES, rollout=steps(Step(nodes=1), max_parallel=2))
    while "c" not in world.turns():
        world.complete(*world.at_work)
        world.step()
    assert [name for name, _ in world.ran] == ["a"]
    change(world.cluster, suspend=True)
    world.step(3)
    change(world.cluster, args=("x",))
    world.step(3)
    change(world.cluster, suspend=False)
    world.step(10)
    assert world.ran_newest() == ["a"]


def test_nodes_that_left_with_an_earlier_revision_are_not_counted_in_a_step():
    pool = NodeSelection(selector={"matchLabels": {"pool": "x"}})
    for first in (CANARY, Step(selector={"matchLabels": {"kind": "canary"}})):
        world = StandingWorld(*NODES, rollout=steps(first), nodes=pool)
        for name in NODES:
            world.label(name, pool="x")
        world.label("d", pool="x", kind="canary")
        world.finish()
        world.label("d", pool="y", kind="canary")
        world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "d"]
        world.cluster.desired = 3
        world.step(3)
        change(world.cluster, args=("x",))
        world.step(10)
        expected = ["a"] if first == CANARY else []
        assert world.ran_newest() == expected
        assert world.phase == ("Running" if expected else "Paused")
