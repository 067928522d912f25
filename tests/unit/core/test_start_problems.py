"""Tasks that cannot start or start again: what is reported, and when it fails the node."""

from dataclasses import replace
from datetime import timedelta

import pytest

from job_controller.core.decide import decide
from job_controller.core.settings import Timeouts
from job_controller.core.state.first_seen import ObservedObjects, update_sightings
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_state import assess_node
from tests.unit.builders import (
    NOW,
    START,
    done,
    gated_pod,
    make_cluster,
    make_node,
    make_pod,
    seen_before,
)
from tests.unit.core.node_states import SPEC, assess, crashed, with_container
from tests.unit.core.runs import reason_of, run


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reason": "ImagePullBackOff", "message": "no such image"}, "ImagePullFailed"),
        ({"reason": "CreateContainerConfigError"}, "ContainerStartFailed"),
    ],
)
def test_what_keeps_a_task_from_starting_fails_its_node_after_a_while(changes, reason):
    pod = replace(with_container(state="waiting", **changes), started_at=START)
    early = assess(pod)
    assert (early.record.state, early.record.reason) == ("Waiting", reason)
    assert early.wake_at == NOW + timedelta(seconds=270)
    late = assess(pod, seen=300).record
    assert (late.state, late.reason) == ("Failed", reason)


def test_while_the_socket_of_the_container_runtime_is_away_a_node_only_waits():
    """The kubelet says ImageInspectError then; the task may be what restarts the runtime."""
    words = "failed to inspect image: dial unix /run/containerd/containerd.sock: connection refused"
    pod = with_container(state="waiting", reason="ImageInspectError", message=words)
    waiting = assess(pod, seen=299)
    assert (waiting.record.state, waiting.record.reason) == ("Waiting", "ImagePullFailed")
    assert (waiting.replace_pod, waiting.delete_pod) == (False, False)
    assert "connection refused" in waiting.record.message
    back = assess(with_container(), record=waiting.record, seen=299).record
    assert (back.state, back.reason, back.attempts) == ("Active", "", 1)


def test_a_task_that_ended_with_the_container_runtime_is_started_again():
    """The kubelet cannot create its container before the runtime is back."""
    at_work = assess(with_container(started_at=START)).record
    words = "rpc error: connection refused"
    pod = with_container(
        state="waiting", reason="ImageInspectError", message=words, restart_count=1
    )
    again = assess(pod, record=at_work, seen=299)
    assert (again.record.state, again.record.reason) == ("Active", "ImagePullFailed")
    assert (again.replace_pod, again.delete_pod) == (False, False)
    back = assess(with_container(restart_count=1), record=again.record, seen=299).record
    assert (back.state, back.attempts) == ("Active", 2)


STUCK = [
    (
        {"init_failure": "init container istio-init: CrashLoopBackOff: back-off"},
        "ContainerStartFailed",
        "init container istio-init: CrashLoopBackOff: back-off",
    ),
    (
        {"phase": "Failed", "reason": "SysctlForbidden", "message": "forbidden sysctl: x"},
        "PodRejected",
        "the kubelet rejected the pod: SysctlForbidden: forbidden sysctl: x",
    ),
]


@pytest.mark.parametrize(("changes", "reason", "message"), STUCK)
def test_pod_blocker_is_reported_and_fails_the_node(changes, reason, message):
    pod = replace(with_container(state="waiting", reason="PodInitializing"), **changes)
    early = assess(pod, seen=None).record
    assert (early.state, early.reason, early.message) == ("Waiting", reason, message)
    late = assess(pod, seen=300).record
    assert (late.state, late.reason, late.message) == ("Failed", reason, message)


def test_a_rejected_pod_is_reported_while_the_next_one_is_created():
    rejected = make_pod("a", state="", phase="Failed", reason="AppArmor")
    first = assess(rejected).record
    following = assess(make_pod("a", state="", serial=2), record=first).record
    assert (following.reason, following.message) == (first.reason, first.message)
    assert assess(make_pod("a", serial=2), record=following).record.state == "Active"


def test_a_rejected_pod_is_reported_while_the_next_one_is_gated():
    node = make_node("a")
    rejected = make_pod("a", state="", phase="Failed", reason="AppArmor")
    first = assess(rejected).record
    before = update_sightings({}, ObservedObjects({"a": rejected}, {"a": node}), NOW)
    seen = update_sightings(before, ObservedObjects({"a": gated_pod("a")}, {"a": node}), NOW)
    context = RunContext(SPEC, "", Timeouts(), NOW, seen)
    assessment = assess_node(context, NodeInputs(node, gated_pod("a"), record=first))
    assert (assessment.record.reason, assessment.record.message) == (first.reason, first.message)
    assert assessment.wake_at == NOW + timedelta(seconds=60)
    assert assess(gated_pod("a"), record=first).record.reason == "SchedulingGated"


def test_silent_start_problem_is_reported_in_a_minute_and_fails_late():
    """A volume that cannot be mounted looks like a large image that is being pulled."""
    pod = with_container(state="waiting", reason="ContainerCreating")
    first = assess(pod, seen=None)
    assert (first.record.state, first.record.reason) == ("Waiting", "")
    assert first.wake_at == NOW + timedelta(seconds=45)
    record = assess(pod, seen=45).record
    assert (record.state, record.reason) == ("Waiting", "TaskNotStarted")
    assert "ContainerCreating" in record.message
    # After a restart of the controller.
    assert assess(pod, seen=None, record=record).record == record
    assert assess(pod, seen=899).record.state == "Waiting"
    late = assess(pod, seen=900).record
    assert (late.state, late.reason) == ("Failed", "ContainerStartFailed")


def test_a_running_init_container_is_no_blocker():
    pod = replace(with_container(state="waiting", reason="PodInitializing"), has_init_running=True)
    assessment = assess(pod, seen=9999)
    assert (assessment.record.state, assessment.record.reason, assessment.wake_at) == (
        "Waiting",
        "",
        None,
    )


def test_what_cannot_heal_is_given_no_time():
    pod = with_container(state="waiting", reason="InvalidImageName", message="!")
    assert assess(pod).record.state == "Failed"


AGAIN = [
    ("ErrImagePull", "ImagePullFailed"),
    ("ImagePullBackOff", "ImagePullFailed"),
    ("CreateContainerConfigError", "ContainerStartFailed"),
    ("CreateContainerError", "ContainerStartFailed"),
    ("RunContainerError", "ContainerStartFailed"),
]


def not_again(reason, restarts=0, **changes):
    pod = crashed(restarts=restarts, **changes)
    return replace(pod, container=replace(pod.container, reason=reason, message="why"))


@pytest.mark.parametrize(("reason", "reported"), AGAIN)
def test_restart_blocker_is_reported_and_fails_the_node(reason, reported):
    spec = replace(SPEC, backoff_limit=6)
    early = assess(not_again(reason), spec=spec, seen=None)
    record = early.record
    assert (record.state, record.reason, record.message) == ("Active", reported, "why")
    assert (record.finished_in_pod, record.exit_code) == (1, 2)
    assert early.wake_at == NOW + timedelta(seconds=300)
    late = assess(not_again(reason), spec=spec, seen=300).record
    assert (late.state, late.reason, late.message) == ("Failed", reported, "why")


def test_an_end_counts_while_the_next_start_cannot_be_created():
    record = assess(not_again("ErrImagePull", restarts=1)).record
    assert (record.state, record.reason) == ("Failed", "BackoffLimitExceeded")
    assert record.message == "exit 2 after 2 attempts"


def test_back_off_between_container_creations_changes_nothing():
    node, spec = make_node("a"), replace(SPEC, backoff_limit=6)
    record = assess(not_again("ErrImagePull"), spec=spec).record
    seen = update_sightings({}, ObservedObjects({"a": not_again("ErrImagePull")}, {"a": node}), NOW)
    for seconds in (100, 299):
        now = NOW + timedelta(seconds=seconds)
        seen = update_sightings(seen, ObservedObjects({"a": crashed()}, {"a": node}), now)
        assessment = assess_node(
            RunContext(spec, "", Timeouts(), now, seen), NodeInputs(node, crashed(), record=record)
        )
        assert (assessment.record, assessment.wake_at) == (record, NOW + timedelta(seconds=300))
    now = NOW + timedelta(seconds=300)
    assessment = assess_node(
        RunContext(spec, "", Timeouts(), now, seen), NodeInputs(node, crashed(), record=record)
    )
    assert (assessment.record.state, assessment.record.reason) == ("Failed", "ImagePullFailed")
    again = assess(crashed(restarts=1), spec=spec, record=record).record
    assert (again.state, again.reason) == ("Active", "Restarting")


def test_a_start_that_the_kubelet_has_yet_to_try_has_not_ended():
    for reason in ("", "ContainerCreating", "PodInitializing"):
        assert assess(not_again(reason, restarts=1)).record.finished_in_pod == 1
    lost = not_again("ErrImagePull", restarts=1, last_reason="ContainerStatusUnknown")
    assert assess(lost).record.finished_in_pod == 1


def test_exit_no_longer_in_the_pod_status_stays_recorded():
    """Its container was removed, and the controller has restarted since."""
    known = assess(crashed()).record
    pod = not_again("ContainerCreating")
    early = assess(pod, record=known, seen=29, spec=replace(SPEC, backoff_limit=0))
    assert (early.record.finished_in_pod, early.wake_at) == (1, NOW + timedelta(seconds=1))
    late = assess(pod, record=known, seen=30, spec=replace(SPEC, backoff_limit=0)).record
    assert (late.state, late.reason) == ("Failed", "BackoffLimitExceeded")


def test_restart_problem_is_reported_in_a_minute_and_fails_late():
    """As after a reboot of its node, when a volume cannot be mounted any more."""
    pod = not_again("ContainerCreating", restarts=1)
    assert assess(pod, seen=44).record.reason == "Restarting"
    record = assess(pod, seen=45).record
    assert (record.state, record.reason) == ("Active", "TaskNotStarted")
    assert "has not started again (ContainerCreating)" in record.message
    late = assess(pod, seen=900).record
    assert (late.state, late.reason) == ("Failed", "ContainerStartFailed")


def test_unread_token_counts_before_a_container_creation_failure():
    spec = replace(SPEC, backoff_limit=6)
    pod = not_again("ErrImageNeverPull")
    early = assess(pod, spec=spec, seen=29)
    assert (early.record.state, early.wake_at) == ("Active", NOW + timedelta(seconds=1))
    assert assess(pod, spec=spec, seen=30).record.state == "Failed"
    assert assess(pod, spec=spec, evidence=done("a"), seen=30).record.state == "Completed"


def test_not_ready_node_starts_nothing_and_fails_no_start():
    gone = make_node("a", ready=False)
    for pod in (
        with_container(state="waiting", reason="ErrImagePull"),
        with_container(state="waiting", reason="ContainerCreating"),
        make_pod("a", state="", phase="Failed", reason="AppArmor"),
        make_pod("a", state="", is_scheduled=False, unschedulable_message="untolerated taint"),
        not_again("ErrImagePull"),
    ):
        assessment = assess(pod, node=gone, seen=9999, spec=replace(SPEC, backoff_limit=6))
        assert assessment.record.state in {"Waiting", "Active"}
        assert assessment.wake_at is None


def test_running_init_container_defers_the_failure_of_another():
    pod = with_container(state="waiting", reason="PodInitializing")
    pod = replace(pod, init_failure="init container sidecar: exit 1", has_init_running=True)
    assessment = assess(pod, seen=9999)
    assert (assessment.record.state, assessment.record.reason, assessment.wake_at) == (
        "Waiting",
        "",
        None,
    )


@pytest.mark.parametrize(
    ("uid", "words"),
    [
        ("pod-a-1", 'configmap "nocm" not found'),
        ("pod-b-1", 'see `kubectl describe pod`; on another node: configmap "nocm" not found'),
        ("", "see `kubectl describe pod`"),
    ],
)
def test_a_volume_that_cannot_be_mounted_is_reported_in_the_kubelets_words(uid, words):
    pod = with_container(state="waiting", reason="ContainerCreating")
    node = make_node("a")
    seen = update_sightings(
        {}, ObservedObjects({"a": pod}, {"a": node}), NOW - timedelta(seconds=45)
    )
    mount = (uid, 'configmap "nocm" not found' if uid else "")
    context = RunContext(SPEC, "", Timeouts(), NOW, seen, failed_mount=mount)
    record = assess_node(context, NodeInputs(node, pod, None, None)).record
    assert record.reason == "TaskNotStarted"
    assert record.message.endswith(words)


def test_the_cause_of_a_task_that_does_not_start_is_an_event_once_it_is_found():
    cluster = make_cluster("a", gated=True)
    cluster.pods = [with_container(state="waiting", reason="ContainerCreating")]
    first = run(cluster)
    assert [event.reason for event in first.events] == ["TaskNotStarted"]
    assert "a large image, or a volume" in first.events[0].message
    found = replace(cluster.snapshot(), failed_mount=(cluster.pods[0].uid, "no configmap nocm"))
    plan = decide(seen_before(found, timedelta(minutes=1)), NOW)
    assert [event.reason for event in plan.events] == ["TaskNotStarted"]
    assert plan.events[0].message.endswith("no configmap nocm")
    assert not run(cluster).events


def test_a_pod_without_room_fails_its_node_after_a_while():
    pod = make_pod("a", state="", is_scheduled=False, unschedulable_message="Insufficient cpu")
    waited_at_its_gate = replace(pod, created_at=NOW - timedelta(hours=1))
    assert assess(waited_at_its_gate).record.state == "Waiting"
    record = assess(pod, seen=300).record
    assert (record.state, record.reason, record.message) == (
        "Failed",
        "Unschedulable",
        "Insufficient cpu",
    )


def test_a_pod_that_no_scheduler_looks_at_is_reported_in_a_minute_and_fails_late():
    """The scheduler is away, or `schedulerName` in the template names none."""
    pod = make_pod("a", state="", is_scheduled=False)
    first = assess(pod, seen=None)
    assert (first.record.state, first.record.reason) == ("Waiting", "")
    assert first.wake_at == NOW + timedelta(seconds=45)
    record = assess(pod, seen=45).record
    assert (record.state, record.reason) == ("Waiting", "NotScheduled")
    assert "schedulerName" in record.message
    assert assess(pod, seen=None, record=record).record == record
    late = assess(pod, seen=900).record
    assert (late.state, late.reason, late.message) == ("Failed", "Unschedulable", record.message)
    # The time on its node counts from when it is there.
    scheduled = replace(pod, is_scheduled=True)
    assert assess(scheduled, seen=44, record=record).record.reason == ""
    assert assess(scheduled, seen=45, record=record).record.reason == "TaskNotStarted"


def test_the_status_of_a_job_says_that_no_scheduler_looks_at_its_pods():
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods[1] = make_pod("b", state="", is_scheduled=False)
    assert reason_of(run(cluster, seen=timedelta(seconds=44))) == "NodesActive"
    assert reason_of(run(cluster, seen=timedelta(seconds=45))) == "NotScheduled"
