"""Schedules by hand of nodes that an edit, a label or a taint excludes, and of deleted Jobs."""

import json

import pytest

from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.start_mutants import keeps_former_selections

KEY = "default/sample"
SPEC = {"image": "example/task:1"}
IN_ZONE_B = {**SPEC, "nodes": {"selector": {"matchLabels": {"zone": "b"}}}}
STANDING = {**SPEC, "completion": {"policy": "Continuous"}, "rollout": {"maxParallel": 1}}
TOLERANT = {**STANDING, "template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}
# The pod of n2 is on its node, has no gate, and starts its task late.
LATE = NodePlan("n1", (Task("done", 20.0),)), NodePlan("n2", (Task("mount", 15.0),), zone="b")
# The pod of n2 waits at its gate until n1 has completed.
WAITING = NodePlan("n1", (Task("done", 20.0),)), NodePlan("n2", (Task("done", 5.0),), zone="b")
NARROWED = Disturbance(4.0, "edit", KEY, "zone=a", "nodes")
AWAY = Disturbance(3.0, "crash", "controller", seconds=60.0)
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
}


def starts_on_n2(nodes, spec, *disturbances):
    """Return whether the task has started on n2, and which starts outside are excused."""
    counts = {}
    schedule = Schedule(0, nodes, (JobPlan(spec=spec),), disturbances, calm=True)
    found = simulate(
        schedule, look=lambda world: counts.update(world.machines["n2"].attempts or {KEY: 0})
    )
    assert not found.violations
    excused = [
        name.partition(": ")[2]
        for name in found.excused
        if name.startswith(("excluded", "started outside"))
    ]
    return counts[KEY] > 0, excused


def template(at, **spec):
    return Disturbance(at, "edit", KEY, json.dumps({"spec": spec}), "template")


def test_no_task_starts_once_the_node_is_excluded():
    assert starts_on_n2(LATE, SPEC, NARROWED) == (False, [])
    assert starts_on_n2(LATE, SPEC) == (True, [])


def test_a_label_takes_the_pod_also_while_the_controller_is_away():
    left = Disturbance(4.0, "zone", what="n2")
    assert starts_on_n2(LATE, IN_ZONE_B, AWAY, left) == (False, [])


@pytest.mark.parametrize(
    ("disturbance", "change", "reason"),
    [
        (AWAY, NARROWED, "controller away"),
        (
            Disturbance(3.0, "refuse_write", "controller", "apply daemonsets", "403", 30.0),
            NARROWED,
            "controller away",
        ),
        (Disturbance(3.0, "slow_daemon_sets", seconds=60.0), NARROWED, "Kubernetes late"),
        (Disturbance(3.5, "orphan_daemon_set", KEY), AWAY, "no DaemonSet"),
        (Disturbance(3.0, "reregister", what="n2", seconds=20.0), NARROWED, "no node"),
    ],
)
def test_it_may_start_in_these_cases(disturbance, change, reason):
    others = [] if change is NARROWED else [NARROWED]
    assert starts_on_n2(LATE, SPEC, disturbance, change, *others) == (True, [reason])


@pytest.mark.parametrize("at", [15.0, *(20.4 + each / 50 for each in range(7))])
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_gate_stays_once_the_controller_knows_that_a_taint_is_not_tolerated(effect, at):
    """The node has its turn at about that time; before it the pod does not start at all."""
    tainted = Disturbance(1.0, "taint", what="n2", mode=effect)
    starts, excused = starts_on_n2(WAITING, TOLERANT, tainted, template(at))
    assert not excused
    assert at > 20.4 or not starts


@pytest.mark.parametrize("part", [{"nodeSelector": {"zone": "a"}}, {"affinity": AFFINITY}])
def test_a_change_of_the_template_excludes_nodes_too(part):
    assert starts_on_n2(WAITING, STANDING, template(5.0, **part)) == (False, [])


def test_no_node_starts_once_enough_are_done():
    spec = {**SPEC, "rollout": {"maxParallel": 1}, "successPolicy": {"minCompleted": 1}}
    assert starts_on_n2(WAITING, spec) == (False, [])


def test_a_pod_may_start_while_the_daemonset_controller_is_late_by_the_longer_of_two_delays():
    assert not simulate(generate_schedule(7_946_355)).violations


@pytest.mark.parametrize(
    ("at", "seconds", "is_found"),
    [(3.0, 20.0, False), (10.0, 4.0, False), (13.0, 20.0, True), (13.0, 2.1, True)],
)
def test_the_deletion_of_a_node_object_hides_no_pod_that_should_be_gone_by_then(
    at, seconds, is_found
):
    """The node is excluded at 4 s, and the DaemonSet goes on choosing it."""
    again = Disturbance(at, "reregister", what="n2", seconds=seconds)
    with keeps_former_selections():
        schedule = Schedule(0, LATE, (JobPlan(spec=SPEC),), (NARROWED, again), calm=True)
        found = {invariant for _, invariant, _ in simulate(schedule).violations}
    assert ("started outside" in found) == is_found


def test_a_machine_without_a_node_object_may_start_the_pod_that_was_bound_to_it():
    """The DaemonSet controller leaves such a pod until it is registered again (seed 7943248)."""
    found = simulate(generate_schedule(7_943_248))
    assert not found.violations
    assert found.excused == {"started outside: no node": 1}
