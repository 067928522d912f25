"""What a log or a pod proves about its node, and what is kept of older evidence."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from terminator.ledger.evidence import (
    combine_evidence,
    exit_evidence,
    has_succeeded,
    is_failure,
    is_of_latest_exit,
    is_recorded,
    log_evidence,
)
from terminator.logs.findings import Findings
from terminator.logs.log_parser import Line
from terminator.logs.matcher import Matcher
from tests.unit.terminator.builders import NOW, STAMP, done, make_job, make_pod


def test_evidence_is_recorded_if_the_ledger_has_it():
    a = done("a")
    assert not is_recorded(None, a)
    assert not is_recorded(done("a", uid="old"), a)
    assert not is_recorded(Evidence("a-uid", failed_at=STAMP), a)
    lines = Evidence("a-uid", last_lines=("x",))
    assert is_recorded(lines, lines)
    assert not is_recorded(lines, replace(lines, last_lines=("y",)))
    assert not is_recorded(a, replace(a, results={"ip": "1"}))
    assert is_recorded(replace(a, results={"ip": "1", "n": "2"}), replace(a, results={"ip": "1"}))


def test_an_entry_is_of_one_end_of_one_pods_task():
    def ended(at, **changes):
        container = Container("terminated", exit_code=0, finished_at=at)
        return make_pod("a", container=container, **changes)

    pod = ended(NOW)
    entry = exit_evidence(pod, "a-uid")
    assert is_of_latest_exit(entry, pod)
    assert is_of_latest_exit(replace(entry, results={"ip": "1"}), pod)
    assert not is_of_latest_exit(entry, ended(NOW + timedelta(seconds=1)))
    assert not is_of_latest_exit(entry, ended(NOW, uid="another"))
    assert not is_of_latest_exit(entry, make_pod("a", container=Container("running")))


@pytest.mark.parametrize(
    "other", [{"completed_at": "2027-01-01T00:00:00Z"}, {"pod_uid": "another"}]
)
def test_a_result_of_another_completion_is_not_added_to_the_entry(other):
    """A start of the task after the one that completed the node, or its successor."""
    first = replace(done("a"), results={"n": "1"})
    late = replace(done("a"), results={"n": "2", "ip": "1"}, **other)
    assert combine_evidence(first, late) == first
    assert is_recorded(first, late)


def test_a_result_found_later_is_added_to_the_entry():
    first = replace(done("a"), results={"n": "2"})
    late = replace(done("a"), results={"ip": "1"})
    expected = replace(first, results={"n": "2", "ip": "1"})
    assert combine_evidence(first, late) == expected
    assert combine_evidence(None, late) == late
    assert combine_evidence(Evidence("a-uid"), late) == late


def test_the_first_result_that_is_not_listed_is_named_without_its_value():
    pod, found = make_pod("a"), Findings()
    lines = ("dsjob:result x=1", "dsjob:result ip=2", "dsjob:result y=3", "done")
    found.add(Matcher("done", results=("ip",)), [Line(STAMP, line.encode()) for line in lines])
    entry = log_evidence(pod, "u", found, 5)
    assert entry is not None
    assert (entry.results, entry.omitted_results) == ({"ip": "2"}, ("x",))
    assert combine_evidence(entry, entry) == entry


def test_what_a_log_proves():
    pod = make_pod("a")
    about = Evidence("u", pod=pod.name, pod_uid=pod.uid)
    found = Findings(completed_at=STAMP, results={"ip": "1"}, last_lines=(b"x",))
    assert log_evidence(pod, "u", found, 5) == replace(
        about, completed_at=STAMP, results={"ip": "1"}
    )
    failed = Findings(failed_at=STAMP, last_lines=(b"disk full",))
    assert log_evidence(pod, "u", failed, 5) == replace(
        about, failed_at=STAMP, last_lines=("disk full",)
    )
    assert log_evidence(pod, "u", failed, 0) == replace(about, failed_at=STAMP)
    ended = Findings(last_lines=(b"x",))
    assert log_evidence(pod, "u", ended, 5) == replace(about, last_lines=("x",))
    assert log_evidence(pod, "u", ended, 0) is None
    assert log_evidence(pod, "u", Findings(), 5) is None


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        (None, False),
        (Container("running", exit_code=0), False),
        (Container("terminated", exit_code=1), False),
        (Container("terminated", exit_code=0), True),
    ],
)
def test_success_by_exit_code(container, expected):
    assert has_succeeded(make_pod("a", container=container)) is expected


@pytest.mark.parametrize(
    "ending",
    [
        {"is_terminating": True},
        {"disruption_reason": "EvictionByEvictionAPI"},
        {"phase": "Failed", "reason": "OutOfpods"},
        {"sandbox_ended": True},
        *({"reason": reason} for reason in ("Evicted", "NodeShutdown", "Preempting", "Terminated")),
    ],
)
def test_exit_of_a_terminating_pod_counts_only_if_pause_has_started(ending):
    pod = make_pod("a", container=Container("terminated", exit_code=0), **ending)
    assert not has_succeeded(pod)
    assert has_succeeded(replace(pod, hold_started=True))


def test_evidence_of_an_exit():
    ended = Container("terminated", exit_code=0, finished_at=NOW)
    pod = make_pod("a", container=ended)
    assert exit_evidence(pod, "u").completed_at == "2026-01-02T03:04:05Z"
    assert exit_evidence(pod, "u").pod_uid == "pod-a"
    unknown = make_pod("a", container=Container("terminated", exit_code=0))
    assert exit_evidence(unknown, "u").is_completed


def test_the_end_of_an_attempt_is_reported_with_or_without_lines():
    pod = make_pod("a")
    silent = Findings(attempt=3)
    assert log_evidence(pod, "u", silent, 5) == Evidence(
        "u", pod=pod.name, pod_uid=pod.uid, attempt=3
    )
    token = Findings(attempt=3, failed_at=STAMP)
    assert not log_evidence(pod, "u", token, 5).attempt
    assert not log_evidence(pod, "u", Findings(attempt=3, completed_at=STAMP), 5).attempt


def test_an_entry_goes_forward_in_attempts_and_keeps_lines():
    first = Evidence("u", pod="p", pod_uid="p-uid", last_lines=("x",), attempt=1)
    silent = replace(first, last_lines=(), attempt=2)
    assert combine_evidence(first, silent) == replace(first, attempt=2)
    assert not is_recorded(first, silent)
    later = replace(first, last_lines=("y",), attempt=2)
    assert combine_evidence(first, later) == later
    assert is_recorded(later, first)
    assert is_recorded(replace(first, failed_at=STAMP), silent)
    successor = replace(silent, pod_uid="q-uid", attempt=1)
    assert combine_evidence(later, successor) == successor
    completed = combine_evidence(later, replace(first, completed_at=STAMP, attempt=0))
    assert (completed.completed_at, completed.attempt) == (STAMP, later.attempt)
    successor_done = replace(successor, completed_at=STAMP, attempt=0)
    assert combine_evidence(later, successor_done).attempt == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"state": "Active"}, False),
        ({"uid": "v"}, False),
        ({"retry": "1"}, False),
        ({"revision": "another"}, False),
    ],
)
def test_a_failure_holds_for_its_node_and_retry_token(change, expected):
    record = replace(NodeRecord("u", "Failed", retry="2"), **change)
    job = make_job(annotations={names.ANNOTATION_RETRY: "2"})
    assert is_failure(record, "u", job) is expected


def test_a_later_pod_of_a_continuous_job_replaces_the_completion():
    first = replace(done("a"), revision="1", results={"n": "1"})
    for later in (
        Evidence(
            "a-uid",
            last_lines=("no",),
            pod_uid="next",
            revision="1",
            replaces=(first.pod_uid,),
        ),
        replace(done("a"), revision="2", pod_uid="next"),
    ):
        assert not is_recorded(first, later)
        assert combine_evidence(first, later) == later
    assert is_recorded(first, replace(first, completed_at=STAMP, results={}))
    # Evidence of an earlier revision that comes late.
    for late in (first, Evidence("a-uid", last_lines=("no",), pod_uid="old", revision="1")):
        newest = replace(first, revision="10", pod_uid="next", completed_at="")
        assert is_recorded(newest, late)
        assert combine_evidence(newest, late) == newest
    # Nothing is written again and again, also of a pod that no longer counts.
    assert is_recorded(first, replace(first, replaces=(first.pod_uid,)))
    # A pod that was created without the gate, although its node is not due again.
    again = Evidence("a-uid", last_lines=("no",), pod_uid="next", revision="1")
    assert is_recorded(first, again)
    assert combine_evidence(first, again) == first


def test_evidence_has_the_revision_of_its_pod():
    pod = make_pod("a", revision="1")
    assert exit_evidence(pod, "a-uid").revision == "1"
    found = log_evidence(pod, "a-uid", Findings(completed_at=STAMP), 10)
    assert found is not None
    assert found.revision == "1"
