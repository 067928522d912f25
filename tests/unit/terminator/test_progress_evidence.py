"""How the progress of a task joins what the ledger has of its node."""

from dataclasses import replace

import pytest

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.line_limits import PROGRESS_NODES
from daemonset_job.api.task_progress import TaskProgress, parse_progress
from terminator.ledger.assignment import assign_to_shards, build_patch
from terminator.ledger.evidence import combine_evidence, is_recorded
from tests.unit.terminator.builders import STAMP, done, make_report

FIRST = TaskProgress("p-uid", 1, 3, 10)
SECOND = replace(FIRST, attempt=2, done=0)
FAILED_ONCE = Evidence("n", pod="p", pod_uid="p-uid", attempt=1, last_lines=("disk full",))


def only(progress):
    return Evidence("n", progress=progress)


def test_progress_is_an_entry_of_its_own():
    assert combine_evidence(None, only(FIRST)) == only(FIRST)
    assert is_recorded(only(FIRST), only(FIRST))
    assert not is_recorded(only(FIRST), only(replace(FIRST, done=4)))
    patch = build_patch(make_report({"n": only(FIRST)}), {"n": only(replace(FIRST, done=4))})
    assert patch["evidence"]["n"]["progress"] == replace(FIRST, done=4).to_raw()


def test_the_end_of_an_attempt_ends_its_progress():
    assert combine_evidence(only(FIRST), FAILED_ONCE) == FAILED_ONCE
    assert is_recorded(FAILED_ONCE, only(FIRST))
    both = combine_evidence(FAILED_ONCE, only(SECOND))
    assert both == replace(FAILED_ONCE, progress=SECOND)
    assert is_recorded(both, FAILED_ONCE)
    patch = build_patch(make_report({"n": only(FIRST)}), {"n": FAILED_ONCE})
    assert patch["evidence"]["n"]["progress"] is None


@pytest.mark.parametrize(
    "end",
    [
        Evidence("n", completed_at=STAMP, pod="p", pod_uid="p-uid"),
        Evidence("n", failed_at=STAMP, pod="p", pod_uid="p-uid"),
    ],
)
def test_a_token_ends_the_progress(end):
    assert combine_evidence(only(SECOND), end) == end
    assert combine_evidence(end, only(SECOND)) == end
    assert is_recorded(end, only(SECOND))


def test_the_lines_of_the_pod_before_stay_beside_the_progress():
    other = replace(FIRST, pod_uid="q-uid")
    assert combine_evidence(FAILED_ONCE, only(other)) == replace(FAILED_ONCE, progress=other)


def test_a_completed_node_gets_progress_only_if_the_task_runs_again():
    other = replace(FIRST, pod_uid="q-uid")
    completed = Evidence("n", completed_at=STAMP, pod="p", pod_uid="p-uid")
    assert is_recorded(completed, only(other))
    continuous = replace(completed, revision="r1")
    assert combine_evidence(continuous, only(other)) == replace(continuous, progress=other)


def test_another_node_of_the_name_replaces_it_all():
    new = Evidence("other", progress=FIRST)
    assert combine_evidence(done("n"), new) == new
    assert assign_to_shards({"n": new}, [make_report({"n": done("n")})]) == {"sample-0": {"n": new}}


@pytest.mark.parametrize(
    "raw",
    [None, {}, {"done": 2, "total": 1}, {"done": 0, "total": 0}, {"done": -1, "total": 1}],
)
def test_progress_that_makes_no_sense_is_none(raw):
    assert parse_progress(raw) is None


def test_few_nodes_of_a_report_have_progress_beside_last_lines():
    failed = {f"n{n}": replace(FAILED_ONCE, node_uid=f"u{n}") for n in range(PROGRESS_NODES + 5)}
    progress = {node: Evidence(each.node_uid, progress=SECOND) for node, each in failed.items()}
    report = make_report(failed)
    (entries,) = assign_to_shards(progress, [report]).values()
    assert len(entries) == PROGRESS_NODES
    after = {**failed, **{n: combine_evidence(failed[n], each) for n, each in entries.items()}}
    assert assign_to_shards(progress, [make_report(after)]) == {}
    both = {n: replace(each, progress=SECOND) for n, each in failed.items()}
    (entries,) = assign_to_shards(both, [make_report()]).values()
    assert len(entries) == len(failed)
    assert sum(each.progress is not None for each in entries.values()) == PROGRESS_NODES


def test_lines_that_come_after_the_progress_replace_it():
    assert combine_evidence(only(SECOND), FAILED_ONCE) == FAILED_ONCE
