"""Whether a pod's spec chooses a node, by label and name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.affinity import REQUIRED, NodeAffinity, changed_keys, label_keys
from tests.fakekube import daemon_sets

rules = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from("xy"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from("123"), min_size=1, max_size=2),
)
fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from("abc"),
)
terms = st.builds(
    lambda expressions, names: {"matchExpressions": expressions, "matchFields": names},
    st.lists(rules, max_size=3),
    st.lists(fields, max_size=2),
)


@given(
    st.lists(terms, min_size=1, max_size=4),
    st.lists(st.dictionaries(st.sampled_from("xy"), st.sampled_from("123")), max_size=3),
    st.sampled_from("abc"),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=1),
)
def test_it_agrees_with_the_model_of_the_daemon_set_controller(found, nodes, name, selector):
    spec = {
        "nodeSelector": selector,
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}},
    }
    affinity = NodeAffinity(spec)
    for labels in nodes:
        node = {"metadata": {"name": name, "labels": labels}}
        assert affinity.matches(name, labels) == daemon_sets.fits(spec, node)


@given(
    st.lists(terms, min_size=1, max_size=4),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
    st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=1),
)
def test_only_a_named_label_changes_whether_a_node_matches(found, old, new, selector):
    spec = {
        "nodeSelector": selector,
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": found}}},
    }
    affinity = NodeAffinity(spec)
    if affinity.matches("a", old) != affinity.matches("a", new):
        assert label_keys(spec) & changed_keys(old, new)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ({}, {}, set()),
        ({"x": "1", "y": "1"}, {"y": "1", "x": "1"}, set()),
        ({"x": "1"}, {"x": "2", "y": ""}, {"x", "y"}),
        ({"x": ""}, {}, {"x"}),
    ],
)
def test_which_labels_changed(old, new, keys):
    assert changed_keys(old, new) == keys


def test_a_choice_by_name_names_no_label():
    rule = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [rule]}]}
    assert label_keys({"affinity": {"nodeAffinity": {REQUIRED: terms}}}) == frozenset()
    assert label_keys({}) == frozenset()


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gt", "5", True),
        ("Gt", "4", False),
        ("Lt", "3", True),
        ("Lt", "x", False),
        ("Gt", "", False),
        ("Gt", "+5", True),
        # strconv.ParseInt of Go reads none of these.
        ("Gt", "1_6", False),
        ("Gt", " 5", False),
        ("Gt", "\u0665", False),
        ("Gt", "99999999999999999999", False),
        ("Lt", "-" + "9" * 20, False),
    ],
)
def test_labels_compare_as_numbers(operator, value, expected):
    rule = {"key": "size", "operator": operator, "values": ["4"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}}
    assert NodeAffinity(spec).matches("n", {"size": value}) is expected


def test_without_a_choice_every_node_matches():
    assert NodeAffinity({}).matches("n", {})
    assert not NodeAffinity({"nodeSelector": {"a": "1"}}).matches("n", {})


def test_a_rule_that_makes_no_sense_matches_nothing():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Odd"}]}]}
    spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}}
    assert not NodeAffinity(spec).matches("n", {"a": "1"})


def test_each_of_many_bounds_is_compared():
    terms = [
        {"matchExpressions": [{"key": "size", "operator": "Gt", "values": [str(9 - each)]}]}
        for each in range(4)
    ]
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    affinity = NodeAffinity(spec)
    assert [affinity.matches("n", {"size": str(size)}) for size in (5, 6, 7, 9, 10)] == [
        *(False, False),
        *(True, True, True),
    ]
