"""The event of a retry request says which nodes are tried again, whatever pod they have by now."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.states import ConditionType
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import DeletePods
from tests.unit.builders import NOW, gated_pod, make_cluster, make_job, make_node, started
from tests.unit.core.runs import acts, failing, run, spec


def failed(node, retry=""):
    record = {"uid": f"{node}-uid", "state": "Failed", "attempts": 1, "podUID": f"pod-{node}-1"}
    return record | ({"observedRetry": retry} if retry else {})


def retried(*node_names, records):
    job = replace(started(make_job()), annotations={names.ANNOTATION_RETRY: "1"})
    return make_cluster(*node_names, gated=True, job=job, report_status={"nodeStates": records})


def events(cluster):
    return [(event.reason, event.message) for event in decide(cluster.snapshot(), NOW).events]


@pytest.mark.parametrize("pod", ["gated", "being deleted", "none, the node is away"])
def test_a_failed_node_is_named_whatever_its_pod(pod):
    cluster = retried("a", "b", records={"b": failed("b")})
    if pod == "gated":
        cluster.pods[1] = gated_pod("b")
    elif pod == "being deleted":
        cluster.pods[1] = replace(cluster.pods[1], is_terminating=True)
    else:
        taint = Taint("node.kubernetes.io/unreachable", "NoSchedule")
        cluster.pods, cluster.desired = cluster.pods[:1], 1
        cluster.nodes["b"] = replace(cluster.nodes["b"], ready=False, taints=(taint,))
    assert events(cluster) == [("Retrying", "1 of 2 nodes are tried again (b)")]


def test_after_a_crash_the_report_says_which_nodes_are_tried_again():
    waiting = {"uid": "b-uid", "state": "Waiting", "attempts": 1, "observedRetry": "1"}
    cluster = retried("a", "b", records={"b": waiting})
    cluster.pods[1] = gated_pod("b")
    assert events(cluster) == [("Retrying", "1 of 2 nodes are tried again (b)")]


def test_nodes_that_are_gone_or_have_not_failed_are_not_tried_again():
    cluster = retried("a", "b", records={"gone": failed("gone"), "b": failed("b", retry="1")})
    cluster.nodes["b"] = make_node("b", uid="another")
    cluster.pods[1] = replace(cluster.pods[1], uid="another")
    words = "no node has failed or waits in a back-off: the retry request changes nothing"
    run_events = run(cluster).events
    assert ("NothingToRetry", words) in [(event.reason, event.message) for event in run_events]


@pytest.mark.parametrize("seen", [timedelta(), timedelta(minutes=1)])
def test_an_end_before_the_request_that_is_not_on_record_does_not_use_it_up(seen):
    """The start of the task is not on record either: progress is written at intervals only."""
    cluster = retried("a", "b", records={"a": failed("a")})
    spec(cluster, backoff_limit=0)
    cluster.pods = [gated_pod("a"), failing("b")]
    plans = [run(cluster, seen=seen)]
    assert cluster.job.status.observed_retry == "1"
    plans.append(run(cluster, NOW + timedelta(minutes=2)))
    assert not cluster.job.is_true(ConditionType.FAILED)
    deleted = {pod.name for plan in plans for each in acts(plan, DeletePods) for pod in each.pods}
    assert deleted == {"sample-b-1"}
