"""Merging a partial pod template, and the patch from one status to the next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_controller.core.desired.strategic_merge import diff_merge_patch, strategic_merge


@pytest.mark.parametrize(
    ("base", "patch", "expected"),
    [
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None}}, {"a": {"c": 2}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"args": ["x"]}, {"args": ["y"]}, {"args": ["y"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]},
            {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "3"},
                    {"name": "C", "value": "4"},
                ]
            },
        ),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]},
            {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumes": [{"name": "v", "emptyDir": {}}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        ({"containers": ["odd"]}, {"containers": ["odder"]}, {"containers": ["odd", "odder"]}),
    ],
)
def test_strategic_merge(base, patch, expected):
    assert strategic_merge(base, patch) == expected


values = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


def apply(target, patch):
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = apply(merged.get(key), value)
    return merged


@given(objects, objects)
def test_the_patch_leads_from_one_to_the_other(old, new):
    assert apply(old, diff_merge_patch(old, new)) == new
    assert diff_merge_patch(new, new) == {}
