"""The state of one node. Each test is a line of the timeline that a node can have."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import CompletionMode, PodPolicy
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import Completion, FailurePolicy, FailureRule
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.times import format_time, parse_time
from job_controller.core.settings import Timeouts
from job_controller.core.state.ended_pods import EndedPods, mark, without_ended_pods
from job_controller.core.state.first_seen import ObservedObjects, update_sightings
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_exits import SANDBOX_GRACE
from job_controller.core.state.node_state import assess_node
from tests.unit.builders import NOW, START, done, gated_pod, make_node, make_pod
from tests.unit.core.node_states import OLD, SPEC, assess, crashed, ended, with_container


def test_a_pod_that_is_yet_to_start_waits():
    assessment = assess(make_pod("a", state="waiting"))
    assert assessment.record.state == "Waiting"


def test_a_gated_pod_waits_until_its_node_may_start():
    record = assess(gated_pod("a")).record
    assert (record.state, record.reason) == ("Waiting", "SchedulingGated")


def test_a_running_task_is_active_with_its_first_attempt():
    record = assess(with_container(started_at=START)).record
    assert (record.state, record.attempts, record.started_at) == (
        "Active",
        1,
        START,
    )


def test_completed_is_recorded_with_times_and_attempts():
    record = assess(with_container(started_at=START, restart_count=1), evidence=done("a")).record
    assert record.state == "Completed"
    assert record.attempts == 2
    assert record.finished_at == parse_time("2026-01-02T03:04:00Z")
    assert record.duration_seconds == 55


def test_a_start_after_the_completion_is_not_when_the_completed_one_started():
    later = START + timedelta(hours=1)
    record = assess(with_container(started_at=later, restart_count=1), evidence=done("a")).record
    assert (record.state, record.started_at) == ("Completed", None)


def test_completed_stays_as_recorded_whatever_becomes_of_the_pod():
    first = assess(with_container(started_at=START), evidence=done("a")).record
    later = assess(gated_pod("a", serial=9), evidence=done("a"), record=first).record
    assert later == first


def test_completed_wins_over_a_recorded_failure():
    record = NodeRecord(uid="a-uid", state="Failed", attempts=3)
    assert assess(evidence=done("a"), record=record).record.state == "Completed"


def test_the_record_of_a_former_node_of_that_name_is_nothing():
    record = NodeRecord(uid="other", state="Failed")
    assert assess(record=record).record.state == "Active"


# --- exit codes --------------------------------------------------------------------------


def test_a_failing_task_is_restarted_up_to_the_limit():
    record = assess(crashed(restarts=0)).record
    assert (record.state, record.reason) == ("Active", "Restarting")
    assert record.message == "exit 2 at the first attempt"


def test_the_attempts_of_earlier_pods_are_named_apart():
    earlier = NodeRecord(uid="a-uid", state="Waiting", attempts=3, pod_uid="earlier")
    record = assess(crashed(restarts=0), record=earlier).record
    # The kubelet has started it again: the end that is shown is that of the start before.
    assert record.attempts_in_earlier_pods == 3
    assert record.message == "exit 2 at the first attempt in its last pod, 4 in all"


def test_one_failure_too_many_fails_the_node():
    record = assess(crashed(restarts=1)).record
    assert (record.state, record.reason, record.exit_code) == ("Failed", "BackoffLimitExceeded", 2)
    assert record.message == "exit 2 after 2 attempts"
    assert record.finished_at == parse_time("2026-01-02T03:03:35Z")


def test_an_attempt_under_way_is_not_counted_as_failed():
    running = with_container(restart_count=1, last_exit_code=2, last_finished_at=OLD)
    assert assess(running).record.state == "Active"


def test_an_end_that_the_kubelet_has_forgotten_counts_in_mode_log():
    """A busy kubelet can remove the ended container while it starts the next one."""
    record = assess(with_container(restart_count=2)).record
    assert (record.state, record.reason, record.exit_code) == (
        "Failed",
        "BackoffLimitExceeded",
        None,
    )
    assert record.message == "ended with an unknown exit code after 2 attempts"
    assert assess(with_container(restart_count=1)).record.state == "Active"


def test_an_end_that_the_kubelet_has_forgotten_counts_with_the_code_on_record():
    spec = replace(SPEC, completion=Completion(mode="Exit"))
    shown = assess(crashed(code=3, restarts=1), spec=spec, seen=None).record
    assert (shown.state, shown.reason, shown.exit_code) == ("Active", "Restarting", 3)
    forgotten = with_container(restart_count=2)
    record = assess(forgotten, record=shown, spec=spec).record
    assert (record.state, record.exit_code, record.message) == (
        "Failed",
        3,
        "exit 3 after 2 attempts",
    )


def test_an_end_that_nothing_knows_any_more_may_have_been_a_success_in_mode_exit():
    spec = replace(SPEC, completion=Completion(mode="Exit"))
    record = assess(with_container(restart_count=2), spec=spec).record
    assert (record.state, record.reason) == ("Active", "Restarting")


def test_an_end_that_the_kubelet_has_forgotten_does_not_count_if_a_rule_ignores_some():
    spec = replace(SPEC, backoff_limit=0, failure_policy=RULES)
    assert assess(with_container(restart_count=2), spec=spec).record.state == "Active"


@pytest.mark.parametrize("at", [OLD, NOW + timedelta(hours=1), NOW - timedelta(days=1)])
def test_the_ledger_is_given_time_before_an_exit_is_judged(at):
    """From when the controller saw the exit, whatever the clock of the node says."""
    assessment = assess(crashed(restarts=5, at=at), seen=2)
    assert assessment.record.state == "Active"
    assert assessment.wake_at == NOW + timedelta(seconds=28)
    assert assess(crashed(restarts=5, at=at), seen=30).record.state == "Failed"


def test_exit_is_decided_sooner_once_its_log_was_read():
    def read(attempt, seen):
        evidence = Evidence("a-uid", pod_uid="pod-a-1", attempt=attempt)
        return assess(crashed(restarts=5), evidence=evidence, seen=seen)

    assert read(attempt=6, seen=5).record.state == "Failed"
    assert read(attempt=6, seen=4).wake_at == NOW + timedelta(seconds=1)
    assert read(attempt=5, seen=5).record.state == "Active"


def test_mode_exit_needs_no_token():
    spec = replace(SPEC, completion=Completion(mode="Exit"))
    assert assess(crashed(restarts=5, at=NOW), spec=spec).record.state == "Failed"


def test_mode_exit_takes_exit_0_for_success_and_waits_for_the_ledger():
    spec = replace(SPEC, completion=Completion(mode="Exit"))
    record = assess(ended(0, restarts=9), spec=spec).record
    assert (record.state, record.reason) == ("Active", "")


def test_exit_0_without_the_token_is_a_failure_in_mode_log():
    was_read = Evidence("a-uid", pod_uid="pod-a-1", attempt=2)
    record = assess(crashed(code=0, restarts=1), evidence=was_read).record
    assert record.state == "Failed"
    assert record.message == (
        "exit 0 without the token after 2 attempts "
        "(if that is enough, set spec.completion.mode to Exit)"
    )


def test_exit_0_whose_log_was_not_read_does_not_claim_that_there_was_no_token():
    earlier = Evidence("a-uid", pod_uid="pod-a-1", attempt=1)
    for evidence in (None, earlier, Evidence("a-uid", pod_uid="another", attempt=2)):
        record = assess(crashed(code=0, restarts=1), evidence=evidence).record
        assert record.state == "Failed"
        assert record.message == (
            "exit 0 after 2 attempts; "
            "its log was not read, so whether it printed the token is not known"
        )


def test_a_task_that_starts_again_is_not_said_to_lack_a_token_before_its_log_was_read():
    for attempt, words in (
        (1, "; its log was not read, so whether it printed the token is not known"),
        (2, " (if that is enough, set spec.completion.mode to Exit)"),
    ):
        evidence = Evidence("a-uid", pod_uid="pod-a-1", attempt=attempt)
        spec = replace(SPEC, backoff_limit=9)
        record = assess(ended(0, restarts=1), spec=spec, evidence=evidence).record
        assert (record.state, record.reason) == ("Active", "Restarting")
        assert ("without the token" in record.message) == (attempt == 2)
        assert record.message.endswith(words)


def test_the_cause_of_an_end_is_shown():
    assert assess(ended(137, restarts=1, reason="OOMKilled")).record.message == (
        "exit 137 (OOMKilled) after 2 attempts"
    )


def test_the_message_of_the_container_runtime_is_shown():
    words = 'failed to create containerd task: exec: "nosuch": executable file not found in $PATH'
    running = ended(128, restarts=1, reason="StartError")
    pod = replace(running, container=replace(running.container, message=words))
    assert assess(pod).record.message == f"exit 128 (StartError) after 2 attempts: {words}"
    waits = with_container(
        state="waiting",
        reason="CrashLoopBackOff",
        message="back-off 10s restarting failed container",
        restart_count=2,
        last_exit_code=128,
        last_reason="StartError",
        last_message="x" * 500 + words,
        last_finished_at=OLD,
        started_at=START,
    )
    message = assess(waits).record.message
    assert message.startswith("exit 128 (StartError) after 3 attempts: xxx")
    assert message.endswith('"nosuch": executable file not found in $PATH')


RULES = FailurePolicy(
    rules=(FailureRule((42, 43), "Fail"), FailureRule((75,), "Ignore"), FailureRule((1,), "Retry"))
)


def test_a_rule_fails_at_once():
    spec = replace(SPEC, backoff_limit=6, failure_policy=RULES)
    record = assess(crashed(code=43), spec=spec).record
    assert (record.state, record.reason) == ("Failed", "FailurePolicyRule")


def test_a_rule_lets_retry_as_without_one():
    spec = replace(SPEC, backoff_limit=0, failure_policy=RULES)
    assert assess(crashed(code=1), spec=spec).record.reason == "BackoffLimitExceeded"


def test_ignored_exits_do_not_count():
    spec = replace(SPEC, backoff_limit=0, failure_policy=RULES)
    record = None
    for restarts in range(4):
        record = assess(crashed(code=75, restarts=restarts), spec=spec, record=record).record
        assert (record.state, record.ignored_failures) == ("Active", restarts + 1)
    same = assess(crashed(code=75, restarts=3), spec=spec, record=record).record
    assert same == record
    counted = assess(crashed(code=1, restarts=4), spec=spec, record=record).record
    assert counted.state == "Failed"


@pytest.mark.parametrize(("newest", "state", "ignored"), [(75, "Active", 3), (1, "Failed", 0)])
def test_several_ends_between_two_looks_count_with_the_newest_exit(newest, state, ignored):
    """The kubelet shows no other one: three attempts have ended since the first look."""
    spec = replace(SPEC, backoff_limit=2, failure_policy=RULES)
    first = assess(crashed(code=1), spec=spec).record
    assert (first.state, first.ignored_failures) == ("Active", 0)
    later = assess(crashed(code=newest, restarts=3), spec=spec, record=first).record
    assert (later.state, later.ignored_failures) == (state, ignored)


def test_attempts_add_up_over_pods_and_failures_do_not():
    first = assess(crashed(restarts=1), spec=replace(SPEC, backoff_limit=9)).record
    assert first.attempts == 2
    waiting = assess(make_pod("a", state="waiting", serial=7), record=first).record
    second = assess(make_pod("a", serial=7), record=waiting).record
    assert (second.state, second.attempts, second.attempts_in_earlier_pods) == ("Active", 3, 2)
    third = assess(replace(crashed(), uid="pod-a-7"), record=second).record
    assert (third.state, third.attempts) == ("Active", 3)


def test_a_disrupted_pod_is_no_failure():
    pod = replace(crashed(code=143, restarts=9), disruption_reason="EvictionByEvictionAPI")
    assert assess(pod).record.state == "Active"
    evicted = replace(crashed(code=137, restarts=9), reason="Evicted", phase="Failed")
    found = assess(evicted).record
    assert (found.state, found.reason) == ("Active", "Disrupted")
    assert found.message == "the pod was disrupted (Evicted); a new pod follows"


def test_a_pod_that_a_restarted_kubelet_rejects_is_no_failure():
    pod = replace(crashed(code=143, restarts=9), reason="OutOfpods", phase="Failed")
    found = assess(pod).record
    assert (found.state, found.reason) == ("Active", "Disrupted")
    assert found.message == "the pod was disrupted (OutOfpods); a new pod follows"


def test_the_end_of_a_task_whose_sandbox_has_ended_is_assessed_after_a_minute():
    """The status of the pod may say by then why it ended; or the kubelet starts both again."""
    spec = replace(SPEC, completion=Completion(mode=CompletionMode.EXIT), failure_log_lines=0)
    task = Container("terminated", exit_code=137, finished_at=START)
    pod = replace(make_pod("a", container=task), sandbox_ended=True)
    spec = replace(spec, backoff_limit=0)
    found = assess(pod, spec=spec, seen=0)
    assert (found.record.state, found.record.reason) == ("Active", "Disrupted")
    assert found.record.message == "the sandbox of the pod has ended with the task"
    assert found.wake_at == NOW + SANDBOX_GRACE
    assert assess(pod, spec=spec, seen=60).record.state == "Failed"
    assert assess(replace(pod, sandbox_ended=False), spec=spec, seen=0).record.state == "Failed"


# --- the failure token, and last lines -----------------------------------------------------


def test_the_failure_token_fails_its_node():
    evidence = Evidence(
        "a-uid",
        pod_uid="pod-a-1",
        failed_at="2026-01-02T03:04:01.5Z",
        last_lines=("why", "gave up"),
    )
    record = assess(evidence=evidence).record
    assert (record.state, record.reason) == ("Failed", "FailureToken")
    assert record.message == "printed the failure token: 'gave up'"
    assert record.finished_at == parse_time("2026-01-02T03:04:01Z")


def test_the_failure_token_of_another_pod_says_nothing_of_this_one():
    evidence = Evidence("a-uid", pod_uid="pod-a-0", failed_at="2026-01-02T03:04:01Z")
    assert assess(evidence=evidence).record.state == "Active"


def test_last_lines_that_arrive_later_are_added_once():
    failed = assess(crashed(restarts=1)).record
    evidence = Evidence("a-uid", pod_uid="pod-a-1", last_lines=("disk full",))
    record = assess(crashed(restarts=1), record=failed, evidence=evidence).record
    assert record.message == "exit 2 after 2 attempts: 'disk full'"
    assert assess(crashed(restarts=1), record=record, evidence=evidence).record == record


def test_failure_message_does_not_grow_with_restarts():
    record = assess(crashed(restarts=1)).record
    for second in range(20):
        lines = (f"12:00:{second:02} disk full " + "x" * 200,)
        evidence = Evidence("a-uid", pod_uid="pod-a-1", last_lines=lines)
        record = assess(crashed(restarts=second), record=record, evidence=evidence).record
        assert record.message.startswith("exit 2 after 2 attempts: '12:00:00 disk full")
        assert len(record.message) < 200


# --- what holds, and another try -----------------------------------------------------------


def test_a_recorded_failure_holds_although_the_pod_runs_again():
    failed = assess(crashed(restarts=1)).record
    assert assess(with_container(restart_count=2), record=failed).record == failed


def test_a_retry_retires_the_pod_and_starts_afresh_with_the_next():
    failed = assess(crashed(restarts=1)).record
    assessment = assess(crashed(restarts=1), record=failed, retry="2")
    assert assessment.replace_pod
    assert assessment.record == failed
    fresh = assess(make_pod("a", serial=5), record=failed, retry="2").record
    assert (fresh.state, fresh.attempts, fresh.retry) == ("Active", 3, "2")


def test_a_failure_from_before_a_retry_does_not_swallow_it():
    """The task failed, its log was not known to be read yet, and a user asked for a retry."""
    active = assess(crashed(restarts=1), seen=2).record
    assert active.state == "Active"
    waiting = assess(crashed(restarts=1), record=active, retry="again", seen=5)
    assert (waiting.record.state, waiting.replace_pod) == (
        "Active",
        False,
    )  # its token may be unread
    assessment = assess(crashed(restarts=1), record=waiting.record, retry="again", seen=30)
    assert assessment.replace_pod
    assert assessment.record.state == "Active"
    fresh = assess(make_pod("a", serial=5), record=assessment.record, retry="again").record
    assert (fresh.state, fresh.retry) == ("Active", "again")
    again = assess(replace(crashed(restarts=1), uid="pod-a-5"), record=fresh, retry="again").record
    assert again.state == "Failed"


@pytest.mark.parametrize("pods", [PodPolicy.DELETE_FAILED, PodPolicy.DELETE])
def test_the_pod_of_a_failure_is_deleted_once_its_last_lines_are_recorded(pods):
    spec = replace(SPEC, failure_policy=FailurePolicy(pods=pods))
    failed = assess(crashed(restarts=1), spec=spec).record
    early = assess(crashed(restarts=1), record=failed, spec=spec, seen=6)
    assert not early.delete_pod
    assert early.wake_at == NOW + timedelta(seconds=4)
    evidence = Evidence("a-uid", pod_uid="pod-a-1", last_lines=("x",))
    assert assess(crashed(restarts=1), record=failed, spec=spec, evidence=evidence).delete_pod
    assert assess(crashed(restarts=1), record=failed, spec=spec, seen=10).delete_pod
    assert not assess(gated_pod("a"), record=failed, spec=spec).delete_pod
    keep = replace(SPEC, failure_policy=FailurePolicy(pods=PodPolicy.KEEP))
    assert not assess(crashed(restarts=1), record=failed, spec=keep).delete_pod


def test_a_successor_that_was_created_before_the_failure_was_known_is_deleted():
    failed = assess(crashed(restarts=1)).record
    successor = replace(crashed(restarts=1), uid="pod-a-2")
    assert assess(successor, record=failed).delete_pod
    assert not assess(gated_pod("a"), record=failed).delete_pod
    keep = replace(SPEC, failure_policy=FailurePolicy(pods=PodPolicy.KEEP))
    assert not assess(successor, record=failed, spec=keep).delete_pod


def test_a_node_that_fails_after_the_end_of_the_run_has_its_time_for_last_lines_too():
    spec = replace(SPEC, failure_policy=FailurePolicy(pods="Delete"))
    pod = crashed(restarts=1, at=NOW)
    failed = assess(pod, spec=spec).record
    ended_at = NOW - timedelta(hours=1)
    early = assess(pod, record=failed, spec=spec, seen=6, ended_at=ended_at)
    assert not early.delete_pod
    assert early.wake_at == NOW + timedelta(seconds=4)
    assert assess(pod, record=failed, spec=spec, seen=10, ended_at=ended_at).delete_pod


def test_after_a_restart_the_pod_of_an_earlier_failure_goes_by_the_end_on_record():
    spec = replace(SPEC, failure_policy=FailurePolicy(pods="Delete"))
    pod = crashed(restarts=1, at=NOW - timedelta(hours=1))
    failed = assess(pod, spec=spec).record
    ended_at = NOW - timedelta(seconds=10)
    assert assess(pod, record=failed, spec=spec, seen=None, ended_at=ended_at).delete_pod


def test_a_failure_at_the_end_of_all_years_by_the_nodes_clock_deletes_the_pod():
    spec = replace(SPEC, failure_policy=FailurePolicy(pods="Delete"))
    pod = crashed(restarts=1, at=parse_time("9999-12-31T23:59:59Z"))
    failed = assess(pod).record
    assert failed.state == "Failed"
    wait = assess(pod, record=failed, spec=spec, seen=1, ended_at=NOW)
    assert (wait.delete_pod, wait.wake_at) == (False, NOW + timedelta(seconds=9))
    assert assess(pod, record=failed, spec=spec, seen=10, ended_at=NOW).delete_pod


# --- time ----------------------------------------------------------------------------------


def test_the_deadline_of_a_node():
    spec = replace(SPEC, node_deadline_seconds=90)
    limit = NOW + timedelta(seconds=90)
    for started_at in (START, NOW + timedelta(hours=1), NOW - timedelta(days=1)):
        pod = replace(with_container(started_at=started_at), started_at=started_at)
        early = assess(pod, spec=spec)
        assert (early.record.state, early.wake_at) == ("Active", limit)
        late = assess(pod, spec=spec, now=limit, record=early.record)
        assert (late.record.state, late.record.reason) == ("Failed", "DeadlineExceeded")
        assert late.record.message == "not completed within nodeDeadlineSeconds (90 s)"
    assert assess(gated_pod("a"), spec=spec).wake_at is None


def test_a_node_that_may_not_start_because_the_run_is_suspended_has_its_time_again():
    """Its pod was deleted during the suspension, and it would fail when the run is resumed."""
    spec, node = replace(SPEC, node_deadline_seconds=90), make_node("a")
    record = assess(make_pod("a", started_at=START), spec=spec).record
    assert record.active_since == NOW
    late = NOW + timedelta(seconds=100)
    for is_suspended in (True, False):
        context = RunContext(spec, "", Timeouts(), late, is_suspended=is_suspended)
        found = assess_node(context, NodeInputs(node, gated_pod("a"), None, record))
        assert (found.record.state, found.wake_at) == ("Waiting", None)
        record = found.record
    pod = make_pod("a", uid=record.pod_uid, state="")
    assert assess(pod, spec=spec, record=record, now=late).record.state == "Waiting"
    accepted = assess(replace(pod, started_at=START), spec=spec, record=record, now=late)
    assert accepted.record.active_since == late
    assert accepted.wake_at <= late + timedelta(seconds=90)


def test_a_pod_that_waits_for_anything_else_does_not_give_a_node_its_time_again():
    spec = replace(SPEC, node_deadline_seconds=90)
    record = assess(make_pod("a", started_at=START), spec=spec).record
    assert assess(gated_pod("a"), spec=spec, record=record).record.active_since == NOW


@pytest.mark.parametrize("is_seen_at_gate", [True, False])
@pytest.mark.parametrize(("state", "attempts", "waits"), [("waiting", 0, 0), ("running", 1, 60)])
def test_the_time_of_a_pod_that_was_deleted_before_its_task_started_does_not_count(
    state, attempts, waits, is_seen_at_gate
):
    """Whether or not the controller has seen the next one before the kubelet accepted it."""
    spec, late = replace(SPEC, node_deadline_seconds=90), NOW + timedelta(seconds=60)
    record = assess(replace(with_container(state=state), started_at=START), spec=spec).record
    assert (record.active_since, record.attempts) == (NOW, attempts)
    if is_seen_at_gate:
        waiting = gated_pod("a", uid="pod-a-2")
        record = assess(waiting, spec=spec, record=record, now=late).record
    pod = replace(with_container(state="waiting"), uid="pod-a-2", started_at=START)
    found = assess(pod, spec=spec, record=record, now=late)
    assert found.record.active_since == late - timedelta(seconds=waits)


def test_a_node_whose_pods_are_deleted_again_and_again_before_a_start_does_not_fail_by_time():
    spec, record, now = replace(SPEC, node_deadline_seconds=90), None, NOW
    for serial in range(20):
        pod = replace(with_container(state="waiting"), uid=f"pod-a-{serial}", started_at=START)
        for _ in range(2):
            record = assess(pod, spec=spec, record=record, now=now).record
            now += timedelta(seconds=60)
    assert record.state == "Waiting"
    assert assess(pod, spec=spec, record=record, now=now).record.state == "Failed"


@pytest.mark.parametrize(
    "first",
    [
        replace(
            with_container(state="terminated", exit_code=137, was_never_created=True),
            phase="Failed",
            started_at=START,
        ),
        replace(with_container(state="waiting"), started_at=START),
    ],
)
def test_nor_does_the_time_of_one_that_is_on_record_as_an_attempt_count(first):
    """Its kubelet reported it as ended, or the one before it was deleted to take a start back."""
    spec, late = replace(SPEC, node_deadline_seconds=90), NOW + timedelta(seconds=60)
    marked = NodeRecord("a-uid", "Waiting", attempts=1, pod_uid="pod-a-0")
    record = assess(first, spec=spec, record=marked).record
    assert (record.active_since, record.started_at) == (NOW, None)
    assert record.attempts >= 1
    second = replace(with_container(state="waiting"), uid="pod-a-2", started_at=START)
    assert assess(second, spec=spec, record=record, now=late).record.active_since == late


def test_nor_does_that_of_a_pod_that_was_deleted_to_take_the_start_back():
    record = NodeRecord("a-uid", "Waiting", active_since=NOW, pod_uid="pod-a-1")
    ended_pods = EndedPods(frozenset({"pod-a-1"}))
    records = without_ended_pods({"a": mark(record, "pod-a-1", "")}, ended_pods)
    assert (records["a"].pod_uid, records["a"].active_since) == ("", None)


def test_a_failure_to_start_from_before_a_retry_does_not_swallow_it():
    """It had all its time but a second when a user asked for a retry."""
    node = make_node("a")
    pod = make_pod("a", state="", is_scheduled=False, unschedulable_message="Insufficient cpu")
    record = assess(pod, seen=299).record
    seen = update_sightings(
        {}, ObservedObjects({"a": pod}, {"a": node}), NOW - timedelta(seconds=299)
    )
    for seconds, state in ((0, "Waiting"), (299, "Waiting"), (300, "Failed")):
        now = NOW + timedelta(seconds=seconds)
        seen = update_sightings(seen, ObservedObjects({"a": pod}, {"a": node}, retry="again"), now)
        context = RunContext(SPEC, "again", Timeouts(), now, seen)
        record = assess_node(context, NodeInputs(node, pod, None, record)).record
        assert record.state == state


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"]
)
def test_a_retry_replaces_a_pod_that_fails_to_start_at_once(reason):
    pod = with_container(state="waiting", reason=reason)
    waiting = assess(pod).record
    assessment = assess(pod, record=waiting, retry="again")
    assert (assessment.replace_pod, assessment.record.retry) == (True, "")
    fresh = assess(replace(pod, uid="pod-a-2"), record=assessment.record, retry="again")
    assert (fresh.replace_pod, fresh.record.retry) == (False, "again")


def test_a_retry_leaves_a_pod_alone_whose_exit_completes_its_node():
    spec = replace(SPEC, completion=Completion(mode="Exit"))
    active = assess(make_pod("a"), spec=spec).record
    assessment = assess(ended(0), spec=spec, record=active, retry="again")
    assert (assessment.replace_pod, assessment.awaits_retry) == (False, False)


@pytest.mark.parametrize("pod", [crashed(restarts=1), ended(2, restarts=1)])
def test_a_retry_replaces_a_pod_in_back_off_once_its_log_is_read(pod):
    spec = replace(SPEC, backoff_limit=9)
    waiting = assess(pod, spec=spec).record
    assert (waiting.state, waiting.reason) == ("Active", "Restarting")
    early = assess(pod, spec=spec, record=waiting, retry="again", seen=5)
    assert (early.replace_pod, early.awaits_retry) == (False, True)
    assert early.wake_at == NOW + timedelta(seconds=25)
    due = assess(pod, spec=spec, record=early.record, retry="again", seen=30)
    assert (due.replace_pod, due.awaits_retry) == (True, False)
    fresh = assess(make_pod("a", serial=5), spec=spec, record=due.record, retry="again").record
    assert (fresh.state, fresh.retry, fresh.attempts) == ("Active", "again", 3)


def test_a_retry_leaves_a_task_alone_that_is_at_work():
    pod = make_pod("a")
    active = assess(pod).record
    assessment = assess(pod, record=active, retry="again")
    assert (assessment.replace_pod, assessment.awaits_retry) == (False, False)


@pytest.mark.parametrize(
    ("mode", "attempt", "is_quoted"), [("Log", 1, True), ("Log", 0, False), ("Exit", 1, True)]
)
def test_a_task_that_restarts_shows_the_last_line_of_its_newest_attempt(mode, attempt, is_quoted):
    spec = replace(SPEC, completion=Completion(mode=mode), backoff_limit=6)
    pod = crashed(code=3)
    lines = Evidence(
        "a-uid", pod=pod.name, pod_uid=pod.uid, last_lines=("disk full",), attempt=attempt
    )
    record = assess(pod, spec=spec, evidence=lines).record
    assert (record.state, record.reason) == ("Active", "Restarting")
    assert record.message == "exit 3 at the first attempt" + (": 'disk full'" if is_quoted else "")


def test_mode_exit_waits_a_moment_for_the_last_lines_before_a_failure():
    spec = replace(SPEC, completion=Completion(mode="Exit"), backoff_limit=0)
    pod = ended(3)
    first = assess(pod, spec=spec, seen=None)
    assert (first.record.state, first.wake_at) == ("Active", NOW + timedelta(seconds=5))
    lines = Evidence("a-uid", pod=pod.name, pod_uid=pod.uid, last_lines=("start", "disk full"))
    lines = replace(lines, attempt=1)
    quoted = assess(pod, spec=spec, seen=None, evidence=lines).record
    assert (quoted.state, quoted.message) == ("Failed", "exit 3 at the first attempt: 'disk full'")
    silent = assess(pod, spec=spec, seen=5).record
    assert (silent.state, silent.message) == ("Failed", "exit 3 at the first attempt")
    read = assess(pod, spec=spec, seen=None, evidence=replace(lines, last_lines=())).record
    assert read.state == "Failed"


def test_a_failure_does_not_quote_the_line_of_an_earlier_attempt():
    spec = replace(SPEC, completion=Completion(mode="Exit"), backoff_limit=1)
    pod = ended(3, restarts=1)
    early = Evidence("a-uid", pod=pod.name, pod_uid=pod.uid, last_lines=("no mirror",), attempt=1)
    assert assess(pod, spec=spec, seen=None, evidence=early).record.state == "Active"
    late = assess(pod, spec=spec, seen=60, evidence=early).record
    assert (late.state, late.message) == ("Failed", "exit 3 after 2 attempts")
    newest = replace(early, last_lines=("disk full",), attempt=2)
    again = assess(pod, record=late, spec=spec, seen=60, evidence=newest).record
    assert again.message == "exit 3 after 2 attempts: 'disk full'"
    unread = assess(pod, spec=replace(spec, failure_log_lines=0), seen=None).record
    assert unread.state == "Failed"


@pytest.mark.parametrize(("code", "is_quoted"), [(3, True), (4, False)])
def test_a_failure_quotes_the_line_of_a_later_attempt_that_ended_in_the_same_way(code, is_quoted):
    """The kubelet starts the task of a failed node again until its pod is deleted."""
    spec = replace(SPEC, completion=Completion(mode="Exit"), backoff_limit=0)
    failed = assess(ended(3), spec=spec, seen=60).record
    pod = ended(code, restarts=1)
    later = Evidence("a-uid", pod=pod.name, pod_uid=pod.uid, last_lines=("disk full",), attempt=2)
    record = assess(pod, record=failed, spec=spec, seen=60, evidence=later).record
    assert record.message == "exit 3 at the first attempt" + (": 'disk full'" if is_quoted else "")


TOKEN_AT = parse_time("2026-01-02T03:04:00Z")  # of `done`


@pytest.mark.parametrize(
    "pod",
    [
        ended(0, at=TOKEN_AT, reason="Completed"),
        crashed(code=3, at=TOKEN_AT + timedelta(seconds=2)),
        with_container(restart_count=1, last_exit_code=0, last_finished_at=TOKEN_AT),
        ended(255, at=TOKEN_AT, reason="Error"),
        ended(193, at=TOKEN_AT, reason="Error"),
        crashed(code=130, restarts=2, at=TOKEN_AT + timedelta(seconds=9)),
    ],
    ids=["ended", "in back-off", "at work again", "exit -1", "no signal", "again and again"],
)
def test_a_task_that_exits_after_its_token_is_reported_and_repeats_its_work(pod):
    assessment = assess(pod, evidence=done("a"), now=TOKEN_AT + timedelta(seconds=9))
    assert assessment.repeats_task
    record = assessment.record
    assert (record.state, record.reason) == ("Completed", "TaskExited")
    assert record.attempts == pod.container.restart_count + 1
    assert "set spec.completion.mode to Exit" in record.message
    gated = assess(gated_pod("a"), evidence=done("a"), record=record)
    assert (gated.repeats_task, gated.record) == (False, record)


@pytest.mark.parametrize(
    ("pod", "spec"),
    [
        (with_container(started_at=START), SPEC),
        (crashed(at=TOKEN_AT - timedelta(seconds=9)), SPEC),
        (ended(255, at=TOKEN_AT, reason="Unknown"), SPEC),
        (crashed(code=137, at=TOKEN_AT + timedelta(seconds=2)), SPEC),
        (replace(ended(0, at=TOKEN_AT), disruption_reason="EvictionByEvictionAPI"), SPEC),
        (ended(0, at=TOKEN_AT), replace(SPEC, completion=Completion(mode="Exit"))),
    ],
    ids=["waits", "ended before", "died with its machine", "killed", "disrupted", "mode Exit"],
)
def test_other_ends_of_a_completed_task_are_no_exit_after_its_token(pod, spec):
    assessment = assess(pod, evidence=done("a"), spec=spec, now=TOKEN_AT + timedelta(seconds=9))
    assert (assessment.repeats_task, assessment.record.reason) == (False, "")


def test_a_failed_attempt_that_ended_in_the_second_of_the_token_is_no_exit_after_it():
    pod = with_container(restart_count=1, last_exit_code=1, last_finished_at=TOKEN_AT)
    evidence = replace(done("a"), attempt=1)
    assert not assess(pod, evidence=evidence, now=TOKEN_AT + timedelta(seconds=9)).repeats_task
    again = with_container(restart_count=2, last_exit_code=1, last_finished_at=TOKEN_AT)
    assert assess(again, evidence=evidence, now=TOKEN_AT + timedelta(seconds=9)).repeats_task


def test_a_deadline_from_before_a_retry_does_not_swallow_it():
    spec = replace(SPEC, node_deadline_seconds=90)
    pod = replace(with_container(started_at=START), started_at=START)
    active = assess(pod, spec=spec).record
    now = NOW + timedelta(seconds=90)
    assessment = assess(pod, spec=spec, record=active, retry="again", now=now)
    assert (assessment.replace_pod, assessment.record.state) == (True, "Active")
    successor = replace(pod, uid="pod-a-2")
    fresh = assess(successor, spec=spec, record=assessment.record, retry="again", now=now)
    assert (fresh.record.state, fresh.wake_at) == ("Active", now + timedelta(seconds=90))
    assert fresh.record.attempts == 2


def test_a_node_out_of_sight_is_unreachable_and_not_failed():
    gone = make_node("a", ready=False, ready_changed_at=NOW - timedelta(days=1))
    assessment = assess(node=gone, seen=50)
    assert assessment.record.state == "Active"
    assert assessment.wake_at == NOW + timedelta(seconds=10)
    record = assess(node=gone, seen=60).record
    assert (record.state, record.reason) == ("Unreachable", "NodeNotReady")
    assert assess(node=gone, seen=None, record=record).record.state == "Unreachable"
    back = assess(record=record).record
    assert back.state == "Active"


@pytest.mark.parametrize(("observed", "state"), [("before", "Active"), ("again", "Unreachable")])
def test_a_node_that_is_still_away_after_a_retry_stays_unreachable_over_a_restart(observed, state):
    """Its pod is from before the retry, so that its record has the earlier request."""
    gone = make_node("a", ready=False, ready_changed_at=NOW - timedelta(days=1))
    record = assess(node=gone, seen=60, retry="before").record
    sightings = update_sightings(
        {}, ObservedObjects({"a": make_pod("a")}, {"a": gone}, frozenset(), retry="again"), NOW
    )
    timeouts = Timeouts(unreachable_seconds=60)
    context = RunContext(SPEC, "again", timeouts, NOW, sightings, None, observed_retry=observed)
    found = assess_node(context, NodeInputs(gone, make_pod("a"), None, record))
    assert found.record.state == state


def test_a_deadline_names_what_kept_the_task_from_starting():
    spec = replace(SPEC, node_deadline_seconds=5)
    pod = with_container(state="waiting", reason="ImagePullBackOff", message="no such tag")
    pod = replace(pod, started_at=START)
    before = assess(pod, spec=spec, seen=1).record
    late = assess(pod, spec=spec, record=before, now=NOW + timedelta(seconds=60)).record
    assert (late.state, late.reason) == ("Failed", "DeadlineExceeded")
    assert late.message.startswith("not completed within nodeDeadlineSeconds (5 s): ")
    assert "no such tag" in late.message


def test_a_job_may_give_a_node_more_time_to_come_back():
    spec = replace(SPEC, node_unreachable_seconds=600)
    gone = make_node("a", ready=False, ready_changed_at=NOW - timedelta(days=1))
    first = assess(node=gone, seen=50, spec=spec)
    assert (first.record.state, first.record.reason) == ("Active", "")
    assert first.wake_at == NOW + timedelta(seconds=10)
    # After the controller's own time the status says so.
    away = assess(node=gone, seen=70, spec=spec)
    assert (away.record.state, away.record.reason) == ("Active", "NodeNotReady")
    until = NOW + timedelta(seconds=530)
    assert away.wake_at == until
    assert f"has until {format_time(until)} (nodeUnreachableSeconds)" in away.record.message
    assert assess(node=gone, seen=600, spec=spec).record.state == "Unreachable"
    assert assess(record=away.record, spec=spec).record.reason == ""


def test_a_job_may_give_a_node_less_time():
    spec = replace(SPEC, node_unreachable_seconds=5)
    gone = make_node("a", ready=False, ready_changed_at=NOW - timedelta(days=1))
    assert assess(node=gone, seen=4, spec=spec).wake_at == NOW + timedelta(seconds=1)
    assert assess(node=gone, seen=5, spec=spec).record.state == "Unreachable"


def test_a_node_that_was_ready_meanwhile_has_its_whole_time_again():
    """No reconcile saw it Ready: only its condition has changed since it was first seen."""
    first = make_node("a", ready=False, ready_changed_at=NOW - timedelta(seconds=60))
    since = NOW - timedelta(seconds=60)
    sightings = update_sightings(
        {}, ObservedObjects({"a": make_pod("a")}, {"a": first}, frozenset()), since
    )
    now = replace(first, ready_changed_at=NOW - timedelta(seconds=10))
    context = RunContext(SPEC, "", Timeouts(unreachable_seconds=60), NOW, sightings, None)
    assessment = assess_node(context, NodeInputs(now, make_pod("a"), None, None))
    assert assessment.record.state == "Active"
    same = assess_node(context, NodeInputs(first, make_pod("a"), None, None))
    assert same.record.state == "Unreachable"


def test_a_failure_seen_before_a_node_went_out_of_sight_counts():
    gone = make_node("a", ready=False, ready_changed_at=NOW - timedelta(seconds=500))
    assert assess(crashed(restarts=3), node=gone).record.state == "Failed"
