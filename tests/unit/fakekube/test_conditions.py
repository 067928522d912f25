"""Conditions of the model: one of each type."""

from tests.fakekube.conditions import condition, find_condition, with_condition

READY = condition("Ready", "True")
OLD = condition("PodScheduled", "False", "Unschedulable", "no room", "2030-01-01T00:00:00Z")


def test_empty_texts_are_left_out():
    assert condition("Ready", "True") == {"type": "Ready", "status": "True"}
    assert OLD["lastTransitionTime"] == "2030-01-01T00:00:00Z"


def test_a_condition_replaces_the_one_of_its_type_only():
    new = condition("PodScheduled", "True")
    assert with_condition([OLD, READY], new) == [READY, new]
    assert with_condition(None, new) == [new]


def test_a_missing_condition_is_empty():
    assert find_condition({"conditions": [READY, OLD]}, "PodScheduled") == OLD
    assert find_condition({}, "Ready") == {}
    assert find_condition(None, "Ready") == {}
