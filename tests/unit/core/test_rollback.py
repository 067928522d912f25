"""When a run is rolled back, on which nodes, and what is said of it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.job import parse_job
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.report_status import parse_report_status
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.taints import Taint
from job_controller.core.desired.rollback_job import build_rollback_job
from job_controller.core.job_actions import CreateJob
from job_controller.core.owned_jobs import rollback, rollback_messages
from job_controller.core.owned_jobs.rollback_jobs import BATCHES_LIMIT
from job_controller.core.plan import RefusedWrite, WriteStatus
from tests.unit.builders import gated_pod, make_node, make_pod
from tests.unit.core.rollbacks import RollbackWorld
from tests.unit.core.runs import acts

ABC = ("a", "b", "c")


def failed_world(**changes) -> RollbackWorld:
    """Return a rollout in which a has completed and b has failed; c had no turn."""
    world = RollbackWorld(*ABC, **changes)
    world.run_until_failure("b")
    return world


# --- after a failure ---------------------------------------------------------------------


def test_a_failed_run_is_rolled_back_on_the_nodes_whose_task_had_started():
    world = failed_world()
    world.step(5)
    assert world.phase == "Failed"
    assert world.included() == ["a", "b"]
    assert world.rolled_back == ("False", "RollingBack")
    assert world.rollback.desired == 2
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")
    assert world.phase == "Failed"
    assert (world.rollback.completed, world.rollback.completed_names) == (2, "a,b")
    assert world.rollback.jobs == ("sample-rollback",)
    assert world.rollback.reports == ("sample-rollback-report",) or world.rollback.reports
    assert world.rollback.completion_time is not None
    assert "c" not in world.started
    assert world.is_at_rest()


def test_the_report_shows_the_same_and_what_happened():
    world = failed_world()
    world.step(5)
    world.end_rollback()
    world.step(3)
    assert world.report["rollback"] == world.rollback.to_raw()
    assert world.history()[-3:] == ["Failed", "RollbackStarted", "RolledBack"]
    assert any("rollback ended: 2 of 2 nodes" in line for line in world.report["timeline"])
    assert [c["type"] for c in world.report["conditions"]] == ["Failed", "RolledBack"]
    assert [e for e in world.events if "oll" in e[1]] == [
        ("Normal", "RollbackWaiting"),
        ("Normal", "RollingBack"),
        ("Normal", "RolledBack"),
    ]


def test_the_intent_is_on_record_before_a_job_is_created():
    world = RollbackWorld(*ABC)
    world.run_until_failure("b")
    recorded = False
    for _ in range(10):
        before = world.rollback
        world.step()
        if world.created:
            recorded = before is not None
            break
    assert recorded


def test_tasks_at_work_finish_before_the_rollback():
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    assert world.at_work == ["a", "b"]
    world.fail("b")
    world.step(5)
    assert world.phase == "Failed"
    assert world.rolled_back == ("False", "RollbackWaiting")
    assert world.message == "the rollback waits for the tasks that are at work on a"
    assert world.created == []
    assert world.plan.requeue_after is not None
    world.complete("a")
    world.step(3)
    assert world.included() == ["a", "b"]


def test_a_completed_node_that_does_its_work_again_keeps_no_rollback_waiting():
    """Its pod was deleted before the template had the gate, and nothing records the next end."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.complete("a")
    world.put(make_pod("a", serial=2))
    world.fail("b")
    world.step(2)
    assert world.rollback is not None
    world.step()
    assert all(pod.is_gated for pod in world.cluster.pods if pod.node_name == "a")
    world.step(3)
    assert world.included() == ["a", "b"]


@pytest.mark.parametrize(
    "reason",
    ["ImagePullBackOff", "CreateContainerConfigError", "ContainerCreating"],
)
def test_a_pod_whose_task_cannot_start_keeps_no_rollback_waiting(reason):
    """The last one is a volume that cannot be mounted: after a while the report says so."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    assert world.at_work == ["a", "b"]
    (pod,) = [each for each in world.cluster.pods if each.node_name == "a"]
    waiting = Container(state="waiting", reason=reason)
    world.put(replace(pod, container=waiting, phase="Pending"))
    world.seen = timedelta(seconds=60)
    world.fail("b")
    world.step(7)
    assert all(each.is_gated for each in world.cluster.pods if each.node_name == "a")
    assert world.included() == ["b"]


def test_a_pod_that_may_start_any_moment_is_waited_for():
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    (pod,) = [each for each in world.cluster.pods if each.node_name == "a"]
    world.put(replace(pod, container=Container(state="waiting"), phase="Pending"))
    world.seen = timedelta(seconds=40)
    world.fail("b")
    world.step(5)
    assert world.message == "the rollback waits for the tasks that are at work on a"
    world.complete("a")
    world.step(3)
    assert world.included() == ["a", "b"]


def test_pods_of_a_deleted_daemon_set_are_waited_for():
    """As with `failurePolicy.pods: Delete`: garbage collection takes the pods a while later."""
    world = failed_world(failurePolicy={"action": "Rollback", "pods": "Delete"})
    world.created.clear()
    world.owned.clear()
    status = replace(world.cluster.job.status, rollback=RollbackStatus())
    world.cluster.job = replace(world.cluster.job, status=status)
    world.cluster.has_daemon_set = False
    world.cluster.pods = []
    world.extra["left_pods"] = (make_pod("b", uid="left", is_terminating=True),)
    world.step(3)
    assert world.created == []
    assert world.rolled_back == ("False", "RollbackWaiting")
    world.extra["left_pods"] = ()
    world.step(3)
    assert world.included() == ["a", "b"]


@pytest.mark.parametrize(("changes", "nodes"), [({}, ["a", "b"]), ({"uid": "forged"}, ["b"])])
def test_a_task_that_starts_while_its_pod_is_being_deleted_is_rolled_back_too(changes, nodes):
    """With `failurePolicy.pods: Delete`, and a pod that had not started when the run failed."""
    policy = {"action": "Rollback", "pods": "Delete"}
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2}, failurePolicy=policy)
    world.step(3)
    (pod,) = [each for each in world.cluster.pods if each.node_name == "a"]
    world.put(replace(pod, container=None, phase="Pending"))
    world.step()
    world.fail("b")
    world.step()
    assert world.phase == "Failed"
    world.cluster.has_daemon_set, world.cluster.pods = False, []
    world.extra["left_pods"] = (replace(pod, is_terminating=True, **changes),)
    world.step(3)
    assert world.created == []
    world.extra["left_pods"] = ()
    world.step(3)
    assert world.included() == nodes


def test_a_node_that_is_away_with_its_task_at_work_is_named_and_keeps_no_other_waiting():
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.lose("a")
    world.fail("b")
    world.step(5)
    assert world.included() == ["b"]
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert (world.rollback.desired, world.rollback.unreachable) == (2, 1)
    assert world.rollback.unreachable_names == "a"
    assert "not rolled back, because away, tainted or gone: a" in world.message
    assert ("Warning", "RolledBackPartly") in world.events


def test_a_node_that_comes_back_in_time_is_rolled_back_by_a_further_job():
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.lose("a")
    world.fail("b")
    world.step(5)
    world.cluster.nodes["a"] = make_node("a")
    world.complete("a")
    world.end_rollback()
    world.step(3)
    assert world.included(1) == ["a"]
    assert world.created[1]["metadata"]["name"] == "sample-rollback-2"
    world.end_rollback("sample-rollback-2")
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")
    assert world.rollback.jobs == ("sample-rollback", "sample-rollback-2")


def test_a_job_of_the_rollback_whose_nodes_are_all_lost_keeps_no_other_node_waiting():
    """Simulation, seed 393: it has no node to run on, and so no end."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.lose("a")
    world.fail("b")
    world.step(5)
    assert world.included() == ["b"]
    # The other node is back. Before the rollback has a pod, its only node is lost.
    world.cluster.nodes["a"] = make_node("a")
    world.complete("a")
    world.step(3)
    assert len(world.created) == 1
    world.lose("b")
    world.step(3)
    assert world.included(1) == ["a"]
    world.end_rollback("sample-rollback-2")
    world.step(3)
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.rollback.unreachable_names == "b"


def test_a_job_of_the_rollback_whose_nodes_are_back_is_waited_for():
    """Another Job has ended meanwhile: that does not end the rollback."""
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.lose("a")
    world.fail("b")
    world.step(5)
    world.cluster.nodes["a"] = make_node("a")
    world.complete("a")
    world.step(3)
    world.lose("b")
    world.step(3)
    assert world.included(1) == ["a"]
    world.cluster.nodes["b"] = make_node("b")
    world.end_rollback("sample-rollback-2")
    world.step(3)
    assert world.rolled_back == ("False", "RollingBack")
    assert "Job sample-rollback is at work" in world.message
    world.end_rollback("sample-rollback", failed="b exit 2")
    world.step(3)
    assert world.rolled_back == ("False", "RollbackFailed")
    assert world.message == (
        "Job sample-rollback failed: b exit 2; correct the node, then "
        "`kubectl dsjob retry sample-rollback -n default` goes on"
    )
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


@pytest.mark.parametrize("why", ["gone", "another", "tainted"])
def test_a_node_that_takes_no_pod_is_named(why):
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.complete("a")
    if why == "gone":
        del world.cluster.nodes["a"]
        world.cluster.pods = [pod for pod in world.cluster.pods if pod.node_name != "a"]
    world.fail("b")
    world.step(2)
    if why == "another":
        world.cluster.nodes["a"] = make_node("a", uid="another")
    if why == "tainted":
        node = make_node("a")
        world.cluster.nodes["a"] = replace(node, taints=(Taint("gpu", "yes", "NoSchedule"),))
    world.step(5)
    assert world.included() == ["b"]


def test_more_nodes_than_a_job_names_are_rolled_back_by_one_job_after_the_other():
    world = failed_world()
    node_names = [f"n{number:04}" for number in range(5000)]
    # All of them have completed, and the DaemonSet is deleted: the record is all that there is.
    record = {"state": "Completed", "attempts": 1}
    states = {name: {"uid": f"{name}-uid", **record} for name in node_names}
    world.cluster.report_status = {**world.report, "nodeStates": states}
    world.cluster.nodes = {name: make_node(name) for name in node_names}
    world.cluster.pods, world.cluster.evidence, world.cluster.has_daemon_set = [], {}, False
    world.owned.clear()
    world.created.clear()
    status = replace(world.cluster.job.status, rollback=RollbackStatus())
    world.cluster.job = replace(world.cluster.job, status=status)
    for number in range(5):
        world.step(2)
        assert len(world.created) == number + 1
        first = 1000 * number
        assert world.included(number) == node_names[first : first + 1000]
        world.end_rollback(world.created[number]["metadata"]["name"])
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")
    assert (world.rollback.completed, len(world.rollback.jobs)) == (5000, 5)
    assert world.report["rollback"] == world.rollback.to_raw()
    assert world.history()[-1] == "RolledBack"
    world.step()
    assert acts(world.plan, CreateJob) == acts(world.plan, WriteStatus) == []


def test_nodes_that_come_and_go_get_no_end_of_jobs(monkeypatch):
    """The message names the limit, the nodes that are left for it, and how to undo their work."""
    for module in (rollback, rollback_messages):
        monkeypatch.setattr(module, "BATCHES_LIMIT", 1)
    world = RollbackWorld(*ABC, rollout={"maxParallel": 2})
    world.step(3)
    world.lose("a")
    world.fail("b")
    world.step(5)
    world.cluster.nodes["a"] = make_node("a")
    world.complete("a")
    world.end_rollback()
    world.step(3)
    assert len(world.created) == 1
    assert world.rolled_back == ("True", "RolledBackPartly")
    assert world.message == (
        "1 of 2 nodes are rolled back; a is left, because a rollback creates at most 1 Jobs: apply "
        "a Job that runs spec.rollback there, with spec.nodes.include"
    )
    assert world.is_at_rest()


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_nodes_of_as_many_jobs_as_there_may_be_are_rolled_back(monkeypatch, beyond):
    monkeypatch.setattr(rollback, "BATCH_NODES", 1)
    world = failed_world()
    names_of_all = [f"n{number:02}" for number in range(BATCHES_LIMIT + beyond)]
    states = {
        name: {"uid": f"{name}-uid", "state": "Completed", "attempts": 1} for name in names_of_all
    }
    world.cluster.report_status = {**world.report, "nodeStates": states}
    world.cluster.nodes = {name: make_node(name) for name in names_of_all}
    world.cluster.pods, world.cluster.evidence, world.cluster.has_daemon_set = [], {}, False
    world.owned.clear()
    world.created.clear()
    status = replace(world.cluster.job.status, rollback=RollbackStatus())
    world.cluster.job = replace(world.cluster.job, status=status)
    for number in range(BATCHES_LIMIT):
        world.step(2)
        world.end_rollback(world.created[number]["metadata"]["name"])
    world.step(3)
    assert len(world.created) == BATCHES_LIMIT
    assert world.rollback.completed == BATCHES_LIMIT
    assert world.rolled_back[1] == ("RolledBackPartly" if beyond else "RolledBack")
    assert ("n32 is left, because a rollback creates at most 32 Jobs" in world.message) == bool(
        beyond
    )


# --- Jobs that only look like those of the rollback ---------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"args": ["true"]},
        {"script": "true"},
        {"image": "example/other:1"},
        {"command": ["true"]},
        {"completion": {"mode": "Exit"}},
        {"completion": {"token": "fake"}},
        {"template": {"spec": {"nodeSelector": {"never": "there"}}}},
        {"drain": {"deleteEmptyDirData": True}},
    ],
)
def test_a_job_that_does_something_else_is_never_taken_for_the_rollback(change):
    """Any client can create it first, with the name and the owner reference of the rollback."""
    world = failed_world()
    world.owned.clear()
    world.created.clear()
    status = replace(world.cluster.job.status, rollback=RollbackStatus())
    world.cluster.job = replace(world.cluster.job, status=status)
    body = build_rollback_job(world.cluster.job, 1, ABC)
    raw = {**body, "spec": {**body["spec"], **change}}
    raw["metadata"] = {**raw["metadata"], "uid": "forged"}
    world.owned["sample-rollback"] = parse_job(raw)
    world.done["sample-rollback"] = set()
    world.end_rollback("sample-rollback")
    world.step(5)
    assert world.rolled_back == ("False", "RollbackNameTaken")
    assert "Job sample-rollback does not run what spec.rollback says" in world.message
    assert (world.rollback.completed, world.rollback.jobs) == (0, ())
    assert world.created == []
    del world.owned["sample-rollback"]
    world.step(2)
    assert world.included() == ["a", "b"]
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


def test_how_fast_the_rollback_goes_may_be_changed():
    world = failed_world()
    world.step(5)
    owned = world.owned["sample-rollback"]
    raw = {**owned.raw_spec, "rollout": {"maxParallel": 2}, "failurePolicy": {"maxFailedNodes": 1}}
    # As the API server has it: with the defaults of the CRD.
    raw |= {"completion": {"mode": "Log", "match": "Line"}, "backoffLimit": 9, "suspend": False}
    world.owned["sample-rollback"] = replace(owned, raw_spec=raw, spec=parse_spec(raw))
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


# --- what a rollback does not do ---------------------------------------------------------


@pytest.mark.parametrize("action", ["FailFast", "Continue"])
def test_without_the_action_a_failed_run_is_not_rolled_back(action):
    world = failed_world(failurePolicy={"action": action})
    world.step(5)
    world.complete(*world.at_work)
    world.step(5)
    assert (world.rollback, world.rolled_back) == (None, ("", ""))
    assert world.created == []


def test_an_aborted_run_is_rolled_back_only_when_a_person_asks():
    world = RollbackWorld(*ABC)
    world.step(3)
    world.complete("a")
    world.step()
    world.request(abort="wrong version")
    world.step(5)
    assert world.condition("Failed")[1] == "Aborted"
    assert world.rollback is None
    world.complete(*world.at_work)
    world.ask()
    world.step(5)
    assert world.condition("Failed")[1] == "Aborted"
    assert set(world.included()) == set(world.started)


def test_a_retry_is_not_acted_on_after_a_rollback():
    world = failed_world()
    world.step(5)
    world.retry()
    world.step(3)
    assert world.phase == "Failed"
    assert "no retry is acted on after a rollback: apply a new Job" in world.message
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")
    assert world.message.count("no retry") == 1
    assert world.is_at_rest()
    assert world.started == ["a", "b"]


def test_a_run_in_which_no_task_started_has_nothing_to_roll_back():
    world = RollbackWorld(*ABC)
    world.ask()
    world.step(4)
    assert world.created == []
    assert world.rolled_back == ("True", "RolledBack")
    assert "nothing to roll back" in world.message


# --- by hand -----------------------------------------------------------------------------


def test_a_person_ends_a_run_and_has_it_rolled_back():
    world = RollbackWorld(*ABC, failurePolicy=None)
    world.step(3)
    world.complete("a")
    world.step()
    world.ask("it\nwas wrong")
    world.step()
    assert world.condition("Failed")[:2] == ("True", "RollbackRequested")
    assert "it was wrong" in world.condition("Failed")[2]
    started = list(world.started)
    world.complete(*world.at_work)
    world.step(5)
    assert world.started == started
    assert world.included() == sorted(started)
    assert world.rollback.requested_by == "kubectl-annotate"
    assert "RollbackRequested" in world.history()
    entry = next(e for e in world.report["history"] if e["reason"] == "RollbackRequested")
    assert entry["by"] == "kubectl-annotate"


def test_a_completed_run_is_rolled_back_and_stays_complete():
    world = RollbackWorld(*ABC, failurePolicy=None)
    world.finish()
    world.ask()
    world.step(5)
    assert world.phase == "Succeeded"
    assert world.included() == list(ABC)
    world.end_rollback()
    world.step(3)
    assert world.condition("Complete")[0] == "True"
    assert world.rolled_back == ("True", "RolledBack")
    assert world.report["rollback"]["completed"] == 3


def test_no_node_starts_the_task_once_a_completed_run_is_to_be_rolled_back():
    world = RollbackWorld(*ABC, failurePolicy=None)
    world.finish()
    world.ask()
    world.cluster.nodes["d"] = make_node("d")
    world.cluster.pods.append(gated_pod("d", serial=1))
    world.step(6)
    assert "d" not in world.started
    assert world.included() == list(ABC)
    assert world.phase == "Succeeded"


def test_a_withdrawn_request_changes_nothing_once_the_rollback_is_on_record():
    world = RollbackWorld(*ABC, failurePolicy=None)
    world.finish()
    world.ask()
    world.step()
    assert world.rollback is not None
    world.request()
    world.step(4)
    assert world.created
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rollback": None, "failurePolicy": None}, "spec.rollback does not say"),
        ({"completion": {"policy": "Continuous"}, "failurePolicy": None}, "policy Continuous"),
    ],
)
def test_a_request_that_is_not_possible_is_said(changes, words):
    world = RollbackWorld(*ABC, **changes)
    world.step(2)
    world.ask()
    world.step(2)
    assert world.rolled_back == ("False", "RollbackNotPossible")
    assert words in world.message
    assert ("Warning", "RollbackNotPossible") in world.events
    assert world.phase == "Running"
    world.request()
    world.step(2)
    assert world.rolled_back == ("", "")


def test_a_run_that_failed_can_be_rolled_back_later():
    world = failed_world(failurePolicy={"action": "FailFast"}, rollback=None)
    world.step(5)
    raw = {**world.cluster.job.raw_spec, "rollback": {"args": ["undo"]}}
    world.cluster.job = replace(world.cluster.job, raw_spec=raw, spec=parse_spec(raw))
    world.ask()
    world.step(5)
    assert world.included() == ["a", "b"]


# --- when it fails -----------------------------------------------------------------------


def test_a_failed_rollback_stops_and_says_why():
    world = failed_world()
    world.step(5)
    world.end_rollback(failed="b exit 2")
    world.step(3)
    assert world.rolled_back == ("False", "RollbackFailed")
    assert world.message == (
        "Job sample-rollback failed: b exit 2; correct the node, then "
        "`kubectl dsjob retry sample-rollback -n default` goes on"
    )
    assert world.rollback.completion_time is not None
    assert ("Warning", "RollbackFailed") in world.events
    assert world.history()[-1] == "RollbackFailed"
    assert world.is_at_rest()
    assert len(world.created) == 1


def test_receivers_hear_that_a_rollback_failed_and_that_its_retry_succeeded():
    notify = [{"receiver": "ops", "events": ["RollbackFailed", "RolledBack"]}]
    world = failed_world(notify=notify)
    world.step(5)
    world.end_rollback(failed="b exit 2")
    world.step(3)
    (due,) = parse_report_status(world.report).due_notifications("ops")
    assert due.event == "RollbackFailed"
    assert "b exit 2" in due.message
    assert "`kubectl dsjob retry sample-rollback -n default`" in due.message
    retried = replace(world.owned["sample-rollback"].status, phase="Running")
    world.owned["sample-rollback"] = replace(world.owned["sample-rollback"], status=retried)
    world.step(2)
    world.end_rollback()
    world.step(3)
    due = parse_report_status(world.report).due_notifications("ops")
    assert [each.event for each in due] == ["RollbackFailed", "RolledBack"]


def test_a_rollback_whose_job_is_retried_goes_on():
    world = failed_world()
    world.step(5)
    world.end_rollback(failed="b exit 2")
    world.step(3)
    retried = replace(world.owned["sample-rollback"].status, phase="Running")
    world.owned["sample-rollback"] = replace(world.owned["sample-rollback"], status=retried)
    world.step(2)
    assert world.rolled_back == ("False", "RollingBack")
    assert world.rollback.completion_time is None
    world.end_rollback()
    world.step(3)
    assert world.rolled_back == ("True", "RolledBack")


def test_a_job_of_the_rollback_that_is_deleted_is_not_created_again():
    world = failed_world()
    world.step(5)
    del world.owned["sample-rollback"]
    world.step(3)
    assert world.rolled_back == ("False", "RollbackCancelled")
    assert "sample-rollback was deleted" in world.message
    assert world.rollback.completion_time is not None
    assert ("Warning", "RollbackCancelled") in world.events
    assert world.history()[-1] == "RollbackFailed"
    assert len(world.created) == 1


@pytest.mark.parametrize(
    ("write", "reason", "words"),
    [
        (RefusedWrite.OWNED_JOB_NAME, "RollbackNameTaken", "a Job sample-rollback exists"),
        (RefusedWrite.OWNED_JOB, "RollbackRefused", "refuses Job sample-rollback: no"),
    ],
)
def test_a_job_that_cannot_be_created_is_said_and_created_later(write, reason, words):
    world = RollbackWorld(*ABC)
    world.refused = {write: "no"}
    world.run_until_failure("b")
    world.step(5)
    assert world.rolled_back == ("False", reason)
    assert words in world.message
    assert ("Warning", reason) in world.events
    assert world.created == []
    world.refused = {}
    world.step(3)
    assert world.rolled_back == ("False", "RollingBack")
    assert len(world.created) == 1


# --- the Job of the rollback -------------------------------------------------------------


def rollback_spec(labels=None, **changes):
    """Return the spec of the rollback's Job; all nodes have the labels."""
    world = RollbackWorld(*ABC, **changes)
    for name in ABC:
        world.label(name, **labels or {})
    world.run_until_failure("b")
    world.step(5)
    return world.created[0]["spec"]


def test_what_undoes_the_work_runs_as_the_work_did():
    spec = rollback_spec(
        labels={"x": "y"},
        mountPath="/etc",
        completion={"token": "ok", "match": "Contains", "release": True},
        template={
            "spec": {
                "nodeSelector": {"x": "y"},
                "affinity": {"nodeAffinity": {"a": 1}, "podAffinity": {"b": 1}},
                "tolerations": [{"operator": "Exists"}],
            }
        },
        failurePolicy={"action": "Rollback", "pods": "Delete", "unreachableSeconds": 7},
    )
    assert spec["image"] == "example/task:1"
    assert spec["args"] == ["undo"]
    assert spec["mountPath"] == "/etc"
    assert spec["completion"] == {"mode": "Log", "token": "ok", "match": "Contains"}
    assert spec["rollout"] == {"maxParallel": 1}
    assert spec["template"]["spec"] == {
        "affinity": {"podAffinity": {"b": 1}},
        "tolerations": [{"operator": "Exists"}],
    }
    assert spec["failurePolicy"] == {
        "action": "FailFast",
        "maxFailedNodes": 0,
        "maxUnreachableNodes": "100%",
        "unreachableSeconds": 7,
        "pods": "Delete",
    }
    assert "rollback" not in spec


@pytest.mark.parametrize(
    ("work", "undo", "expected"),
    [
        # A script in the task image, whatever the image of the work is.
        ({}, {"script": "x"}, {"completion": {"mode": "Log"}, "script": "x"}),
        (
            {"completion": {"mode": "Exit"}},
            {"script": "x"},
            {"completion": {"mode": "Exit"}, "script": "x"},
        ),
        # In the image in which the script of the work runs.
        (
            {"script": "y", "args": None, "completion": {"mode": "Exit"}},
            {"script": "x"},
            {"image": "example/task:1", "completion": {"mode": "Exit"}, "script": "x"},
        ),
        (
            {},
            {"script": "x", "image": "tools"},
            {"image": "tools", "completion": {"mode": "Exit"}, "script": "x"},
        ),
        (
            {"script": "y", "image": None, "args": None, "hostExec": True},
            {"script": "x"},
            {"completion": {"mode": "Log"}, "script": "x", "hostExec": True},
        ),
        # What runs on the node are scripts only.
        (
            {"script": "y", "image": None, "args": None, "hostExec": True},
            {"image": "tools", "command": ["undo"]},
            {"image": "tools", "completion": {"mode": "Log"}, "command": ["undo"]},
        ),
    ],
)
def test_where_what_undoes_the_work_runs(work, undo, expected):
    spec = rollback_spec(**work, rollback=undo)
    keys = ("image", "script", "command", "args", "hostExec", "completion")
    assert {key: spec[key] for key in keys if key in spec} == expected
