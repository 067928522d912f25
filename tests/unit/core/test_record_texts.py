"""What a shard with many nodes has is as much as the API server takes: its messages give way."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.json_text import json_bytes
from daemonset_job.api.names import RETRY_LIMIT
from daemonset_job.api.node_failure import NodeFailure
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import NodeState
from job_controller.core.decide import decide
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.render import record_texts
from job_controller.core.render.node_failures import keep_failures
from job_controller.core.render.node_list import build_node_list
from job_controller.core.render.record_texts import (
    LEAST_EARLIER_PODS,
    MESSAGE_LIMITS,
    fit_record_texts,
    shorten_message,
)
from job_controller.core.render.report_status import ARGUMENTS_LIMIT
from job_controller.core.render.shard_size import has_room_for_list
from job_controller.core.state.node_state import quotes_last_line
from tests.mutation.schema import OBJECT_BYTES, stored_bytes
from tests.unit.builders import NOW, make_cluster, make_pod
from tests.unit.core.full_shards import CONTINUOUS, STAMP, failed_record, ledger_of

SPEC = {
    "job": {"name": "sample", "uid": "u" * 36},
    "manifest": "x" * SPEC_LIMIT_BYTES,
    "args": ["x" * ARGUMENTS_LIMIT],
}
LONGEST = "m" * 300 + f": '{'l' * 120}'"
ORDINARY = f"exit 2 after 4 attempts: '{'no space left on the device of /data'.rjust(93)}'"


def names(count, characters):
    return [f"{n:05}".rjust(characters, "n") for n in range(count)]


def shard(records, ledger, spec=SPEC):
    """Return the report that has these, as a program reads it."""
    raw = {"metadata": {"name": "r", "uid": "u"}, "spec": spec}
    status = ReportStatus(node_states=records)
    return replace(parse_report(raw), evidence=ledger, status=status)


def size_of(report, records, rows=(), spec=SPEC):
    status = ReportStatus(node_states=records, node_list=rows).to_raw()
    ledger = {name: entry.to_raw() for name, entry in report.evidence.items()}
    return stored_bytes({"spec": spec, "evidence": ledger, "status": status})


def facts(records):
    """Return the records without what may give way."""
    return {
        name: replace(
            record,
            message="",
            earlier_pods=record.earlier_pods[:LEAST_EARLIER_PODS],
            failures=(),
            omitted_failures=len(record.failures) + record.omitted_failures,
        )
        for name, record in records.items()
    }


def written(report, records, *, has_results=False):
    """Return the records that are written, and those of the next reconcile: they are the same."""
    first = fit_record_texts(report, records, has_results=has_results)
    assert facts(first) == facts(records)
    after = replace(report, status=replace(report.status, node_states=first))
    # Messages on record, and those made of the pods again.
    for again in (first, {n: replace(r, message=records[n].message) for n, r in first.items()}):
        assert fit_record_texts(after, again, has_results=has_results) == first
    return first


@pytest.mark.parametrize("fields", [{}, CONTINUOUS], ids=["Once", "Continuous"])
@pytest.mark.parametrize("characters", [43, 63])
def test_a_shard_of_a_thousand_failed_nodes_fits_into_etcd(characters, fields):
    """All fields are filled, and all texts at their limits. Names of nodes have 63 characters."""
    records = dict.fromkeys(names(1000, characters), failed_record(LONGEST, **fields))
    report = shard(records, ledger_of(records))
    assert size_of(report, records) > OBJECT_BYTES - 4096 or characters == 43
    kept = written(report, records)
    assert size_of(report, kept) < OBJECT_BYTES - 4096
    least = 24 if fields else 180
    assert all(json_bytes(record.message) >= least for record in kept.values())
    assert all(quotes_last_line(record.message) for record in kept.values())


def test_a_shard_with_a_long_retry_request_fits_into_etcd():
    """Each record has the request: what a user wrote into the annotation."""
    records = dict.fromkeys(names(1000, 63), failed_record(LONGEST, retry="r" * RETRY_LIMIT))
    report = shard(records, ledger_of(records))
    assert size_of(report, written(report, records)) < OBJECT_BYTES - 4096


def test_a_shard_of_the_longest_names_fits_into_etcd_if_their_messages_do():
    """No kubelet registers a node with a name of more than 63 characters."""
    records = dict.fromkeys(names(1000, 175), failed_record(LONGEST))
    report = shard(records, ledger_of(records))
    assert size_of(report, written(report, records)) < OBJECT_BYTES - 4096


@pytest.mark.parametrize("fields", [{}, CONTINUOUS], ids=["Once", "Continuous"])
def test_a_shard_of_nodes_that_fail_again_and_again_fits_into_etcd(fields):
    records = dict.fromkeys(names(1000, 63), failed_record(LONGEST, **fields))
    for attempt in range(6):
        report = shard(records, ledger_of(records))
        again = {
            name: replace(record, retry=f"retry {attempt}", message=LONGEST)
            for name, record in records.items()
        }
        records = written(report, keep_failures([report], again))
        rows = build_node_list(records, report.evidence)
        rows = rows if has_room_for_list(report, records, rows) else ()
        assert size_of(report, records, rows) < OBJECT_BYTES - 4096
        total = {len(r.failures) + r.omitted_failures for r in records.values()}
        assert total == {attempt + 1}


@pytest.mark.parametrize("state", [NodeState.FAILED, NodeState.WAITING])
@pytest.mark.parametrize("count", [250, 1000])
def test_ordinary_messages_of_a_thousand_nodes_are_whole(count, state):
    records = dict.fromkeys(names(count, 63), failed_record(ORDINARY, state=state))
    assert json_bytes(ORDINARY) == 120
    report = shard(records, ledger_of(records))
    for has_results in (False, True):
        assert written(report, records, has_results=has_results) == records


def test_long_messages_of_some_nodes_of_a_shard_are_whole():
    """A thousand nodes, of which 300 have failed."""
    done = NodeRecord("u" * 36, NodeState.COMPLETED, attempts=1, started_at=NOW, finished_at=NOW)
    records = {
        name: failed_record(LONGEST) if n < 300 else done for n, name in enumerate(names(1000, 63))
    }
    ledger = {
        name: Evidence("u" * 36, completed_at=STAMP, pod="p" * 63, pod_uid="p" * 36)
        for name, record in records.items()
        if record == done
    }
    failed = {name: record for name, record in records.items() if record != done}
    report = shard(records, ledger | ledger_of(failed))
    assert written(report, records) == records


def test_large_results_take_the_room_of_messages():
    results = {"a": "x" * 390}
    done = NodeRecord(
        "u" * 36,
        NodeState.COMPLETED,
        attempts=1,
        started_at=NOW,
        finished_at=NOW,
        turn_at=NOW,
        step=3,
        pod_uid="p" * 36,
    )
    records = {
        name: failed_record(LONGEST) if n % 2 else done for n, name in enumerate(names(1000, 63))
    }
    complete = Evidence(
        "u" * 36, completed_at=STAMP, pod="p" * 63, pod_uid="p" * 36, results=results
    )
    failed = {name: record for name, record in records.items() if record != done}
    ledger = dict.fromkeys(records.keys() - failed.keys(), complete) | ledger_of(failed)
    report = shard(records, ledger)
    # Before the first half has completed, room is kept for its results.
    begun = {
        name: record if record != done else replace(done, state=NodeState.ACTIVE)
        for name, record in records.items()
    }
    early = replace(report, evidence=ledger_of(failed))
    kept = written(early, begun, has_results=True)
    assert size_of(report, kept) < OBJECT_BYTES - 4096
    assert size_of(report, written(report, records, has_results=True)) < OBJECT_BYTES - 4096


@pytest.mark.parametrize("spec", [SPEC, {**SPEC, "manifest": "x", "args": []}])
def test_results_that_a_job_declares_later_take_the_room_of_failures(spec):
    """Each node has failed with the first script; the corrected one prints results, too."""
    message = "exit 2 after 7 attempts: 'disk full'"
    failed = failed_record(message, **CONTINUOUS | {"earlier_pods": ("e" * 36,) * 2})
    records = dict.fromkeys(names(1000, 63), failed)
    entry = Evidence("u" * 36, pod="p" * 63, pod_uid="p" * 36, last_lines=("disk full",), attempt=7)
    report = shard(records, dict.fromkeys(records, entry), spec)
    begun = {
        name: replace(record, state=NodeState.ACTIVE, message="", retry="2", exit_code=None)
        for name, record in records.items()
    }
    before = keep_failures([report], begun)
    records = written(report, before, has_results=True)
    done = replace(entry, completed_at=STAMP, last_lines=(), results={"a": "x" * 390})
    report = shard(records, dict.fromkeys(records, done), spec)
    assert size_of(report, before, spec=spec) > OBJECT_BYTES
    assert size_of(report, records, spec=spec) < OBJECT_BYTES - 4096


def test_a_large_manifest_takes_the_room_of_messages():
    """Of a Job that lists its nodes by name, with a script full of what HTML gives a meaning."""
    spec = {**SPEC, "manifest": "<" * 16 * 1024 + '"' * 64 * 1024}
    records = dict.fromkeys(names(1000, 63), failed_record(LONGEST))
    report = shard(records, ledger_of(records), spec)
    kept = written(report, records)
    assert size_of(report, kept, spec=spec) < OBJECT_BYTES - 4096


def test_a_message_that_was_shortened_stays_so():
    """Else each node that fails would make those of all others longer and shorter again."""
    records = dict.fromkeys(names(1000, 63), failed_record(LONGEST))
    report = shard(records, ledger_of(records))
    kept = written(report, records)
    few = dict(list(kept.items())[:300])
    fewer = replace(report, evidence={}, status=replace(report.status, node_states=few))
    again = {name: records[name] for name in few}
    assert fit_record_texts(fewer, again, has_results=False) == few
    other = {name: replace(record, message=ORDINARY) for name, record in again.items()}
    assert fit_record_texts(fewer, other, has_results=False) == other


@given(st.text(max_size=200), st.text(max_size=200), st.sampled_from(MESSAGE_LIMITS))
def test_a_shortened_message_quotes_the_line(words, line, limit):
    message = f"{words}: '{line}'"
    short = shorten_message(message, limit)
    assert json_bytes(short) <= max(limit, 0)
    assert quotes_last_line(short)
    assert shorten_message(short, limit) == short


def test_messages_are_shortened_in_the_middle():
    message = f"exit 2 after 4 attempts: {'the driver says ' * 9}: 'disk full'"
    assert shorten_message(message, 240) == message
    short = shorten_message(message, 60)
    assert short == "exit 2 after 4 attempt…r says the driver says: 'disk full'"
    assert shorten_message("x" * 90, 24) == "x" * 10 + "…" + "x" * 11


@pytest.mark.parametrize("size", [0, 4000, 4200, 4400, 10**6])
def test_reports_of_nodes_whose_messages_have_no_room_are_written_until_nothing_changes(
    monkeypatch, size
):
    """A task that failed, one that restarts, and one that does not start, with long reasons."""
    monkeypatch.setattr(record_texts, "_SMALL_NODES", 0)
    monkeypatch.setattr(record_texts, "OBJECT_BYTES", size + record_texts.most_line_bytes(3))
    cluster = make_cluster("a", "b", "c", seen=timedelta(minutes=1))
    why = "the driver says " * 30
    ended = {"last_reason": "Error", "last_exit_code": 2, "last_message": why, "restart_count": 3}
    cluster.pods = [
        make_pod("a", container=Container(state="waiting", reason="CrashLoopBackOff", **ended)),
        make_pod("b", container=Container(state="running", **ended | {"restart_count": 1})),
        make_pod("c", container=Container(state="waiting", reason="ErrImagePull", message=why)),
    ]
    cluster.evidence = {
        name: Evidence(
            f"{name}-uid", pod_uid=f"pod-{name}-1", last_lines=("l" * 150,), attempt=attempt
        )
        for name, attempt in (("a", 3), ("b", 1))
    }
    reports = []
    for _ in range(4):
        actions = decide(cluster.snapshot(), NOW).actions
        reports.append([each.status for each in actions if isinstance(each, WriteReportStatus)])
        for action in actions:
            if isinstance(action, WriteReportStatus):
                cluster.report_status = action.status.to_raw()
            if isinstance(action, WriteStatus):
                cluster.job = replace(cluster.job, status=action.status)
    assert reports[0]
    assert not any(reports[2:])
    messages = [each["message"] for each in cluster.report_status["nodeStates"].values()]
    assert len(messages) == 3
    longest = max(map(json_bytes, messages))
    assert longest > MESSAGE_LIMITS[0] if size == 10**6 else longest <= MESSAGE_LIMITS[0]


records_of_any_kind = st.builds(
    failed_record,
    st.just(""),
    retry=st.text("<r", max_size=60),
    state=st.sampled_from([NodeState.FAILED, NodeState.ACTIVE, NodeState.COMPLETED]),
    attempts=st.integers(0, 2**31 - 1),
    finished_at=st.sampled_from([None, NOW, NOW + timedelta(days=900)]),
    node_changed_at=st.sampled_from([None, NOW]),
    revision=st.just("1-0123456789abcdef"),
    selection=st.just("0123456789abcdef"),
    rerun=st.just("1-0123456789abcdef"),
    earlier_pods=st.lists(st.text("0", min_size=36, max_size=36), max_size=8).map(tuple),
    failures=st.lists(st.builds(NodeFailure, message=st.text(max_size=60)), max_size=5).map(tuple),
    omitted_failures=st.sampled_from([0, 2**31 - 1]),
)


@settings(deadline=None)
@given(st.lists(records_of_any_kind, min_size=1, max_size=20))
def test_the_room_for_messages_is_no_more_than_the_shard_leaves(found):
    """The lines and the progress are what the terminator may write, whatever it has written."""
    records = {f"n{n}": record for n, record in enumerate(found)}
    failed = {name: r for name, r in records.items() if r.state == NodeState.FAILED}
    report = shard(records, ledger_of(failed))
    room = record_texts._room_for_messages(report, records, has_results=False)
    assert room <= OBJECT_BYTES - size_of(report, records)


def test_a_report_knows_the_size_of_what_it_ran():
    spec = {**SPEC, "command": ["<", None], "args": "x"}
    assert shard({}, {}, spec).spec_bytes == SPEC_LIMIT_BYTES + 3 + 6 + 3
    assert isinstance(shard({}, {}, spec), JobReport)
