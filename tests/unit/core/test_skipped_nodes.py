"""Nodes that a Job selects and does not run on: counted, named, and part of every message."""

from dataclasses import replace

import pytest

from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import WriteStatus
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.skipped_nodes import describe_skipped
from tests.unit.builders import NOW, done, make_cluster, make_job, make_node, started

GPU = Taint("gpu", "NoSchedule", "yes")
WINDOWS = {"kubernetes.io/os": "windows"}


def cluster_with(*extra, **job_changes):
    """Return a cluster with the completed node a, and further nodes without a pod."""
    job = make_job()
    job = started(replace(job, spec=replace(job.spec, **job_changes)))
    cluster = make_cluster("a", job=job, gated=True, evidence={"a": done("a")}, desired=1)
    cluster.nodes.update({node.name: node for node in extra})
    return cluster


def skipped(cluster):
    return dict(count_nodes(cluster.snapshot(), NOW).skipped)


def messages(cluster):
    plan = decide(cluster.snapshot(), NOW)
    (status,) = [a.status for a in plan.actions if isinstance(a, WriteStatus)]
    return {c.type: c.message for c in status.conditions}, status.nodes


def test_a_node_with_a_taint_is_counted_named_and_in_the_message():
    conditions, nodes = messages(cluster_with(make_node("b", taints=(GPU,))))
    words = "1 of 1 nodes completed; 1 node skipped (b: taint gpu=yes:NoSchedule)"
    assert conditions["Complete"] == conditions["Progressing"] == words
    assert (nodes.skipped, nodes.skipped_names) == (1, "b")


def test_a_windows_node_is_skipped_unless_the_job_asks_for_it():
    windows = make_node("b", labels=WINDOWS)
    assert skipped(cluster_with(windows)) == {"b": "kubernetes.io/os=windows"}
    named = NodeSelection(selector={"matchLabels": WINDOWS})
    assert skipped(cluster_with(windows, nodes=named)) == {}


@pytest.mark.parametrize(
    "template",
    [
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"nodeSelector": {"pool": "x"}},
    ],
    ids=["tolerated", "not selected"],
)
def test_a_node_that_may_run_or_is_not_selected_is_not_skipped(template):
    cluster = cluster_with(make_node("b", taints=(GPU,)), template={"spec": template})
    assert skipped(cluster) == {}


def test_a_node_that_completed_before_its_taint_is_not_skipped():
    cluster = cluster_with(make_node("b", taints=(GPU,)))
    cluster.evidence["b"] = done("b")
    assert skipped(cluster) == {}
    cluster.evidence["b"] = done("b", uid="a former node")
    assert skipped(cluster) == {"b": "taint gpu=yes:NoSchedule"}


def test_a_node_that_is_not_ready_when_the_run_starts_is_skipped():
    taint = Taint("node.kubernetes.io/not-ready", "NoSchedule")
    assert skipped(cluster_with(make_node("b", taints=(taint,)))) == {
        "b": "taint node.kubernetes.io/not-ready:NoSchedule"
    }


def test_a_job_that_only_selects_skipped_nodes_says_so():
    cluster = cluster_with(make_node("b", taints=(GPU,)), nodes=NodeSelection(include=("b",)))
    cluster.nodes.pop("a")
    cluster.pods.clear()
    cluster.evidence.clear()
    cluster.desired = 0
    conditions, nodes = messages(cluster)
    assert conditions["Progressing"].startswith(
        "every matching node is skipped: 1 node skipped (b: taint gpu=yes:NoSchedule)"
    )
    assert nodes.skipped == 1


def test_a_name_to_include_that_no_node_has_is_skipped_and_named():
    cluster = cluster_with(make_node("c"), nodes=NodeSelection(include=("a", "b")))
    conditions, nodes = messages(cluster)
    words = "1 of 1 nodes completed; 1 node skipped (b: there is no such node)"
    assert conditions["Complete"] == words
    assert (nodes.skipped, nodes.skipped_names) == (1, "b")


def test_a_node_that_completed_and_was_deleted_is_not_skipped():
    cluster = cluster_with(nodes=NodeSelection(include=("a", "b")))
    cluster.evidence["b"] = done("b")
    assert skipped(cluster) == {}


def test_a_job_whose_names_no_node_has_does_not_ask_for_a_toleration():
    cluster = cluster_with(nodes=NodeSelection(include=("b",)))
    cluster.nodes.clear()
    cluster.pods.clear()
    cluster.evidence.clear()
    cluster.desired = 0
    conditions, nodes = messages(cluster)
    words = "no node matches spec.nodes (include b); the Job waits for a matching node"
    assert conditions["Progressing"] == words
    assert nodes.skipped_names == "b"


def test_as_many_names_as_can_be_included_make_a_short_message():
    names = tuple(f"{n:0253}" for n in range(1000))
    text = describe_skipped(skipped(cluster_with(nodes=NodeSelection(include=names))))
    assert text.startswith("1000 nodes skipped (")
    assert len(text) < 400


def test_a_job_that_matches_no_node_says_what_it_asks_for():
    selection = NodeSelection(
        selector={
            "matchLabels": {"role": "search"},
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        },
        exclude=("n1", "n2"),
    )
    cluster = cluster_with(nodes=selection, template={"spec": {"nodeSelector": {"pool": "x"}}})
    cluster.pods.clear()
    cluster.evidence.clear()
    cluster.desired = 0
    assert messages(cluster)[0]["Progressing"] == (
        "no node matches spec.nodes (role=search, zone in (a,b), !old, exclude n[1-2]) and the "
        "nodeSelector of spec.template; the Job waits for a matching node"
    )


def test_a_message_of_many_reasons_is_short():
    found = {f"{n:0250}": f"taint {n:0300}=v:NoSchedule" for n in range(5000)}
    text = describe_skipped(found)
    assert text.startswith("5000 nodes skipped (")
    assert text.endswith("; and 4997 more reasons)")
    assert len(text) < 1500


def test_a_large_selection_is_checked_on_each_of_many_tainted_nodes():
    expressions = [{"key": f"k{n}", "operator": "DoesNotExist"} for n in range(400)]
    selector = {"matchExpressions": expressions}
    nodes = [make_node(f"n{n:04}", taints=(GPU,)) for n in range(1000)]
    found = skipped(cluster_with(*nodes, nodes=NodeSelection(selector=selector)))
    assert len(found) == 1000
