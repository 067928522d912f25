"""What is written into which report. The server is played by `merged`, a JSON merge patch."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.evidence import Evidence, parse_evidence
from daemonset_job.api.line_limits import LAST_LINES_NODES, LONG_LINE_NODES, SHORT_LINE_BYTES
from daemonset_job.api.report_status import parse_report_status
from daemonset_job.api.result_limits import RESULT_BYTES
from daemonset_job.api.shard_room import (
    BARE_BYTES,
    NODES_PER_ROLLOUT_SHARD,
    NODES_PER_SHARD,
    SHARD_BYTES,
)
from terminator.ledger.assignment import ShardRule, assign_to_shards, build_patch
from tests.unit.terminator.builders import STAMP, done, make_report


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


def test_only_the_first_failing_nodes_of_a_report_have_several_lines():
    lines = tuple(f"line {n}" for n in range(50))
    pending = {f"n{n:02}": Evidence(f"u{n}", last_lines=lines, attempt=1) for n in range(30)}
    report = make_report({})
    (entries,) = assign_to_shards(pending, [report]).values()
    kept = [len(entries[node].last_lines) for node in sorted(entries)]
    assert kept == [50] * LAST_LINES_NODES + [1] * 10
    after = make_report(written(report, entries))
    assert assign_to_shards(pending, [after]) == {}  # what is cut is not written again
    again = {node: replace(entry, attempt=2) for node, entry in pending.items()}
    (entries,) = assign_to_shards(again, [after]).values()
    assert [len(entries[node].last_lines) for node in sorted(entries)] == kept


def test_only_the_first_failing_nodes_of_a_report_have_a_long_line():
    pending = {
        f"n{n:03}": Evidence(f"u{n}", last_lines=("x" * 160,), attempt=1) for n in range(260)
    }
    short = {f"a{n:03}": Evidence(f"v{n}", last_lines=("disk full",)) for n in range(100)}
    report = make_report({})
    (entries,) = assign_to_shards(pending | short, [report], ShardRule(1000)).values()
    kept = [len(entries[node].last_lines[0].encode()) for node in sorted(pending)]
    assert kept == [160] * LONG_LINE_NODES + [SHORT_LINE_BYTES] * 10
    assert all(entries[node].last_lines == ("disk full",) for node in short)
    after = make_report(written(report, entries))
    assert assign_to_shards(pending | short, [after]) == {}  # what is cut is not written again
    again = {node: replace(entry, attempt=2) for node, entry in pending.items()}
    (entries,) = assign_to_shards(again, [after]).values()
    assert [len(entries[node].last_lines[0].encode()) for node in sorted(entries)] == kept


def test_recorded_evidence_is_not_written_again():
    report = make_report({"a": done("a"), "b": done("b", uid="old")})
    later = replace(done("a"), completed_at="2027-01-01T00:00:00Z", pod="another")
    failed = Evidence("a-uid", failed_at=STAMP)
    for entry in (done("a"), later, failed):
        assert assign_to_shards({"a": entry}, [report]) == {}
    assert assign_to_shards({"b": done("b")}, [report]) == {"sample-0": {"b": done("b")}}


def test_a_result_found_later_is_written_beside_the_others():
    first = replace(done("a"), results={"n": "2"})
    late = replace(done("a"), results={"ip": "1"})
    expected = replace(first, results={"n": "2", "ip": "1"})
    assert written(make_report({"a": first}), {"a": late}) == {"a": expected}


def test_late_results_that_do_not_fit_are_named_once():
    first = replace(done("a"), results={"k": "x" * 1024, "l": "y" * 1024, "m": "z" * 1024})
    late = replace(done("a"), results={"a": "v" * 1024, "z": "w"}, omitted_results=("big",))
    report = make_report({"a": first})
    after = written(report, {"a": late})["a"]
    assert after.results == {**first.results, "a": "v" * 1024}
    assert set(after.omitted_results) == {"big", "z"}
    assert assign_to_shards({"a": late}, [make_report({"a": after})]) == {}


def begun(count):
    """Return a report of nodes that have begun, before the Job declared results."""
    entry = Evidence("", last_lines=("x",), attempt=1)
    names = [f"n{number:03}" for number in range(count)]
    return make_report({name: replace(entry, node_uid=f"uid-{name}") for name in names})


def completed(report, results):
    """Return the report after all of its nodes have completed with these results."""
    pending = {name: replace(done(name), results=results) for name in report.evidence}
    (entries,) = assign_to_shards(pending, [report]).values()
    after = written(report, entries)
    assert all(entry.is_completed for entry in after.values())
    assert assign_to_shards(pending, [make_report(after)]) == {}  # nothing is written again
    assert sum(max(BARE_BYTES + each.results_bytes, 600) for each in after.values()) <= SHARD_BYTES
    return after


def test_results_that_were_declared_while_a_run_went_on_get_what_room_there_is():
    largest = {f"r{number}": '"' * RESULT_BYTES for number in range(4)}
    after = completed(begun(NODES_PER_SHARD), largest)
    assert [after["n000"].results, after["n249"].results] == [largest, {}]
    assert all({*each.results, *each.omitted_results} == {*largest} for each in after.values())
    assert sum(each.results_bytes for each in after.values()) > 0.7 * SHARD_BYTES


@pytest.mark.parametrize("count", [NODES_PER_SHARD, NODES_PER_ROLLOUT_SHARD])
def test_results_of_one_node_leave_room_for_the_short_ones_of_another(count):
    lists = dict.fromkeys(("list", "more", "most"), "x" * RESULT_BYTES)
    after = completed(begun(count), {"address": "10.0.0.1", **lists})
    assert all(each.results["address"] == "10.0.0.1" for each in after.values())
    assert after[f"n{count - 1}"].omitted_results == tuple(lists)


def test_names_of_results_without_room_take_no_room_either():
    names = [f"{number:02}".ljust(63, "x") for number in range(16)]
    after = completed(begun(NODES_PER_ROLLOUT_SHARD), dict.fromkeys(names, "x" * 256))
    assert all(each.omitted_results for each in after.values() if not each.results)


def test_nodes_keep_their_shard_and_new_ones_go_to_the_first_with_room():
    shards = [
        make_report({"a": done("a", "old"), "b": done("b")}, shard=0),
        make_report({"c": done("c", "old")}, shard=1),
        make_report(shard=2),
    ]
    pending = {name: done(name) for name in "abcdef"}
    for order in (shards, shards[::-1]):
        assert assign_to_shards(pending, order, ShardRule(2)) == {
            "sample-0": {"a": done("a")},
            "sample-1": {"c": done("c"), "d": done("d")},
            "sample-2": {"e": done("e"), "f": done("f")},
        }


def test_what_finds_no_room_waits():
    assert assign_to_shards({"a": done("a")}, []) == {}
    full = make_report({"a": done("a")})
    assert assign_to_shards({"b": done("b")}, [full], ShardRule(1)) == {}


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
        for name, entries in assign_to_shards(
            {node: entry}, shards.values(), ShardRule(limit)
        ).items():
            report = shards[name]
            shards[name] = replace(report, evidence=written(report, entries))
        after = {n: e for report in shards.values() for n, e in report.evidence.items()}
        assert sum(len(report.evidence) for report in shards.values()) == len(after)
        assert assign_to_shards({node: entry}, shards.values(), ShardRule(limit)) == {}
        old = before.get(node)
        if old is not None and old.node_uid == entry.node_uid and old.is_completed:
            assert after[node].completed_at == old.completed_at
        elif old is None or old.node_uid != entry.node_uid:
            assert after[node] == entry
        elif entry.is_completed:
            assert after[node] == replace(entry, attempt=max(old.attempt, entry.attempt))
        elif entry.failed_at:
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
    assert assign_to_shards(pending, [first, second], ShardRule(2)) == {
        "sample-0": {"c": done("c"), "x": done("x")},
        "sample-1": {"a": done("a"), "b": done("b")},
    }
    full = on_record(1, "a", evidence={"p": done("p"), "q": done("q")})
    assert assign_to_shards({"a": done("a")}, [first, full], ShardRule(2)) == {
        "sample-0": {"a": done("a")}
    }


def test_a_node_is_sent_again_to_the_shard_that_it_may_have_reached():
    shards = [make_report(shard=0), make_report(shard=1)]
    unconfirmed = {"a": "sample-1", "b": "a-report-that-is-gone"}
    assert assign_to_shards(
        {"a": done("a"), "b": done("b")}, shards, ShardRule(1), unconfirmed=unconfirmed
    ) == {
        "sample-0": {"b": done("b")},
        "sample-1": {"a": done("a")},
    }
    # Its place is taken, whether it got there or not.
    assert assign_to_shards(
        {"c": done("c"), "d": done("d")}, shards, ShardRule(1), unconfirmed=unconfirmed
    ) == {"sample-0": {"c": done("c")}}


def test_a_node_without_room_in_a_small_shard_gets_it_in_a_large_one():
    """The controller creates no further shard if the Job has got a rollout since."""
    pending = {name: done(name) for name in "abc"}
    small, large = ShardRule(1), ShardRule(2)
    shards = [make_report(shard=0), make_report(shard=1)]
    found = assign_to_shards(pending, shards, small, otherwise=large)
    assert found == {
        "sample-0": {"a": done("a"), "c": done("c")},
        "sample-1": {"b": done("b")},
    }
    more = {name: done(name) for name in "abcde"}
    found = assign_to_shards(more, shards, small, otherwise=large)
    assert sum(map(len, found.values())) == 4
    assert assign_to_shards(pending, shards, small, otherwise=large, full={"sample-0"}) == {
        "sample-1": {"a": done("a"), "b": done("b")}
    }
