"""On which nodes a run is rolled back: those whose task started, by their UID."""

from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollbacks import RollbackWorld

CONTINUE = {"action": "Continue"}


def test_a_new_node_with_the_name_of_a_failed_one_is_not_rolled_back():
    """Its record keeps the failures of the node before. It has never started the task itself."""
    world = RollbackWorld("a", "b", "c", failurePolicy=CONTINUE)
    world.run_until_failure("b")
    world.remove("b")
    world.step()
    world.cluster.nodes["b"] = make_node("b", uid="another")
    world.put(gated_pod("b", serial=2))
    world.step()
    assert world.report["nodeStates"]["b"]["failures"][0]["exitCode"] == 2
    assert world.started.count("b") == 1
    world.ask()
    world.complete(*world.at_work)
    world.step(6)
    assert world.included() == ["a", "c"]


def test_a_node_that_failed_and_is_retried_is_rolled_back():
    """The next try has not begun. What the earlier one did is still on the node."""
    world = RollbackWorld("a", "b", "c", failurePolicy={"action": "Pause"})
    world.run_until_failure("b")
    world.retry()
    world.step(3)
    assert world.report["nodeStates"]["b"]["state"] == "Waiting"
    assert world.report["nodeStates"]["b"]["attempts"] == 10
    world.ask()
    world.complete(*world.at_work)
    world.step(6)
    assert world.started == ["a", "b", "c"]
    assert world.included() == ["a", "b", "c"]
