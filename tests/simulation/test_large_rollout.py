"""Rollouts over many nodes of which some fail and some vanish, judged by what ran on the nodes."""

from dataclasses import dataclass, field
from unittest.mock import patch

import pytest

from daemonset_job.api.shard_room import NODES_PER_ROLLOUT_SHARD
from tests.simulation.disturbances import apply_disturbance
from tests.simulation.machine import TURNS_UNKNOWN_SECONDS
from tests.simulation.oracle import Oracle, is_true
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.server import JOBS, REPORTS
from tests.simulation.settings import NODE_UNREACHABLE_GRACE_PERIOD_SECONDS

# Of a hundred nodes, by their number modulo 100.
FAILING = {17, 41, 83}
# One goes down before its turn comes, one while its script runs.
VANISHES_EARLY, VANISHES_AT_WORK = 94, 29
ATTEMPTS = 2
DOWN_AT = 5.0
# From when a machine goes down until its node counts as unreachable.
AWAY_SECONDS = TURNS_UNKNOWN_SECONDS + NODE_UNREACHABLE_GRACE_PERIOD_SECONDS
MAX_PARALLEL_PERCENT = 5
# How long the controller may take from the failure of a task to its last turn.
LATEST_TURN_SECONDS = 15.0


@dataclass
class Witness:
    """Sees each script that starts on a node: where, when, and how many others are at work."""

    starts: list[tuple[float, str]] = field(default_factory=list)
    most_at_work: int = 0
    job: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)
    completed: set = field(default_factory=set)
    attempts: dict = field(default_factory=dict)
    completed_before: dict = field(default_factory=dict)

    def task_starts(self, world, run):
        node = run.machine.name
        self.starts.append((world.loop.moment, node))
        done = {name for job, name in world.oracle.evidence.entered}
        at_work = {
            machine.name
            for machine in world.machines.values()
            if machine.is_up and any(pod.is_at_work for pod in machine.pods.values())
        }
        at_work = (at_work - done) | {node}
        self.most_at_work = max(self.most_at_work, len(at_work))
        self.completed_before.setdefault(node, len(done))
        if number_of(node) % 100 == VANISHES_AT_WORK:
            down = Disturbance(world.loop.moment, "down", what=node)
            world.loop.call_later(0.5, apply_disturbance, world, down)

    def look(self, world):
        (self.job,) = world.server.all(JOBS)
        (report,) = world.server.all(REPORTS)
        self.counts = report["status"]["nodes"]
        self.completed = {node for _, node in world.oracle.evidence.entered}
        self.attempts = {
            name: sum(machine.attempts.values()) for name, machine in world.machines.items()
        }


def number_of(node):
    return int(node.removeprefix("n"))


def roll_out(count, **failure_policy):
    """Run a rollout over that number of nodes; return what was seen of it."""
    nodes = []
    for number in range(count):
        task = Task("done", 1.0 + number % 7)
        if number % 100 in FAILING:
            task = Task("fail", 1.0, code=3, times=99)
        elif number % 100 in {VANISHES_EARLY, VANISHES_AT_WORK}:
            task = Task("done", 30.0)
        nodes.append(NodePlan(f"n{number:04}", (task,), zone="abc"[number % 3]))
    rollout = {
        "maxParallel": f"{MAX_PARALLEL_PERCENT}%",
        "steps": [{"nodes": 5, "soakSeconds": 5}, {"nodes": "10%"}, {"nodes": "50%"}],
    }
    spec = {
        "image": "example/task:1",
        "backoffLimit": ATTEMPTS - 1,
        "failurePolicy": failure_policy,
        "rollout": rollout,
    }
    gone = tuple(
        Disturbance(DOWN_AT, "down", what=node.name)
        for node in nodes
        if number_of(node.name) % 100 == VANISHES_EARLY
    )
    witness, real = Witness(), Oracle.task_starts

    def task_starts(self, run):
        witness.task_starts(self._world, run)
        real(self, run)

    with patch.object(Oracle, "task_starts", task_starts):
        plans, room = (JobPlan(spec=spec),), NODES_PER_ROLLOUT_SHARD
        outcome = simulate(
            Schedule(7, tuple(nodes), plans, gone, shard_nodes=room), look=witness.look
        )
    assert outcome.violations == ()
    return witness


def check_success(count):
    """Run a rollout that tolerates what fails and vanishes; check that all others ran once."""
    seen = roll_out(count, maxFailedNodes="5%")
    assert is_true(seen.job, "Complete"), seen.job["status"]
    for node, attempts in seen.attempts.items():
        kind = number_of(node) % 100
        if kind in FAILING:
            assert attempts >= ATTEMPTS  # until it is judged, the kubelet goes on
        else:
            assert attempts == (0 if kind == VANISHES_EARLY else 1), node
    hundreds = count // 100
    counted = {key: seen.counts[key] for key in ("desired", "completed", "failed", "unreachable")}
    assert counted == {
        "desired": count,
        "completed": 95 * hundreds,
        "failed": 3 * hundreds,
        "unreachable": 2 * hundreds,
    }
    assert seen.most_at_work <= count * MAX_PARALLEL_PERCENT // 100
    # The nodes of the first step have finished, and soaked, when the sixth node starts.
    firsts = list(dict.fromkeys(node for _, node in seen.starts))
    assert sorted(firsts[:5]) == [f"n{number:04}" for number in range(5)]
    assert seen.completed_before[firsts[5]] == 5
    assert seen.starts[5][0] - seen.starts[4][0] >= 5.0


def lost_at(seen, count):
    """Return when each node has failed as often as it may, or has been away for as long."""
    starts = {}
    for at, node in seen.starts:
        starts.setdefault(node, []).append(at)
    found = [DOWN_AT + AWAY_SECONDS] * (count // 100)
    for node, times in starts.items():
        kind = number_of(node) % 100
        if kind in FAILING and len(times) >= ATTEMPTS:
            found.append(times[ATTEMPTS - 1] + 1.0)
        elif kind == VANISHES_AT_WORK:
            found.append(times[0] + AWAY_SECONDS)
    return sorted(found)


def check_stop(count):
    """Run a rollout that tolerates less than what fails; check that it stops in time."""
    seen = roll_out(count, maxFailedNodes="1%")
    assert is_true(seen.job, "Failed"), seen.job["status"]
    too_many_at = lost_at(seen, count)[count // 100]
    firsts = {}
    for at, node in seen.starts:
        firsts.setdefault(node, at)
    assert max(firsts.values()) <= too_many_at + LATEST_TURN_SECONDS
    assert len(firsts) < count * 0.9
    assert seen.most_at_work <= count * MAX_PARALLEL_PERCENT // 100
    assert seen.counts["completed"] == len(seen.completed)


def test_a_rollout_over_100_nodes_ends_without_those_that_fail_and_vanish():
    check_success(100)


def test_a_rollout_over_100_nodes_stops_when_too_many_fail():
    check_stop(100)


@pytest.mark.on_demand
def test_a_rollout_over_1000_nodes_ends_without_those_that_fail_and_vanish():
    check_success(1000)


@pytest.mark.on_demand
def test_a_rollout_over_1000_nodes_stops_when_too_many_fail():
    check_stop(1000)
