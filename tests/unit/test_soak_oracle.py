"""The judgement of a Job in a soak run follows from what its user asked for, and from the nodes."""

import random

import pytest

from benchmarks.soak_jobs import draw_wish
from benchmarks.soak_nodes import NodeHistory, matches
from benchmarks.soak_oracle import JobRun, Touch, desired_nodes, judge
from benchmarks.soak_wish import Place

PLACE = Place(("a",), ("n0", "n1"), ("fake-0",))
BEGIN, END = 1000.0, 1040.0


def node(name, uid="", effect="", ready=True, **labels):
    taints = [{"key": "soak", "effect": effect}] if effect else []
    return {
        "metadata": {"name": name, "uid": uid or f"{name}-uid", "labels": labels},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.fixture
def history():
    found = NodeHistory()
    found.observe(0, [node("n0", zone="a"), node("n1", zone="b"), node("fake-0")])
    return found


def report(phase="Succeeded", completed=("n0", "n1", "fake-0"), **states):
    return {
        "evidence": {name: {"nodeUID": f"{name}-uid", "completedAt": "x"} for name in completed},
        "status": {"phase": phase, "nodeStates": {n: {"state": s} for n, s in states.items()}},
    }


def run(kind="log", reports=None, starts=None, **fields):
    wish = draw_wish(random.Random(1), PLACE, 1, kind=kind)
    did = [("start", BEGIN + 2), ("end", BEGIN + 4)]
    found = JobRun(
        wish,
        created_at=BEGIN,
        edits=[(BEGIN, wish.spec.get("nodes"))],
        ended_at=END,
        gone_at=END,
        deleted=not wish.leaves_by_itself,
        reports=[report()] if reports is None else reports,
        starts={"n0": did, "n1": did} if starts is None else starts,
    )
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def test_a_job_that_did_what_was_asked_for_is_right(history):
    assert judge(run(), history, []) == []


def test_a_desired_node_that_has_not_completed_is_found(history):
    found = judge(run(reports=[report(completed=("n0", "fake-0"))]), history, [])
    assert found == ["1 node was desired and has not completed: n1"]


def test_the_evidence_of_a_former_node_of_that_name_proves_nothing(history):
    history.observe(500, [node("n0"), node("n1", uid="other"), node("fake-0")])
    assert judge(run(), history, []) == ["1 node was desired and has not completed: n1"]


def test_a_machine_that_comes_after_the_end_may_replace_the_evidence_of_a_node(history):
    """The Job is kept as long as the DaemonSet has pods on nodes that are gone."""
    late = report()
    late["evidence"]["n1"]["nodeUID"] = "other"
    assert judge(run(reports=[late]), history, []) != []
    history.observe(END + 20, [node("n0"), node("fake-0")])
    history.observe(END + 40, [node("n0"), node("n1", uid="other"), node("fake-0")])
    assert judge(run(reports=[late], gone_at=END + 30), history, []) != []
    assert judge(run(reports=[late], gone_at=END + 45), history, []) == []


def test_an_edit_that_was_taken_counts_however_late(history):
    nodes = {"include": ["n0"]}
    narrow = run(reports=[report(completed=("n0",))], starts={"n0": run().starts["n0"], "n1": []})
    narrow.edits = [(BEGIN, nodes)]
    assert judge(narrow, history, []) == []
    narrow.edits.append((END - 1, None))
    assert judge(narrow, history, []) == [
        "2 nodes were desired and have not completed: fake-0, n1",
    ]


def test_recently_tainted_or_joined_node_is_not_surely_desired(history):
    three = [node("n0", zone="a"), node("n1", effect="NoSchedule"), node("fake-0")]
    history.observe(BEGIN + 20, three)
    assert set(desired_nodes(run(), history)) == {"n0", "fake-0"}
    history.observe(BEGIN + 30, [*three, node("n2")])
    assert set(desired_nodes(run(), history)) == {"n0", "fake-0"}
    history.observe(END - 5, [node("n0", zone="a"), node("n1"), node("fake-0")])
    assert set(desired_nodes(run(), history)) == {"n0", "fake-0"}


def test_a_node_that_joined_in_good_time_is_desired(history):
    history.observe(BEGIN + 5, [node("n0"), node("n1"), node("fake-0"), node("n2")])
    assert "n2" in desired_nodes(run(), history)
    history.blind.append((BEGIN + 15, BEGIN + 20))
    assert "n2" not in desired_nodes(run(), history)


def test_a_taint_that_only_is_a_preference_closes_nothing(history):
    history.observe(BEGIN + 1, [node("n0", effect="PreferNoSchedule", zone="a")])
    assert "n0" in desired_nodes(run(), history)


def test_a_completed_node_whose_task_never_ended_is_found(history):
    stopped = [("start", BEGIN + 2), ("stopped", BEGIN + 3)]
    found = judge(run(starts={"n0": stopped, "n1": run().starts["n1"]}), history, [])
    assert found == ["n0 counts as completed, its task wrote {'start': 1, 'stopped': 1}"]


def test_a_second_start_needs_a_reason(history):
    lines = [("start", BEGIN), ("end", BEGIN), ("start", BEGIN + 9), ("end", BEGIN + 10)]
    twice = run(starts={"n0": lines, "n1": run().starts["n1"]})
    assert "n0: 2 starts" in judge(twice, history, [])[0]
    assert judge(twice, history, [Touch(BEGIN + 5, "evicted", "a", twice.wish.name, "n0")]) == []
    assert judge(twice, history, [Touch(BEGIN + 5, "evicted", "a", twice.wish.name, "n1")])
    assert judge(twice, history, [Touch(BEGIN - 99, "evicted", "a", twice.wish.name, "n0")])


def test_a_retry_is_a_reason_for_another_start(history):
    words = ("start", "failed", "start", "stopped", "start", "end")
    lines = [(word, BEGIN + number) for number, word in enumerate(words)]
    again = run("retry", starts={"n0": lines, "n1": lines})
    assert len(judge(again, history, [])) == 2
    again.retries = 1
    assert judge(again, history, []) == []


def test_a_failure_is_a_reason_for_another_start(history):
    lines = [("start", BEGIN), ("failed", BEGIN), ("start", BEGIN + 9), ("end", BEGIN + 10)]
    assert judge(run("flaky", starts={"n0": lines, "n1": lines}), history, []) == []


def test_a_node_that_was_never_asked_for_must_not_start(history):
    found = judge(run("simulated", edits=[(BEGIN, {"include": ["n1"]})]), history, [])
    assert "n0 was never asked for, and its task started" in found


def test_the_phase_has_to_be_the_one_expected(history):
    assert judge(run(reports=[report("Failed")]), history, []) == [
        "its report says ['Failed'], not Succeeded"
    ]
    assert judge(run("broken"), history, [])[0] == "its report says ['Succeeded'], not Failed"
    assert judge(run(reports=[]), history, [])[0] == "it left no report"


def test_a_node_that_was_not_ready_may_fail_a_run(history):
    history.observe(BEGIN + 2, [node("n0", ready=False), node("n1"), node("fake-0")])
    assert judge(run(reports=[report("Failed", completed=())]), history, []) != [
        "its report says ['Failed'], not Succeeded"
    ]


def test_failed_nodes_that_may_fail_are_right(history):
    failed = [("start", BEGIN), ("failed", BEGIN)]
    found = run(
        "tolerant",
        reports=[report(completed=("fake-0",), n0="Failed", n1="Failed")],
        starts={"n0": failed, "n1": failed},
    )
    assert judge(found, history, []) == []
    found.deleted = False
    assert judge(found, history, []) == ["it was deleted, and not by its user"]


def test_a_job_stays_for_its_time_to_live_and_not_much_longer(history):
    assert not any("kept" in word for word in judge(run("ttl", kept_seconds=25), history, []))
    for seconds in (10, 200):
        assert any("kept" in w for w in judge(run("ttl", kept_seconds=seconds), history, []))


def test_a_suspended_job_starts_nothing(history):
    suspended = run("created-suspended", resumed_at=BEGIN + 10)
    assert "n0 started 8 s before its Job was resumed" in judge(suspended, history, [])


def test_what_has_been_forgotten_changes_nothing_about_later_times(history):
    history.observe(500, [node("n0"), node("fake-0")])
    before = desired_nodes(run(), history)
    history.forget_before(900)
    assert desired_nodes(run(), history) == before == {"n0": "n0-uid", "fake-0": "fake-0-uid"}
    assert "n1" not in history.changes


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        (None, True),
        ({}, True),
        ({"include": ["n0"]}, True),
        ({"include": ["n1"]}, False),
        ({"include": []}, True),
        ({"exclude": ["n0"]}, False),
        ({"selector": {"matchLabels": {"zone": "a"}}}, True),
        ({"selector": {"matchLabels": {"zone": "b"}}}, False),
    ],
)
def test_which_nodes_are_chosen(nodes, chosen):
    assert matches(nodes, "n0", {"zone": "a"}) == chosen
