"""Jobs with the same key rollout.exclusive: which nodes others use, and who is first."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.job_status import Condition
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.reasons import NodeReason, ProgressingReason
from daemonset_job.api.rollout import Rollout, parse_rollout
from daemonset_job.api.states import ConditionType, NodeState, Phase
from job_controller.core.decide import decide
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.preparation import NODES_PER_PLAN
from job_controller.core.settings import Settings
from job_controller.core.state.exclusive import OtherRun, OtherUse, find_other_use, is_at_work
from tests.unit.builders import NOW, START, done, gated_pod, make_job, make_pod, started
from tests.unit.core.runs import reason_of, spec
from tests.unit.core.test_preparation import cordoned, gates, marked, record_of, waiting

KEY = Rollout(max_parallel=10, exclusive="disk")
TURN = NodeRecord("a-uid", NodeState.WAITING, turn_at=NOW)


def a_job(name, minutes=0, **changes):
    job = make_job(name=name, uid=f"{name}-uid", created_at=START + timedelta(minutes=minutes))
    return replace(started(job), spec=replace(job.spec, rollout=KEY, **changes))


def phase(job, value):
    return replace(job, status=replace(job.status, phase=value))


def progressing(job, reason):
    condition = Condition(ConditionType.PROGRESSING, True, reason, "")
    return replace(job, status=replace(job.status, conditions=(condition,)))


def use(*runs, job=None):
    return find_other_use(job or a_job("mine", 5), runs)


# --- in use ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "evidence", "expected"),
    [
        (gated_pod("a"), None, False),
        (make_pod("a"), None, True),
        (make_pod("a", state="", is_scheduled=False), None, True),
        (make_pod("a", is_terminating=True), None, True),
        (make_pod("a", phase="Failed"), None, False),
        (make_pod("a"), done("a"), False),
        # A later pod of a completed node does its work again.
        (make_pod("a", serial=2), done("a"), True),
        (make_pod("a"), replace(done("a"), completed_at=""), True),
    ],
)
def test_a_node_is_in_use_from_the_gate_to_the_completion_of_that_pod(pod, evidence, expected):
    assert is_at_work(pod, evidence) is expected


def test_nodes_in_use_have_the_name_of_the_job():
    other = OtherRun(a_job("other"), (make_pod("a"), gated_pod("b")))
    assert use(other).in_use == {"a": "other"}
    assert use(OtherRun(None, (make_pod("c"),))).in_use == {"c": "that was deleted"}


# --- who is first ------------------------------------------------------------------------


def test_an_older_job_with_a_turn_is_first():
    run = OtherRun(a_job("older"), (gated_pod("a"), gated_pod("b")), records={"a": TURN})
    assert use(run).claimed == {"a": "older"}
    assert use(run, job=a_job("mine", -5)).claimed == {}


def test_of_two_jobs_of_one_second_one_is_first():
    one, two = a_job("one"), a_job("two")
    run_one = OtherRun(one, (gated_pod("a"),), records={"a": TURN})
    run_two = OtherRun(two, (gated_pod("a"),), records={"a": TURN})
    assert [bool(use(run_one, job=two).claimed), bool(use(run_two, job=one).claimed)] == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    "older",
    [
        a_job("older", suspend=True),
        phase(a_job("older"), Phase.PAUSED),
        phase(a_job("older"), Phase.FAILED),
        replace(a_job("older"), is_terminating=True),
        progressing(a_job("older"), ProgressingReason.OUTSIDE_WINDOW),
        progressing(a_job("older"), ProgressingReason.INVALID_WINDOW),
    ],
)
def test_a_job_that_starts_no_node_is_not_waited_for(older):
    assert use(OtherRun(older, (gated_pod("a"),), records={"a": TURN})).claimed == {}


# --- what a job does ---------------------------------------------------------------------


def exclusive(**changes):
    return spec(waiting("a", "b", drain=None, **changes), rollout=KEY)


def test_a_node_that_is_in_use_waits_and_the_condition_names_the_job():
    cluster = exclusive()
    plan = decide(cluster.snapshot(other_use=OtherUse({"a": "other"})), NOW)
    assert gates(plan) == ["b"]
    record = record_of(plan)
    assert record.reason == NodeReason.NODE_IN_USE
    assert "Job other, which has the same key rollout.exclusive" in record.message
    assert reason_of(plan) == "NodeInUse"
    assert plan.requeue_after <= 10.0


@pytest.mark.parametrize("cordon", [False, True])
def test_a_node_that_is_free_has_its_turn_however_many_others_are_in_use(cordon):
    names = [f"n{number:03}" for number in range(NODES_PER_PLAN + 2)]
    cluster = spec(waiting(*names, drain=None, cordon=cordon), rollout=Rollout(exclusive="disk"))
    for name in names if cordon else ():
        marked(cluster, name)
    in_use = OtherUse(dict.fromkeys(names[:-1], "other"))
    assert gates(decide(cluster.snapshot(other_use=in_use), NOW)) == names[-1:]


def test_a_younger_job_lets_the_older_one_pass():
    plan = decide(exclusive().snapshot(other_use=OtherUse(claimed={"a": "older"})), NOW)
    assert gates(plan) == ["b"]


def test_a_node_is_not_cordoned_for_a_job_that_has_to_wait():
    cluster = spec(waiting("a", drain=None, cordon=True), rollout=KEY)
    plan = decide(cluster.snapshot(other_use=OtherUse({"a": "other"})), NOW)
    assert (cordoned(plan), gates(plan)) == ([], [])


def test_a_job_that_has_cordoned_the_node_passes_older_ones_that_wait_for_the_cordon():
    cluster = marked(spec(waiting("a", drain=None, cordon=True), rollout=KEY))
    plan = decide(cluster.snapshot(other_use=OtherUse(claimed={"a": "older"})), NOW)
    assert gates(plan) == ["a"]
    plan = decide(cluster.snapshot(other_use=OtherUse({"a": "other"})), NOW)
    assert gates(plan) == []


def test_the_pods_carry_the_key():
    job = a_job("mine")
    body = build_daemon_set(job, gated=True, settings=Settings())
    key = "daemonset.darkowlzz.space/exclusive"
    assert body["spec"]["template"]["metadata"]["labels"][key] == "disk"
    assert key not in body["spec"]["selector"]["matchLabels"]
    plain = build_daemon_set(make_job(), gated=True, settings=Settings())
    assert key not in plain["spec"]["template"]["metadata"]["labels"]


def test_the_key_is_read_from_the_rollout():
    assert parse_rollout({"exclusive": "disk"}).exclusive == "disk"
    assert parse_rollout({}).exclusive == ""
