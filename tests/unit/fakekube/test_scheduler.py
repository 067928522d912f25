"""The scheduler's rules in the model."""

import pytest

from tests.fakekube.daemon_set_objects import build_pod
from tests.fakekube.scheduler import NO_NODE, fits, may_bind, scheduled, unschedulable

SET = {
    "metadata": {"name": "set", "uid": "set-uid"},
    "spec": {"template": {"spec": {"containers": []}}},
}


def node(name, *effects):
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return {"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}}


@pytest.mark.parametrize(
    ("spec", "meta", "expected"),
    [
        ({}, {}, True),
        ({"nodeName": "a"}, {}, False),
        ({"schedulingGates": [{"name": "g"}]}, {}, False),
        ({"schedulingGates": []}, {}, True),
        ({}, {"deletionTimestamp": "now"}, False),
    ],
    ids=["free", "bound", "gated", "no-gate-left", "deleted"],
)
def test_a_pod_is_bound_once_and_without_gates(spec, meta, expected):
    assert may_bind({"metadata": meta, "spec": spec}) is expected


def test_a_daemon_pod_fits_its_own_node_unless_a_taint_keeps_it_off():
    pod = build_pod(SET, "a")
    assert fits(pod, node("a"))
    assert not fits(pod, node("b"))
    assert not fits(pod, node("a", "NoSchedule"))
    assert not fits(pod, node("a", "NoExecute"))


def test_a_pod_that_no_node_takes_says_so_once_for_each_message():
    status = unschedulable({"phase": "Pending", "conditions": [scheduled()]}, NO_NODE, "now")
    assert status["phase"] == "Pending"
    (found,) = status["conditions"]
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "Unschedulable",
        NO_NODE,
    )
    assert unschedulable(status, NO_NODE, "later") is None
    assert unschedulable(status, "another", "later")["conditions"][0]["message"] == "another"
    assert unschedulable(None, NO_NODE, "now")["conditions"][0]["lastTransitionTime"] == "now"
