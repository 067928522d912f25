"""Which nodes a LabelSelector selects; tests/unit/terminator/test_node_selection.py has more."""

import pytest

from daemonset_job.api.label_selector import parse_label_selector


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": None, "matchExpressions": None}])
def test_an_empty_selector_selects_every_node(selector):
    assert parse_label_selector(selector).matches("a", {})


def test_labels_and_expressions_have_to_match():
    rule = {"key": "disk", "operator": "In", "values": ["ssd"]}
    selector = {"matchLabels": {"zone": "x"}, "matchExpressions": [rule]}
    affinity = parse_label_selector(selector)
    assert affinity.matches("a", {"zone": "x", "disk": "ssd"})
    assert not affinity.matches("a", {"zone": "x"})
    assert not affinity.matches("a", {"disk": "ssd"})
