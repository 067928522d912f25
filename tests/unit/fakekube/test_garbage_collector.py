"""Who has lost an owner or a node, in the model."""

import pytest

from tests.fakekube.garbage_collector import has_lost_node, is_orphan


def owned(*uids):
    return {"metadata": {"ownerReferences": [{"uid": uid} for uid in uids]}}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (owned("a"), False),
        (owned("gone"), True),
        (owned("gone", "a"), False),
        (owned("gone", "lost"), True),
        (owned(), False),
        ({"metadata": {}}, False),
    ],
    ids=["owned", "orphan", "one-left", "none-left", "never-owned", "no-field"],
)
def test_an_object_goes_when_all_its_owners_have_gone(raw, expected):
    assert is_orphan(raw, {"a", "b"}.__contains__) is expected


def test_a_pod_has_lost_its_node_only_if_it_was_bound_to_it():
    there = {"a"}.__contains__
    assert has_lost_node({"spec": {"nodeName": "gone"}}, there)
    assert not has_lost_node({"spec": {"nodeName": "a"}}, there)
    assert not has_lost_node({"spec": {}}, there)
