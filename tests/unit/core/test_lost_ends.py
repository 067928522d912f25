"""Ends of the task that were not seen: no rule applies, and nodes are read before they fail."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import Completion, FailurePolicy, FailureRule
from daemonset_job.api.node_record import NodeRecord
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.first_seen import LEDGER_ROOM, Sighting, has_limits, task_ended
from job_controller.core.state.node_exits import find_lost_ends
from tests.unit.builders import NOW, START, done, make_cluster, make_node, seen_before
from tests.unit.core.node_states import OLD, SPEC, assess, with_container

UNSEEN = Container(
    "running", restart_count=1, last_exit_code=137, last_reason="ContainerStatusUnknown"
)
FORGOTTEN = Container("running", restart_count=1)
UNSEEN_CODES = [(255, "Unknown"), (137, "ContainerStatusUnknown")]
ALL_CODES = tuple(range(1, 256))


def found(
    ended, room, container=UNSEEN, *, mode=CompletionMode.LOG, limit=0, limited=None, **changes
):
    """Return the nodes found; `ended` and `room` are seconds since the end and room were seen.

    So are `limited` for the limits of the Job. `changes` are of the pod.
    """
    cluster = make_cluster("a", "b")
    spec = replace(cluster.job.spec, backoff_limit=limit, completion=Completion(mode=mode))
    cluster.job = replace(cluster.job, spec=spec)
    cluster.pods[0] = replace(cluster.pods[0], container=container, **changes)
    ends = task_ended(cluster.pods[0], 1)
    times = {ends: ended, LEDGER_ROOM: room, has_limits(spec): limited}
    seen = {
        fact: Sighting(NOW - timedelta(seconds=seconds))
        for fact, seconds in times.items()
        if seconds is not None
    }
    snapshot = cluster.snapshot(seen=seen)
    return set(find_lost_ends(snapshot, cluster.nodes.values(), NOW))


@pytest.mark.parametrize(
    ("ended", "expected"), [(29, set()), (30, {"a"}), (119, {"a"}), (120, set()), (None, set())]
)
def test_a_node_is_read_from_when_it_may_fail_for_two_minutes(ended, expected):
    assert found(ended, 600) == expected


@pytest.mark.parametrize(
    ("room", "expected"), [(None, set()), (29, set()), (30, {"a"}), (35, {"a"})]
)
def test_so_is_one_whose_failure_waited_for_room_in_the_ledger(room, expected):
    assert found(600, room) == expected


@pytest.mark.parametrize(
    ("ended", "limited", "expected"),
    [(600, 0, {"a"}), (600, 119, {"a"}), (600, 120, set()), (29, 0, set()), (30, 600, {"a"})],
)
def test_so_is_one_that_fails_by_a_lower_limit_for_an_end_of_long_ago(ended, limited, expected):
    assert found(ended, 600, limited=limited) == expected


def test_no_node_is_read_that_has_further_attempts():
    assert found(30, 600, limit=1) == set()


@pytest.mark.parametrize("mode", ["Log", "Exit"])
def test_while_its_sandbox_has_ended_a_node_is_read_after_a_minute(mode):
    """Only then it may fail."""
    assert found(59, 600, mode=mode, sandbox_ended=True) == set()
    assert found(60, 600, mode=mode, sandbox_ended=True) == {"a"}


@pytest.mark.parametrize(("seconds", "expected"), [(4, set()), (5, {"a"})])
def test_a_node_whose_log_was_read_is_read_as_soon_as_it_may_fail(seconds, expected):
    cluster = make_cluster("a")
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, backoff_limit=0))
    pod = cluster.pods[0] = replace(cluster.pods[0], container=UNSEEN)
    cluster.evidence["a"] = Evidence("a-uid", pod=pod.name, pod_uid=pod.uid, attempt=1)
    snapshot = seen_before(cluster.snapshot(), timedelta(seconds=seconds))
    assert set(find_lost_ends(snapshot, cluster.nodes.values(), NOW)) == expected


def test_in_mode_exit_a_node_does_not_fail_for_a_forgotten_end():
    assert found(30, 600, FORGOTTEN) == {"a"}
    assert found(30, 600, FORGOTTEN, mode=CompletionMode.EXIT) == set()
    assert found(0, 600, mode=CompletionMode.EXIT) == {"a"}
    assert found(600, None, mode=CompletionMode.EXIT) == set()


def begun_again(code, reason):
    """Return a pod at work whose task has begun again after an unseen end."""
    return with_container(
        restart_count=1, last_exit_code=code, last_reason=reason, last_finished_at=OLD
    )


@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize("action", ["Fail", "Ignore"])
@pytest.mark.parametrize(("code", "reason"), UNSEEN_CODES)
def test_no_rule_applies_to_an_unseen_end(code, reason, action, mode):
    policy = FailurePolicy(rules=(FailureRule(ALL_CODES, action),))
    spec = replace(SPEC, completion=Completion(mode=mode), failure_policy=policy)
    pod = begun_again(code, reason)
    record = assess(pod, spec=replace(spec, backoff_limit=1)).record
    assert (record.state, record.finished_in_pod, record.ignored_failures) == ("Active", 1, 0)
    assert record.exit_code is None
    failed = assess(pod, spec=replace(spec, backoff_limit=0)).record
    assert (failed.state, failed.reason) == ("Failed", "BackoffLimitExceeded")
    assert f"ended with an unknown exit code ({reason})" in failed.message


@pytest.mark.parametrize(("code", "reason"), UNSEEN_CODES)
def test_a_completed_node_has_no_code_of_an_unseen_end(code, reason):
    pod = with_container(state="terminated", exit_code=code, reason=reason, finished_at=OLD)
    record = assess(pod, evidence=replace(done("a"), pod_uid=pod.uid)).record
    assert (record.state, record.exit_code) == ("Completed", None)


COUNTED_AGAIN = Container("running", last_exit_code=137, last_reason="ContainerStatusUnknown")


def counted_again(mode):
    """Return a cluster after a restart of the controller; the kubelet of a counts from 0 again."""
    cluster = make_cluster("a")
    completion = Completion(mode=mode)
    changes = {"backoff_limit": 0, "failure_log_lines": 0, "completion": completion}
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, **changes))
    cluster.pods[0] = replace(cluster.pods[0], container=COUNTED_AGAIN)
    record = {"uid": "a-uid", "state": "Active", "finishedInPod": 1}
    record["podUID"] = cluster.pods[0].uid
    cluster.report_status = {"nodeStates": {"a": record}}
    return cluster


@pytest.mark.parametrize(("mode", "seconds"), [("Log", 30), ("Exit", 0)])
def test_a_node_is_read_for_an_end_that_only_its_record_has(mode, seconds):
    cluster = counted_again(mode)
    snapshot = seen_before(cluster.snapshot(), timedelta(seconds=seconds))
    assert set(find_lost_ends(snapshot, cluster.nodes.values(), NOW)) == {"a"}


@pytest.mark.parametrize(("mode", "seconds"), [("Log", 30), ("Exit", 0)])
def test_such_an_end_fails_its_node_after_a_restart_of_the_controller_too(mode, seconds):
    """Else the time would begin again in each pass."""
    snapshot = seen_before(counted_again(mode).snapshot(), timedelta(seconds=seconds))
    node = count_nodes(snapshot, NOW).nodes["a"]
    assert (node.state, node.record.reason) == ("Failed", "BackoffLimitExceeded")


def test_a_node_that_is_unreachable_is_looked_at_when_it_may_fail():
    """It is read from then on for two minutes at most, and no event may come in that time."""
    pod, away = begun_again(*UNSEEN_CODES[0]), make_node("a", ready=False, ready_changed_at=START)
    known = NodeRecord(away.uid, "Unreachable", attempts=1, pod_uid=pod.uid)
    spec = replace(SPEC, backoff_limit=0)
    found = assess(pod, record=known, node=away, spec=spec, seen=10)
    assert (found.record.state, found.wake_at) == ("Unreachable", NOW + timedelta(seconds=20))
