"""What the modelled DaemonSet controller writes."""

import pytest

from tests.fakekube.daemon_set_objects import (
    build_pod,
    build_status,
    controller_uid,
    has_status,
    owned_pods,
)
from tests.fakekube.daemon_sets import node_of

READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def daemon_set():
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [], "affinity": {"podAffinity": {"theirs": 1}}},
    }
    meta = {"name": "set", "uid": "set-uid", "generation": 4}
    return {"metadata": meta, "spec": {"template": template}}


def node(name, *taints):
    return {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {"taints": [{"key": "k", "effect": effect} for effect in taints]},
    }


def pod(node_name, created="2030-01-01T00:00:00Z", *, deleting=False, **status):
    made = build_pod(daemon_set(), node_name)
    made["metadata"] |= {"name": f"pod-{node_name}", "creationTimestamp": created}
    if deleting:
        made["metadata"]["deletionTimestamp"] = "2030-01-01T00:01:00Z"
    return {**made, "status": status}


def counts(nodes, pods):
    found = build_status(daemon_set(), nodes, pods)
    return tuple(
        found[key]
        for key in (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberMisscheduled",
            "numberReady",
        )
    )


def test_a_pod_is_bound_to_its_node_by_affinity_and_owned_by_its_set():
    made = build_pod(daemon_set(), "a")
    assert node_of(made) == "a"
    assert controller_uid(made) == "set-uid"
    assert made["metadata"]["labels"] == {"app": "x"}
    assert made["spec"]["affinity"]["podAffinity"] == {"theirs": 1}
    assert "nodeName" not in made["spec"]


def test_pods_of_others_are_not_owned():
    mine, theirs, orphan = pod("a"), pod("b"), pod("c")
    theirs["metadata"]["ownerReferences"][0]["uid"] = "another"
    orphan["metadata"]["ownerReferences"][0]["controller"] = False
    assert owned_pods(daemon_set(), [mine, theirs, orphan]) == [mine]


@pytest.mark.parametrize(
    ("nodes", "pods", "expected"),
    [
        ([node("a"), node("b")], [], (2, 0, 0, 0)),
        ([node("a"), node("b")], [pod("a", **READY), pod("b")], (2, 2, 0, 1)),
        ([node("a"), node("b", "NoSchedule")], [pod("a"), pod("b", **READY)], (1, 1, 1, 0)),
        ([node("a")], [pod("a", deleting=True, **READY)], (1, 1, 0, 1)),
        ([node("a")], [pod("a", deleting=True, phase="Failed")], (1, 0, 0, 0)),
        # The oldest pod of a node counts for it.
        ([node("a")], [pod("a", "2030-01-01T00:00:09Z", **READY), pod("a")], (1, 1, 0, 0)),
        ([], [pod("gone")], (0, 0, 0, 0)),
    ],
    ids=["none", "two", "tainted", "deleting", "ended", "oldest", "node-gone"],
)
def test_the_status_counts_nodes(nodes, pods, expected):
    assert counts(nodes, pods) == expected
    assert build_status(daemon_set(), nodes, pods)["observedGeneration"] == 4


def test_an_unchanged_status_is_not_written_again():
    found, status = daemon_set(), build_status(daemon_set(), [node("a")], [])
    assert not has_status(found, status)
    # The API server leaves zeros of new fields out.
    found["status"] = {key: value for key, value in status.items() if value}
    assert has_status(found, status)
