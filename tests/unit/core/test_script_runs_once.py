"""The script of a check runs once on a node in each try of its step, whatever becomes of nodes."""

from dataclasses import replace

import pytest

from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.rollout import Check, Step
from daemonset_job.api.taints import Taint
from job_controller.core.rollout import script_check
from tests.unit.builders import gated_pod
from tests.unit.core.rollout_parts import PartsWorld
from tests.unit.core.rollouts import steps
from tests.unit.core.runs import spec
from tests.unit.core.test_script_check import CHECK, NODES, SCRIPT, one, progress, world


@pytest.mark.parametrize("is_retried", [False, True])
def test_the_script_runs_once_in_a_try_although_nodes_are_not_counted_for_a_while(is_retried):
    """The DaemonSet is created again, or `spec.nodes` was changed."""
    found = world()
    found.cluster.has_daemon_set = False
    found.step(3)
    assert list(found.owned) == [CHECK]
    if is_retried:
        found.retry()
        found.step()
        assert found.owned == {}
    found.cluster.has_daemon_set = True
    found.step(4)
    assert found.created == [CHECK] * (1 + is_retried)
    found.end_owned(CHECK)
    found.step(2)
    assert progress(found).step == 2


def leave(found, name):
    found.remove(name)
    found.cluster.desired = len(found.cluster.nodes)


@pytest.mark.parametrize(
    "happens",
    [
        lambda found: leave(found, "b"),
        lambda found: spec(found.cluster, node_unreachable_seconds=77, failure_log_lines=3),
    ],
    ids=["leaves", "edit"],
)
@pytest.mark.parametrize("words", ["", "1 of 2 nodes failed: a exit 3"])
def test_the_script_runs_once_in_a_try_although_a_node_leaves_or_the_job_is_edited(happens, words):
    found = world(rollout=one(nodes=2))
    found.step(2)
    if words:
        found.end_owned(CHECK, words)
    happens(found)
    found.step(4)
    if not words:
        found.end_owned(CHECK, completed=len(found.cluster.nodes) - 1)
        found.step(4)
    assert found.created == [CHECK]
    assert found.phase == ("Failed" if words else "Running")
    assert progress(found).step == (1 if words else 2)


def test_the_script_runs_on_while_the_next_pod_of_a_tainted_node_is_deleted():
    """Else its Job was deleted, and a person was asked about a step without a completed node."""
    found = world()
    found.put(gated_pod("a", serial=7))
    found.step(2)
    node = found.cluster.nodes["a"]
    found.cluster.nodes["a"] = replace(node, taints=(Taint("broken", "NoSchedule"),))
    found.step()
    found.take_pod("a")
    found.cluster.desired = 2
    found.step(4)
    assert (found.created, list(found.owned)) == ([CHECK], [CHECK])
    assert found.cluster.job.condition("Suspended") is None
    found.end_owned(CHECK)
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [CHECK])


def test_nodes_of_a_later_batch_take_no_place_of_one_that_has_left(monkeypatch):
    monkeypatch.setattr(script_check, "BATCH_NODES", 2)
    found = world("a", "b", "c", "d", rollout=one(nodes=3))
    leave(found, "b")
    found.step(3)
    assert found.owned[CHECK].spec.nodes.include == ("a", "b")
    found.end_owned(CHECK, completed=1)
    found.step(4)
    assert found.owned[CHECK].spec.nodes.include == ("c",)
    assert found.created == [CHECK, CHECK]


def test_a_node_that_completes_during_the_check_is_checked_too():
    """It had failed, within the limit."""
    policy = FailurePolicy(max_failed_nodes=1)
    found = PartsWorld(*NODES, rollout=one(nodes=2), failure_policy=policy, backoff_limit=0)
    found.step(3)
    found.fail("a")
    while not found.owned:
        found.step()
        found.complete(*(set(found.at_work) - {"a"}))
    assert found.owned[CHECK].spec.nodes.include == ("b",)
    found.complete("a")
    found.step(3)
    assert found.owned[CHECK].spec.nodes.include == ("a", "b")


def test_a_node_whose_label_is_taken_away_is_checked_as_one_of_its_step():
    canary = Step(
        selector={"matchLabels": {"canary": "true"}},
        check=Check(script=SCRIPT, timeout_seconds=60),
    )
    found = PartsWorld(*NODES, rollout=steps(canary))
    found.label("a", canary="true")
    while not found.owned:
        found.step()
        found.complete(*found.at_work)
    found.label("a")
    found.step(3)
    assert found.created == [CHECK]
    found.end_owned(CHECK)
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [CHECK])
