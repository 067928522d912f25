"""The drain of a spec, and the mark on a node: which Job cordoned it."""

import pytest

from daemonset_job.api.drain import (
    CordonMark,
    Drain,
    build_cordon,
    build_uncordon,
    parse_drain,
    parse_mark,
)
from daemonset_job.api.node import parse_node

KEY = "daemonset.darkowlzz.space/cordoned-by"
MARK = CordonMark("shop", "patch.v2", "0a1b-2c")
OTHER = CordonMark("shop", "patch.v2", "ffff")


def node(mark=None, **spec):
    annotations = {"note": "b"} | ({KEY: str(mark)} if mark is not None else {})
    meta = {"name": "n", "uid": "n-uid", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": meta, "spec": spec}


def patched(raw, patch):
    """Return the node after the merge patch, as far as these tests look at it."""
    marks = (patch.get("metadata") or {}).get("annotations") or {}
    annotations = {**raw["metadata"]["annotations"], **marks}
    kept = {key: value for key, value in annotations.items() if value is not None}
    spec = {**raw["spec"], **(patch.get("spec") or {})}
    return {
        "metadata": {**raw["metadata"], "annotations": kept},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def test_a_cordon_and_its_mark_are_one_patch_of_one_version():
    patch = build_cordon(node(), "n-uid", MARK)
    assert patch == {
        "metadata": {
            "uid": "n-uid", "resourceVersion": "7", "annotations": {KEY: "shop/patch.v2/0a1b-2c"},
        },
        "spec": {"unschedulable": True},
    }  # fmt: skip
    assert parse_node(patched(node(), patch)).cordoned_by == str(MARK)


@pytest.mark.parametrize("before", [node(unschedulable=True), node(MARK), node(OTHER)])
def test_a_node_that_is_cordoned_or_marked_is_left_alone(before):
    assert build_cordon(before, "n-uid", MARK) == {}


def test_a_mark_that_no_controller_wrote_is_replaced():
    assert build_cordon(node("me"), "n-uid", MARK)["metadata"]["annotations"] == {KEY: str(MARK)}


def test_only_the_cordon_with_the_mark_is_lifted():
    cordoned = node(MARK, unschedulable=True)
    patch = build_uncordon(cordoned, MARK)
    assert patch["metadata"]["resourceVersion"] == "7"
    assert patched(cordoned, patch) == node()
    for before in (node(unschedulable=True), node(), node(OTHER, unschedulable=True)):
        assert build_uncordon(before, MARK) == {}
    # A user has uncordoned it meanwhile: the mark goes.
    assert patched(node(MARK), build_uncordon(node(MARK), MARK)) == node()


def test_a_mark_reads_back():
    assert parse_mark(str(MARK)) == MARK


@pytest.mark.parametrize(
    "text",
    ["", "a", "a/b", "a/b/c/d", "A/b/c", "a/b/C", "a/b/c\n", "../b/c", "a//c", f"a/b/{65 * 'c'}"],
)
def test_other_texts_are_no_marks(text):
    assert parse_mark(text) is None


def test_a_drain_reads_with_its_defaults():
    assert parse_drain(None) is None
    assert parse_drain({}) == Drain(None, 600, delete_empty_dir_data=False, force=False)
    raw = {
        "gracePeriodSeconds": 0, "timeoutSeconds": 5, "deleteEmptyDirData": True, "force": True,
        "podSelector": {"matchLabels": {"a": "b"}},
    }  # fmt: skip
    assert parse_drain(raw) == Drain(
        0, 5, delete_empty_dir_data=True, force=True, pod_selector={"matchLabels": {"a": "b"}}
    )
    assert parse_drain({"timeoutSeconds": -1}).timeout_seconds == 1
    assert parse_drain({"timeoutSeconds": 10**12}).timeout_seconds == 86_400
