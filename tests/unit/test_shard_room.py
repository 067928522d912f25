"""How many nodes the shards of a run take, by the size of their results.

The rule of both programs: the terminator fills shards, and the controller creates them in time.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import Completion, JobSpec
from daemonset_job.api.result_limits import RESULT_BYTES
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.shard_room import (
    NODES_PER_ROLLOUT_SHARD,
    NODES_PER_SHARD,
    SHARD_BYTES,
    EvidenceSizes,
    ShardRoom,
    count_missing,
    nodes_per_shard,
)
from terminator.ledger.assignment import ShardRule, assign_to_shards
from tests.unit.terminator.builders import STAMP, make_report

SPEC = JobSpec("image", results=("a", "b", "c", "d"))
SIZES = EvidenceSizes.of(SPEC, 1000)
EXIT_SIZES = EvidenceSizes.of(replace(SPEC, completion=Completion(mode=CompletionMode.EXIT)), 1000)
NODE_BYTES = 600
FULL = dict.fromkeys("abcd", "x" * RESULT_BYTES)


def entry(node, results=None, *, completed=True):
    at = STAMP if completed else ""
    return Evidence(f"{node}-uid", completed_at=at, pod="p", pod_uid="u", results=results or {})


def test_a_node_without_results_counts_one():
    sizes = EvidenceSizes.of(JobSpec("image"), 1000)
    assert sizes.most == sizes.of_entry(entry("a", completed=False)) == NODE_BYTES
    assert ShardRoom.of({}, sizes, 1000).count(NODE_BYTES) == 1000
    ledger = {f"n{n}": entry(f"n{n}") for n in range(999)}
    assert count_missing([ledger], 1000, sizes, 1000) == 0
    assert count_missing([ledger], 1001, sizes, 1000) == 1
    assert count_missing([], 5000, sizes, 1000) == 5


def test_small_results_take_no_more():
    ledger = {f"n{n}": entry(f"n{n}", {"a": "v" * 300}) for n in range(900)}
    assert count_missing([ledger], 950, SIZES, 1000) == 0


def test_an_entry_that_may_get_results_has_room_for_them():
    for sizes in (SIZES, EXIT_SIZES):
        assert sizes.of_entry(entry("a", completed=False)) == sizes.most
        assert sizes.of_entry(entry("a", {"a": "1"})) == NODE_BYTES
        assert sizes.of_entry(entry("a", FULL)) < sizes.most
    assert SIZES.of_entry(entry("a")) == NODE_BYTES  # in mode Log they come with the token
    assert EXIT_SIZES.of_entry(entry("a")) == EXIT_SIZES.most
    repeated = replace(SIZES, may_repeat=True)
    assert repeated.of_entry(entry("a", {"a": "1"})) == SIZES.most


def test_shards_for_five_thousand_nodes_with_the_largest_results():
    """By what the first nodes print, the controller knows how many shards the others need."""
    recorded = {f"n{n}": entry(f"n{n}", FULL) for n in range(100)}
    for nodes in (NODES_PER_SHARD, NODES_PER_ROLLOUT_SHARD):
        sizes = EvidenceSizes.of(SPEC, nodes)
        more = count_missing([recorded, {}, {}, {}, {}], 5000, sizes, nodes)
        assert 30 <= 5 + more <= 40


def test_turns_of_a_rollout_are_in_one_report_for_as_many_nodes_as_fit():
    """The fewer nodes a shard has, the less a write costs; but a turn has to be in one report."""
    assert nodes_per_shard(SPEC) == NODES_PER_SHARD < NODES_PER_ROLLOUT_SHARD
    assert nodes_per_shard(replace(SPEC, rollout=Rollout())) == NODES_PER_ROLLOUT_SHARD
    for nodes in (NODES_PER_SHARD, NODES_PER_ROLLOUT_SHARD):
        sizes = EvidenceSizes.of(SPEC, nodes)
        assert ShardRoom.of({}, sizes, nodes).left_bytes == SHARD_BYTES
        assert sizes.most == max(sizes.node_bytes, EvidenceSizes.of(SPEC, 1000).most)


results = st.dictionaries(
    st.sampled_from("abcd"), st.integers(0, RESULT_BYTES).map("v".__mul__), max_size=4
)
entries = st.builds(
    lambda found, completed: entry("n", found if completed else {}, completed=completed),
    results,
    st.booleans(),
)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 60), entries), max_size=30), max_size=8),
    st.sampled_from([SIZES, EXIT_SIZES, EvidenceSizes()]),
    st.integers(1, 40),
)
def test_each_node_gets_a_place_and_no_shard_is_over_its_limit(rounds, sizes, limit):
    """Both programs by turns: shards are created, then filled; entries grow in their shard."""
    shards, seen = {}, set()
    for found in rounds:
        pending = {f"n{number}": each for number, each in found}
        if not sizes.reserve_bytes:
            pending = {node: replace(each, results={}) for node, each in pending.items()}
        seen |= pending.keys()
        for _ in range(len(seen) + 2):
            missing = count_missing(
                [report.evidence for report in shards.values()], len(seen), sizes, limit
            )
            for _ in range(missing):
                report = make_report(shard=len(shards))
                shards[report.name] = report
            written = assign_to_shards(pending, shards.values(), ShardRule(limit, sizes))
            if not written and not missing:
                break
            for name, new in written.items():
                known = shards[name].evidence
                kept = {n: e for n, e in new.items() if not _is_settled(known.get(n), sizes)}
                evidence = {**shards[name].evidence, **kept}
                shards[name] = replace(shards[name], evidence=evidence)
        assert pending.keys() <= _all(shards)
    assert len(_all(shards)) == sum(len(report.evidence) for report in shards.values())
    assert _all(shards) == seen
    for report in shards.values():
        size = sum(map(sizes.of_entry, report.evidence.values()))
        assert size <= limit * sizes.node_bytes or len(report.evidence) == 1


def _all(shards):
    return {node for report in shards.values() for node in report.evidence}


def _is_settled(known, sizes):
    """Return whether a node is completed. In mode Exit, its results may come after that."""
    if known is None or not known.is_completed:
        return False
    return bool(known.results) or not sizes.has_late_results


@pytest.mark.parametrize("limit", [1, 2])
def test_an_empty_shard_takes_a_node_of_any_size(limit):
    pending = {"a": entry("a", FULL), "b": entry("b", FULL)}
    shards = [make_report(shard=0), make_report(shard=1)]
    written = assign_to_shards(pending, shards, ShardRule(limit, SIZES))
    assert {name: set(found) for name, found in written.items()} == {
        "sample-0": {"a"},
        "sample-1": {"b"},
    }
