"""Cordon and drain before a node's turn, and the end of both after it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.drain import CordonMark, Drain
from daemonset_job.api.drained_pod import DrainedPod
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.names import START_GATE
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.rollout import Rollout, WindowSpec
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import parse_time
from job_controller.core.decide import decide
from job_controller.core.drain_actions import (
    CordonNodes,
    DryRunCordon,
    EvictPods,
    NodeCordon,
    UncordonNodes,
)
from job_controller.core.plan import (
    Plan,
    RefusedWrite,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.cordons import find_stray_cordons, mark_of, nodes_to_list
from job_controller.core.state.evictions import NodeDrain
from job_controller.core.state.first_seen import Sighting, node_draining
from job_controller.sightings import SightingStore
from tests.clocks import FakeClock
from tests.unit.builders import (
    NOW,
    done,
    gated_pod,
    make_cluster,
    make_job,
    make_node,
    make_pod,
)
from tests.unit.core.runs import acts, reason_of, run, spec

WEB = DrainedPod("shop", "web-1", "web-uid", {}, "ReplicaSet")
LEFT = NodeDrain()
DRAIN = Drain(timeout_seconds=60, grace_period_seconds=7)
TURN = "2026-01-02T03:03:05Z"
BEGAN = parse_time(TURN)


def waiting(*names, drain=DRAIN, cordon=False, **changes):
    """Return a cluster in which the pods of these nodes wait at their gates, and have turns."""
    cluster = make_cluster(*names, gated=True, running=False, **changes)
    cluster.pods = [gated_pod(name) for name in names]
    spec(cluster, drain=drain, cordon=cordon, rollout=Rollout(max_parallel=10))
    turns(cluster, *names)
    return cluster


def turns(cluster, *names, **record):
    has_turn = {"state": "Waiting", "reason": "SchedulingGated", "turnAt": TURN} | record
    states = {
        name: {"uid": f"{name}-uid", "podUID": gated_pod(name).uid} | has_turn for name in names
    }
    cluster.report_status = {"nodeStates": states}
    return cluster


def marked(cluster, name="a", mark=None, **changes):
    text = str(mark or mark_of(cluster.job))
    cluster.nodes[name] = make_node(name, is_cordoned=True, cordoned_by=text, **changes)
    return cluster


def record_of(plan, name="a"):
    (written,) = acts(plan, WriteReportStatus)
    return written.status.node_states[name]


def gates(plan):
    return [pod.node_name for action in acts(plan, RemoveSchedulingGates) for pod in action.pods]


def cordoned(plan):
    return [c.node for action in acts(plan, CordonNodes) for c in action.cordons]


def uncordoned(plan):
    return [c.node for action in acts(plan, UncordonNodes) for c in action.cordons]


# --- before the turn ---------------------------------------------------------------------


def test_a_node_is_cordoned_first_and_the_drain_is_on_record():
    cluster = waiting("a")
    plan = decide(cluster.snapshot(), NOW)
    (action,) = acts(plan, CordonNodes)
    assert action.cordons == (NodeCordon("a", "a-uid", mark_of(cluster.job)),)
    assert gates(plan) == []
    record = record_of(plan)
    assert (record.drain_started_at, record.reason) == (NOW, NodeReason.DRAINING)
    assert plan.requeue_after <= 1.0


def test_a_cordon_without_drain_opens_the_gate_once_the_cache_shows_it():
    cluster = waiting("a", drain=None, cordon=True)
    plan = decide(cluster.snapshot(), NOW)
    assert (cordoned(plan), gates(plan)) == (["a"], [])
    plan = decide(marked(cluster).snapshot(), NOW)
    assert (cordoned(plan), gates(plan)) == ([], ["a"])


def test_pods_are_listed_only_of_cordoned_nodes_whose_drain_is_on_record():
    cluster = waiting("a")
    assert nodes_to_list(cluster.snapshot()) == ()
    turns(cluster, "a", drainStartedAt=TURN)
    assert nodes_to_list(cluster.snapshot()) == ()
    marked(cluster)
    assert [node.name for node in nodes_to_list(cluster.snapshot())] == ["a"]
    # A node that is created again under the name is another one, and so is a pod that started.
    assert nodes_to_list(marked(cluster, uid="new").snapshot()) == ()
    marked(cluster).pods = [make_pod("a")]
    assert nodes_to_list(cluster.snapshot()) == ()


def test_pods_are_evicted_and_the_gate_stays_until_they_have_left():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    found = NodeDrain((WEB,), due=(WEB,))
    plan = decide(cluster.snapshot(drains={"a": found}), NOW - timedelta(seconds=20))
    assert acts(plan, EvictPods) == [EvictPods("a", (WEB,), 7)]
    assert gates(plan) == []
    assert "1 pod has not left it yet (shop/web-1)" in record_of(plan).message
    plan = decide(cluster.snapshot(drains={"a": LEFT}), NOW)
    assert (acts(plan, EvictPods), gates(plan)) == ([], ["a"])


def test_an_unknown_drain_opens_no_gate():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    plan = decide(cluster.snapshot(), NOW - timedelta(seconds=20))
    assert gates(plan) == []
    assert plan.requeue_after <= 1.0


def test_a_drain_that_started_keeps_its_time():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    found = NodeDrain((WEB,))
    plan = decide(cluster.snapshot(drains={"a": found}), NOW - timedelta(seconds=20))
    assert record_of(plan).drain_started_at == NOW - timedelta(seconds=60)


def test_what_the_api_server_says_of_an_eviction_is_told_in_the_condition():
    cluster = marked(turns(waiting("a", "b"), "a", "b", drainStartedAt=TURN))
    found = NodeDrain((WEB,), answers={"web-uid": "the budget web needs 2 healthy pods"})
    plan = decide(cluster.snapshot(drains={"a": found}), NOW - timedelta(seconds=20))
    assert reason_of(plan) == "DrainBlocked"
    (status,) = acts(plan, WriteStatus)
    message = status.status.condition("Progressing").message
    assert "1 of 2 nodes cannot be drained (a): 1 pod has not left it yet (shop/web-1)" in message
    assert message.endswith("shop/web-1: the budget web needs 2 healthy pods")


# --- failures ----------------------------------------------------------------------------


def test_a_drain_that_takes_too_long_fails_the_node_and_frees_it():
    cluster = marked(turns(waiting("a", "b"), "a", "b", drainStartedAt=TURN))
    found = NodeDrain((WEB,), answers={"web-uid": "the budget web needs 2"}, due=(WEB,))
    plan = decide(cluster.snapshot(drains={"a": found}), NOW)
    record = record_of(plan)
    assert (record.state, record.reason) == ("Failed", NodeReason.DRAIN_TIMED_OUT)
    assert "drain.timeoutSeconds (60 s): 1 pod has not left it yet (shop/web-1)" in record.message
    assert record.message.endswith("the budget web needs 2")
    assert record.drain_started_at is None
    assert uncordoned(plan) == ["a"]
    assert (acts(plan, EvictPods), gates(plan)) == ([], [])


def away(cluster):
    """Return the cluster, in which the node a has been away for longer than it may be."""
    node = replace(cluster.nodes["a"], ready=False, ready_changed_at=NOW - timedelta(hours=1))
    cluster.nodes["a"] = node
    return spec(cluster, failure_policy=FailurePolicy(FailureAction.CONTINUE))


@pytest.mark.parametrize("answers", [{}, {"web-uid": "no"}])
def test_a_node_that_is_away_while_it_is_drained_is_reported_as_unreachable(answers):
    drain = Drain(timeout_seconds=3600)
    cluster = away(marked(turns(waiting("a", drain=drain), "a", drainStartedAt=TURN)))
    plan = run(cluster, drains={"a": NodeDrain((WEB,), answers=answers)})
    record = record_of(plan)
    assert record.state == NodeState.UNREACHABLE
    assert record.message.startswith("the node has not been Ready since")
    assert "1 pod has not left it yet (shop/web-1)" in record.message
    assert reason_of(plan) == "NodesUnreachable"
    # Its gate was not removed: the reason says so.
    assert record.reason in {NodeReason.DRAINING, NodeReason.DRAIN_BLOCKED}


def test_a_node_that_is_away_and_waits_for_another_job_is_reported_as_unreachable():
    other = CordonMark("default", "other", "other-uid")
    cluster = away(marked(turns(waiting("a"), "a"), mark=other))
    plan = run(cluster)
    assert record_of(plan).reason == NodeReason.NODE_IN_USE
    assert record_of(plan).message.startswith("the node has not been Ready since")
    assert record_of(plan).message.endswith("has its turn there")
    assert reason_of(plan) == "NodesUnreachable"


def test_no_drain_times_out_while_the_node_is_away_and_then_it_has_all_of_its_time():
    found = {"a": NodeDrain((WEB,), due=(WEB,))}
    cluster = away(marked(turns(waiting("a"), "a", drainStartedAt=TURN)))
    plan = run(cluster, seen=timedelta(seconds=5), drains=found)
    assert (record_of(plan).state, record_of(plan).drain_started_at) == (NodeState.WAITING, BEGAN)
    late = NOW + timedelta(hours=1)
    record = record_of(run(cluster, late, drains=found))
    assert (record.state, record.drain_started_at) == (NodeState.UNREACHABLE, BEGAN)
    marked(cluster)
    record = record_of(run(cluster, late, drains=found))
    assert (record.state, record.drain_started_at) == (NodeState.WAITING, late)
    plan = run(cluster, late + timedelta(seconds=61), drains=found)
    assert record_of(plan).reason == NodeReason.DRAIN_TIMED_OUT


def test_a_drain_that_this_controller_has_not_tried_does_not_time_out():
    """It was away for longer than drain.timeoutSeconds."""
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    found = NodeDrain((WEB,), due=(WEB,), tried_seconds=None)
    plan = decide(cluster.snapshot(drains={"a": found}), NOW)
    assert record_of(plan).state == "Waiting"
    (eviction,) = acts(plan, EvictPods)
    assert (eviction.node, eviction.pods) == ("a", (WEB,))


def test_a_drain_that_this_controller_has_just_tried_has_a_minute():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    for seconds, state in ((0.0, "Waiting"), (59.0, "Waiting"), (60.0, "Failed")):
        found = NodeDrain((WEB,), tried_seconds=seconds)
        assert record_of(decide(cluster.snapshot(drains={"a": found}), NOW)).state == state


@pytest.mark.parametrize(
    ("found", "seconds"),
    [(None, DRAIN.timeout_seconds), (NodeDrain((WEB,), tried_seconds=None), 60)],
    ids=["pods unknown", "pods already leaving"],
)
def test_no_drain_times_out_at_the_first_look_of_a_controller_that_was_away(found, seconds):
    """It was away for an hour. Then the list of the pods fails, or nothing is left to evict."""
    cluster = marked(turns(waiting("a"), "a", reason="Draining", drainStartedAt=TURN))
    drain = Drain(timeout_seconds=DRAIN.timeout_seconds)
    spec(cluster, drain=drain, rollout=Rollout(max_parallel=10))
    drains = {} if found is None else {"a": found}
    back = NOW + timedelta(hours=1)
    fact = node_draining(cluster.nodes["a"], NOW - timedelta(seconds=60))
    for looked, state in ((0, "Waiting"), (seconds - 1, "Waiting"), (seconds, "Failed")):
        snapshot = cluster.snapshot(drains=drains, seen={fact: Sighting(back)})
        plan = decide(snapshot, back + timedelta(seconds=looked))
        assert record_of(plan).state == state, looked


def test_a_drain_is_first_seen_when_the_controller_finds_it_on_record():
    cluster = marked(turns(waiting("a", "b"), "a", drainStartedAt=TURN))
    seen = SightingStore(FakeClock(NOW)).with_sightings(("n", "j"), cluster.snapshot()).seen
    fact = node_draining(cluster.nodes["a"], NOW - timedelta(seconds=60))
    assert [each for each in seen if each.kind == fact.kind] == [fact]
    assert seen[fact].first == NOW


@pytest.mark.parametrize("hold", ["suspend", "stop", "window"])
def test_no_drain_times_out_that_is_held_up(hold):
    """It begins again, with all of its time, when nodes may start again."""
    cluster = marked(turns(waiting("a", "b"), "a", drainStartedAt=TURN))
    if hold == "suspend":
        spec(cluster, suspend=True)
    elif hold == "stop":
        cluster.job = replace(cluster.job, stop_message="stopped")
    else:
        window = WindowSpec("0 0 1 1 *", "1h")
        spec(cluster, rollout=Rollout(max_parallel=10, window=window))
    found = NodeDrain((WEB,), due=(WEB,), tried_seconds=None)
    plan = decide(cluster.snapshot(drains={"a": found}), NOW)
    record = record_of(plan)
    assert (record.state, record.drain_started_at) == ("Waiting", None)
    assert (uncordoned(plan), acts(plan, EvictPods)) == (["a"], [])


def test_a_node_with_pods_that_must_not_be_evicted_fails_at_once_and_none_is_evicted():
    cluster = marked(turns(waiting("a", "b"), "a", drainStartedAt=TURN))
    found = NodeDrain((WEB,), refused=((WEB, "they have an emptyDir"),), due=(WEB,))
    plan = decide(cluster.snapshot(drains={"a": found}), NOW - timedelta(seconds=59))
    record = record_of(plan)
    assert (record.state, record.reason) == ("Failed", NodeReason.DRAIN_REFUSED)
    assert record.message.endswith("because of shop/web-1: they have an emptyDir")
    assert (uncordoned(plan), acts(plan, EvictPods)) == (["a"], [])


def test_a_drain_that_is_done_at_the_last_moment_is_no_failure():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    plan = decide(cluster.snapshot(drains={"a": LEFT}), NOW + timedelta(hours=1))
    assert (gates(plan), uncordoned(plan)) == (["a"], [])


def test_a_refused_cordon_is_told_with_what_to_apply():
    words = 'nodes "a" is forbidden: User "x" cannot patch resource "nodes" in API group ""'
    plan = decide(waiting("a").snapshot(refusals={RefusedWrite.CORDON: words}), NOW)
    assert reason_of(plan) == "CordonRefused"
    (status,) = acts(plan, WriteStatus)
    message = status.status.condition("Progressing").message
    assert message.endswith("kubectl apply --server-side -k deploy/components/drain")
    assert cordoned(plan) == []


def test_no_drain_begins_before_the_node_is_cordoned():
    """While the API server refuses the cordon, no time runs out."""
    cluster = waiting("a")
    plan = decide(cluster.snapshot(refusals={RefusedWrite.CORDON: "no"}), NOW)
    assert not [
        record
        for action in acts(plan, WriteReportStatus)
        for record in action.status.node_states.values()
        if record.drain_started_at is not None or record.reason == NodeReason.DRAINING
    ]
    assert plan.requeue_after != 1.0


def test_a_refused_end_of_a_cordon_is_requested_again_after_a_while():
    cluster = marked(waiting("a", "b"))
    cluster.pods, cluster.evidence = [make_pod("a")], {"a": done("a")}
    assert decide(cluster.snapshot(), NOW).requeue_after <= 1.0
    refused = decide(cluster.snapshot(refusals={RefusedWrite.CORDON: "no"}), NOW)
    assert 1.0 < refused.requeue_after <= 10.0


def test_a_drain_stays_over_while_the_removal_of_the_gate_is_refused():
    cluster = marked(turns(waiting("a"), "a", drainStartedAt=TURN))
    refusals = {RefusedWrite.GATE_REMOVAL: "no"}
    late = NOW + timedelta(hours=1)
    plan = decide(cluster.snapshot(drains={"a": LEFT}, refusals=refusals), late)
    record = record_of(plan)
    assert (record.reason, record.drain_started_at) == (NodeReason.SCHEDULING_GATED, BEGAN)
    assert plan.requeue_after != 1.0
    # If its pods cannot be listed then, the drain begins again.
    record = record_of(decide(cluster.snapshot(), late))
    assert (record.state, record.reason) == (NodeState.WAITING, NodeReason.DRAINING)
    assert record.drain_started_at == late


def test_before_the_start_the_api_server_is_asked_whether_it_takes_a_cordon():
    cluster = waiting("a")
    cluster.job = make_job(spec=cluster.job.spec)
    cluster.has_daemon_set = False
    plan = decide(cluster.snapshot(), NOW)
    (trial,) = acts(plan, DryRunCordon)
    assert trial.cordon == NodeCordon("a", "a-uid", mark_of(cluster.job))
    refused = {RefusedWrite.CORDON: 'cannot create resource "pods/eviction"'}
    plan = decide(cluster.snapshot(refusals=refused), NOW)
    assert [type(action) for action in plan.actions] == [WriteStatus]
    assert plan.actions[0].status.start_time is None
    assert reason_of(plan) == "CordonRefused"


# --- other cordons -----------------------------------------------------------------------


def test_a_cordon_that_was_there_before_is_not_marked_and_stays():
    cluster = waiting("a", drain=None, cordon=True)
    cluster.nodes["a"] = make_node("a", is_cordoned=True)
    plan = decide(cluster.snapshot(), NOW)
    assert (cordoned(plan), gates(plan)) == ([], ["a"])
    cluster.pods, cluster.evidence = [make_pod("a")], {"a": done("a")}
    assert uncordoned(decide(cluster.snapshot(), NOW)) == []


def test_a_node_that_somebody_uncordons_meanwhile_is_not_cordoned_again():
    cluster = turns(waiting("a"), "a", drainStartedAt=TURN)
    cluster.nodes["a"] = make_node("a", cordoned_by=str(mark_of(cluster.job)))
    assert [node.name for node in nodes_to_list(cluster.snapshot())] == ["a"]
    plan = decide(cluster.snapshot(drains={"a": LEFT}), NOW)
    assert (cordoned(plan), gates(plan)) == ([], ["a"])


def test_a_node_that_another_job_has_cordoned_waits_for_it():
    cluster = marked(waiting("a"), mark=CordonMark("shop", "other", "1"))
    plan = decide(cluster.snapshot(), NOW)
    assert (cordoned(plan), uncordoned(plan), gates(plan)) == ([], [], [])
    record = record_of(plan)
    assert (record.reason, record.drain_started_at) == (NodeReason.NODE_IN_USE, None)
    assert "Job shop/other has cordoned the node" in record.message
    assert reason_of(plan) == "NodeInUse"


def test_a_text_that_no_controller_wrote_keeps_no_node_from_its_turn():
    cluster = waiting("a")
    cluster.nodes["a"] = make_node("a", cordoned_by="me")
    assert cordoned(decide(cluster.snapshot(), NOW)) == ["a"]


def test_cordons_of_deleted_jobs_are_found_by_name_and_uid():
    job = make_job()
    gone = CordonMark("default", "sample", "earlier")
    nodes = [
        make_node("a", cordoned_by=str(mark_of(job))),
        make_node("b", cordoned_by=str(gone)),
        make_node("c", cordoned_by="default/other/1"),
        make_node("d"),
    ]
    (found,) = find_stray_cordons(nodes, "default", "sample", job.uid)
    assert found == NodeCordon("b", "b-uid", gone)
    assert [c.node for c in find_stray_cordons(nodes, "default", "sample", "")] == ["a", "b"]


# --- after the turn ----------------------------------------------------------------------


def at_work(**changes):
    cluster = marked(waiting("a", "b", **changes))
    cluster.pods[0] = make_pod("a")
    return cluster


def test_the_cordon_stays_while_the_task_is_at_work():
    assert uncordoned(decide(at_work().snapshot(), NOW)) == []


def test_a_completed_node_is_uncordoned_before_the_end_is_written():
    cluster = at_work(evidence={"a": done("a")})
    plan = decide(cluster.snapshot(), NOW)
    kinds = [type(action) for action in plan.actions]
    assert uncordoned(plan) == ["a"]
    assert kinds.index(UncordonNodes) < kinds.index(WriteReportStatus)


def test_suspension_lifts_the_cordon_of_a_node_that_has_not_started_and_no_other():
    cluster = marked(at_work(), "b")
    turns(cluster, "a", "b", drainStartedAt=TURN)
    plan = decide(spec(cluster, suspend=True).snapshot(), NOW)
    assert uncordoned(plan) == ["b"]
    # After the suspension the drain begins again, with all of its time.
    assert record_of(plan, "b").drain_started_at is None


def test_a_run_that_has_failed_keeps_no_node_that_has_not_started():
    cluster = marked(at_work(), "b")
    spec(cluster, active_deadline_seconds=1)
    assert uncordoned(decide(cluster.snapshot(), NOW + timedelta(hours=1))) == ["b"]


def deleted(cluster):
    cluster.job = replace(cluster.job, is_terminating=True)
    return cluster


def test_a_job_that_is_being_deleted_keeps_only_cordons_of_tasks_at_work():
    cluster = deleted(marked(marked(at_work()), "b"))
    plan = decide(cluster.snapshot(), NOW)
    assert uncordoned(plan) == ["b"]
    assert plan.requeue_after is not None
    cluster.pods = [make_pod("a", state="terminated", is_terminating=True)]
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a", "b"]
    cluster.pods = []
    cluster.nodes = {}
    assert decide(cluster.snapshot(), NOW) == Plan()


def test_a_job_that_is_being_deleted_leaves_no_cordon_where_its_task_is_done_or_cannot_be_ended():
    cluster = deleted(at_work(evidence={"a": done("a")}))
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a"]
    cluster = deleted(away(at_work()))
    cluster.pods[0] = replace(cluster.pods[0], is_terminating=True)
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a"]


def test_a_job_that_is_being_deleted_tries_again_while_its_uncordons_are_refused():
    cluster = deleted(marked(waiting("a")))
    plan = decide(cluster.snapshot(refusals={RefusedWrite.CORDON: "no"}), NOW)
    assert (plan.actions, plan.requeue_after) == ((), 15.0)


def test_a_node_that_left_the_run_is_uncordoned():
    cluster = at_work()
    cluster.pods.pop(0)
    assert uncordoned(decide(cluster.snapshot(), NOW)) == ["a"]


def test_a_pod_that_is_being_deleted_may_have_its_task_at_work():
    cluster = at_work()
    cluster.pods[0] = make_pod("a", is_terminating=True)
    assert uncordoned(decide(cluster.snapshot(), NOW)) == []


STATES = st.fixed_dictionaries(
    {
        "pod": st.sampled_from(["none", "gated", "running", "terminating", "ended"]),
        "evidence": st.booleans(),
        "suspend": st.booleans(),
        "cordoned": st.booleans(),
        "drain": st.sampled_from(["unknown", "left", "blocked", "refused"]),
        "age": st.sampled_from([0, 30, 3600]),
        "node": st.sampled_from(["ready", "lost", "new"]),
        "failed": st.booleans(),
    }
)


def cluster_in(state):
    cluster = marked(waiting("a", "b"))
    node = replace(cluster.nodes["a"], is_cordoned=state["cordoned"])
    if state["node"] == "lost":
        node = replace(node, ready=False, ready_changed_at=NOW - timedelta(days=1))
    if state["node"] == "new":
        node = replace(node, uid="new")
    cluster.nodes["a"] = node
    pods = {
        "none": [],
        "gated": [gated_pod("a")],
        "running": [make_pod("a")],
        "terminating": [make_pod("a", is_terminating=True)],
        "ended": [make_pod("a", phase="Failed", reason="Evicted")],
    }[state["pod"]]
    cluster.pods = [*pods, gated_pod("b")]
    cluster.evidence = {"a": done("a")} if state["evidence"] else {}
    started = NOW - timedelta(seconds=state["age"])
    turns(cluster, "a", drainStartedAt=f"{started:%Y-%m-%dT%H:%M:%SZ}")
    if state["failed"]:
        spec(cluster, active_deadline_seconds=1)
    found = {
        "unknown": {},
        "left": {"a": LEFT},
        "blocked": {"a": NodeDrain((WEB,), answers={"web-uid": "no"}, due=(WEB,))},
        "refused": {"a": NodeDrain(refused=((WEB, "why"),))},
    }[state["drain"]]
    return spec(cluster, suspend=state["suspend"]), found


@settings(max_examples=200, deadline=None)
@given(STATES)
def test_a_marked_node_has_its_turn_or_is_uncordoned(state):
    cluster, found = cluster_in(state)
    plan = decide(cluster.snapshot(drains=found), NOW)
    is_lifted = "a" in uncordoned(plan)
    is_complete = state["evidence"] and state["node"] != "new"
    may_be_at_work = state["pod"] in {"running", "terminating", "ended"} and not is_complete
    if is_lifted:
        # Never while the gate is opened, pods are evicted, or the node is cordoned again.
        assert "a" not in gates(plan)
        assert "a" not in cordoned(plan)
        assert not acts(plan, EvictPods)
    elif not may_be_at_work:
        # Only a node that is being prepared keeps it, and the plan looks again by itself.
        assert state["pod"] == "gated"
        assert not state["suspend"]
        assert not state["failed"]
        assert "a" in gates(plan) or plan.requeue_after <= 1.0
    if "a" in gates(plan):
        assert state["drain"] == "left"
        assert START_GATE in cluster.pods[0].gates


@pytest.mark.parametrize("reason", ["Draining", "DrainBlocked", "NodeInUse"])
def test_the_report_says_that_a_node_is_ready_before_its_gate_is_removed(reason):
    """After a crash only the report shows whether a node that is gone had taken its turn."""
    cluster = marked(waiting("a"))
    turns(cluster, "a", reason=reason, podUID="pod-a", drainStartedAt=TURN)
    plan = decide(cluster.snapshot(drains={"a": LEFT}), NOW)
    assert not gates(plan)
    assert plan.is_urgent
    (written,) = acts(plan, WriteReportStatus)
    record = written.status.node_states["a"]
    assert record.reason == NodeReason.SCHEDULING_GATED
    assert record.drain_started_at is not None, "its pods are listed once more"
    cluster.report_status = written.status.to_raw()
    assert gates(decide(cluster.snapshot(drains={"a": LEFT}), NOW)) == ["a"]


def test_a_pod_that_comes_to_a_node_that_was_ready_keeps_the_gate():
    cluster = marked(waiting("a"))
    turns(cluster, "a", podUID="pod-a", reason="SchedulingGated", drainStartedAt=TURN)
    found = NodeDrain(leaving=(WEB,))
    plan = decide(cluster.snapshot(drains={"a": found}), NOW - timedelta(seconds=20))
    assert not gates(plan)
    assert record_of(plan).reason == NodeReason.DRAINING
