"""Conditions and taints of nodes in the model."""

import pytest

from tests.fakekube.daemon_sets import Placement, placement
from tests.fakekube.node_lifecycle import (
    NOT_READY,
    READY_KEYS,
    UNREACHABLE,
    ready,
    ready_status,
    ready_taints,
    replace_taints,
    taints_of,
)

MAINTENANCE = {"key": "example.com/m", "effect": "NoSchedule"}


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_a_node_says_whether_it_is_ready(status):
    assert ready_status({"status": {"conditions": [ready(status, "now")]}}) == status


def test_a_node_that_has_not_said_anything_is_unknown():
    assert ready_status({}) == "Unknown"


@pytest.mark.parametrize(("status", "key"), [("False", NOT_READY), ("Unknown", UNREACHABLE)])
def test_a_node_that_is_not_ready_takes_no_daemon_pod_and_keeps_those_it_has(status, key):
    taints = ready_taints(status)
    assert {(taint["key"], taint["effect"]) for taint in taints} == {
        (key, "NoSchedule"),
        (key, "NoExecute"),
    }
    node = {"metadata": {"name": "a"}, "spec": {"taints": taints}}
    assert placement({"spec": {}}, node) == Placement(should_run=False, should_continue=True)


def test_a_ready_node_has_no_taint_of_its_condition():
    assert ready_taints("True") == []


def test_taints_of_other_keys_stay():
    node = {"spec": {"taints": [MAINTENANCE, *ready_taints("False")]}}
    new = ready_taints("Unknown")
    assert replace_taints(taints_of(node), READY_KEYS, new) == [MAINTENANCE, *new]
    assert taints_of({}) == []
