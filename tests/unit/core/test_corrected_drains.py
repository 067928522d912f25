"""A run that failed because a node was not drained can be corrected: no task of it has begun."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.states import ConditionType
from job_controller.core.drain_actions import UncordonNodes
from job_controller.core.plan import CheckNoPodMayStart, DeleteDaemonSet
from job_controller.core.state.evictions import NodeDrain
from tests.unit.builders import NOW, gated_pod
from tests.unit.core.runs import acts, conditions, run, spec
from tests.unit.core.test_preparation import WEB, marked, waiting

LATER = NOW + timedelta(minutes=1)
REFUSED = NodeDrain(refused=((WEB, "it has an emptyDir"),))


def failed(pods=PodPolicy.DELETE_FAILED):
    """Return a cluster whose run has failed: a pod on node a must not be evicted."""
    cluster = marked(waiting("a", "b"))
    spec(cluster, failure_policy=replace(cluster.job.spec.failure_policy, pods=pods))
    run(cluster)
    run(cluster, drains={"a": REFUSED})
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")
    assert cluster.report_status["nodeStates"]["a"]["reason"] == "DrainRefused"
    return cluster


def is_taken_back(cluster):
    return cluster.job.status.start_time is None


@pytest.mark.parametrize("serial", [2, 3], ids=["its pod", "the next pod"])
def test_a_run_whose_drain_has_failed_is_taken_back(serial):
    cluster = spec(failed(), suspend=True)
    cluster.pods = [gated_pod(node, serial=serial) for node in ("a", "b")]
    assert acts(run(cluster), UncordonNodes)
    cluster.nodes["a"] = replace(cluster.nodes["a"], cordoned_by="", is_cordoned=False)
    assert acts(run(cluster), CheckNoPodMayStart)
    assert is_taken_back(cluster)
    words = cluster.job.status.condition(ConditionType.FAILED).message
    assert "the node is not drained" in words


def test_so_it_is_when_its_daemon_set_is_deleted():
    cluster = failed(PodPolicy.DELETE)
    assert acts(run(cluster), DeleteDaemonSet)
    cluster.nodes["a"] = replace(cluster.nodes["a"], cordoned_by="", is_cordoned=False)
    cluster.has_daemon_set, cluster.pods = False, []
    run(spec(cluster, suspend=True))
    assert is_taken_back(cluster)


def test_a_node_whose_drain_failed_at_its_second_attempt_keeps_the_run():
    cluster = spec(failed(), suspend=True)
    cluster.report_status["nodeStates"]["a"]["attempts"] = 1
    cluster.pods = [gated_pod(node, serial=3) for node in ("a", "b")]
    cluster.nodes["a"] = replace(cluster.nodes["a"], cordoned_by="", is_cordoned=False)
    run(cluster)
    assert not is_taken_back(cluster)
