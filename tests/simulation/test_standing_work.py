"""Schedules by hand of what users ask of a Job that has no end, each with what would be wrong."""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from tests.simulation import node_mutants as mutants
from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.server import JOBS

KEY = "default/sample"
SPEC = {"image": "example/task:1", "completion": {"policy": "Continuous"}}
ZONE = {"nodes": {"selector": {"matchLabels": {"zone": "a"}}}}
NODES = NodePlan("n1"), NodePlan("n2", (Task("done", 3.0),))


def schedule(*disturbances, spec=SPEC, nodes=NODES):
    return Schedule(0, nodes, (JobPlan(spec=spec),), disturbances, calm=True)


def change(at, number, back=0.0):
    return Disturbance(at, "edit", KEY, f"example/task:{number}", "image", back)


def rerun(at, words):
    return Disturbance(at, "rerun", KEY, words)


def lose_status(at, field=""):
    return Disturbance(at, "lose_status", KEY, field)


def starts(trace, node):
    """Return how often a kubelet started the task of a pod of the node for the first time."""
    found = [f"{who} {words}" for _, who, words in trace if f"-{node}-" in words]
    return sum("kubelet changes pods" in each and "running restarts 0" in each for each in found)


@pytest.mark.parametrize(
    ("disturbances", "times"),
    [
        ((change(20.0, 2),), 2),
        ((change(20.0, 2, back=10.0),), 3),
        ((change(20.0, 2), change(40.0, 3)), 3),
        ((rerun(20.0, "n1@1"),), 2),
        ((rerun(20.0, "n1,n2@1"),), 2),
        ((rerun(20.0, "*@1"),), 2),
        ((rerun(20.0, "n2@1"),), 1),
        ((rerun(20.0, "n1@1"), rerun(40.0, "n1@1")), 2),
        ((rerun(20.0, "n1@1"), rerun(40.0, "n1@2")), 3),
        ((rerun(20.0, "n1@1"), rerun(40.0, "n2@2"), rerun(60.0, "n1@1")), 3),
        ((rerun(20.0, "n1@1"), change(20.0, 2)), 2),
        ((rerun(20.0, "n1@1"), Disturbance(20.1, "crash", "controller", seconds=5.0)), 2),
        ((Disturbance(10.0, "crash", "controller", seconds=30.0), rerun(20.0, "n1@1")), 2),
        (
            (
                Disturbance(
                    10.0, "refuse_write", "controller", "patch status jobreports", "403", 30.0
                ),
                rerun(20.0, "n1@1"),
            ),
            2,
        ),
    ],
)
def test_a_node_runs_once_for_each_change_and_each_request(disturbances, times):
    found = simulate(schedule(*disturbances), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == times


def test_a_change_back_within_seconds_runs_what_is_asked_for_last():
    found = simulate(schedule(change(20.0, 2, back=0.3)), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") in {1, 2, 3}


def test_a_change_that_is_undone_before_it_is_read_begins_no_time_again():
    """The node fails 30 s after its image could first not be pulled, whatever was undone since."""
    nodes = NodePlan("n1"), NodePlan("n2", (Task("pull", 0.0),))
    found = simulate(schedule(change(6.0, 2, back=0.002), nodes=nodes), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == 1


def test_a_task_that_starts_before_the_request_is_on_record_need_not_count_for_it():
    """The run is suspended, and the report cannot be written for 20 s after the request."""
    drawn = generate_schedule(7301186)
    kept = tuple(d for d in drawn.disturbances if d.kind != "edit")
    found = simulate(replace(drawn, disturbances=kept), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n4") == 1


CHANGED = change(20.0, 2), change(40.0, 3)
ASKED = rerun(20.0, "n1@1"), rerun(40.0, "n1@2")


@pytest.mark.parametrize(
    ("disturbances", "times"),
    [
        # Nothing else is asked for: what has run counts.
        ((*CHANGED, lose_status(60.0, "revision")), 3),
        ((*CHANGED, lose_status(60.0)), 3),
        ((*ASKED, lose_status(60.0, "observedRerun")), 3),
        ((*ASKED, lose_status(60.0)), 3),
        ((*CHANGED, lose_status(60.0, "revision"), change(60.1, 4)), 4),
        ((*CHANGED, lose_status(60.0, "revision"), change(60.1, 1)), 4),
        ((*CHANGED, lose_status(60.0), change(60.1, 4)), 4),
        ((*CHANGED, change(60.0, 4), lose_status(60.1, "revision")), 4),
        ((*CHANGED, Disturbance(60.0, "crash", "controller", seconds=5.0), lose_status(61.0)), 3),
        # The first request, again.
        ((*ASKED, lose_status(60.0, "observedRerun"), rerun(60.1, "n1@1")), 4),
        ((*ASKED, lose_status(60.0), rerun(60.1, "n1@1")), 4),
    ],
)
def test_a_status_that_is_lost_loses_no_number(disturbances, times):
    found = simulate(schedule(*disturbances), is_tracing=True)
    # A user who removes conditions breaks the conventions.
    assert found.kinds <= {"conventions"}
    assert starts(found.trace, "n1") == times


@pytest.mark.parametrize("spec", [SPEC, {"image": "example/task:1"}], ids=["stays", "once"])
def test_a_revision_in_the_template_is_not_that_of_a_pod(spec):
    template = {"metadata": {"annotations": {names.ANNOTATION_REVISION: "5-other"}}}
    assert not simulate(schedule(spec={**spec, "template": template})).violations


@pytest.mark.parametrize("mutant", [mutants.ignores_rerun_requests, mutants.repeats_reruns])
def test_a_rerun_that_is_lost_or_repeated_is_seen(mutant):
    requests = rerun(20.0, "n1@1"), rerun(40.0, "n2@2")
    assert not simulate(schedule(*requests)).violations
    signs = {"due again", "started again", "pod deletion"}
    with mutant():
        assert simulate(schedule(*requests), stops_at=signs).kinds & signs


def test_a_node_whose_labels_come_back_runs_again():
    away = Disturbance(20.0, "relabel", what="n1", seconds=30.0)
    found = simulate(schedule(away, spec={**SPEC, **ZONE}), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == 2
    with mutants.forgets_nodes_that_left():
        assert "due again" in simulate(schedule(away, spec={**SPEC, **ZONE})).kinds


def test_a_node_whose_labels_left_just_before_the_job_was_made_runs_again_when_they_come_back():
    """The DaemonSet controller had not seen them leave, and made a pod that completed it."""
    nodes = NodePlan("n1", (Task("done", 0.0),)), NodePlan("n2"), NodePlan("n3")
    away = Disturbance(10.0, "relabel", what="n1", seconds=30.0)
    job = JobPlan(spec={**SPEC, **ZONE}, created_at=10.05)
    found = simulate(Schedule(4, nodes, (job,), (away,)), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == 2


@pytest.mark.parametrize(
    ("deleted_at", "leaves"),
    [(12.5, ()), (13.0, (Disturbance(9.8, "relabel", what="n3"),))],
    ids=["joined", "another one left"],
)
def test_a_node_that_completed_before_the_cache_had_it_join_is_not_due(deleted_at, leaves):
    """Its pod is deleted while the controller's watch of nodes is late."""
    nodes = (
        NodePlan("n1"),
        NodePlan("n2", (Task("done", 0.0),), zone="b"),
        NodePlan("n3", (Task("done", 6.0),)),
    )
    disturbances = (
        Disturbance(9.5, "stall", "controller", "nodes", seconds=40.0),
        *leaves,
        Disturbance(9.9, "relabel", what="n2"),
        Disturbance(deleted_at, "delete_pod", what="n2"),
    )
    job = JobPlan(spec={**SPEC, **ZONE}, created_at=10.0)
    assert not simulate(Schedule(0, nodes, (job,), disturbances)).violations


@pytest.mark.parametrize("seconds", [3.0, 15.0])
@pytest.mark.parametrize(("until", "times"), [(0.0, 1), (60.0, 2)], ids=["stays", "goes"])
def test_a_node_whose_labels_come_back_runs_again_once_no_taint_keeps_it_out(until, times, seconds):
    taint = Disturbance(20.0, "taint", what="n1", mode="NoSchedule", seconds=until)
    away = Disturbance(30.0, "relabel", what="n1", seconds=seconds)
    found = simulate(schedule(taint, away, spec={**SPEC, **ZONE}), is_tracing=True)
    assert not found.violations
    assert starts(found.trace, "n1") == times


def test_a_node_that_came_back_and_left_again_before_it_ran_counts_no_more():
    """It is due again as soon as it is back."""
    nodes = NodePlan("n1", (Task("done", 10.0, on_term="deaf"),)), NodePlan("n2")
    away = Disturbance(20.0, "relabel", what="n1", seconds=0.5)
    again = Disturbance(22.5, "relabel", what="n1")
    desired = []

    def look(world):
        (job,) = world.server.all(JOBS)
        desired.append(job["status"]["nodes"]["desired"])

    found = simulate(schedule(away, again, spec={**SPEC, **ZONE}, nodes=nodes), look=look)
    assert not found.violations
    assert desired == [1]


def test_a_node_that_left_stays_counted_whatever_is_asked_meanwhile():
    away = Disturbance(20.0, "relabel", what="n1")
    later = change(40.0, 2), rerun(60.0, "*@1")
    assert not simulate(schedule(away, *later, spec={**SPEC, **ZONE})).violations


@pytest.mark.parametrize("seconds", [60.0, 0.0])
@pytest.mark.parametrize("ask", [change(30.0, 2), rerun(30.0, "n2@1")], ids=["change", "rerun"])
def test_a_node_that_is_away_keeps_its_job_from_being_complete(seconds, ask):
    down = Disturbance(20.0, "shutdown", what="n2", seconds=seconds)
    assert not simulate(schedule(down, ask)).violations


def test_a_node_that_is_away_and_forgotten_is_seen():
    """After a change of what runs, only the ledger shows that the node has begun."""
    down = Disturbance(20.0, "shutdown", what="n2")
    with mutants.forgets_earlier_tries_of_absent_nodes():
        assert simulate(schedule(down, change(30.0, 2))).kinds & {"complete", "due again"}


def test_a_start_in_a_pod_of_an_earlier_revision_keeps_no_node():
    """The image is changed and changed back, so that the pod runs what is to run."""
    nodes = NodePlan("n1"), NodePlan("n2", (Task("done", 30.0, on_term="deaf"),))
    down = Disturbance(10.0, "not_ready", what="n2", seconds=20.0)
    edited = schedule(change(1.0, 2, back=0.3), down, nodes=nodes)
    assert not simulate(replace(edited, seed=2, calm=False)).violations
