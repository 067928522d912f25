"""Nodes that are down and have a deleted pod, which cannot end: they are unreachable.

No kubelet ends that pod, and until it is gone the DaemonSet controller creates no other one.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionPolicy
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import Completion, FailurePolicy
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from tests.unit.builders import NOW, done, make_cluster, make_node, make_pod, seen_before
from tests.unit.core.runs import conditions, lost, run, spec

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")
CHOSEN = Taint("maintenance", "NoSchedule")
EVERYTHING = {"spec": {"tolerations": [{"operator": "Exists"}]}}
LIMIT = timedelta(minutes=1)


def stuck(*taints, container=None, completed=("a", "b"), **policy):
    """Three nodes: a and b completed; c went down, and its pod, not started, is being deleted."""
    evidence = {name: done(name) for name in completed}
    cluster = make_cluster("a", "b", "c", gated=True, evidence=evidence)
    cluster.nodes["c"] = replace(lost("c"), taints=taints or (NOT_READY,))
    pod = make_pod("c", state="waiting", is_terminating=True)
    cluster.pods[2] = replace(pod, container=container) if container else pod
    cluster.desired, cluster.misscheduled = 2, 1
    return spec(cluster, failure_policy=FailurePolicy(**policy))


def tolerating(cluster):
    """Let the pods tolerate all taints: the DaemonSet controller counts the node."""
    cluster.desired, cluster.misscheduled = 3, 0
    return spec(cluster, template=EVERYTHING)


def totals(cluster):
    return cluster.job.status.nodes


def record(cluster):
    return cluster.report_status["nodeStates"].get("c", {})


@pytest.mark.parametrize("make", [stuck, lambda **kw: tolerating(stuck(**kw))])
@pytest.mark.parametrize("container", [None, Container("running")], ids=["waiting", "started"])
def test_it_counts_against_the_limit_of_failed_nodes_after_a_minute(make, container):
    cluster = make(container=container)
    run(cluster, seen=timedelta(seconds=59))
    assert "Failed" not in conditions(cluster)
    assert (totals(cluster).waiting + totals(cluster).active, totals(cluster).unreachable) == (1, 0)
    plan = decide(seen_before(cluster.snapshot(), timedelta(seconds=59)), NOW)
    assert plan.requeue_after == 1.0
    run(cluster)
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert (totals(cluster).desired, totals(cluster).unreachable_names) == (3, "c")
    assert (record(cluster)["state"], record(cluster)["reason"]) == ("Unreachable", "NodeNotReady")
    # Whether the task has started is not made up.
    assert record(cluster).get("attempts", 0) == (0 if container is None else 1)
    assert not decide(seen_before(cluster.snapshot(), LIMIT), NOW).actions


@pytest.mark.parametrize("make", [stuck, lambda **kw: tolerating(stuck(**kw))])
def test_a_run_that_may_lack_nodes_ends_without_it(make):
    cluster = make(max_unreachable_nodes="100%")
    run(cluster)
    assert "setAsideAt" in record(cluster)
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "CompletedWithinFailureLimit")
    found = totals(cluster)
    assert (found.desired, found.completed, found.unreachable) == (3, 2, 1)
    # A node that is back is waited for by the Job, which is kept.
    cluster.nodes["c"] = make_node("c")
    cluster.pods[2] = make_pod("c", serial=2)
    cluster.desired, cluster.misscheduled = 3, 0
    run(cluster)
    assert (totals(cluster).active, totals(cluster).unreachable) == (1, 0)


def test_a_run_that_waits_for_it_says_so():
    cluster = stuck(action="Continue")
    run(cluster)
    assert conditions(cluster)["Progressing"] == ("False", "NodesUnreachable")
    assert (totals(cluster).unreachable, totals(cluster).waiting) == (1, 0)
    message = cluster.job.condition("Progressing").message
    assert "new ones are created only after that" in message
    # Forced, it is gone. Whether it had begun is not known any more.
    del cluster.pods[2]
    cluster.misscheduled = 0
    run(cluster)
    assert (totals(cluster).desired, totals(cluster).unreachable) == (3, 1)


def test_unreachable_seconds_set_it_aside():
    cluster = stuck(completed=("a",), max_unreachable_nodes=1, unreachable_seconds=300)
    run(cluster, seen=timedelta(seconds=359))
    assert record(cluster)["state"] == "Unreachable"
    assert "setAsideAt" not in record(cluster)
    run(cluster, seen=timedelta(seconds=360))
    assert "setAsideAt" in record(cluster)
    # The run waits for b.
    assert "Complete" not in conditions(cluster)


def test_its_own_time_is_that_of_the_job():
    cluster = spec(stuck(), node_unreachable_seconds=600)
    run(cluster, seen=timedelta(seconds=599))
    assert (record(cluster)["state"], record(cluster)["reason"]) == ("Waiting", "NodeNotReady")
    run(cluster, seen=timedelta(seconds=600))
    assert record(cluster)["state"] == "Unreachable"


def test_a_taint_of_an_administrator_takes_it_out():
    """In a rollout its place is free after a minute. The end of the run waits for the pod."""
    cluster = stuck(NOT_READY, CHOSEN)
    run(cluster)
    assert totals(cluster).unreachable == 0
    assert conditions(cluster)["Progressing"] == ("False", "NodesUnreachable")
    del cluster.pods[2]
    cluster.misscheduled = 0
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "AllNodesCompleted")


@pytest.mark.parametrize("changes", [{"phase": "Failed"}, {"is_terminating": False}])
def test_a_pod_that_has_ended_or_is_not_deleted_is_another_case(changes):
    cluster = stuck(action="Continue")
    cluster.pods[2] = replace(cluster.pods[2], **changes)
    cluster.misscheduled = 0 if "phase" in changes else 1
    run(cluster)
    assert totals(cluster).unreachable == (0 if "phase" in changes else 1)


def test_a_node_that_is_ready_ends_its_pod_itself():
    cluster = stuck(action="Continue")
    cluster.nodes["c"] = make_node("c", taints=(CHOSEN,))
    run(cluster)
    assert totals(cluster).unreachable == 0


def test_a_retry_gives_the_node_its_time_and_starts_nothing():
    """Only a report that says `Unreachable` shows that a node may have begun."""
    waiting = NodeRecord(uid="c-uid", state="Waiting", reason="ImagePullFailed")
    cluster = stuck(action="Continue")
    cluster.report_status = {"nodeStates": {"c": waiting.to_raw()}}
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster, seen=timedelta(seconds=1))
    assert "c" not in cluster.report_status.get("nodeStates", {})
    assert totals(cluster).waiting == 1
    run(cluster)
    assert record(cluster)["state"] == "Unreachable"
    assert "attempts" not in record(cluster)


def test_a_standing_job_is_not_complete_while_it_is_away():
    cluster = spec(stuck(), completion=Completion(policy=CompletionPolicy.CONTINUOUS))
    run(cluster)
    assert totals(cluster).unreachable == 1
    assert "Complete" not in conditions(cluster)


@pytest.mark.parametrize("container", [None, Container("running")], ids=["waiting", "started"])
def test_the_pod_of_a_former_node_says_nothing_of_its_successor(container):
    """A machine is installed again under its name, and is not Ready before its network is."""
    cluster = stuck(container=container)
    cluster.nodes["c"] = replace(cluster.nodes["c"], uid="c-uid-2", created_at=NOW)
    run(cluster)
    assert "Failed" not in conditions(cluster)
    assert totals(cluster).unreachable == 0
