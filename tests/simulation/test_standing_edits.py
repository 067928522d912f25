"""Schedules by hand of labels that leave and come back around edits of a Job that has no end."""

from dataclasses import replace

import pytest

from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.test_standing_work import KEY, SPEC, ZONE, starts

NODES = NodePlan("n1"), NodePlan("n2"), NodePlan("n3")


def edit(at, words, back=0.0):
    return Disturbance(at, "edit", KEY, words, "nodes", back)


def away(at, seconds, node="n1"):
    return Disturbance(at, "relabel", what=node, seconds=seconds)


def schedule(*disturbances, nodes=NODES, **changes):
    spec = {**SPEC, **ZONE, **changes}
    return Schedule(0, nodes, (JobPlan(spec=spec),), disturbances, calm=True)


@pytest.mark.parametrize(
    ("disturbances", "times"),
    [
        # The edit is about another node, so that the labels bring n1 back.
        ((away(20.0, 40.0), edit(40.0, "zone=a -n2")), {2}),
        ((away(20.0, 40.0), edit(40.0, "zone=a -n2", 10.0)), {2}),
        ((edit(10.0, "zone=a -n2"), away(20.0, 40.0), edit(40.0, "zone=a")), {2}),
        # The edit takes it in.
        ((away(20.0, 40.0), edit(40.0, "-n2")), {1}),
        # Its labels come back once that is undone.
        ((away(20.0, 40.0), edit(40.0, "-n2", 10.0)), {1, 2}),
        # They come back for a moment that need not be noticed, before the edit takes it in.
        ((away(20.0, 20.0), away(40.02, 30.0), edit(45.0, "-n2")), {1}),
        # They come back just before an edit, which hides that.
        ((away(20.0, 20.0), edit(40.1, "", 10.0)), {1, 2}),
        # They leave while an edit keeps it out, and come back after that.
        ((edit(20.0, "-n1", 20.0), away(30.0, 20.0)), {1, 2}),
        # They leave before that edit, and come back before its end.
        ((away(20.0, 20.0), edit(30.0, "-n1", 20.0)), {1, 2}),
        # They leave and come back while the edit keeps it out.
        ((edit(20.0, "-n1", 30.0), away(30.0, 10.0)), {1}),
    ],
)
def test_a_node_runs_again_if_its_labels_bring_it_back_and_no_edit(disturbances, times):
    found = simulate(schedule(*disturbances), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") in times


@pytest.mark.parametrize("down", [20.0, 60.0])
@pytest.mark.parametrize("seconds", [25.0, 60.0])
def test_the_evidence_of_a_pod_from_before_is_late_and_an_edit_was_about_another_node(
    down, seconds
):
    """The pod ends when its machine is back: before the labels are back, or after."""
    nodes = NodePlan("n1", (Task("done", 12.0),)), *NODES[1:]
    at_work = Disturbance(10.0, "down", what="n1", seconds=down)
    disturbances = at_work, away(20.0, seconds), edit(30.0, "zone=a -n2")
    found = simulate(schedule(*disturbances, nodes=nodes), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == 2


def test_the_end_of_the_selection_before_says_nothing_of_a_failed_node_that_an_edit_takes_in():
    """The status repeats that end while the DaemonSet controller has yet to see the edit."""
    nodes = NodePlan("n1", (Task("fail", 1.0, 2, 99),)), *NODES[1:]
    policy = {"action": "Pause", "maxFailedNodes": 0}
    disturbances = (
        away(20.0, 60.0),
        Disturbance(39.0, "slow_daemon_sets", seconds=6.0),
        edit(40.0, "-n2"),
    )
    drawn = schedule(*disturbances, nodes=nodes, backoffLimit=0, failurePolicy=policy)
    assert not simulate(drawn).violations


LATE_PODS = Disturbance(4.9, "stall", "controller", "pods", seconds=12.0)
LATE_EVIDENCE = Disturbance(6.0, "fail", "terminator", "jobreports", "conflict", 4.0)
DIES = Disturbance(5.5, "crash", "controller", seconds=6.0)
DELETED = Disturbance(25.0, "delete_daemon_set", KEY)
REFUSED = Disturbance(5.5, "refuse_write", "controller", "patch status jobreports", "403", 30.0)


@pytest.mark.parametrize(
    "disturbances",
    [
        (LATE_PODS, LATE_EVIDENCE),
        (LATE_PODS, LATE_EVIDENCE, DELETED),
        (DIES, Disturbance(11.0, "crash_on", "controller", "daemonsets", "after", 5.0)),
        (REFUSED,),
    ],
    ids=["late", "deleted", "away", "refused"],
)
@pytest.mark.parametrize("between", [(), (edit(8.5, "zone=c"),)], ids=["undone", "changed twice"])
def test_a_node_that_an_edit_chose_unseen_does_not_count_once_that_is_undone(disturbances, between):
    """The first selection chooses no node. So the edit begins the work, without a gate."""
    nodes = (NodePlan("n1", (Task("done", 1.0),), zone="b"),)
    drawn = schedule(edit(5.0, "zone=b"), *between, edit(9.5, "zone=a"), *disturbances, nodes=nodes)
    drawn = replace(drawn, disturbances=tuple(sorted(drawn.disturbances, key=lambda d: d.at)))
    left = []
    found = simulate(drawn, look=lambda world: left.extend(world.server.all("jobreports")))
    assert not found.violations
    assert "n1" in left[0]["evidence"]


@pytest.mark.parametrize("words", ["-n2", "zone=c", "zone=a -n2"])
def test_a_node_that_left_before_it_was_recorded_runs_again_only_if_its_labels_come_back(words):
    """An edit takes it in; or neither of two; or one that is about another node."""
    nodes = NodePlan("n1", (Task("done", 3.0),)), *NODES[1:]
    absence = Disturbance(0.5, "crash", "controller", seconds=20.0)
    changes = edit(40.0, words, 10.0 if words == "zone=c" else 0.0)
    found = simulate(schedule(absence, away(8.0, 60.0), changes, nodes=nodes), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == (1 if words == "-n2" else 2)


@pytest.mark.parametrize("back", [0.0, 8.0], ids=["kept", "undone"])
@pytest.mark.parametrize("seconds", [0.5, 0.6, 1.0])
def test_a_node_that_joins_after_an_edit_and_leaves_at_once_counts_and_may_come_back(back, seconds):
    """Its task changes its labels before the controller has seen that the task began."""
    nodes = NodePlan("n1", (Task("done", 0.2),), zone="b"), *NODES[1:]
    changes = edit(12.0, "zone=a -n2", back), away(40.0, seconds), away(100.0, 30.0)
    found = simulate(schedule(*changes, nodes=nodes), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == 2
