"""The check of a step by a script, in a Job of its own on the nodes of the step."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy, Mount, parse_spec
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_changes import OnSuccess
from daemonset_job.api.owned_task import OwnedTask
from daemonset_job.api.rollout import Check, Step
from daemonset_job.api.script_source import ScriptSource
from daemonset_job.api.states import ConditionType
from job_controller.core.desired import owned_job
from job_controller.core.desired.check_job import check_spec
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.desired.template_conflict import find_template_conflict
from job_controller.core.job_actions import DeleteJob
from job_controller.core.plan import RefusedWrite
from job_controller.core.rollout import script_check
from job_controller.core.settings import Settings
from tests.mutation.schema import part, problems
from tests.unit.builders import make_job, make_node
from tests.unit.core.rollout_parts import PartsWorld
from tests.unit.core.rollouts import steps
from tests.unit.core.runs import spec

CHECK = "sample-check-1"
SCRIPT = OwnedTask(script="test -e /etc/ok")
NODES = ("a", "b", "c")
SETTINGS = Settings(task_image="registry.example/task:v1")


def one(script=SCRIPT, nodes=1, timeout_seconds=60, **fields):
    return steps(
        Step(nodes=nodes, check=Check(script=script, timeout_seconds=timeout_seconds), **fields)
    )


def world(*nodes, rollout=None, passes=12, **changes):
    """Return a world whose first step has finished, so that its check begins."""
    found = PartsWorld(*(nodes or NODES), rollout=rollout or one(), **changes)
    for _ in range(passes):
        found.step()
        found.complete(*found.at_work)
        if found.owned:
            break
    return found


def asked(found):
    return found.condition("Suspended")


def progress(found):
    return found.cluster.job.status.rollout


def test_the_script_runs_on_the_completed_nodes_of_the_step():
    found = world()
    assert found.created == [CHECK]
    assert found.owned[CHECK].spec.nodes.include == ("a",)
    assert found.owned[CHECK].spec.script == SCRIPT.script
    found.step(3)
    assert found.started == ["a"]
    assert "its script runs on a: it is about to start" in found.condition("Progressing")[2]


def test_a_script_that_passes_lets_the_next_step_begin_and_its_job_is_deleted():
    found = world()
    found.end_owned(CHECK)
    plan = found.step()
    assert progress(found).step == 2
    assert not any(isinstance(action, DeleteJob) for action in plan.actions)
    found.step()
    assert found.owned == {}
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [CHECK])


def test_a_script_that_fails_stops_the_rollout_and_names_node_and_last_line():
    found = world()
    words = "1 of 1 nodes failed: a exit 3: kernel is 5.10"
    found.end_owned(CHECK, words)
    found.step(4)
    status, reason, message = found.condition("Failed")
    assert (status, reason) == ("True", "CheckFailed")
    assert message == f"the check of step 1 of 1 failed: its script: {words}"
    assert (found.started, found.owned) == (["a"], {})
    assert found.created == [CHECK]


@pytest.mark.parametrize("executed", [0, 1, 2])
def test_a_failure_is_written_before_the_job_that_found_it_is_deleted(executed):
    """Else a conflict of that write would have the script run again, and it may pass then."""
    found = world()
    found.end_owned(CHECK, "1 of 1 nodes failed")
    found.crash_after(executed)
    found.step(4)
    assert found.condition("Failed")[1] == "CheckFailed"
    assert (found.owned, found.created) == ({}, [CHECK])


def test_a_failed_script_pauses_a_run_that_does_not_fail_fast_and_a_retry_runs_it_again():
    found = world(failure_policy=FailurePolicy(action=FailureAction.PAUSE))
    found.end_owned(CHECK, "1 of 1 nodes failed")
    found.step(3)
    assert asked(found)[1] == "CheckFailed"
    assert found.owned == {}
    found.retry("1")
    found.step(4)
    assert found.created == [CHECK, CHECK]
    found.end_owned(CHECK)
    found.finish()
    assert found.phase == "Succeeded"


def test_the_script_ends_with_a_run_whose_nodes_are_not_counted():
    found = world()
    found.cluster.has_daemon_set = False
    found.step()
    found.request(abort="enough")
    found.step(2)
    assert found.owned == {}


def test_an_unreachable_node_leaves_the_decision_to_a_person():
    found = world()
    found.end_owned(CHECK, completed=0, unreachable=1, unreachable_names="a")
    found.step(3)
    status, reason, message = asked(found)
    assert (status, reason) == ("True", "CheckInconclusive")
    assert "its script has no result of unreachable nodes: a" in message
    assert found.owned == {}
    found.step(10)
    assert found.created == [CHECK]
    found.request(approved_step=1)
    found.finish()
    assert found.phase == "Succeeded"


@pytest.mark.parametrize("is_asked_already", [True, False])
def test_a_node_that_was_set_aside_and_is_back_completed_is_checked_too(is_asked_already):
    """Its task had ended while the node was away. It has given its turn back, but not its step."""
    policy = FailurePolicy(max_failed_nodes=1, unreachable_seconds=0)
    found = PartsWorld(*NODES, rollout=one(nodes=2), failure_policy=policy)
    found.step(6)
    found.lose("a")
    found.step(3)
    found.complete("b")
    if is_asked_already:
        found.step(6)
        assert found.owned[CHECK].spec.nodes.include == ("b",)
    found.cluster.nodes["a"] = make_node("a")
    found.complete("a")
    found.step(6)
    assert found.owned[CHECK].spec.nodes.include == ("a", "b")
    found.end_owned(CHECK, completed=2)
    found.step(4)
    assert found.started == ["a", "b", "c"]


def test_a_node_that_is_back_completed_is_checked_although_others_have_passed():
    """Its name comes first, and the script had passed on the others: the step went on."""
    policy = FailurePolicy(max_failed_nodes=1, unreachable_seconds=0)
    check = Check(script=SCRIPT, node_ready=True, timeout_seconds=600)
    found = PartsWorld(*NODES, rollout=steps(Step(nodes=2, check=check)), failure_policy=policy)
    found.step(6)
    found.lose("a")
    found.step(3)
    found.complete("b")
    found.step(6)
    found.set_ready("b", is_ready=False)
    found.end_owned(CHECK)
    found.step(3)
    found.cluster.nodes["a"] = make_node("a")
    found.complete("a")
    found.step(3)
    found.set_ready("b", is_ready=True)
    found.step(4)
    assert found.owned[CHECK].spec.nodes.include == ("a", "b")
    found.end_owned(CHECK, completed=2)
    found.step(4)
    assert found.started == ["a", "b", "c"]


def test_a_node_on_which_the_script_did_not_run_is_no_pass():
    found = world(rollout=one(nodes=2))
    found.end_owned(CHECK, desired=1)
    found.step(2)
    assert "its script has run on 1 of 2 nodes (a,b)" in asked(found)[2]


def test_an_approval_from_before_counts_for_a_node_on_which_the_script_did_not_run():
    """It is not known what the script finds there, and no more is found by waiting."""
    found = world(rollout=one(nodes=2, timeout_seconds=600))
    found.request(approved_step=1)
    found.end_owned(CHECK, desired=1)
    found.step(6)
    assert "c" in found.started


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_completed_node_that_the_user_took_out_is_not_waited_for(has_begun):
    """Another node is in its place in the step: the script runs there."""
    found = world(rollout=one(nodes=2)) if has_begun else PartsWorld(*NODES, rollout=one(nodes=2))
    if not has_begun:
        found.step(6)
        found.complete("a")
        found.step(3)
    found.exclude("a")
    found.take_pod("a")
    found.cluster.desired = 2
    found.step(8)
    found.complete("b", "c")
    found.step(4)
    assert found.started == ["a", "b", "c"]
    assert found.owned[CHECK].spec.nodes.include == ("b", "c")
    found.end_owned(CHECK, completed=2)
    found.finish()
    assert found.phase == "Succeeded"


@pytest.mark.parametrize("hours", [-1, 1], ids=["behind", "ahead"])
def test_the_clock_of_the_api_server_takes_no_time_from_a_script_and_gives_it_none(hours):
    found = world()
    run = found.owned[CHECK]
    found.owned[CHECK] = replace(run, created_at=found.now + timedelta(hours=hours))
    found.step(2)
    assert asked_or_none(found) is None
    found.now += timedelta(seconds=61)
    found.step(2)
    assert "its script had not ended after 60 s" in asked(found)[2]


def test_a_script_that_cannot_start_has_its_time_whatever_the_clock_of_the_api_server_says():
    """Its Job was created 40 s later by that clock: the time is over after 60 s all the same."""
    found = world()
    words = "the API server refuses the DaemonSet"
    refused = Condition(ConditionType.PROGRESSING, False, "DaemonSetRefused", words, 1, found.now)
    found.owned[CHECK] = replace(
        found.owned[CHECK],
        created_at=found.now + timedelta(seconds=40),
        status=JobStatus(conditions=(refused,)),
    )
    found.step(2)
    assert asked_or_none(found) is None
    found.now += timedelta(seconds=61)
    found.step(2)
    assert f"its script had not ended after 60 s: {words}" in asked(found)[2]


def test_a_script_that_does_not_end_in_time_leaves_the_decision_to_a_person():
    found = world()
    words = "0 of 1 nodes completed"
    found.show_owned(CHECK, Condition(ConditionType.PROGRESSING, True, "NodesActive", words))
    found.step(2)
    assert asked_or_none(found) is None
    found.now += timedelta(seconds=61)
    found.step(2)
    assert asked(found)[1] == "CheckInconclusive"
    assert f"its script had not ended after 60 s: {words}" in asked(found)[2]
    assert found.owned == {}


def asked_or_none(found):
    conditions = found.cluster.job.status.conditions
    return next((each for each in conditions if each.type == "Suspended" and each.status), None)


def test_the_time_of_a_script_is_not_over_before_it_has_begun():
    found = world()
    spec(found.cluster, suspend=True)
    found.owned.clear()
    found.now += timedelta(hours=1)
    found.step(2)
    assert found.created == [CHECK]
    spec(found.cluster, suspend=False)
    found.step(2)
    assert found.created == [CHECK, CHECK]
    found.end_owned(CHECK)
    found.finish()
    assert found.phase == "Succeeded"


def test_a_stop_of_all_jobs_takes_no_time_of_a_script():
    """The Job of the script is stopped, too. It was deleted, and a person was asked."""
    found = world()
    found.cluster.job = replace(found.cluster.job, stop_message="all Jobs are stopped")
    words = Condition(ConditionType.SUSPENDED, True, "ClusterStopped", "all Jobs are stopped")
    found.show_owned(CHECK, words)
    found.step(2)
    found.now += timedelta(hours=1)
    found.step(2)
    assert asked(found)[1] == "ClusterStopped"
    found.cluster.job = replace(found.cluster.job, stop_message="")
    found.step(30)
    assert (found.created, progress(found).script_check_inconclusive) == ([CHECK], "")
    found.step(40)
    assert asked(found)[1] == "CheckInconclusive"


def test_a_job_that_cannot_be_created_is_inconclusive_once_the_time_is_over():
    found = PartsWorld(*NODES, rollout=one())
    found.extra = {"refusals": {RefusedWrite.OWNED_JOB_NAME: "exists"}}
    for _ in range(6):
        found.step()
        found.complete(*found.at_work)
    assert asked_or_none(found) is None
    found.now += timedelta(seconds=70)
    found.step(2)
    assert "its script does not run: another Job has its name" in asked(found)[2]


def test_a_person_who_aborts_the_job_of_the_script_says_nothing_about_the_nodes():
    found = world()
    found.end_owned(CHECK, "aborted after 0 of 1 nodes", reason="Aborted")
    found.step(2)
    assert asked(found)[1] == "CheckInconclusive"


def test_a_changed_script_runs_anew():
    found = world()
    found.end_owned(CHECK)
    spec(found.cluster, rollout=one(script=OwnedTask(script="other")))
    found.step(3)
    assert found.created == [CHECK, CHECK]
    assert found.owned[CHECK].spec.script == "other"


@pytest.mark.parametrize(
    ("task", "created"),
    [
        (SCRIPT, [CHECK]),
        (OwnedTask(image="tools:1", command=("true",)), [CHECK]),
        # Its image is that of an upgrade, so the Job that is at work is not the one that is needed.
        (OwnedTask(command=("true",)), [CHECK, CHECK]),
    ],
    ids=["script", "image", "command"],
)
def test_after_another_task_image_only_a_command_in_it_runs_once_more(task, created):
    found = world(rollout=one(script=task), image="", script="do it")
    found.end_owned(CHECK)
    found.settings = SETTINGS
    found.step(3)
    assert found.created == created


def test_the_script_waits_for_the_soak_and_an_approval_comes_after_it():
    found = PartsWorld(*NODES, rollout=one(soak_seconds=30, needs_approval=True))
    for _ in range(8):
        found.step()
        found.complete(*found.at_work)
    assert found.created == []
    found.now += timedelta(seconds=30)
    found.step(2)
    found.end_owned(CHECK)
    found.step(2)
    assert asked(found)[1] == "WaitingForApproval"
    assert (found.owned, progress(found).script_checked_up_to) == ({}, "a")
    found.step(10)
    assert found.created == [CHECK]


def test_other_checks_count_beside_the_script():
    check = Check(script=SCRIPT, node_ready=True, timeout_seconds=60)
    found = world(rollout=steps(Step(nodes=1, check=check)))
    found.cluster.nodes["a"] = replace(found.cluster.nodes["a"], ready=False)
    found.end_owned(CHECK)
    found.step(2)
    assert "not Ready: a" in found.condition("Progressing")[2]
    assert found.owned == {}
    found.cluster.nodes["a"] = replace(found.cluster.nodes["a"], ready=True)
    found.finish()
    assert (found.phase, found.created) == ("Succeeded", [CHECK])


def test_more_nodes_than_a_job_can_name_are_checked_one_batch_after_the_other(monkeypatch):
    monkeypatch.setattr(script_check, "BATCH_NODES", 2)
    nodes = [f"n{number}" for number in range(6)]
    found = world(*nodes, rollout=one(nodes=5))
    seen = []
    for _ in range(3):
        seen.append(found.owned[CHECK].spec.nodes.include)
        found.end_owned(CHECK)
        found.step(4)
    assert seen == [("n0", "n1"), ("n2", "n3"), ("n4",)]
    assert progress(found).step == 2


def test_a_batch_that_fails_fails_the_check(monkeypatch):
    monkeypatch.setattr(script_check, "BATCH_NODES", 1)
    found = world(rollout=one(nodes=2))
    found.end_owned(CHECK)
    found.step(3)
    found.end_owned(CHECK, "1 of 1 nodes failed: b exit 1")
    found.step(3)
    assert found.condition("Failed")[1] == "CheckFailed"


def test_a_batch_is_what_a_job_can_name():
    include = part("jobs", "spec")["properties"]["nodes"]["properties"]["include"]
    assert include["maxItems"] == owned_job.BATCH_NODES


@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_crash_after_any_action_leads_to_the_same_end(last):
    found = PartsWorld("a", "b", rollout=one())
    for number in range(60):
        found.crash_after(last if number % 2 else 99)
        found.complete(*found.at_work)
        if CHECK in found.owned and not found.owned[CHECK].status.conditions:
            found.end_owned(CHECK)
    assert (found.phase, found.started) == ("Succeeded", ["a", "b"])


# --- what runs -------------------------------------------------------------------------------


def check_pod(task, /, **changes):
    job = make_job()
    job = replace(job, spec=replace(job.spec, **changes))
    raw = check_spec(job, task, ["a"], SETTINGS)
    assert list(problems(part("jobs", "spec"), raw, "spec")) == []
    check = replace(make_job(CHECK), spec=parse_spec(raw))
    pod = build_pod_template(check, gated=False, settings=SETTINGS)["spec"]
    return check.spec, pod, pod["initContainers"][-1]


def test_a_script_runs_in_the_task_image_and_a_command_in_that_of_the_job():
    assert check_pod(SCRIPT)[2]["image"] == SETTINGS.task_image
    _, _, task = check_pod(OwnedTask(command=("/check",), args=("x",)))
    assert (task["image"], task["command"], task["args"]) == ("example/task:1", ["/check"], ["x"])
    assert check_pod(OwnedTask(args=("--check",)))[2]["args"] == ["--check"]
    found = OwnedTask(image="tools:1", script="true")
    assert check_pod(found)[2]["image"] == "tools:1"


def test_a_command_beside_the_script_of_the_job_runs_in_the_task_image():
    _, _, task = check_pod(OwnedTask(command=("true",)), image="", script="do it")
    assert task["image"] == SETTINGS.task_image


def test_the_script_has_the_mounts_of_the_job_and_the_namespaces_of_the_node():
    mounts = (Mount("/etc", "/mnt/etc", read_only=True),)
    found, pod, task = check_pod(
        SCRIPT, image="", script="do it", host_exec=True, mounts=mounts, mount_path="/srv"
    )
    assert (found.mounts, found.mount_path, found.host_exec) == (mounts, "/srv", True)
    assert pod["hostPID"] is True
    assert task["securityContext"] == {"privileged": True}


def test_a_script_from_a_secret_is_read_from_it():
    source = ScriptSource("name", "key", is_secret=True)
    assert check_pod(OwnedTask(script_from=source))[0].script_from == source


def test_the_template_surrounds_the_script_and_does_not_replace_it():
    mine = {
        "name": "job-container",
        "command": ["/work"],
        "args": ["x"],
        "image": "work:1",
        "livenessProbe": {"exec": {"command": ["x"]}},
        "env": [{"name": "A", "value": "1"}, {"name": "COMPLETION_MODE", "value": "Log"}],
    }
    template = {"spec": {"containers": [mine, {"name": "side", "image": "side:1"}]}}
    found, pod, task = check_pod(SCRIPT, template=template)
    assert {"name": "A", "value": "1"} in task["env"]
    assert task["image"] == SETTINGS.task_image
    assert {"command", "args", "livenessProbe"} & set(task) == set()
    assert find_template_conflict(found) == ""
    assert {"name": "COMPLETION_MODE", "value": "Exit"} in task["env"]
    assert "side" in [each["name"] for each in pod["containers"]]


def test_it_runs_once_on_each_node():
    found = check_pod(SCRIPT, backoff_limit=9)[0]
    assert found.backoff_limit == 0
    assert found.failure_policy.max_failed_nodes == 0
    assert found.rollout is None


# --- Jobs that only look like that of the check --------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"script": "true"},
        {"nodes": {"include": ["b"]}},
        {"nodes": {"include": ["a", "b"]}},
        {"failurePolicy": {"action": "FailFast", "maxFailedNodes": "100%"}},
    ],
)
def test_a_job_with_a_copied_purpose_that_does_something_else_is_replaced(change):
    found = world()
    true_one = found.owned.pop(CHECK)
    raw = {**true_one.raw_spec, **change}
    found.owned[CHECK] = replace(true_one, uid="forged", raw_spec=raw, spec=parse_spec(raw))
    found.end_owned(CHECK)
    found.step(3)
    assert found.owned[CHECK].uid != "forged"
    assert found.owned[CHECK].raw_spec == true_one.raw_spec
    assert found.started == ["a"]


def test_a_job_without_purpose_that_has_the_name_is_replaced():
    found = world()
    forged = replace(found.owned.pop(CHECK), uid="forged", annotations={})
    found.owned[CHECK] = forged
    found.step(3)
    assert found.owned[CHECK].uid != "forged"


def test_a_copy_of_the_job_under_another_name_is_deleted():
    found = world()
    found.owned["a-copy"] = replace(found.owned[CHECK], name="a-copy", uid="forged")
    found.step(2)
    assert set(found.owned) == {CHECK}


@pytest.mark.parametrize(
    ("write", "on_success"),
    [(RefusedWrite.REPORT, OnSuccess()), (RefusedWrite.NODE_CHANGE, OnSuccess(labels={"a": "b"}))],
)
def test_a_check_runs_once_while_the_success_of_the_run_cannot_be_written(write, on_success):
    """A pass that does not know of the refusal yet deletes the Job of a check."""
    found = world("a", passes=0)
    spec(found.cluster, on_success=on_success)
    found.step(3)
    found.complete("a")
    found.extra["refusals"] = {write: "the policy says no"}
    found.step(6)
    found.end_owned(CHECK)
    found.step(6)
    assert (found.phase, found.created, found.owned) == ("Running", [CHECK], {})
    del found.extra["refusals"]
    found.step(3)
    assert found.created == [CHECK]
