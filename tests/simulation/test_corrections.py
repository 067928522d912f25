"""Schedules by hand of Jobs that are corrected before any task of them has begun."""

from dataclasses import replace

import pytest

from tests.simulation.run import simulate
from tests.simulation.schedule import (
    Disturbance,
    JobPlan,
    NodePlan,
    Schedule,
    Task,
    Workload,
)

JOB = "default/sample"
# With the first image n1 can start nothing. It is the turn of n2 after that of n1.
NODES = NodePlan("n1", (Task("pull", 0.0, times=100),)), NodePlan("n2")


def corrected(*disturbances, at=20.0):
    """Return a schedule whose user corrects the image at a time, and waits for a minute."""
    plan = JobPlan(spec={"image": "example/task:1", "rollout": {"maxParallel": 1}})
    correct = Disturbance(at, "correct", JOB, seconds=60.0)
    found = tuple(sorted((*disturbances, correct), key=lambda each: each.at))
    return Schedule(0, NODES, (plan,), found, calm=True, has_last_statuses=True)


def simulated(schedule):
    """Simulate; return how often a start was taken back."""
    counts = []
    found = simulate(schedule, look=lambda world: counts.append(world.oracle.corrections.count))
    assert not found.violations
    return sum(counts)


def test_a_job_is_corrected():
    assert simulated(corrected()) == 1


@pytest.mark.parametrize("at", [310.0, 340.0, 350.02, 350.1])
def test_no_pod_of_an_orphaned_daemon_set_starts_in_the_next_run(at):
    """The run has failed, and its pods wait at their gates with what the Job ran before."""
    orphaned = Disturbance(at, "orphan_daemon_set", JOB)
    assert simulated(corrected(orphaned, at=350.0)) == 1


def test_so_it_is_if_the_daemon_set_is_orphaned_when_the_start_is_taken_back():
    refused = Disturbance(15.0, "refuse_write", "controller", "delete daemonsets", "403", 20.0)
    orphaned = Disturbance(25.0, "orphan_daemon_set", JOB)
    assert simulated(corrected(refused, orphaned)) == 1


@pytest.mark.parametrize("at", [10.0, 19.9])
def test_a_pod_on_a_node_that_was_taken_from_its_daemon_set_keeps_the_run(at):
    orphaned = Disturbance(at, "orphan_daemon_set", JOB)
    assert simulated(corrected(orphaned)) == 0


def test_a_run_that_failed_because_a_node_was_not_drained_is_corrected():
    """The pod on the node has no controller, so it must not be evicted."""
    spec = {"image": "example/task:1", "drain": {}, "rollout": {"maxParallel": 1}}
    drained = replace(
        corrected(at=30.0),
        nodes=(NodePlan("n1"),),
        jobs=(JobPlan(spec=spec),),
        workloads=(Workload("lone", kind=""),),
    )
    assert simulated(drained) == 1
