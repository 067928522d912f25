"""Nodes that equal numbers could hide: not in the cache, not desired any more, or counted twice."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import ApplyDaemonSet, WriteStatus
from job_controller.core.state.counting import count_nodes
from tests.unit.builders import NOW, done, gated_pod, make_cluster, make_node, make_pod
from tests.unit.core.runs import acts, run, spec

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
MAINTENANCE = Taint("maintenance", "NoExecute")
QUOTA = "exceeded quota"


def tainted(cluster, name, taint):
    cluster.nodes[name] = replace(cluster.nodes[name], taints=(taint,))


def set_nodes(cluster, nodes, **job):
    raw = {"image": "i", **({"nodes": nodes} if nodes else {})}
    selection = parse_spec(raw).nodes
    old = cluster.job.spec
    cluster.job = replace(cluster.job, spec=replace(old, nodes=selection), raw_spec=raw, **job)


# --- the pod of another node is not in the cache -------------------------------------------


def shut_down(**changes):
    """Node a has completed and shuts down: the one pod that the DaemonSet counts may be b's."""
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")}, **changes)
    tainted(cluster, "a", NOT_READY)
    cluster.pods = [make_pod("a")]
    cluster.desired = cluster.scheduled = 1
    return cluster


def test_a_pod_on_a_tainted_node_does_not_stand_for_one_that_is_not_cached():
    """Found by the simulation, seed 3006182: complete, and node b had not begun."""
    cluster = shut_down()
    assert not count_nodes(cluster.snapshot(), NOW).is_exact
    run(cluster)
    assert not cluster.job.is_true(ConditionType.COMPLETE)


def test_where_no_other_node_can_be_meant_the_tainted_one_counts():
    cluster = shut_down()
    set_nodes(cluster, {"include": ["a"]})
    assert count_nodes(cluster.snapshot(), NOW).is_exact
    cluster = shut_down()
    tainted(cluster, "b", MAINTENANCE)
    assert count_nodes(cluster.snapshot(), NOW).is_exact
    cluster = shut_down(misscheduled=1)
    cluster.pods.append(make_pod("b"))
    assert count_nodes(cluster.snapshot(), NOW).is_exact


@pytest.mark.parametrize("misscheduled", [0, 1])
def test_a_pod_that_leaves_does_not_stand_for_one_that_is_not_cached(misscheduled):
    """Found by the simulation, seed 5047756: complete with 1 of 2 nodes."""
    cluster = make_cluster("a", "b", "c", gated=True, evidence={"a": done("a"), "b": done("b")})
    set_nodes(cluster, {"exclude": ["b"]})
    cluster.pods = [make_pod("a"), replace(make_pod("b"), is_terminating=True)]
    cluster.desired, cluster.misscheduled = 2, misscheduled
    cluster.scheduled = 2 - misscheduled
    assert not count_nodes(cluster.snapshot(), NOW).is_exact
    run(cluster)
    assert not cluster.job.is_true(ConditionType.COMPLETE)


@pytest.mark.parametrize("others", [50, 1000])
def test_such_a_node_is_found_however_long_the_selection_is(others):
    """It has 400 requirements, and z is the last node that is checked."""
    cluster = shut_down()
    tainted(cluster, "b", MAINTENANCE)
    names_ = [f"n{n:04}" for n in range(others)]
    cluster.nodes |= {name: make_node(name, labels={"k0": ""}) for name in names_}
    cluster.nodes["z"] = make_node("z")
    expressions = [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(400)]
    set_nodes(cluster, {"selector": {"matchExpressions": expressions}})
    assert not count_nodes(cluster.snapshot(), NOW).is_exact


def test_a_count_that_is_older_than_the_caches_and_agrees_by_chance_completes_nothing():
    """Found by the simulation, seed 5122062.

    The DaemonSet controller counted one node, b. Since then b has lost its pod, which was rejected,
    and the completed node a is Ready again and has its next pod.
    """
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.pods, cluster.desired, cluster.scheduled = [gated_pod("a")], 1, 1
    assert not count_nodes(cluster.snapshot(), NOW).is_exact
    run(cluster)
    assert not cluster.job.is_true(ConditionType.COMPLETE)


# --- completed nodes that are not desired any more -----------------------------------------


@pytest.mark.parametrize(
    ("why", "counted"), [("tainted", (3, 1, "a,c")), ("excluded", (2, 1, "a"))]
)
def test_a_completed_node_that_is_not_desired_does_not_hide_a_refused_pod(why, counted):
    cluster = make_cluster("a", "b", "c", gated=True, failed_create_message=QUOTA)
    cluster.pods = [make_pod("a")]
    cluster.evidence = {"a": done("a"), "c": done("c")}
    cluster.desired, cluster.scheduled = 2, 1
    if why == "tainted":
        tainted(cluster, "c", MAINTENANCE)
    else:
        cluster.started_with = cluster.job.selection_hash
        set_nodes(cluster, {"exclude": ["c"]})
    plan = run(cluster)
    nodes = cluster.job.status.nodes
    assert (nodes.desired, nodes.waiting, nodes.completed_names) == counted
    assert cluster.job.condition(ConditionType.PROGRESSING).reason == "FailedCreate"
    assert plan.has_missing_pods


def test_a_completed_node_waits_for_its_next_pod_and_stays_counted():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.pods, cluster.desired, cluster.scheduled = [make_pod("b")], 2, 1
    assert count_nodes(cluster.snapshot(), NOW).completed_without_pod == {"a"}


def test_a_completed_node_with_a_taint_counts_until_its_pod_has_ended():
    """Found by the simulation, seed 4004136: the last record of a run said 2 of 3 completed."""
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    tainted(cluster, "b", replace(MAINTENANCE, effect="NoSchedule"))
    cluster.desired = cluster.scheduled = cluster.misscheduled = 1
    cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.missing, counts.completed_without_pod) == (2, 0, {"b"})


def test_a_node_that_is_shut_down_is_desired_while_its_last_pod_is_cached():
    """Found by the simulation, seed 5015520: the last record of a run said 1 of 0 completed."""
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")}, desired=0, scheduled=0)
    tainted(cluster, "a", NOT_READY)
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.is_exact) == (1, False)


# --- desired and skipped -------------------------------------------------------------------


@pytest.mark.parametrize("pod", ["being deleted", "gated"])
def test_a_node_with_a_pod_is_not_skipped(pod):
    cluster = make_cluster("a", "b", gated=True, desired=1, scheduled=1, misscheduled=1)
    tainted(cluster, "b", MAINTENANCE)
    if pod == "gated":
        cluster.pods[1] = gated_pod("b")
    else:
        cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    assert not count_nodes(cluster.snapshot(), NOW).skipped
    cluster.pods[1] = replace(cluster.pods[1], phase="Failed", is_terminating=True)
    assert count_nodes(cluster.snapshot(), NOW).skipped.keys() == {"b"}


# --- a completed, kept Job that is widened -------------------------------------------------


def kept_on_a():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    set_nodes(cluster, {"include": ["a"]})
    spec(cluster, ttl_seconds_after_finished=3600)
    run(cluster)
    assert cluster.job.is_true(ConditionType.COMPLETE)
    cluster.nodes["b"], cluster.desired = make_node("b"), 1
    return cluster


@pytest.mark.parametrize("found", ["missing", "being deleted"])
def test_it_is_open_again_though_its_daemon_set_is_away(found):
    cluster = kept_on_a()
    old = replace(cluster.daemon_set(), is_terminating=True) if found != "missing" else None
    away = cluster.snapshot(daemon_set=old, pods=())
    assert not acts(decide(away, NOW), WriteStatus)
    set_nodes(cluster, None, generation=2)
    plan = decide(cluster.snapshot(daemon_set=old, pods=()), NOW + timedelta(minutes=1))
    (status,) = [action.status for action in acts(plan, WriteStatus)]
    complete = status.condition(ConditionType.COMPLETE)
    assert (complete.status, complete.reason) == (False, "NodesAdded")
    assert not acts(plan, ApplyDaemonSet)


def test_it_is_open_again_though_its_selection_has_too_many_terms():
    cluster = kept_on_a()
    old = cluster.daemon_set()
    zones = [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{n}"]}]}
        for n in range(6)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    template = {"spec": {"affinity": {"nodeAffinity": required}}}
    raw = {
        "image": "i",
        "nodes": {"include": ["b", *(f"node-{n:055d}" for n in range(999))]},
        "template": template,
    }
    new = replace(cluster.job.spec, nodes=parse_spec(raw).nodes, template=template)
    cluster.job = replace(cluster.job, spec=new, raw_spec=raw, generation=2)
    plan = decide(cluster.snapshot(daemon_set=old), NOW)
    (status,) = [action.status for action in acts(plan, WriteStatus)]
    assert status.condition(ConditionType.COMPLETE).status is False
    assert status.condition(ConditionType.PROGRESSING).reason == "TooManyNodeSelectorTerms"


# --- the gate while pods are refused -------------------------------------------------------


def test_new_pods_are_gated_once_a_node_has_completed_while_another_pod_is_refused():
    cluster = make_cluster("a", "b", failed_create_message=QUOTA)
    cluster.pods = cluster.pods[:1]
    assert not acts(run(cluster), ApplyDaemonSet)
    cluster.evidence = {"a": done("a")}
    (apply,) = acts(run(cluster), ApplyDaemonSet)
    gates = apply.body["spec"]["template"]["spec"]["schedulingGates"]
    assert gates == [{"name": names.START_GATE}]
    cluster.failed_create_message = ""
    assert not acts(run(cluster), ApplyDaemonSet)
