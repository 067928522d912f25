"""Which read comes next, and when. Time is a number; no test waits."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.container import Container
from terminator.logs.log_parser import Cursor, Line, Span
from terminator.logs.matcher import Matcher
from terminator.logs.read_budget import BUDGET_BYTES, RESUMED_READ, ReadBudget
from terminator.logs.read_policy import (
    CHECK_SECONDS,
    LINES_POLL_SECONDS,
    MISSING_LOG_LIMIT,
    POLL_SECONDS,
    RETRY_SECONDS,
    LogReadState,
    ShortRead,
    Wait,
)
from terminator.logs.stream_state import STREAM_BYTES
from terminator.logs.tail_read import TailRead
from tests.unit.terminator.builders import NOW, running, waiting

RUNNING = Container("running")
ENDED = Container("terminated", exit_code=1, finished_at=NOW)
FOREVER = Wait(math.inf)
SOME = Cursor("2026-01-02T03:04:05.000000000Z", 1)
LATER = Cursor("2026-01-02T03:04:06.000000000Z", 1)
LATEST = Cursor("2026-01-02T03:04:07.000000000Z", 1)
UNFINISHED = Line("2026-01-02T03:04:05.000000000Z", b"done", unfinished=True)


def looked(container=RUNNING, now=0.0):
    """A reading whose first short read has found nothing."""
    reading = LogReadState()
    step = reading.next_step(container, now)
    assert step == ShortRead()
    reading.short_read_done(step, container, SOME, None, now)
    return reading


@pytest.mark.parametrize(
    "container", [None, waiting(0, ended=False), Container("unknown"), Container("waiting")]
)
def test_nothing_to_read_before_the_container_has_run(container):
    assert LogReadState().next_step(container, 0.0) == FOREVER


def test_first_a_short_read_then_a_stream_if_there_is_room():
    reading = looked()
    assert reading.next_step(RUNNING, 0.0) == Wait(POLL_SECONDS[0], wants_stream=True)


def test_a_read_of_new_lines_that_is_under_way_does_not_bring_the_last_ones():
    reading = looked()
    reading.want_lines()
    assert not reading.takes_lines(ShortRead(use_cursor=True), RUNNING, has_lines=True)
    step = reading.next_step(RUNNING, 0.0)
    assert step == ShortRead()
    assert isinstance(step, ShortRead)
    assert reading.takes_lines(step, RUNNING, has_lines=True)
    assert not reading.takes_lines(step, RUNNING, has_lines=True)


@pytest.mark.parametrize("is_live", [True, False])
def test_an_empty_log_is_read_again_for_its_last_lines(is_live):
    reading, now = LogReadState(is_live=is_live), 0.0
    reading.want_lines()
    for _ in range(12):
        step = reading.next_step(RUNNING, now)
        assert step == ShortRead()
        reading.short_read_done(step, RUNNING, Cursor(), None, now)
        assert not reading.takes_lines(step, RUNNING, has_lines=False)
        wait = reading.next_step(RUNNING, now)
        assert wait == Wait(wait.until, wants_stream=is_live)
        limit = POLL_SECONDS[1] if is_live else LINES_POLL_SECONDS
        assert now + POLL_SECONDS[0] <= wait.until <= now + limit
        now = wait.until
    assert reading.takes_lines(ShortRead(), RUNNING, has_lines=True)
    assert not reading.wants_lines
    reading.short_read_done(ShortRead(), RUNNING, SOME, None, now)
    if not is_live:
        assert reading.next_step(RUNNING, now) == FOREVER


def test_a_stream_that_brings_lines_has_the_last_ones_read():
    reading = looked()
    reading.want_lines()
    assert not reading.takes_lines(ShortRead(), RUNNING, has_lines=False)
    reading.stream_opened(0.0)
    assert isinstance(reading.next_step(RUNNING, 0.0), Wait)
    reading.stream_received(10, LATER, 1.0)
    assert reading.next_step(RUNNING, 1.0) == ShortRead()


def test_lines_that_are_no_longer_required_are_not_looked_for():
    reading = LogReadState(is_live=False)
    reading.want_lines()
    reading.want_lines(required=False)
    assert reading.next_step(RUNNING, 0.0) == FOREVER


def test_without_a_stream_short_reads_grow_apart_up_to_a_limit():
    reading, now, gaps = looked(), 0.0, []
    for _ in range(12):
        step = reading.next_step(RUNNING, now)
        assert isinstance(step, Wait)
        gaps.append(step.until - now)
        now = step.until
        step = reading.next_step(RUNNING, now)
        assert isinstance(step, ShortRead)
        reading.short_read_done(step, RUNNING, SOME, None, now)
    assert gaps == sorted(gaps)
    assert gaps[0] == POLL_SECONDS[0]
    assert gaps[-1] == POLL_SECONDS[1]


def test_a_log_that_short_reads_do_not_follow_is_read_as_often_as_the_budget_says():
    """As on a node whose kubelet ends each stream at once: it rotates the file within seconds."""
    reading, now, gaps = looked(), 0.0, []
    reading.interval_seconds = 0.8
    for number in range(12):
        now = reading.next_step(RUNNING, now).until
        step = reading.next_step(RUNNING, now)
        reading.short_read_done(step, RUNNING, SOME, None, now, is_behind=3 <= number < 8)
        gaps.append(reading.next_step(RUNNING, now).until - now)
        assert reading.next_step(RUNNING, now).wants_stream
        assert reading.read_count == (RESUMED_READ if 3 <= number < 8 else 0)
    assert gaps[3:8] == pytest.approx([0.8] * 5)
    assert gaps[8:] == sorted(gaps[8:])
    assert gaps[8] < gaps[2]


def test_short_reads_use_the_cursor_but_not_always():
    reading, now, uses = looked(), 0.0, []
    while now < 60:
        step = reading.next_step(RUNNING, now)
        if isinstance(step, Wait):
            now = step.until
            continue
        uses.append(step.use_cursor)
        reading.short_read_done(step, RUNNING, SOME, None, now)
    assert uses.count(False) >= 3
    assert uses.count(True) > uses.count(False)


def test_an_open_stream_is_checked_now_and_then():
    reading = looked()
    reading.stream_opened(1.0)
    assert reading.next_step(RUNNING, 2.0) == Wait(1.0 + CHECK_SECONDS)
    step = reading.next_step(RUNNING, 1.0 + CHECK_SECONDS)
    assert step == ShortRead()
    reading.short_read_done(step, RUNNING, SOME, None, 12.0)
    assert reading.next_step(RUNNING, 13.0) == Wait(12.0 + CHECK_SECONDS)


def test_pods_do_not_check_in_step():
    moments = set()
    for spread in (0.0, 0.5, 0.99):
        reading = LogReadState(spread)
        reading.short_read_done(ShortRead(), RUNNING, SOME, None, 0.0)
        reading.stream_opened(0.0)
        step = reading.next_step(RUNNING, 1.0)
        assert isinstance(step, Wait)
        moments.add(step.until)
    assert min(moments) == pytest.approx(0.75 * CHECK_SECONDS)
    assert len(moments) == 3


def test_stream_over_its_budget_is_closed_until_the_log_is_silent():
    reading = looked()
    reading.stream_opened(0.0)
    assert reading.stream_received(STREAM_BYTES, LATER, 1.0)
    assert not reading.stream_received(STREAM_BYTES, LATER, 1.0)
    reading.stream_ended(1.0, failed=False)
    assert reading.is_noisy
    step = reading.next_step(RUNNING, 1.5)
    assert step == ShortRead()  # without cursor: there is no hope to bring all lines
    reading.short_read_done(step, RUNNING, LATEST, None, 1.5)
    assert reading.next_step(RUNNING, 1.6) == Wait(2.25)
    reading.short_read_done(ShortRead(), RUNNING, LATEST, None, 2.25)
    assert not reading.is_noisy
    step = reading.next_step(RUNNING, 2.3)
    assert isinstance(step, Wait)
    assert step.wants_stream


def test_a_noisy_log_is_read_within_its_interval():
    reading, now = looked(), 1.0
    reading.stream_opened(0.0)
    reading.stream_received(2 * STREAM_BYTES, LATER, now)
    reading.stream_ended(now, failed=False)
    reading.interval_seconds = 0.75
    for second in range(7, 30):
        step = reading.next_step(RUNNING, now)
        if isinstance(step, Wait):
            assert step.until <= now + 0.75
            now = step.until
        newer = Cursor(f"2026-01-02T03:04:{second:02d}.000000000Z", 1)
        reading.short_read_done(ShortRead(), RUNNING, newer, None, now)


def test_a_stream_goes_on_while_some_of_its_budget_is_unused():
    reading, budget = looked(), ReadBudget().of("a")
    reading.stream_opened(0.0)
    brought = 0
    while reading.stream_received(65536, LATER, 1.0, budget):
        brought += 65536
    assert BUDGET_BYTES <= brought <= BUDGET_BYTES + 2 * STREAM_BYTES
    assert reading.is_noisy


def test_a_slow_stream_may_bring_any_amount():
    reading = looked()
    reading.stream_opened(0.0)
    for second in range(1, 3600):
        assert reading.stream_received(1024, LATER, float(second))


def test_a_stream_that_ends_is_followed_by_a_look_and_another_stream():
    reading = looked()
    reading.stream_opened(0.0)
    reading.stream_received(100, LATER, 30.0)
    assert reading.log.cursor == LATER
    reading.stream_ended(30.0, failed=False)
    step = reading.next_step(RUNNING, 30.0)
    assert step == ShortRead()
    reading.short_read_done(step, RUNNING, LATER, None, 30.0)
    assert reading.next_step(RUNNING, 30.0) == Wait(30.5, wants_stream=True)


def requests_within(seconds, *, has_streams):
    """Return how many requests a silent log takes if each stream ends at once."""
    reading, now, count = looked(), 0.0, 0
    while now < seconds:
        step = reading.next_step(RUNNING, now)
        if isinstance(step, ShortRead):
            count += 1
            reading.short_read_done(step, RUNNING, SOME, None, now)
        elif step.wants_stream and has_streams:
            count += 1
            reading.stream_opened(now)
            reading.stream_ended(now + 0.05, failed=False)
        now += 0.05
    return count


def test_a_kubelet_that_ends_each_stream_at_once_gets_hardly_more_requests():
    """As one without a free inotify instance does."""
    without = requests_within(600, has_streams=False)
    assert requests_within(600, has_streams=True) <= 1.3 * without


def test_streams_that_bring_nothing_are_opened_ever_more_slowly():
    reading, now, pauses = looked(), 0.0, []
    for _ in range(8):
        reading.stream_opened(now)
        reading.stream_received(10, SOME, now)  # only what is known
        reading.stream_ended(now, failed=True)
        ended = now
        while True:
            step = reading.next_step(RUNNING, now)
            if isinstance(step, ShortRead):
                reading.short_read_done(step, RUNNING, SOME, None, now)
            elif step.wants_stream:
                break
            else:
                now += 0.05
        pauses.append(now - ended)
    assert pauses[-1] == pytest.approx(RETRY_SECONDS[1], abs=0.2)
    assert pauses[0] < 1.0


def test_the_end_of_an_ended_container_is_read_once():
    reading = LogReadState()
    step = reading.next_step(ENDED, 0.0)
    assert step == ShortRead()
    assert reading.short_read_done(step, ENDED, SOME, None, 0.0)
    assert reading.next_step(ENDED, 99.0) == FOREVER
    assert reading.next_step(waiting(0), 99.0) == FOREVER


def test_a_container_seen_only_in_back_off_is_read():
    assert LogReadState().next_step(waiting(3), 0.0) == ShortRead()


def test_after_a_restart_the_instance_before_is_read_once_and_first():
    reading = looked()
    step = reading.next_step(running(1), 5.0)
    assert step == ShortRead(previous=True)
    assert reading.short_read_done(step, running(1), SOME, None, 5.0)
    step = reading.next_step(running(1), 5.0)
    assert step == ShortRead()
    assert reading.log.cursor == Cursor()  # times of another instance
    assert not reading.short_read_done(step, running(1), SOME, None, 5.0)
    assert isinstance(reading.next_step(running(1), 5.1), Wait)


def test_also_when_its_end_was_read_already():
    # Between status and read the container may have been started again.
    reading = LogReadState()
    reading.short_read_done(ShortRead(), ENDED, SOME, None, 0.0)
    assert reading.next_step(running(1), 1.0) == ShortRead(previous=True)


def test_exit_after_a_reboot_is_read_again():
    """While the task waits to be started again it is counted as started."""
    rebooted = waiting(1)
    reading = LogReadState(is_live=False)
    step = reading.next_step(rebooted, 0.0)
    reading.log_of(step).findings.results["ip"] = "of the start before"
    assert reading.short_read_done(step, rebooted, SOME, None, 0.0)
    assert reading.next_step(rebooted, 1.0) == FOREVER
    ended = replace(rebooted, state="terminated", finished_at=NOW + timedelta(seconds=9))
    step = reading.next_step(ended, 10.0)
    assert step == ShortRead()
    assert reading.findings.results == {}
    assert reading.short_read_done(step, ended, LATER, None, 10.0)
    assert reading.next_step(ended, 99.0) == FOREVER


def test_the_end_of_a_task_that_has_succeeded_for_certain_is_read_again_once():
    reading = LogReadState(is_live=False)
    ended = replace(ENDED, exit_code=0)
    for now in (0.0, 1.0):
        step = reading.next_step(ended, now)
        assert step == ShortRead()
        assert reading.short_read_done(step, ended, SOME, None, now)
        assert reading.next_step(ended, now) == FOREVER
        reading.read_end_again(ended)


def test_an_end_that_was_not_read_yet_is_not_that_of_the_start_before():
    reading = LogReadState(is_live=False)
    rebooted = waiting(1)
    step = reading.next_step(rebooted, 0.0)
    reading.log_of(step).findings.results["ip"] = "of the start before"
    assert reading.short_read_done(step, rebooted, SOME, None, 0.0)
    ended = replace(rebooted, state="terminated", finished_at=NOW + timedelta(seconds=9))
    reading.read_end_again(ended)
    assert reading.next_step(ended, 10.0) == ShortRead()
    assert reading.findings.results == {}


def test_lines_of_the_next_start_are_not_those_of_the_previous():
    reading = LogReadState()
    read = TailRead(Matcher("done", results=frozenset({"ip"})), reading.log.findings)
    read.feed(f"{LATER.timestamp} dsjob:result ip=next\n".encode())
    step = reading.next_step(ENDED, 0.0)
    assert not reading.is_of_next_instance(step, read.span)
    reading.log.take_read(read, is_streaming=False)
    step = reading.next_step(running(1), 1.0)
    assert step == ShortRead(previous=True)
    own = Span(SOME.timestamp, SOME.timestamp, True)
    assert reading.is_of_next_instance(step, own)
    assert reading.log_of(step).findings.results == {}
    assert reading.next_step(running(1), 1.0) == ShortRead(previous=True)
    assert not reading.is_of_next_instance(step, own)


def test_a_read_overtaken_by_a_restart_does_not_count():
    reading = looked()
    assert reading.next_step(running(1), 1.0) == ShortRead(previous=True)
    assert not reading.short_read_done(ShortRead(), ENDED, LATER, None, 1.0)
    assert reading.log.cursor == Cursor()
    crashed = Container("terminated", restart_count=1, finished_at=NOW)
    assert reading.next_step(crashed, 2.0) == ShortRead()


def test_each_instance_has_findings_of_its_own():
    reading = looked()
    reading.log.findings.results["ip"] = "first"
    step = reading.next_step(running(1), 5.0)
    assert step == ShortRead(previous=True)
    assert reading.findings.results == {}
    # What was seen of the one before is not read again, so it is kept for it.
    assert reading.log_of(step).findings.results == {"ip": "first"}
    assert reading.log_of(step).cursor == SOME


def test_a_kubelet_that_counts_from_zero_again_has_another_instance():
    """A machine without the containers and logs of the one before, of the same Node object."""
    reading = looked()
    lost = replace(waiting(1, ended=False), last_exit_code=137)
    assert reading.next_step(lost, 10.0) == FOREVER
    step = reading.next_step(RUNNING, 20.0)
    assert step == ShortRead()
    assert isinstance(step, ShortRead)
    assert not reading.short_read_done(step, RUNNING, LATER, None, 20.0)
    assert isinstance(reading.next_step(RUNNING, 20.0), Wait)
    end = reading.next_step(ENDED, 30.0)
    assert isinstance(end, ShortRead)
    assert reading.short_read_done(end, ENDED, LATER, None, 30.0)
    assert reading.next_step(ENDED, 30.0) == FOREVER


def test_of_an_instance_that_came_and_went_unseen_nothing_is_known():
    reading = looked()
    reading.log.findings.results["ip"] = "first"
    assert reading.next_step(running(2), 5.0) == ShortRead(previous=True)
    assert reading.previous_log.findings.results == {}


def test_a_stream_that_outlives_its_instance_says_nothing_of_the_next():
    reading = looked()
    reading.stream_opened(0.0)
    reading.next_step(running(1), 5.0)
    reading.stream_received(10, LATEST, 5.0)
    assert (reading.previous_log.cursor, reading.log.cursor) == (LATEST, Cursor())


@pytest.mark.parametrize("previous", [True, False])
def test_the_first_decision_in_any_log_is_the_last(previous):
    reading = looked()
    step = reading.next_step(running(1), 5.0)
    read = reading.log_of(step) if previous else reading.log
    reading.next_step(running(2), 5.0)  # while it was read
    read.findings.completed_at = SOME.timestamp
    reading.accept_findings(read)
    assert reading.findings is read.findings
    assert reading.next_step(running(2), 6.0) == FOREVER


@pytest.mark.parametrize("container", [ENDED, running(1)])
def test_an_unfinished_line_is_looked_at_again_soon(container):
    reading = LogReadState()
    step = reading.next_step(container, 0.0)
    assert not reading.short_read_done(step, container, SOME, UNFINISHED, 0.0)
    assert reading.log_of(step).unfinished == UNFINISHED
    assert reading.next_step(container, 0.1) == Wait(RETRY_SECONDS[0])
    assert reading.next_step(container, 0.3) == step
    assert reading.short_read_done(step, container, SOME, None, 0.3)
    assert reading.next_step(container, 0.4) != step


def test_a_restart_proves_that_the_log_can_be_read_again():
    reading = LogReadState()
    for _ in range(9):
        reading.short_read_failed(ShortRead(), 0.0, is_missing=False)
    assert reading.next_step(RUNNING, 0.1) == Wait(RETRY_SECONDS[1])
    restarted = replace(RUNNING, restart_count=1)
    assert reading.next_step(restarted, 0.1) == ShortRead(previous=True)


def test_failures_are_retried_ever_more_slowly_and_then_forgotten():
    reading, now, pauses = LogReadState(), 0.0, []
    for _ in range(10):
        step = reading.next_step(RUNNING, now)
        assert step == ShortRead()
        reading.short_read_failed(step, now, is_missing=False)
        wait = reading.next_step(RUNNING, now)
        assert isinstance(wait, Wait)
        pauses.append(wait.until - now)
        now = wait.until
    assert pauses[0] == RETRY_SECONDS[0]
    assert pauses[-1] == RETRY_SECONDS[1]
    assert reading.failures == 10
    reading.short_read_done(ShortRead(), RUNNING, SOME, None, now)
    assert reading.failures == 0


@pytest.mark.parametrize(
    ("container", "after"), [(ENDED, FOREVER), (running(1), ShortRead())], ids=["ended", "previous"]
)
def test_a_log_that_does_not_exist_is_given_up(container, after):
    reading, now = LogReadState(), 0.0
    for _ in range(MISSING_LOG_LIMIT):
        step = reading.next_step(container, now)
        assert isinstance(step, ShortRead)
        reading.short_read_failed(step, now, is_missing=True)
        now += RETRY_SECONDS[1]
    assert reading.next_step(container, now) == after


def test_what_is_decided_is_not_read_any_more():
    reading = LogReadState()
    reading.findings.completed_at = "2026-01-02T03:04:05.000000000Z"
    assert reading.next_step(RUNNING, 0.0) == FOREVER


def test_where_only_ends_matter_nothing_is_read_while_it_runs():
    reading = LogReadState(is_live=False)
    assert reading.next_step(RUNNING, 0.0) == FOREVER
    assert reading.next_step(running(1), 0.0) == ShortRead(previous=True)
    assert LogReadState(is_live=False).next_step(ENDED, 0.0) == ShortRead()


containers = st.sampled_from(
    [RUNNING, ENDED, running(1), running(2), waiting(1), waiting(2), None, Container("unknown")]
)


@given(
    st.lists(st.tuples(containers, st.floats(0, 20), st.sampled_from("dfaosb")), max_size=60),
    st.data(),
)
def test_whatever_happens_the_next_step_is_sound(events, data):
    reading, now = LogReadState(), 0.0
    for container, passed, what in events:
        now += passed
        step = reading.next_step(container, now)
        if isinstance(step, Wait):
            assert step.until > now
            if step.wants_stream and what == "o":
                reading.stream_opened(now)
        elif container is not None and what in "dfa":
            if what == "d":
                reading.short_read_done(step, container, SOME, None, now)
            else:
                reading.short_read_failed(step, now, is_missing=what == "a")
        if reading.is_streaming and what == "s":
            reading.stream_ended(now, failed=False)
        if reading.is_streaming and what == "b":
            reading.stream_received(100_000, LATER, now)
    # Left alone with a running container, it always comes back to reading.
    reading.is_streaming = False
    after = data.draw(st.integers(0, 4))
    step = reading.next_step(running(after), now + 1000)
    assert isinstance(step, ShortRead)
    # It reads the log before and this one, each once, and then it waits.
    for _ in range(2):
        if isinstance(step, ShortRead):
            reading.short_read_done(step, running(after), SOME, None, now + 1000)
        step = reading.next_step(running(after), now + 1000)
    assert isinstance(step, Wait)
