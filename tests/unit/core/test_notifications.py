"""What receivers are notified of: what is due, what becomes of it, and in which words."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.notifications import (
    ALL_EVENTS,
    Delivery,
    NotifyEvent,
    Occurrence,
    Subscription,
    find_due,
    find_occurrences,
    parse_delivery,
    parse_notify,
)
from daemonset_job.api.reasons import HistoryReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus, parse_report_status
from daemonset_job.api.report_summary import summarize
from daemonset_job.api.states import Phase
from job_controller.core.notifications import (
    PROBLEM_LIMIT,
    after_giving_up,
    after_sending,
    due_receivers,
    find_unusable,
    next_notification,
)
from job_controller.core.receivers import (
    Endpoint,
    MessageFormat,
    Receiver,
    find_receiver,
    may_use,
)
from job_controller.core.render.notification_text import render_notification
from job_controller.core.render.run_history import FIRST_KEPT, NEWEST_KEPT, append_history
from job_controller.core.render.subscriptions import with_subscriptions

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
OPS = Receiver("ops", Endpoint("/ops.url"), ("*",))
ALL = Delivery(events=ALL_EVENTS)


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def report(*history, **status):
    entries = tuple(HistoryEntry(at(seconds), reason, text) for seconds, reason, text in history)
    known = {"start_time": T0, "notifications": {"ops": ALL}, **status}
    return JobReport(
        namespace="team-a",
        name="patch-1",
        uid="report-uid",
        resource_version="1",
        job_name="patch",
        job_uid="job-uid",
        status=ReportStatus(history=entries, **known),
    )


PAUSED = (5, HistoryReason.PAUSED, "1 of 3 nodes failed")
RESUMED = (6, HistoryReason.RESUMED, "run resumed")
FAILED = (9, HistoryReason.FAILED, "2 of 3 nodes failed")


def test_a_run_is_notified_of_its_start_its_pauses_and_its_end_in_this_order():
    found = find_occurrences(T0, report(PAUSED, RESUMED, FAILED).status.history)
    assert [(each.event, each.time) for each in found] == [
        (NotifyEvent.STARTED, T0),
        (NotifyEvent.PAUSED, at(5)),
        (NotifyEvent.FAILED, at(9)),
    ]


def test_each_end_has_its_event():
    ends = {
        HistoryReason.COMPLETED: NotifyEvent.SUCCEEDED,
        HistoryReason.FAILED: NotifyEvent.FAILED,
        HistoryReason.CANCELLED: NotifyEvent.CANCELLED,
        HistoryReason.ROLLED_BACK: NotifyEvent.ROLLED_BACK,
        HistoryReason.ROLLBACK_FAILED: NotifyEvent.ROLLBACK_FAILED,
    }
    for reason, event in ends.items():
        (found,) = find_occurrences(None, [HistoryEntry(T0, reason)])
        assert found.event is event


@pytest.mark.parametrize(
    ("event", "desired", "has_nodes"),
    [
        (NotifyEvent.STARTED, 0, False),
        (NotifyEvent.STARTED, 3, True),
        (NotifyEvent.SUCCEEDED, 0, True),
    ],
)
def test_a_start_before_the_nodes_are_counted_has_no_numbers(event, desired, has_nodes):
    run = report(nodes=NodeTotals(desired=desired))
    raw = render_notification(run, Occurrence(event, T0), MessageFormat.JSON, "")
    assert ("nodes" in raw) is has_nodes


def test_events_that_the_job_does_not_name_are_not_due():
    occurrences = find_occurrences(T0, report(PAUSED, FAILED).status.history)
    assert [o.event for o in find_due(Delivery(events=("Failed",)), occurrences)] == ["Failed"]
    assert find_due(Delivery(events=("Unheard",)), occurrences) == []


def test_a_start_and_an_end_in_one_second_are_both_sent_once():
    occurrences = find_occurrences(T0, [HistoryEntry(T0, HistoryReason.COMPLETED, "done")])
    sent, delivery = [], ALL
    while due := find_due(delivery, occurrences):
        sent.append(due[0].event)
        delivery = after_sending(delivery, due[0])
    assert sent == [NotifyEvent.STARTED, NotifyEvent.SUCCEEDED]


def test_an_occurrence_that_left_the_history_does_not_repeat_what_came_before():
    status = ReportStatus()
    for number in range(FIRST_KEPT + NEWEST_KEPT):
        status = append_history(
            status, status, [HistoryEntry(at(number), HistoryReason.PAUSED, "paused")]
        )
    last = find_occurrences(None, status.history)[FIRST_KEPT]
    delivery = after_sending(ALL, last)
    left = len(find_due(delivery, find_occurrences(None, status.history)))
    for number in range(5):
        status = append_history(
            status, status, [HistoryEntry(at(100 + number), HistoryReason.PAUSED, "paused")]
        )
    due = find_due(delivery, find_occurrences(None, status.history))
    assert all(each.time > last.time for each in due)
    # Those that left the middle before their turn are lost; no other one is.
    assert len(due) == left + 5 - 4


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([PAUSED[1], RESUMED[1], FAILED[1], "Completed"])
        ),
        max_size=12,
    ),
    st.sets(st.sampled_from(ALL_EVENTS)),
    st.integers(0, 12),
)
def test_whatever_happens_each_event_is_sent_once_and_in_order(steps, events, crash_at):
    """The history grows between any two notifications; a crash at any of them changes nothing."""
    history, seconds = [], 0
    delivery, sent = Delivery(events=tuple(events)), []
    for number, (gap, reason) in enumerate([*steps, (1, "")]):
        seconds += gap
        if reason:
            history.append(HistoryEntry(at(seconds), reason, f"{number}"))
        if number == crash_at:
            delivery = parse_delivery(json.loads(json.dumps(delivery.to_raw())))
        while due := find_due(delivery, find_occurrences(T0, history)):
            sent.append((due[0].event, due[0].time))
            delivery = after_sending(delivery, due[0])
    wanted = [
        (each.event, each.time) for each in find_occurrences(T0, history) if each.event in events
    ]
    # Two of one event in one second are one.
    assert list(dict.fromkeys(sent)) == list(dict.fromkeys(wanted))
    assert sent == sorted(sent, key=lambda each: each[1])
    assert delivery.sent == len(sent)


# --- who -------------------------------------------------------------------------------


def test_a_new_run_is_notified_from_its_start_and_a_late_receiver_from_then_on():
    started = ReportStatus(start_time=T0)
    new = with_subscriptions(ReportStatus(), started, [Subscription("ops")])
    assert [o.event for o in new.due_notifications("ops")] == [NotifyEvent.STARTED]
    before = report(PAUSED, notifications={}).status
    late = with_subscriptions(before, before, [Subscription("ops")])
    assert late.due_notifications("ops") == []
    ended = replace(late, history=report(PAUSED, FAILED).status.history)
    assert [o.event for o in ended.due_notifications("ops")] == [NotifyEvent.FAILED]


def test_what_was_sent_stays_when_the_job_changes_its_events():
    before = report(PAUSED, notifications={"ops": Delivery(("Paused",), "Paused", at(5), 1)})
    wanted = [Subscription("ops", ("Failed",)), Subscription("new")]
    after = with_subscriptions(before.status, before.status, wanted)
    assert after.notifications["ops"] == Delivery(("Failed",), "Paused", at(5), 1)
    assert set(with_subscriptions(after, after, []).notifications) == set()


@pytest.mark.parametrize(
    ("patterns", "namespace", "may"),
    [
        (("team-a",), "team-a", True),
        (("team-a",), "team-ab", False),
        (("team-*",), "team-b", True),
        (("team-*",), "steam-b", False),
        (("x", "*"), "anything", True),
        ((), "team-a", False),
    ],
)
def test_namespaces_are_names_or_beginnings(patterns, namespace, may):
    assert may_use(patterns, namespace) is may
    found = find_receiver([replace(OPS, namespaces=patterns)], "ops", namespace)
    assert (found is not None) is may


def test_a_receiver_that_cannot_be_used_is_reported_once_and_loses_what_is_due():
    run = report(PAUSED, phase=Phase.PAUSED)
    ((name, after, lost),) = find_unusable(run, [])
    assert (name, lost, after.failed, after.event) == ("ops", 2, 2, "Paused")
    assert "'ops'" in after.message
    assert "namespace team-a" in after.message
    again = replace(run, status=replace(run.status, notifications={"ops": after}))
    assert list(find_unusable(again, [])) == []
    # The text is that of a receiver that exists and is for others.
    other = replace(OPS, namespaces=("others",))
    assert list(find_unusable(run, [other])) == [(name, after, lost)]
    assert list(find_unusable(run, [OPS])) == []


def test_a_receiver_that_is_removed_after_the_run_is_not_reported():
    told = after_sending(ALL, Occurrence(NotifyEvent.FAILED, at(9)))
    run = report(FAILED, phase=Phase.FAILED, notifications={"ops": told})
    assert list(find_unusable(run, [])) == []


# --- time and memory -------------------------------------------------------------------


def test_after_an_hour_a_notification_is_given_up():
    run = report(FAILED)
    started = next_notification(run, ALL, OPS, at(3599))
    assert started is not None
    assert not started.is_expired
    late = next_notification(run, ALL, OPS, at(3600))
    assert late is not None
    assert late.is_expired
    given_up = after_giving_up(ALL, late.occurrence, "x" * 10_000)
    assert (given_up.failed, given_up.sent, given_up.time) == (1, 0, T0)
    assert len(given_up.message) <= PROBLEM_LIMIT
    following = next_notification(run, given_up, OPS, at(3600))
    assert following is not None
    assert (following.occurrence.event, following.is_expired) == (NotifyEvent.FAILED, False)
    assert next_notification(run, after_sending(ALL, following.occurrence), OPS, at(9)) is None


def test_the_summary_of_a_report_keeps_its_history_until_all_is_sent():
    run = report(FAILED, phase=Phase.FAILED, completion_time=at(9), message="m")
    assert list(due_receivers(summarize(run))) == ["ops"]
    told = after_sending(ALL, Occurrence(NotifyEvent.FAILED, at(9)))
    done = replace(run, status=replace(run.status, notifications={"ops": told}))
    kept = summarize(done)
    assert (kept.status.history, kept.status.notifications, kept.status.message) == ((), {}, "")
    assert kept.status.duration_seconds == 9
    assert list(due_receivers(kept)) == []


def test_the_state_of_a_delivery_survives_the_api_server():
    given_up = after_giving_up(ALL, Occurrence(NotifyEvent.FAILED, at(9)), "HTTP 500")
    raw = json.loads(json.dumps(ReportStatus(notifications={"ops": given_up}).to_raw()))
    assert parse_report_status(raw).notifications == {"ops": given_up}
    assert parse_notify([{"receiver": "ops"}]) == (Subscription("ops", ALL_EVENTS),)
    assert parse_notify([{"receiver": "ops", "events": ["Failed"]}])[0].events == ("Failed",)
    assert parse_notify(None) == ()


# --- words -----------------------------------------------------------------------------


def test_the_json_says_which_run_and_what_became_of_it():
    nodes = NodeTotals(desired=3, completed=1, failed=2, failed_names="worker[1-2]")
    run = report(FAILED, phase=Phase.FAILED, completion_time=at(9), nodes=nodes)
    occurrence = find_occurrences(T0, run.status.history)[-1]
    assert render_notification(run, occurrence, MessageFormat.JSON, "prod") == {
        "version": "v1",
        "id": "report-uid/Failed/2026-11-24T03:00:09Z",
        "event": "Failed",
        "time": "2026-11-24T03:00:09Z",
        "cluster": "prod",
        "job": {"namespace": "team-a", "name": "patch", "uid": "job-uid"},
        "report": "patch-1",
        "phase": "Failed",
        "message": "2 of 3 nodes failed",
        "startTime": "2026-11-24T03:00:00Z",
        "completionTime": "2026-11-24T03:00:09Z",
        "durationSeconds": 9,
        "nodes": {
            "desired": 3,
            "completed": 1,
            "failed": 2,
            "unreachable": 0,
            "failedNames": "worker[1-2]",
        },
    }


def test_a_message_of_slack_calls_nobody_and_links_nowhere():
    text = "<!channel> & <https://evil|click> @here\n@channel \x1b[31mred"
    occurrence = Occurrence(NotifyEvent.FAILED, T0, text)
    message = render_notification(report(), occurrence, MessageFormat.SLACK, "")["text"]
    assert "<" not in message
    assert ">" not in message
    assert "\n" not in message
    assert "\x1b" not in message
    assert "@here" not in message
    assert "@channel" not in message
    plain = message.replace("\u200b", "")
    assert "&lt;!channel&gt; &amp; &lt;https://evil|click&gt; @here" in plain


@pytest.mark.parametrize(
    "text",
    [
        "https://evil/login",
        "[log in](https://evil)",
        "![x](//evil/x.png)",
        "www.evil.example",
        "WWW.evil.example",
        "www1.evil.example",
        "http:evil.example",
        "_HTTPS:/evil.example",
        "mailto:evil",
    ],
)
def test_what_a_task_prints_is_no_link_and_no_picture_in_a_chat(text):
    """Slack links addresses in any text, and Mattermost reads it as markdown."""
    occurrence = Occurrence(NotifyEvent.FAILED, T0, f"worker1 exit 1: '{text}'")
    message = render_notification(report(), occurrence, MessageFormat.SLACK, "")["text"]
    # As Mattermost has it in server/public/shared/markdown, and with slashes that may be missing.
    link = r"www\d{0,3}\.|(?<![a-z0-9])(https?|ftp|mailto|tel):[/a-z0-9%]|://|\]\("
    assert re.search(link, message, re.IGNORECASE) is None
    assert text in message.replace("\u200b", "")


def test_words_that_are_no_links_stay_as_they_are():
    text = "hotel:5 image registry:5000/task:v1 exit 2: 'www 10:30' http: no answer"
    occurrence = Occurrence(NotifyEvent.FAILED, T0, text)
    message = render_notification(report(), occurrence, MessageFormat.SLACK, "")["text"]
    assert text in message


@given(st.text(max_size=4000), st.text(max_size=3000), st.sampled_from(list(MessageFormat)))
def test_a_message_is_bounded_and_of_one_line_whatever_a_task_printed(text, names, form):
    nodes = NodeTotals(desired=1, failed=1, failed_names=names, unreachable_names=names)
    run = report(nodes=nodes, phase=Phase.FAILED)
    raw = render_notification(run, Occurrence(NotifyEvent.FAILED, T0, text), form, "c" * 63)
    assert len(json.dumps(raw).encode()) < 24 * 1024
    shown = raw.get("text") or raw.get("message") or ""
    assert all(each.isprintable() or each == "\u200b" for each in shown)


def test_the_largest_message_has_a_bound():
    # Every character of these takes six bytes of JSON.
    nodes = NodeTotals(failed_names="<" * 9000, unreachable_names="<" * 9000)
    run = replace(report(nodes=nodes), job_name="n" * 253, name="r" * 253, namespace="s" * 63)
    for form in MessageFormat:
        raw = render_notification(run, Occurrence(NotifyEvent.FAILED, T0, "<&>" * 9000), form, "")
        assert len(json.dumps(raw)) < 4096
