"""The timeline of a run, as `kubectl describe` of its report ends with it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.node_failure import NodeFailure
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.report_status import ReportStatus
from job_controller.core.render.timeline import build_timeline, drop_current_lines

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def record(state="Completed", end=None, **fields):
    begin = {"started_at": START} if end is not None else {}
    finish = {"finished_at": at(end)} if end is not None else {}
    return NodeRecord(**{"uid": "u", "state": state, "attempts": 1, **begin, **finish, **fields})


def lines_of(records, **summary):
    nodes = NodeTotals(desired=len(records))
    status = ReportStatus(phase="Running", start_time=START, nodes=nodes)
    return build_timeline(replace(status, **summary), records)


def ended(phase, message, seconds):
    return {"phase": phase, "message": message, "completion_time": at(seconds)}


def test_a_run_that_went_well():
    records = {"node-1": record(end=2), "node-2": record(end=9), "node-3": record(end=4)}
    assert lines_of(records, **ended("Succeeded", "3 of 3 nodes completed", 9)) == [
        "2026-01-02T03:04:05Z started on 3 nodes",
        "+2s node-1 completed, the first",
        "+9s node-2 completed, the last of 3; the slowest was node-2, 9s",
        "+9s the run succeeded: 3 of 3 nodes completed",
    ]


def test_a_success_keeps_its_words_whatever_follows_on_a_kept_job():
    words = "1 of 1 nodes completed"
    later = ended("Succeeded", "1 of 2 nodes completed, 1 failed", 2)
    history = (HistoryEntry(at(2), "Completed", words),)
    records = {"node-1": record(end=2), "node-2": record("Failed", end=8, message="exit 4")}
    assert lines_of(records, **later, history=history)[-2:] == [
        f"+2s the run succeeded: {words}",
        "+8s node-2 failed: exit 4",
    ]


def test_failures_of_one_kind_are_one_line_dated_by_the_first():
    message = "exit 2 after 4 attempts: 'disk full'"
    failed = {f"node-{n}": record("Failed", end=n, message=message) for n in (7, 8, 9)}
    other = record("Failed", end=3, message="ImagePullBackOff")
    timeline = lines_of({**failed, "node-1": record(end=1), "node-5": other})
    assert timeline[1:] == [
        "+1s node-1 completed",
        "+3s node-5 failed: ImagePullBackOff",
        f"+7s node-[7-9] failed: {message}",
    ]


def test_current_lines_come_last_and_are_past_tense_after_the_run():
    lost = record("Unreachable", message="the node has not been Ready since noon")
    records = {"a": lost, "b": record(end=1)}
    running = lines_of(records, message="1 of 2 nodes completed, 1 unreachable (a)")
    assert running[-2:] == [
        "now: a unreachable: the node has not been Ready since noon",
        "now: Running: 1 of 2 nodes completed, 1 unreachable (a)",
    ]
    assert drop_current_lines(running) == running[:-2]
    over = lines_of(records, **ended("Failed", "1 unreachable (a)", 200))
    assert over[-2:] == [
        "+3m20s a unreachable: the node has not been Ready since noon",
        "+3m20s the run failed: 1 unreachable (a)",
    ]


def test_nodes_that_are_set_aside_are_named():
    away = {"message": "its kubelet is silent"}
    records = {
        "node-1": record(end=2),
        "node-2": record("Unreachable", **away),
        "node-3": record("Unreachable", set_aside_at=at(70), **away),
        "node-4": record("Unreachable", set_aside_at=at(80), **away),
        "node-5": record("Completed", set_aside_at=at(80), end=2),
    }
    timeline = lines_of(records)
    assert "+80s node-[3-4] set aside: the run does not wait for them" in timeline
    assert "now: node-[2-4] unreachable: its kubelet is silent" in timeline
    del records["node-3"]
    assert "+80s node-4 set aside: the run does not wait for it" in lines_of(records)
    del records["node-4"]
    assert not any("aside" in line for line in lines_of(records))


def test_nodes_that_left_the_selection_are_not_named_as_completed_twice():
    records = {"a": record(end=2, reason="LeftSelection"), "b": record("Active")}
    assert lines_of(records)[1:3] == [
        "+2s a completed",
        "now: a left the selection, still counted as completed",
    ]


def test_timeline_names_restarted_and_blocked_nodes():
    records = {
        "a": record(end=5, attempts=3),
        "b": record("Waiting", attempts=0, reason="Unschedulable", message="no room"),
        "c": record("Active"),
    }
    assert lines_of(records)[1:] == [
        "+5s a completed",
        "+5s a completed at attempt 3",
        "now: b not completed: no room",
    ]


def test_nodes_that_completed_late_have_the_time_of_the_last_one():
    records = {name: record(end=end, attempts=4) for name, end in (("a", 41), ("b", 44), ("c", 48))}
    assert lines_of(records)[1:] == [
        "+41s a completed, the first",
        "+48s c completed, the last of 3; the slowest was c, 48s",
        "+48s a,b,c completed at attempt 4",
    ]


def test_each_try_that_failed_is_a_line_of_its_own():
    tries = tuple(
        NodeFailure(at(end), "R", "exit 2", retry=retry) for end, retry in ((3, ""), (20, "1"))
    )
    records = {"a": record(end=40, failures=tries), "b": record(end=30, failures=tries[:1])}
    assert lines_of(records)[1:] == [
        "+3s a,b failed: exit 2",
        "+20s a failed: exit 2",
        "+30s b completed, the first",
        "+40s a completed, the last of 2; the slowest was a, 40s",
    ]


def test_a_long_history_is_summed_up_and_the_timeline_fits_the_crd():
    entries = tuple(HistoryEntry(at(n), "Paused", f"pause {n} " + "x" * 400) for n in range(50))
    failed = {f"n{n}": record("Failed", end=n, message=f"exit {n}") for n in range(99)}
    timeline = lines_of(
        {**failed, "a": record(end=9), "b": record(end=8)},
        history=entries,
        omitted_history=7,
        **ended("Failed", "99 of 101 nodes failed", 99),
    )
    assert "+2s 47 more entries, see history" in timeline
    assert sum("pause" in line for line in timeline) == 10
    one = lines_of({}, history=entries[:11], **ended("Failed", "no", 99))
    assert "+2s 1 more entry, see history" in one
    assert len(timeline) <= 32


def test_a_moment_before_the_start_is_shown_as_the_start():
    early = NodeRecord(uid="u", state="Completed", finished_at=at(-5))
    assert lines_of({"a": early})[1] == "+0s a completed"


def test_the_number_of_nodes_is_shown_once_it_is_known():
    assert lines_of({}, message="creating the DaemonSet") == [
        "2026-01-02T03:04:05Z started",
        "now: Running: creating the DaemonSet",
    ]


def test_there_is_no_timeline_before_the_start():
    assert build_timeline(ReportStatus(phase="Pending"), {}) == []


def test_a_thousand_ways_to_fail_are_a_page_still():
    records = {
        f"n{n:04d}": record("Failed", end=n % 50, message=f"exit {n}: {'x' * 999}")
        for n in range(1000)
    }
    timeline = lines_of(records)
    assert len(timeline) <= 32
    assert all(len(line) <= 1024 for line in timeline)
    assert timeline[-1] == "+0s and 992 more, see nodeStates"


@pytest.mark.parametrize(
    ("seconds", "words"), [(119, "+119s"), (120, "+2m"), (7199, "+119m59s"), (7260, "+2h1m")]
)
def test_durations_read_as_those_of_kubectl(seconds, words):
    done = NodeRecord(uid="u", state="Completed", attempts=1, finished_at=at(seconds))
    assert lines_of({"a": done})[1] == f"{words} a completed"
