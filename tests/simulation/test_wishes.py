"""What a user asks for is read from the Job, also where the DaemonSet says something else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from daemonset_job.api.job_spec import NodeSelection
from job_controller.core.desired import daemon_set
from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate
from tests.simulation.schedule import JobPlan, NodePlan, Schedule, Task

NODES = tuple(NodePlan(f"n{i}", (Task("done", 5.0),)) for i in range(8))
STEPS = {"steps": [{"nodes": "50%"}, {"nodes": "100%"}]}
PLAIN = {"image": "example/task:1", "nodes": {"exclude": ["n4", "n5", "n6", "n7"]}}
SPEC = {**PLAIN, "rollout": STEPS}


@contextmanager
def excludes_nothing() -> Iterator[None]:
    """The DaemonSet is also for the nodes that `spec.nodes.exclude` names."""
    real = daemon_set.node_terms

    def terms(nodes: NodeSelection, **how: bool) -> list[dict[str, Any]]:
        return real(replace(nodes, exclude=()), **how)

    with patch.object(daemon_set, "node_terms", terms):
        yield


def run():
    return simulate(Schedule(0, NODES, (JobPlan(spec=SPEC),), calm=True))


def test_a_percentage_is_one_of_the_nodes_that_the_user_asks_for():
    assert not run().violations
    with excludes_nothing():
        found = run()
    words = {words for _, invariant, words in found.violations if invariant == "turns"}
    assert "n2 starts before n0 has finished its step" in words


def test_a_percentage_may_be_one_of_the_nodes_that_the_daemonset_controller_knew():
    """It sees late that nodes have joined or left: a node starts by the number of then."""
    assert not simulate(generate_schedule(2_000_000_293)).violations


def test_a_task_on_a_node_that_the_user_excludes_is_a_violation():
    with excludes_nothing():
        found = simulate(Schedule(0, NODES, (JobPlan(spec=PLAIN),), calm=True))
    assert {invariant for _, invariant, _ in found.violations} == {"started outside"}
    assert len(found.violations) == 4
