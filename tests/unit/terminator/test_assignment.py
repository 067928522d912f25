"""What is written into which report. The server is played by `merged`, a JSON merge patch."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence, parse_evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report_status import parse_report_status
from terminator.ledger.assignment import (
    assign_to_shards,
    build_patch,
    combine_evidence,
    exit_evidence,
    has_succeeded,
    is_failure,
    is_of_latest_exit,
    is_recorded,
    log_evidence,
)
from terminator.logs.tail_read import Findings
from tests.unit.terminator.builders import NOW, STAMP, done, make_pod, make_report


def merged(target, patch):
    """Return what the API server makes of an RFC 7386 merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def written(report, entries):
    """Return the evidence in a report after the patch."""
    raw = {node: entry.to_raw() for node, entry in report.evidence.items()}
    raw = merged(raw, build_patch(report, entries)["evidence"])
    return {node: parse_evidence(entry) for node, entry in raw.items()}


def test_an_entry_of_a_former_node_is_replaced_whole():
    old = Evidence("old", STAMP, "p", "u", results={"ip": "1", "n": "2"}, last_lines=("x",))
    new = Evidence("new", failed_at=STAMP, pod="q", results={"n": "3"})
    report = make_report({"a": old, "b": done("b")})
    assert written(report, {"a": new}) == {"a": new, "b": done("b")}


def test_a_patch_names_the_report_by_uid():
    assert build_patch(make_report(), {"a": done("a")}) == {
        "metadata": {"uid": "report-0", "managedFields": [{}]},
        "evidence": {"a": done("a").to_raw()},
    }


def test_recorded_evidence_is_not_written_again():
    report = make_report({"a": done("a"), "b": done("b", uid="old")})
    later = replace(done("a"), completed_at="2027-01-01T00:00:00Z", pod="another")
    failed = Evidence("a-uid", failed_at=STAMP)
    for entry in (done("a"), later, failed):
        assert assign_to_shards({"a": entry}, [report]) == {}
    assert assign_to_shards({"b": done("b")}, [report]) == {"sample-0": {"b": done("b")}}


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
    assert written(make_report({"a": first}), {"a": late}) == {"a": expected}
    assert combine_evidence(None, late) == late
    assert combine_evidence(Evidence("a-uid"), late) == late


def test_nodes_keep_their_shard_and_new_ones_go_to_the_first_with_room():
    shards = [
        make_report({"a": done("a", "old"), "b": done("b")}, shard=0),
        make_report({"c": done("c", "old")}, shard=1),
        make_report(shard=2),
    ]
    pending = {name: done(name) for name in "abcdef"}
    for order in (shards, shards[::-1]):
        assert assign_to_shards(pending, order, limit=2) == {
            "sample-0": {"a": done("a")},
            "sample-1": {"c": done("c"), "d": done("d")},
            "sample-2": {"e": done("e"), "f": done("f")},
        }


def test_what_finds_no_room_waits():
    assert assign_to_shards({"a": done("a")}, []) == {}
    full = make_report({"a": done("a")})
    assert assign_to_shards({"b": done("b")}, [full], limit=1) == {}


def test_what_a_log_proves():
    pod = make_pod("a")
    about = Evidence("u", pod=pod.name, pod_uid=pod.uid)
    found = Findings(completed_at=STAMP, results={"ip": "1"}, last_lines=(b"x",))
    assert log_evidence(pod, "u", found, 5, with_attempt=True) == replace(
        about, completed_at=STAMP, results={"ip": "1"}
    )
    failed = Findings(failed_at=STAMP, last_lines=(b"disk full",))
    assert log_evidence(pod, "u", failed, 5, with_attempt=True) == replace(
        about, failed_at=STAMP, last_lines=("disk full",)
    )
    assert log_evidence(pod, "u", failed, 0, with_attempt=True) == replace(about, failed_at=STAMP)
    ended = Findings(last_lines=(b"x",))
    assert log_evidence(pod, "u", ended, 5, with_attempt=True) == replace(about, last_lines=("x",))
    assert log_evidence(pod, "u", ended, 0, with_attempt=True) is None
    assert log_evidence(pod, "u", Findings(), 5, with_attempt=True) is None


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
    assert log_evidence(pod, "u", silent, 5, with_attempt=True) == Evidence(
        "u", pod=pod.name, pod_uid=pod.uid, attempt=3
    )
    assert log_evidence(pod, "u", silent, 5, with_attempt=False) is None
    token = Findings(attempt=3, failed_at=STAMP)
    assert not log_evidence(pod, "u", token, 5, with_attempt=True).attempt
    assert not log_evidence(
        pod, "u", Findings(attempt=3, completed_at=STAMP), 5, with_attempt=True
    ).attempt


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
    assert combine_evidence(later, replace(first, completed_at=STAMP)).is_completed


@pytest.mark.parametrize(
    ("change", "expected"),
    [({}, True), ({"state": "Active"}, False), ({"uid": "v"}, False), ({"retry": "1"}, False)],
)
def test_a_failure_holds_for_its_node_and_retry_token(change, expected):
    record = replace(NodeRecord("u", "Failed", retry="2"), **change)
    assert is_failure(record, "u", "2") is expected


uids = st.sampled_from(["old", "new"])
evidence = st.builds(
    Evidence,
    uids,
    completed_at=st.sampled_from(["", STAMP]),
    pod=st.sampled_from(["", "p"]),
    failed_at=st.sampled_from(["", STAMP]),
    results=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
    last_lines=st.sampled_from([(), ("a",), ("b", "c")]),
    attempt=st.integers(0, 2),
)


@given(st.lists(st.tuples(st.sampled_from("abc"), evidence), max_size=10), st.integers(1, 3))
def test_writing_again_changes_nothing_and_a_completed_node_stays_so(found, limit):
    shards = {f"sample-{n}": make_report(shard=n) for n in range(3)}
    for node, entry in found:
        before = {n: e for report in shards.values() for n, e in report.evidence.items()}
        for name, entries in assign_to_shards({node: entry}, shards.values(), limit).items():
            report = shards[name]
            shards[name] = replace(report, evidence=written(report, entries))
        after = {n: e for report in shards.values() for n, e in report.evidence.items()}
        assert sum(len(report.evidence) for report in shards.values()) == len(after)
        assert assign_to_shards({node: entry}, shards.values(), limit) == {}
        old = before.get(node)
        if old is not None and old.node_uid == entry.node_uid and old.is_completed:
            assert after[node].completed_at == old.completed_at
        elif entry.is_completed or entry.failed_at or old is None or old.node_uid != entry.node_uid:
            assert after[node] == entry
        else:
            assert after[node].attempt == max(old.attempt, entry.attempt) or old.failed_at
            assert after[node].last_lines or not (old.last_lines or entry.last_lines)


def test_node_goes_to_the_shard_of_its_record_if_there_is_room():
    def on_record(shard, *nodes, **changes):
        states = {node: {"uid": f"{node}-uid", "state": "Active"} for node in nodes}
        return make_report(
            shard=shard, status=parse_report_status({"nodeStates": states}), **changes
        )

    first, second = on_record(0, "x", "y"), on_record(1, "a", "b")
    pending = {name: done(name) for name in "abcx"}
    assert assign_to_shards(pending, [first, second], limit=2) == {
        "sample-0": {"c": done("c"), "x": done("x")},
        "sample-1": {"a": done("a"), "b": done("b")},
    }
    full = on_record(1, "a", evidence={"p": done("p"), "q": done("q")})
    assert assign_to_shards({"a": done("a")}, [first, full], limit=2) == {
        "sample-0": {"a": done("a")}
    }


def test_a_node_is_sent_again_to_the_shard_that_it_may_have_reached():
    shards = [make_report(shard=0), make_report(shard=1)]
    unconfirmed = {"a": "sample-1", "b": "a-report-that-is-gone"}
    assert assign_to_shards(
        {"a": done("a"), "b": done("b")}, shards, limit=1, unconfirmed=unconfirmed
    ) == {
        "sample-0": {"b": done("b")},
        "sample-1": {"a": done("a")},
    }
    # Its place is taken, whether it got there or not.
    assert assign_to_shards(
        {"c": done("c"), "d": done("d")}, shards, limit=1, unconfirmed=unconfirmed
    ) == {"sample-0": {"c": done("c")}}
