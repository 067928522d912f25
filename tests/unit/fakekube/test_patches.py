"""Merge patches and JSON patches."""

import pytest

from tests.fakekube.patches import json_patch, merge_patch
from tests.fakekube.refusals import Refused

OLD = {"a": {"b": 1, "c": [1, 2]}, "d": {"x/y": 1}}


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({}, OLD),
        ({"a": {"b": None}}, {"a": {"c": [1, 2]}, "d": {"x/y": 1}}),
        ({"a": {"c": [3]}}, {"a": {"b": 1, "c": [3]}, "d": {"x/y": 1}}),
        ({"a": 1, "d": None, "e": None}, {"a": 1}),
        # A null within a new map leaves nothing (RFC 7386, appendix A).
        ({"e": {"f": {"g": None}}}, {**OLD, "e": {"f": {}}}),
        ({"a": {"b": {"n": 1}}}, {"a": {"b": {"n": 1}, "c": [1, 2]}, "d": {"x/y": 1}}),
    ],
)
def test_a_merge_patch_sets_and_removes(patch, expected):
    assert merge_patch(OLD, patch) == expected
    assert OLD == {"a": {"b": 1, "c": [1, 2]}, "d": {"x/y": 1}}


def test_a_merge_patch_shares_what_stays():
    assert merge_patch(OLD, {"a": {"b": 2}})["d"] is OLD["d"]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "test", "path": "/a/b", "value": 1}, OLD),
        ({"op": "add", "path": "/a/c/0", "value": 0}, {"a": {"b": 1, "c": [0, 1, 2]}}),
        ({"op": "add", "path": "/a/c/-", "value": 3}, {"a": {"b": 1, "c": [1, 2, 3]}}),
        ({"op": "add", "path": "/a/b", "value": 2}, {"a": {"b": 2, "c": [1, 2]}}),
        ({"op": "replace", "path": "/a/c/1", "value": 3}, {"a": {"b": 1, "c": [1, 3]}}),
        ({"op": "replace", "path": "/a/new", "value": 3}, {"a": {**OLD["a"], "new": 3}}),
        ({"op": "remove", "path": "/a/c/0"}, {"a": {"b": 1, "c": [2]}}),
        ({"op": "remove", "path": "/d/x~1y"}, {"d": {}}),
        ({"op": "copy", "from": "/a/b", "path": "/d/z"}, {"d": {"x/y": 1, "z": 1}}),
        ({"op": "move", "from": "/d/x~1y", "path": "/d/z"}, {"d": {"z": 1}}),
    ],
)
def test_a_json_patch_operates_on_a_path(operation, expected):
    assert json_patch(OLD, [operation]) == {**OLD, **expected}
    assert OLD == {"a": {"b": 1, "c": [1, 2]}, "d": {"x/y": 1}}


def test_the_whole_object_can_be_replaced():
    assert json_patch(OLD, [{"op": "replace", "path": "", "value": {"z": 1}}]) == {"z": 1}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": ""},
        {"op": "test", "path": "/a/b", "value": 2},
        {"op": "remove", "path": "/a/z"},
        {"op": "replace", "path": "/a/c/9", "value": 1},
        {"op": "replace", "path": "/z/z", "value": 1},
        {"op": "add", "path": "/a/c/9", "value": 1},
        {"op": "add", "path": "/a/c/x", "value": 1},
        {"op": "unknown", "path": "/a", "value": 1},
        {"path": "/a"},
    ],
)
def test_an_operation_that_fails_is_refused(operation):
    with pytest.raises(Refused) as caught:
        json_patch(OLD, [operation])
    assert caught.value.status == 422


@pytest.mark.parametrize(("patch", "body"), [(merge_patch, []), (json_patch, {"a": 1})])
def test_a_patch_of_another_type_is_refused(patch, body):
    with pytest.raises(Refused) as caught:
        patch(OLD, body)
    assert caught.value.status == 400
