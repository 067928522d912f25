"""Schedules by hand of what reviewers found by reading, and the drawn ones had not shown."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

import pytest

from job_controller import fresh_nodes
from job_controller.core.render import job_status
from job_controller.core.rollout import places, steps
from job_controller.core.state import first_seen, node_pods
from job_controller.core.state.first_seen import Fact, Sighting
from job_controller.core.state.node_context import RunContext
from terminator import deletion_decision
from terminator.logs import result_search
from tests.simulation.defects import hides_refusals
from tests.simulation.disturbances import PODS_END_SECONDS
from tests.simulation.generator import generate_schedule
from tests.simulation.mutants import ignores_nodes_without_pod
from tests.simulation.oracle.facts import is_true
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task, Workload
from tests.simulation.server import JOBS, REPORTS
from tests.simulation.start_mutants import never_fails_unstarted_tasks

SPEC = {"image": "example/task:1"}
TOLERANT = {"spec": {"tolerations": [{"operator": "Exists"}]}}
WAITS = {**SPEC, "failurePolicy": {"action": "Continue"}}
FORCED = Disturbance(130.0, "force_delete", what="n2")


def schedule(nodes, spec, *disturbances):
    return Schedule(0, nodes, (JobPlan(spec=spec),), disturbances, calm=True)


def test_retry_keeps_a_node_that_was_unreachable_before_its_start():
    nodes = NodePlan("n1"), NodePlan("n2", (Task("mount", 20.0),))
    found = simulate(
        schedule(
            nodes,
            SPEC,
            Disturbance(5.0, "down", what="n2", seconds=400.0),
            FORCED,
            Disturbance(150.0, "crash", "controller", seconds=5.0),
            Disturbance(152.0, "retry", "default/sample"),
        )
    )
    assert not found.violations


def test_a_retry_keeps_a_failed_node_that_is_away():
    nodes = NodePlan("n1"), NodePlan("n2", (Task("pull", 0.0),))
    found = simulate(
        schedule(
            nodes,
            SPEC,
            Disturbance(330.0, "down", what="n2", seconds=600.0),
            Disturbance(430.0, "force_delete", what="n2"),
            Disturbance(450.0, "retry", "default/sample"),
        )
    )
    assert not found.violations


@pytest.mark.parametrize(
    "change",
    [
        Disturbance(150.0, "taint", what="n2", mode="NoSchedule", seconds=30.0),
        Disturbance(150.0, "edit", "default/sample", "-n2", "nodes", seconds=30.0),
    ],
    ids=lambda change: change.kind,
)
def test_a_node_that_does_not_count_for_a_while_counts_again(change):
    nodes = NodePlan("n1", (Task("done", 250.0),)), NodePlan("n2", (Task("mount", 20.0),))
    down = Disturbance(5.0, "down", what="n2", seconds=600.0)
    assert not simulate(schedule(nodes, WAITS, down, FORCED, change)).kinds & {
        "complete",
        "deletion",
    }


def test_complete_job_is_kept_while_a_failed_node_is_retried():
    policy = {"action": "Continue", "maxFailedNodes": 1}
    found = simulate(
        schedule(
            (NodePlan("n1"), NodePlan("n2", (Task("fail", 1.0, 2, 99),))),
            {**SPEC, "backoffLimit": 0, "failurePolicy": policy},
            Disturbance(60.0, "down", what="n2"),
            Disturbance(200.0, "retry", "default/sample"),
            Disturbance(1200.0, "crash", "controller", seconds=1.0),
        )
    )
    assert not found.violations


@pytest.mark.parametrize(
    ("watch", "change"),
    [
        ("nodes", Disturbance(60.0, "leave", what="n0")),
        ("pods", Disturbance(60.0, "edit", "default/sample", "-n0", "nodes")),
    ],
    ids=["leave", "exclude"],
)
def test_deleted_failed_node_does_not_fail_the_run(watch, change):
    nodes = (
        *(NodePlan(f"n{i}", (Task("done", 100.0),)) for i in range(1, 10)),
        NodePlan("n0", (Task("fail", 1.0, 2, 99),)),
    )
    policy = {"action": "FailFast", "maxFailedNodes": "10%"}
    stall = Disturbance(58.0, "stall", "controller", watch, seconds=10.0)
    spec = {**SPEC, "backoffLimit": 0, "failurePolicy": policy}
    trace = simulate(schedule(nodes, spec, stall, change), is_tracing=True).trace
    assert not [line for line in trace if "'phase': 'Failed'" in str(line).replace("\\", "")]


def test_results_of_mode_exit_are_not_of_the_start_after_a_reboot():
    spec = {**SPEC, "completion": {"mode": "Exit"}, "results": [{"name": "a"}, {"name": "b"}]}
    nodes = NodePlan("n1", (Task("done", 1.0),)), NodePlan("n2", (Task("done", 60.0),))
    found = simulate(
        schedule(
            nodes,
            spec,
            Disturbance(0.1, "log_fails", what="n1", seconds=4.4),
            Disturbance(2.9, "stall", "terminator", "pods", seconds=20.0),
            Disturbance(3.0, "reboot", what="n1", seconds=0.5),
        )
    )
    assert not [words for *_, words in found.violations if "the node completed by" in words]


@pytest.mark.parametrize("left_at", [10.075, 10.085])
def test_a_node_that_came_and_went_unseen_does_not_keep_the_run(left_at):
    """Its pod waits at the gate, so the scheduler does not report it, and nothing is on record."""
    nodes = NodePlan("n1", (Task("done", 40.0),)), NodePlan("n2", is_initial=False)
    joins, leaves = (
        Disturbance(at, kind, what="n2") for at, kind in ((10.0, "join"), (left_at, "leave"))
    )
    assert not simulate(schedule(nodes, SPEC, joins, leaves)).violations
    with patch.object(node_pods, "NODE_GONE_AFTER", timedelta(days=1)):
        assert "stuck" in simulate(schedule(nodes, SPEC, joins, leaves)).kinds


WITH_RESULTS = {**SPEC, "results": [{"name": "a"}, {"name": "b"}]}
TALKATIVE = NodePlan("n1", (Task("done", 5.0, noise=120),)), NodePlan("n2", (Task("done", 30.0),))


@pytest.mark.parametrize(
    ("kind", "at"), [("shutdown", 7.08 - PODS_END_SECONDS), ("log_fails", 7.08)]
)
def test_results_are_not_required_if_the_log_was_deleted_first(kind, at):
    """The token is read at 7.06, without a stream, and the results are further back."""
    gone = Disturbance(at, kind, what="n1", seconds=8.0)
    found = simulate(replace(schedule(TALKATIVE, WITH_RESULTS, gone), streams=0))
    assert not found.violations
    assert "results: gone" in found.excused


@pytest.mark.parametrize("at", [16.0, 60.0])
def test_results_are_required_if_the_log_could_be_searched(at):
    gone = Disturbance(at, "shutdown", what="n1")
    owed = replace(schedule(TALKATIVE, WITH_RESULTS, gone), streams=0)
    assert not simulate(owed).violations
    with patch.object(result_search, "SEARCH_RETRY_SECONDS", ()):
        assert "results" in simulate(owed).kinds


STUCK = NodePlan("n1", (Task("pull", 0.0),)), NodePlan("n2", (Task("done", 30.0),))


@pytest.mark.parametrize("kind", ["stall", "relist", "list_late"])
@pytest.mark.parametrize("seconds", [25.0, 60.0])
def test_the_timeout_counts_from_when_the_controller_has_seen_it(kind, seconds):
    behind = schedule(STUCK, SPEC, Disturbance(0.3, kind, "controller", "pods", seconds=seconds))
    assert not simulate(behind).violations
    with never_fails_unstarted_tasks():
        assert "not reported" in simulate(behind).kinds


REFUSED_DAEMON_SET = Disturbance(0.0, "refuse_write", "controller", "apply daemonsets", "413")
REFUSED_STATUS = Disturbance(0.0, "refuse_write", "controller", "patch status jobs", "403")


def test_a_status_that_is_refused_from_the_start_reports_nothing():
    refused = schedule((NodePlan("n1"),), SPEC, REFUSED_DAEMON_SET, REFUSED_STATUS)
    assert not simulate(refused).violations


def test_a_daemon_set_that_is_refused_from_the_start_must_be_reported():
    refused = schedule((NodePlan("n1"),), SPEC, REFUSED_DAEMON_SET)
    assert not simulate(refused).violations
    with hides_refusals():
        assert "not reported" in simulate(refused).kinds


def test_retry_that_ends_the_run_at_once_restarts_the_ttl():
    nodes = NodePlan("n1"), NodePlan("n2", (Task("done", 20.0),))
    away = Disturbance(5.0, "down", what="n2", seconds=20.0)
    retry = Disturbance(60.0, "retry", "default/sample")
    kept = {**SPEC, "ttlSecondsAfterFinished": 50}
    assert not simulate(schedule(nodes, kept, away, retry)).violations
    with patch.object(job_status, "_has_ended_again", return_value=False):
        assert "lifetime" in simulate(schedule(nodes, kept, away, retry)).kinds


def test_a_node_without_a_network_may_fail_by_the_pod_start_timeout():
    """It is Ready, so the timeout counts."""
    nodes = NodePlan("n1"), NodePlan("n2", (Task("pull", 0.0),))
    assert not simulate(
        schedule(nodes, WAITS, Disturbance(10.0, "no_network", what="n2"))
    ).violations


def test_a_taint_keeps_a_node_out_until_its_end_is_delivered():
    """The node has lost its pod to its condition, so the DaemonSet controller counts nothing."""
    nodes = NodePlan("n1", (Task("done", 43.2),)), NodePlan("n2", (Task("done", 90.0),))
    changes = (
        Disturbance(10.0, "no_network", what="n2"),
        Disturbance(30.0, "force_delete", what="n2"),
        Disturbance(38.0, "taint", what="n2", mode="NoSchedule", seconds=5.0),
    )
    late = Disturbance(42.9, "stall", "controller", "nodes", seconds=2.0)
    assert not simulate(schedule(nodes, WAITS, *changes, late)).violations
    with ignores_nodes_without_pod():
        assert "complete" in simulate(schedule(nodes, WAITS, *changes)).kinds


def test_a_deadline_is_that_of_the_spec_that_the_controller_knows():
    nodes = (NodePlan("n1", (Task("never"),)),)
    spec = {**SPEC, "nodeDeadlineSeconds": 10}
    stall = Disturbance(8.0, "stall", "controller", "jobs", seconds=5.0)
    edit = Disturbance(9.0, "edit", "default/sample", "20", "nodeDeadlineSeconds")
    assert not simulate(schedule(nodes, spec, stall, edit)).violations


@pytest.mark.parametrize(("ahead", "excused"), [(0.0, {}), (2.0, {"evidence: clocks": 1})])
def test_a_pod_counts_for_a_new_node_if_clocks_differ(ahead, excused):
    """Its node is registered again 2 s after it was deleted."""
    nodes = NodePlan("n1", (Task("done", 0.2),)), NodePlan("n2")
    spec = {**SPEC, "completion": {"mode": "Exit"}}
    again = Disturbance(0.3, "reregister", what="n1", seconds=2.0)
    found = simulate(replace(schedule(nodes, spec, again), api_skews=(0.0, ahead)))
    assert not found.violations
    assert found.excused == excused


@pytest.mark.parametrize("at", [0.3, 0.4])
def test_a_node_that_is_registered_again_after_its_gate_was_removed_is_not_cordoned(at):
    nodes = NodePlan("n1", (Task("pull", 3.0),)), NodePlan("n2")
    again = Disturbance(at, "reregister", what="n1", seconds=0.1)
    found = simulate(schedule(nodes, {**SPEC, "cordon": True}, again))
    assert not found.violations
    assert found.excused == {"cordoned first: registered again": 1}


def test_an_eviction_may_arrive_after_its_controller_has_ended():
    """The next controller has uncordoned the node by then, as its Job is deleted."""
    sent = (
        Disturbance(0.255, "fail", "controller", "pods", "slow", 5.0),
        Disturbance(0.27, "crash", "controller", seconds=1.0),
        Disturbance(0.5, "delete_job", "default/sample"),
    )
    spec = {**SPEC, "drain": {"timeoutSeconds": 60, "force": True}}
    late = replace(schedule((NodePlan("n1"),), spec, *sent), workloads=(Workload("web"),))
    found = simulate(late)
    assert not found.violations
    assert found.excused == {"evicted: sent before": 1}


def test_evidence_may_arrive_after_its_terminator_has_ended():
    """The task has printed its token twice by then, and its next terminator has seen the second."""
    nodes = NodePlan("n1", (Task("exit", 0.5, 1),)), NodePlan("n2", (Task("done", 20.0),))
    sent = (
        Disturbance(1.0, "fail", "terminator", "jobreports", "slow", 2.0),
        Disturbance(2.6, "crash", "terminator", seconds=0.1),
    )
    found = simulate(schedule(nodes, SPEC, *sent))
    assert not found.violations
    assert found.excused == {"evidence: unseen": 1}


JOINED_LATE = (
    Disturbance(4.9, "refuse_pods", seconds=1500.0),
    Disturbance(5.0, "join", what="n2"),
)
RESTARTED = Disturbance(300.0, "crash", "terminator", seconds=5.0)


def joined_late(*disturbances):
    nodes = NodePlan("n1"), NodePlan("n2", is_initial=False)
    spec = {**SPEC, "ttlSecondsAfterFinished": 20}
    return simulate(schedule(nodes, spec, *JOINED_LATE, *disturbances))


@pytest.mark.parametrize("more", [(), (RESTARTED,)], ids=["", "restarted"])
def test_a_node_that_gets_no_pod_after_the_end_keeps_the_job_for_ten_minutes(more):
    found = joined_late(*more)
    assert not found.violations
    assert found.excused == {"deletion: a node joined after the end": 1}


@pytest.mark.parametrize(
    ("seconds", "more"), [(0, ()), (590, ()), (500, (RESTARTED,))], ids=["at once", "", "restarted"]
)
def test_a_shorter_wait_for_such_a_node_is_a_violation(seconds, more):
    with patch.object(deletion_decision, "OVERDUE_SECONDS", seconds):
        assert joined_late(*more).kinds == {"deletion"}


def test_a_complete_job_whose_failed_nodes_have_left_goes_after_its_ttl():
    policy = {"action": "Continue", "maxFailedNodes": 1}
    spec = {**SPEC, "backoffLimit": 0, "failurePolicy": policy, "ttlSecondsAfterFinished": 50}
    failing = NodePlan("n1", (Task("fail", 1.0, 1, 99),))
    leave = Disturbance(40.0, "leave", what="n1")
    assert not simulate(schedule((failing,), spec, leave)).violations


def test_results_are_not_required_if_a_reboot_comes_before_they_can_be_read():
    nodes = NodePlan("n1", (Task("exit", 0.1),)), NodePlan("n2", (Task("done", 30.0),))
    changes = (
        Disturbance(0.1, "log_fails", what="n1", seconds=2.5),
        Disturbance(1.4, "reboot", what="n1", seconds=10.0),
    )
    found = simulate(schedule(nodes, {**WITH_RESULTS, "completion": {"mode": "Exit"}}, *changes))
    assert not found.violations
    assert "results: gone" in found.excused


def test_a_value_is_not_required_if_its_pod_is_deleted_before_it_can_be_searched():
    """The run has failed. The deleted pod waits for its next start, and its log is there still."""
    found = simulate(generate_schedule(7_965_760))
    assert not found.violations
    assert found.excused["results: gone"] == 1


def test_an_unreachable_node_without_a_report_is_found_again_after_a_restart():
    nodes = NodePlan("n1"), NodePlan("n2", (Task("done", 60.0),))
    refused = Disturbance(0.12, "refuse_write", "controller", "create jobreports", "413")
    down = Disturbance(2.0, "down", what="n2")
    found = simulate(replace(schedule(nodes, SPEC, refused, down), shard_nodes=1))
    assert not found.violations
    assert "not quiet: nothing is on record" in found.excused


def test_a_task_that_has_begun_counts_though_its_pod_was_deleted_before_the_record():
    """The pod cannot end for 20 s, and then a client deletes it by force (seed 11000954)."""
    nodes = NodePlan("n1", (Task("done", 40.0),)), NodePlan("n2", (Task("done", 5.0),))
    changes = (
        Disturbance(0.5, "delete_pod", what="n2"),
        Disturbance(0.55, "down", what="n2", seconds=300.0),
        Disturbance(20.0, "force_delete", what="n2"),
    )
    assert not simulate(schedule(nodes, SPEC, *changes)).kinds & {"complete", "deletion"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_new_machine_that_takes_the_name_of_the_old_one_is_no_failure_of_the_task(seed):
    """The watch of nodes does not deliver it; the kubelet starts the task of the old one again."""
    stalled = Disturbance(2.0, "stall", "controller", what="nodes", seconds=60.0)
    renewed = Disturbance(2.0, "renew", what="n0", seconds=2.0)
    plan, spec = NodePlan("n0", (Task("done", 1.0),)), {**SPEC, "backoffLimit": 0}
    drawn = replace(schedule((plan,), spec, stalled, renewed), seed=seed, calm=False)
    assert not simulate(drawn).violations


@pytest.mark.parametrize("pods", ["DeleteFailed", "Delete"])
@pytest.mark.parametrize(("at", "asked"), [(0.1, 2.1), (1.0, 2.0)])
def test_a_rollback_waits_for_pods_that_the_controller_has_not_seen(at, asked, pods):
    """A user requests it right after the start, while the watch of pods is late."""
    nodes = tuple(NodePlan(f"n{number}", (Task("done", 1.0),)) for number in range(3))
    spec = {
        **SPEC,
        "rollback": {"args": ["undo"]},
        "failurePolicy": {"pods": pods},
        "ttlSecondsAfterFinished": 3600,
    }
    late = Disturbance(at, "stall", "controller", "pods", seconds=4.0)
    request = Disturbance(asked, "roll_back", "default/sample")
    drawn = replace(schedule(nodes, spec, late, request), calm=False)
    assert not simulate(drawn).violations


def test_a_change_that_is_undone_at_once_does_not_end_the_step_of_a_node_at_work():
    """The other nodes start without the soak of the step, or its check."""
    assert not simulate(generate_schedule(8_000_000_456)).violations


@pytest.mark.parametrize("seed", [10_000_000_365, 10_000_000_728, 10_000_000_861, 10_000_001_126])
def test_a_rerun_that_a_change_meets_is_not_lost_when_the_change_is_undone(seed):
    """What a node had completed before the request counted again; in three it is away."""
    assert not simulate(generate_schedule(seed)).violations


@pytest.mark.parametrize("seed", [7_498_541, 7_520_380])
def test_a_node_that_left_before_it_was_recorded_at_work_runs_again_when_it_is_back(seed):
    assert not simulate(generate_schedule(seed)).violations


def test_a_start_is_not_taken_back_if_its_pod_came_and_went_before_the_watch_had_it():
    assert not simulate(generate_schedule(7_684_387)).violations


@pytest.mark.parametrize("seed", [7_479_118, 7_514_863, 7_518_968, 7_678_660])
def test_a_node_that_starts_unseen_does_not_count_once_the_change_that_chose_it_is_undone(seed):
    """Its record said nothing yet, and was not kept."""
    assert not simulate(generate_schedule(seed)).violations


def test_a_node_that_completed_before_it_was_recorded_does_not_count_once_that_is_undone():
    """The controller died after it had changed the DaemonSet, and before it wrote the report."""
    assert not simulate(generate_schedule(7_933_830)).violations


@pytest.mark.parametrize("seed", [11_610_000_680, 11_610_000_854, 11_610_000_901])
def test_a_node_at_work_that_an_edit_takes_out_is_not_due_again_once_that_is_undone(seed):
    """Its pod completed it after that, and looked like one from before its labels came back."""
    assert not simulate(generate_schedule(seed)).violations


def test_a_node_whose_labels_left_before_its_pod_was_seen_stays_completed():
    """A rerun of all nodes, from after that, is not about it."""
    assert not simulate(generate_schedule(7_621_445)).violations


def test_a_node_that_was_registered_again_at_work_counts_for_its_step():
    assert not simulate(generate_schedule(7_714_352)).violations


def test_a_pod_that_was_deleted_for_a_correction_and_started_nothing_holds_nothing_up():
    """Its node is not Ready: the run completes without it in the write that ends its record."""
    assert not simulate(generate_schedule(7_719_317)).violations


def test_the_time_of_a_node_goes_on_in_its_next_pod():
    """So a retry may delete a pod that is younger than nodeDeadlineSeconds."""
    assert not simulate(generate_schedule(7_726_273)).violations


def test_a_node_that_was_set_aside_before_its_turn_counts_for_no_step():
    """It had run a former revision, whose task was started on it."""
    assert not simulate(generate_schedule(7_571_326)).violations


def test_a_node_that_leaves_after_its_pull_counts_for_the_percentage_that_may_fail():
    """One of two nodes lacks the images, and 50 % may fail: the other one was shut down."""
    assert not simulate(generate_schedule(7_759_885)).violations


def test_a_rollback_leaves_a_node_out_that_is_down_and_has_a_deleted_pod():
    """It waited, and after a restart counted again how long the node was away."""
    assert not simulate(generate_schedule(7_764_185)).violations


def test_a_node_without_a_taint_for_a_moment_may_be_called_unreachable():
    """The taint of its condition was lifted 0.3 s before it got that of its network."""
    assert not simulate(generate_schedule(7_769_426)).violations


def test_a_failure_token_recorded_for_the_former_node_holds():
    """The list of nodes was late, and the next attempt had succeeded before it came."""
    assert not simulate(generate_schedule(7_779_565)).violations


def test_a_rerun_of_a_node_that_was_registered_again_is_not_lost():
    """The report cannot be written, and has the record of the former node of that name."""
    assert not simulate(generate_schedule(10_000_004_189)).violations


def test_a_node_that_had_no_room_gives_its_turn_back_while_it_is_still_counted():
    """Its pod is gone with a taint, and the DaemonSet controller has not looked for 20 s."""
    assert not simulate(generate_schedule(13_000_601_456)).violations


def test_a_changed_step_has_no_place_of_a_node_that_the_user_took_out():
    """The node had its turn, and `spec.nodes` was changed before its task had finished."""
    assert not simulate(generate_schedule(13_000_601_020)).violations


def test_a_node_that_is_ready_after_complete_waits_for_no_step_that_was_made_smaller():
    found = simulate(generate_schedule(13_000_601_241))
    assert not found.violations
    assert "changed steps: after the end" in found.excused


def test_the_script_of_a_check_has_less_time_once_the_user_gives_it_less():
    """The time counts from the start of the check, and the step was approved before."""
    found = simulate(generate_schedule(13_000_602_688))
    assert not found.violations
    assert "check scripts: approved" in found.excused


@pytest.mark.parametrize("seed", [7_608_264, 8_000_001_078])
def test_the_script_of_a_check_is_not_asked_of_a_node_that_left_a_changed_selection(seed):
    """It had completed, and another node is in its place in the step."""
    assert not simulate(generate_schedule(seed)).violations


@pytest.mark.parametrize("seed", [13_000_000_203, 13_000_000_638], ids=["taint", "not Ready"])
def test_the_script_of_a_check_may_end_without_a_node_that_takes_no_pods(seed):
    """The step was approved before, and the time of the check is not over."""
    found = simulate(generate_schedule(seed))
    assert not found.violations
    assert "check scripts: approved" in found.excused


def test_a_node_with_a_taint_keeps_its_step_after_a_change_of_the_selection():
    """Another node had its turn in its place, and started as soon as it was back and completed."""
    assert not simulate(generate_schedule(7_555_260)).violations


def test_results_of_a_task_that_ends_after_a_reboot_are_kept():
    """Its log is read before its exit code counts, since the sandbox of before has ended."""
    assert not simulate(generate_schedule(10_000_002_333)).violations


def test_a_machine_that_dies_while_it_is_drained_fails_no_run_that_may_lose_nodes():
    """Nothing ends there, so its drain timed out: the node had failed, and so had the run."""
    nodes = tuple(NodePlan(f"n{number}", (Task("done", 50.0),)) for number in range(4))
    spec = {
        **SPEC,
        "drain": {"timeoutSeconds": 45},
        "rollout": {"maxParallel": 2},
        "failurePolicy": {"maxUnreachableNodes": 1},
    }
    down = Disturbance(3.0, "down", what="n0", seconds=90.0)
    drawn = replace(
        schedule(nodes, spec, down), workloads=(Workload("web", replicas=4, grace=10.0),)
    )
    left = []
    found = simulate(drawn, look=lambda world: left.extend(world.server.all(JOBS)))
    # The Job has succeeded: it is deleted.
    assert (found.violations, left) == ((), [])


@pytest.mark.parametrize(
    ("write", "at"), [("patch pods", 0.0), ("patch nodes", 1.62)], ids=["gate", "cordon"]
)
@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["for good", "for a while"])
def test_a_drain_waits_for_writes_that_are_refused(write, at, seconds):
    """No other drain follows each try, and a node that is not cordoned does not fail by time."""
    nodes = NodePlan("n0"), NodePlan("n1")
    refusal = Disturbance(at, "refuse_write", "controller", write, "403", seconds)
    found = simulate(schedule(nodes, {**SPEC, "drain": {"timeoutSeconds": 20}}, refusal))
    assert not found.violations
    assert found.steps < 500


def test_a_drain_fails_by_time_if_pods_come_back_that_tolerate_cordons():
    others = Workload("web", tolerates_cordon=True)
    plan = schedule((NodePlan("n0"),), {**SPEC, "drain": {"timeoutSeconds": 60}})
    found = simulate(replace(plan, workloads=(others,)), is_tracing=True)
    assert not found.violations
    said = [words for *_, words in found.trace if "DrainTimedOut" in words]
    assert said
    assert "pods that tolerate cordons may come back" in said[0]


def test_the_clock_of_a_node_does_not_leave_it_out_of_the_rollback():
    """It was not Ready for 3 s while its failed task was ended, and its clock was behind."""
    assert not simulate(generate_schedule(7_744_729)).violations


def test_the_log_of_a_failed_task_that_has_just_started_may_be_empty_at_first():
    """Its node failed by its deadline while the pod waited to start; its lines are read later."""
    assert not simulate(generate_schedule(7_780_645)).violations


@pytest.mark.parametrize("pods", ["DeleteFailed", "Delete"])
def test_a_rollback_ends_if_its_only_node_is_away(pods):
    """Nothing changes after the time in which the node may come back."""
    spec = {
        **SPEC,
        "rollback": {"args": ["undo"]},
        "failurePolicy": {"pods": pods},
        "ttlSecondsAfterFinished": 3600,
    }
    down = Disturbance(20.0, "down", what="n0", seconds=900.0)
    request = Disturbance(30.0, "roll_back", "default/sample")
    left = []
    drawn = schedule((NodePlan("n0", (Task("done", 1.0),)),), spec, down, request)
    found = simulate(drawn, look=lambda world: left.extend(world.server.all(JOBS)))
    conditions = [each for raw in left for each in raw["status"]["conditions"]]
    ended = [each["reason"] for each in conditions if each["type"] == "RolledBack"]
    assert (found.violations, ended) == ((), ["RolledBackPartly"])


def test_a_rollback_ends_while_a_deleted_pod_cannot_end():
    """The machine went down before that pod had started."""
    assert not simulate(generate_schedule(7_799_825)).violations


@pytest.mark.parametrize(("seconds", "reason"), [(0.0, "RolledBackPartly"), (60.0, "RolledBack")])
def test_a_node_has_its_time_to_come_back_to_a_rollback(seconds, reason):
    """Also if the pods on it are deleted meanwhile. Another node is rolled back at once."""
    spec = {**SPEC, "rollback": {"args": ["undo"]}, "ttlSecondsAfterFinished": 3600}
    nodes = tuple(NodePlan(name, (Task("done", 1.0),)) for name in ("n0", "n1"))
    happens = (
        Disturbance(30.0, "roll_back", "default/sample"),
        Disturbance(30.21, "down", what="n1", seconds=seconds),
        Disturbance(45.0, "delete_pod", what="n1"),
        Disturbance(46.0, "delete_pod", what="n1"),
    )
    left = []
    found = simulate(
        schedule(nodes, spec, *happens), look=lambda world: left.extend(world.server.all(JOBS))
    )
    conditions = [each for raw in left for each in raw["status"]["conditions"]]
    ended = [each["reason"] for each in conditions if each["type"] == "RolledBack"]
    assert (found.violations, ended) == ((), [reason])


def test_a_machine_that_reboots_while_it_shuts_down_may_be_away_for_too_long():
    """Its node is not Ready from the shutdown on, so it is unreachable, and the run fails."""
    assert not simulate(generate_schedule(7_566_925)).violations


@pytest.mark.parametrize("refused", ["", "patch status jobreports"])
def test_only_a_node_that_was_away_for_its_time_fails_a_run(refused):
    """Also if the report is refused that calls it unreachable."""
    nodes = NodePlan("n0", (Task("done", 40.0),)), NodePlan("n1")
    refusal = Disturbance(10.0, "refuse_write", "controller", refused, "403", 60.0)
    happens = Disturbance(20.0, "shutdown", what="n0"), *((refusal,) if refused else ())
    brief, long = (
        schedule(nodes, SPEC, *happens, Disturbance(20.9, "reboot", what="n0", seconds=seconds))
        for seconds in (2.0, 40.0)
    )
    assert (simulate(brief).violations, simulate(long).violations) == ((), ())
    with patch.object(RunContext, "unreachable_seconds", 1.0):
        assert "false failure" in simulate(brief).kinds


def test_a_task_whose_token_is_due_as_its_machine_comes_back_prints_its_lines_first():
    """The token was modelled before the results that had been due while the machine was down."""
    assert not simulate(generate_schedule(7_778_830)).violations


def test_a_rollback_that_waits_names_a_node_for_a_while_after_a_restart():
    """Its machine stays down, and another node is at work for good."""
    nodes = (
        NodePlan("n0", (Task("fail", 5.0, 1, 99),)),
        NodePlan("n1", (Task("done", 1.0),)),
        NodePlan("n2", (Task("never"),)),
    )
    policy = {"backoffLimit": 0, "failurePolicy": {"action": "Rollback"}}
    spec = {**SPEC, **policy, "rollback": {"args": ["undo"]}}
    found = simulate(schedule(nodes, spec, Disturbance(5.9, "down", what="n0")))
    assert not found.violations
    assert "not quiet: a rollback waits" in found.excused


def test_a_check_whose_job_cannot_start_is_inconclusive_in_time():
    """The clock of the API server, a minute ahead, gave its script another minute."""
    assert not simulate(generate_schedule(7_800_425)).violations


def test_labels_that_left_before_a_job_was_made_are_known_to_come_back():
    """The oracle knew only of labels that left while the Job was there."""
    assert not simulate(generate_schedule(7_813_180)).violations


def test_a_node_that_gets_the_label_of_a_step_that_waits_for_its_approval_has_its_turn():
    """The controller did not look at the Job when only a label of a node had changed."""
    assert not simulate(generate_schedule(16_000_001_309)).violations


@pytest.mark.parametrize("task", [Task("mount", 60.0), Task("never")], ids=lambda each: each.kind)
@pytest.mark.parametrize("template", [{}, TOLERANT], ids=["default", "tolerant"])
@pytest.mark.parametrize(
    ("policy", "reasons"),
    [
        ({"maxUnreachableNodes": "100%"}, ["CompletedWithinFailureLimit"]),
        ({"maxUnreachableNodes": 1, "unreachableSeconds": 30}, ["CompletedWithinFailureLimit"]),
        ({}, ["MaxFailedNodesExceeded"]),
        ({"action": "Continue"}, []),
        ({"action": "Continue", "rollout": 1}, ["MaxFailedNodesExceeded"]),
        ({"maxUnreachableNodes": 1, "rollout": 1}, ["CompletedWithinFailureLimit"]),
    ],
    ids=["idle", "in time", "fails", "waits", "blocks others", "rollout"],
)
def test_a_run_ends_although_a_deleted_pod_cannot_end(task, template, policy, reasons):
    """The machine is down for good. The same node without the deletion is unreachable."""
    spec = {**SPEC, "template": template, "failurePolicy": policy}
    if "rollout" in policy:
        policy = {key: value for key, value in policy.items() if key != "rollout"}
        spec = {**spec, "failurePolicy": policy, "rollout": {"maxParallel": 1}}
    nodes = NodePlan("n0", (task,)), NodePlan("n1"), NodePlan("n2")
    down = Disturbance(5.0, "down", what="n0")
    left = []
    for happens in ((down,), (down, Disturbance(8.0, "delete_pod", what="n0"))):
        found = simulate(
            schedule(nodes, spec, *happens), look=lambda world: left.append(world.server.all(JOBS))
        )
        assert not found.violations
    ends = []
    for (raw,) in left:
        conditions = raw["status"]["conditions"]
        ended = [each["reason"] for each in conditions if each["type"] in {"Complete", "Failed"}]
        ends.append((ended, raw["status"]["nodes"]))
    assert ends[0] == ends[1]
    assert ends[1][0] == reasons
    assert ends[1][1]["unreachableNames"] == "n0"


def test_a_node_that_is_back_while_its_record_is_written_was_away_for_its_time():
    """The request for the report took eight seconds."""
    assert not simulate(generate_schedule(7_811_549)).violations


@pytest.mark.parametrize("crash", [(), (Disturbance(20.5, "crash", "controller", seconds=3.6),)])
def test_the_time_of_a_node_counts_up_to_when_the_controller_decides(crash):
    """Not to when its write arrives, also that of a process that has died since it sent it."""
    nodes = NodePlan("n0", (Task("done", 40.0),)), NodePlan("n1")
    slow = Disturbance(15.0, "fail", "controller", "jobreports", "slow", 4.0)
    away = Disturbance(8.0, "not_ready", what="n0", seconds=12.7)
    assert not simulate(schedule(nodes, SPEC, away, slow, *crash)).violations
    with patch.object(RunContext, "unreachable_seconds", 8.0):
        found = simulate(schedule(nodes, SPEC, away, slow, *crash))
    assert "too early" in found.kinds


def test_a_node_that_had_a_network_for_a_moment_has_its_whole_time_again():
    """The watch showed neither that it had one nor that it lost it again, until both had passed."""
    nodes = NodePlan("n0", (Task("done", 40.0),)), NodePlan("n1")
    happens = (
        Disturbance(10.0, "no_network", what="n0", seconds=9.0),
        Disturbance(11.0, "force_delete", what="n0"),
        Disturbance(18.0, "slow_daemon_sets", seconds=8.0),
        Disturbance(18.5, "stall", "controller", "nodes", seconds=4.0),
        Disturbance(21.5, "no_network", what="n0", seconds=6.0),
    )
    assert not simulate(schedule(nodes, SPEC, *happens)).violations


# The pods come when n1 is another machine, which a program whose watch of nodes is late knows not.
REFUSED = Disturbance(0.01, "refuse_daemon_set", seconds=14.0)
REGISTERED_AGAIN = Disturbance(3.0, "reregister", what="n1", seconds=2.0)


def registered_again(task, spec, *late):
    """Return the outcome of a run of n0 and n1, in which these programs do not know the new n1."""
    stalls = (Disturbance(1.5, "stall", who, "nodes", seconds=90.0) for who in late)
    nodes = NodePlan("n0", (Task("done", 100.0),)), NodePlan("n1", (task,))
    return simulate(schedule(nodes, spec, REFUSED, REGISTERED_AGAIN, *stalls))


def test_what_a_pod_did_may_count_for_a_former_node_that_the_controller_knew():
    """The terminator could not write, so nothing showed the controller that it is another one."""
    found = simulate(generate_schedule(7_814_985))
    assert not found.violations
    assert "pod deletion: former node" in found.excused


@pytest.mark.parametrize(
    ("task", "completion"),
    [
        (Task("fail", 1.0, code=1, times=9), {}),
        (Task("once", 3.0), {}),
        (Task("done", 3.0), {"release": True}),
        (Task("done", 3.0), {"release": True, "mode": "Exit"}),
    ],
    ids=["fails", "exits", "released", "released in mode Exit"],
)
def test_the_end_of_a_pod_counts_for_a_former_node_while_no_program_knows_the_new_one(
    task, completion
):
    spec = {**SPEC, "backoffLimit": 0, "completion": completion}
    found = registered_again(task, spec, "controller", "terminator")
    assert not found.violations
    assert "pod deletion: former node" in found.excused
    found = registered_again(task, spec, "controller")
    assert not found.violations
    assert not found.excused


def test_a_completed_node_does_not_fail_because_the_controller_knows_only_the_former_one():
    """The ledger had the completion of that pod, for a node that the controller did not know."""
    found = registered_again(Task("once", 3.0), {**SPEC, "backoffLimit": 0}, "controller")
    assert not found.violations
    with patch.object(fresh_nodes, "_find_disputed", lambda *_: []):
        found = registered_again(Task("once", 3.0), {**SPEC, "backoffLimit": 0}, "controller")
    assert "false failure" in found.kinds


def test_a_node_that_is_registered_again_has_its_whole_time():
    """Its time was counted from the first pod of the former node."""
    nodes = NodePlan("n0"), NodePlan("n1", (Task("done", 25.0),))
    happens = (
        Disturbance(4.0, "stall", "controller", "nodes", seconds=90.0),
        Disturbance(5.0, "reregister", what="n1", seconds=2.0),
        Disturbance(12.0, "delete_pod", what="n1"),
    )
    left = []
    found = simulate(
        schedule(nodes, {**SPEC, "nodeDeadlineSeconds": 30}, *happens),
        look=lambda world: left.extend(world.server.all(JOBS)),
    )
    assert not found.violations
    assert not found.excused
    assert not left


def test_a_node_that_is_registered_again_is_cordoned_before_its_task_starts():
    """Its name was drained for the former node, and the controller did not know of the new one."""
    nodes = NodePlan("n0", (Task("done", 3.0),)), NodePlan("n1", (Task("done", 3.0),))
    happens = (
        Disturbance(20.0, "stall", "controller", "nodes", seconds=90.0),
        Disturbance(21.0, "reregister", what="n1", seconds=2.0),
    )
    drawn = schedule(nodes, {**SPEC, "drain": {"timeoutSeconds": 60}}, *happens)
    web = Workload("web", healthy=1)
    assert not simulate(replace(drawn, workloads=(web,))).violations


def test_a_pod_that_outlives_the_return_of_its_failed_node_does_not_complete_it():
    """The node was down when its labels left, and they were back before it was up."""
    assert not simulate(generate_schedule(7_815_975)).violations


DEADLINE = {"nodeDeadlineSeconds": 12, "failurePolicy": {"pods": "Keep", "action": "Continue"}}


@pytest.mark.parametrize("spec", [{}, DEADLINE], ids=["at work", "failed"])
@pytest.mark.parametrize("is_exact", [True, False])
def test_a_node_whose_labels_left_and_came_back_while_it_was_down_runs_again(spec, is_exact):
    """Its deleted pod prints the token as the machine comes up.

    The pod of another node that cannot end either keeps the count from being exact.
    """
    nodes = NodePlan("n0", (Task("done", 60.0),)), NodePlan("n1", (Task("once", 20.0),))
    standing = {"completion": {"policy": "Continuous"}}
    selection = {"nodes": {"selector": {"matchLabels": {"zone": "a"}}}}
    away = Disturbance(10.0, "down", what="n1", seconds=40.0)
    labels = Disturbance(22.0, "relabel", what="n1", seconds=15.0)
    other = (
        Disturbance(8.0, "down", what="n0", seconds=60.0),
        Disturbance(14.0, "delete_pod", what="n0"),
    )
    happens = (away, labels) if is_exact else (*other, away, labels)
    found = simulate(schedule(nodes, {**SPEC, **standing, **selection, **spec}, *happens))
    assert not found.violations


@pytest.mark.parametrize(("limit", "has_failed"), [("0", True), ("1", False)])
def test_a_lower_limit_applies_to_the_end_that_a_reboot_brought(limit, has_failed):
    """The node is back, and its next attempt is at work (seed 990102389)."""
    nodes = NodePlan("n0"), NodePlan("n1", (Task("reboot", 40.0, times=1, away=3.0),))
    left = []
    found = simulate(
        schedule(nodes, SPEC, Disturbance(70.0, "edit", "default/sample", limit, "backoffLimit")),
        look=lambda world: left.extend(world.server.all(JOBS)),
    )
    assert not found.violations
    assert [is_true(job, "Failed") for job in left] == [True] * has_failed


def test_a_lower_limit_applies_while_the_node_is_away():
    """Its task had rebooted it twice."""
    assert not simulate(generate_schedule(990_102_389)).violations


@pytest.mark.parametrize(
    ("field", "limit", "seconds", "reboots"),
    [
        ("backoffLimit", "0", 170.0, (70.0,)),
        ("nodeDeadlineSeconds", "95", 80.0, (70.0, 140.0, 210.0)),
    ],
    ids=["backoffLimit", "nodeDeadlineSeconds"],
)
def test_a_lower_limit_does_not_fail_a_machine_for_the_former_one(field, limit, seconds, reboots):
    """By it the former one had failed for more than two minutes, and the node was not read."""
    nodes = NodePlan("n0"), NodePlan("n1", (Task("done", seconds),))
    happens = (
        *(Disturbance(at, "reboot", what="n1", seconds=3.0) for at in reboots),
        Disturbance(230.0, "stall", "controller", "nodes", seconds=90.0),
        Disturbance(234.0, "reregister", what="n1", seconds=2.0),
        Disturbance(240.0, "edit", "default/sample", limit, field),
        Disturbance(400.0, "stall", "terminator", "nodes", seconds=1.0),  # it runs until then
    )
    left = []
    found = simulate(
        schedule(nodes, {**SPEC, "nodeDeadlineSeconds": 400}, *happens),
        look=lambda world: left.extend(world.server.all(JOBS)),
    )
    assert not found.violations
    assert not left


def test_rejections_count_until_the_controller_sees_that_a_suspended_job_has_none():
    """The watch of reports is late again before it has caught up (seed 7867987)."""
    nodes = NodePlan("n0"), NodePlan("n1", (Task("reject", times=99),))
    happens = (
        Disturbance(9.0, "stall", "controller", "jobreports", seconds=8.0),
        Disturbance(11.2, "suspend", "default/sample", seconds=60.0),
        Disturbance(12.2, "delete_pod", what="n1"),
        Disturbance(16.0, "relist", "controller", "jobreports", seconds=10.0),
    )
    assert not simulate(schedule(nodes, SPEC, *happens)).violations
    with patch.object(first_seen, "_seen_again", lambda before, now: before or Sighting(now)):
        found = simulate(schedule(nodes, SPEC, replace(happens[1], seconds=40.0), happens[2]))
    assert "too early" in found.kinds


def test_rejections_before_a_suspension_count_for_as_long_as_the_controller_saw_them():
    """Its watch of reports was late twice."""
    assert not simulate(generate_schedule(7_867_987)).violations


def test_rejections_count_until_a_watch_that_falls_behind_just_after_them_has_caught_up():
    """The deletion of the rejected pod was on its way."""
    happens = (
        Disturbance(11.2, "suspend", "default/sample", seconds=62.0),
        Disturbance(12.2, "delete_pod", what="n1"),
        Disturbance(12.205, "list_late", "controller", "pods", seconds=12.0),
    )
    nodes = NodePlan("n0"), NodePlan("n1", (Task("reject", times=99),))
    assert not simulate(schedule(nodes, SPEC, *happens)).violations
    with patch.object(first_seen, "_seen_again", lambda before, now: before or Sighting(now)):
        found = simulate(schedule(nodes, SPEC, replace(happens[0], seconds=40.0), happens[1]))
    assert "too early" in found.kinds


def without_room(*late):
    """Return seed 7941792 with other delays of the list of pods.

    The pods of n0 have no room. One goes at 31.04 s, and the next one comes at 35.7 s.
    """
    drawn = generate_schedule(7_941_792)
    left_out = "list_late", "pods"
    others = [each for each in drawn.disturbances if (each.kind, each.what) != left_out]
    delays = (
        Disturbance(at, "list_late", "controller", "pods", seconds=seconds) for at, seconds in late
    )
    return replace(drawn, disturbances=(*others, *delays))


@pytest.mark.parametrize(
    "late",
    [((23.01, 60.0),), ((23.01, 10.0), (32.5, 60.0)), ((31.042, 60.0),)],
    ids=["drawn", "late once more", "just after"],
)
def test_a_node_without_room_fails_by_a_pod_that_went_until_the_controller_sees_that(late):
    """The next pod has no room either (seed 7941792)."""
    reports = []
    found = simulate(
        without_room(*late), look=lambda world: reports.extend(world.server.all(REPORTS))
    )
    assert not found.violations
    failures = [report["status"]["nodeStates"]["n0"]["failures"] for report in reports]
    assert [failure["reason"] for (failure,) in failures] == ["Unschedulable", "Unschedulable"]


@pytest.mark.parametrize("seconds", [14.0, 27.0])
def test_a_node_without_room_has_its_time_again_once_the_controller_sees_its_next_pod(seconds):
    assert not simulate(without_room((23.01, seconds))).violations
    with patch.object(first_seen, "_of_start", lambda _pod, *words: Fact("any", words[0])):
        found = simulate(without_room((23.01, seconds)))
    assert found.kinds == {"too early"}


@pytest.mark.parametrize("seconds", [90.0, 110.0], ids=["suspended", "resumed"])
def test_a_suspended_job_gives_a_node_that_lost_its_pod_its_time_again(seconds):
    """Also if no next pod waits at its gate, as the node is away until the Job is resumed."""
    nodes = NodePlan("n0"), NodePlan("n1", (Task("done", 30.0),))
    happens = (
        Disturbance(10.0, "down", what="n1", seconds=seconds),
        Disturbance(30.0, "suspend", "default/sample", seconds=75.0),
        Disturbance(50.0, "force_delete", what="n1"),
    )
    left = []
    found = simulate(
        schedule(nodes, {**WAITS, "nodeDeadlineSeconds": 60}, *happens),
        look=lambda world: left.extend(world.server.all("jobreports")),
    )
    assert not found.violations
    assert {each["state"] for each in left[0]["status"]["nodeStates"].values()} == {"Completed"}


def test_the_time_of_a_pod_that_went_before_its_task_started_counts_for_no_deadline():
    nodes = NodePlan("n0"), NodePlan("n1", (Task("mount", 25.0),))
    left = []
    found = simulate(
        schedule(
            nodes,
            {**WAITS, "nodeDeadlineSeconds": 40},
            Disturbance(20.0, "delete_pod", what="n1"),
        ),
        look=lambda world: left.extend(world.server.all("jobreports")),
    )
    assert not found.violations
    assert {each["state"] for each in left[0]["status"]["nodeStates"].values()} == {"Completed"}


@pytest.mark.parametrize("seed", [7_907_716, 7_908_993])
def test_nor_if_the_pod_is_on_record_as_an_attempt(seed):
    """The node shut down, and its pod before was marked; or the kubelet reported it as ended."""
    assert not simulate(generate_schedule(seed)).violations


def test_a_step_waits_for_a_node_that_the_daemon_set_controller_counts_late():
    """It asked for two nodes, and ended with one. So the third began beside the second."""
    assert not simulate(generate_schedule(7_870_704)).violations
    with patch.object(steps, "find_uncounted", lambda *_: frozenset()):
        assert simulate(generate_schedule(7_870_704)).kinds == {"turns"}


def test_a_step_with_a_selector_waits_for_a_node_that_the_daemon_set_controller_counts_late():
    """The controller knows the node before the first one of the step is done."""
    labels = (("canary", "true"),)
    nodes = (
        NodePlan("n0", (Task("done", 10.0),), labels=labels),
        NodePlan("n1", (Task("done", 20.0),)),
        NodePlan("n2", (Task("done", 20.0),), is_initial=False, labels=labels),
    )
    step = {"selector": {"matchLabels": dict(labels)}}
    happens = Disturbance(8.0, "slow_daemon_sets", seconds=5.0), Disturbance(9.0, "join", what="n2")

    def find_steps():
        left = []
        rollout = {"maxParallel": 2, "steps": [step]}
        found = simulate(
            schedule(nodes, {**SPEC, "rollout": rollout}, *happens),
            look=lambda world: left.extend(world.server.all("jobreports")),
        )
        assert not found.violations
        return {name: each["step"] for name, each in left[0]["status"]["nodeStates"].items()}

    assert find_steps() == {"n0": 1, "n1": 2, "n2": 1}
    with patch.object(steps, "find_uncounted", lambda *_: frozenset()):
        assert find_steps() == {"n0": 1, "n1": 2, "n2": 2}


@pytest.mark.parametrize("step", [{}, {"soakSeconds": 15}])
def test_nodes_that_join_after_the_end_of_a_step_that_asked_for_more_are_none_of_it(step):
    nodes = (
        NodePlan("n0"),
        NodePlan("n1", (Task("done", 40.0),), is_initial=False),
        NodePlan("n2", is_initial=False),
    )
    rollout = {"maxParallel": 2, "steps": [{"nodes": 2, **step}]}
    spec = {**SPEC, "completion": {"policy": "Continuous"}, "rollout": rollout}
    joins = (Disturbance(at, "join", what=name) for at, name in ((30.0, "n1"), (40.0, "n2")))
    found = simulate(schedule(nodes, spec, *joins))
    assert not found.violations
    assert found.excused == {"turns: few nodes": 1}


FAST_AND_SLOW = NodePlan("n0", (Task("done", 0.2),)), NodePlan("n1", (Task("done", 20.0),))
NO_CONTROLLER = Disturbance(6.8, "crash", "controller", seconds=30.0)
OTHER_MACHINE = Disturbance(8.4, "renew", what="n0", seconds=2.0)


def test_the_pod_that_completed_a_node_may_start_on_the_next_machine_of_its_name():
    """The controller is down, so it cannot delete the pod; the next node was due by then."""
    found = simulate(generate_schedule(7_871_202))
    assert not found.violations
    assert found.excused == {"turns: former node": 1}


@pytest.mark.parametrize("limit", ["maxParallel", "maxParallelPerZone"])
def test_the_pod_of_a_deleted_node_is_excused_only_if_it_completed_that_node(limit):
    spec = {**SPEC, "rollout": {limit: 1}}
    assert not simulate(schedule(FAST_AND_SLOW, spec, NO_CONTROLLER, OTHER_MACHINE)).violations
    both_slow = NodePlan("n0", (Task("done", 60.0),)), FAST_AND_SLOW[1]
    renewed = replace(OTHER_MACHINE, seconds=12.0)
    assert not simulate(schedule(both_slow, spec, renewed)).violations
    with patch.object(places, "_deleted_nodes_at_work", return_value=()):
        kinds = simulate(schedule(both_slow, spec, renewed)).kinds
    assert kinds == {"turns" if limit == "maxParallel" else "zones"}


@pytest.mark.parametrize(("seconds", "is_recorded"), [(0.13, False), (0.3, True), (5.0, True)])
def test_a_task_has_begun_once_it_is_on_record_although_its_daemon_set_is_deleted(
    seconds, is_recorded
):
    """The node shuts down, and the task starts at 1.29 s. The DaemonSet is deleted after that."""
    drawn = generate_schedule(7_921_423)
    assert not simulate(drawn).violations
    happens = tuple(
        replace(each, at=1.29 + seconds) if each.kind == "delete_daemon_set" else each
        for each in drawn.disturbances
        if each.kind in {"shutdown", "delete_daemon_set"}
    )
    counts = []
    found = simulate(
        replace(drawn, disturbances=happens),
        look=lambda world: counts.extend(job["status"]["nodes"] for job in world.server.all(JOBS)),
    )
    assert not found.violations
    assert counts[-1]["unreachable"] == int(is_recorded)
    with ignores_nodes_without_pod():
        kinds = simulate(replace(drawn, disturbances=happens)).kinds
    assert kinds == ({"counts", "stuck"} if is_recorded else set())
