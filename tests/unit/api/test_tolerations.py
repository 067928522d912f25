"""Tolerations as values: what a Job asks for is found in what the API server has stored."""

import pytest

from daemonset_job.api.tolerations import Toleration, parse_tolerations


@pytest.mark.parametrize("raw", [{}, {"tolerations": None}, {"tolerations": []}])
def test_a_pod_spec_without_tolerations_has_none(raw):
    assert parse_tolerations(raw) == ()


def test_empty_fields_are_the_same_as_absent_ones():
    written = {"key": "a", "operator": "Exists", "value": "", "tolerationSeconds": None}
    stored = {"key": "a", "operator": "Exists"}
    assert parse_tolerations({"tolerations": [written]}) == parse_tolerations(
        {"tolerations": [stored]}
    )


def test_zero_seconds_are_not_the_same_as_none():
    raw = {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0}
    assert parse_tolerations({"tolerations": [raw]}) == (
        Toleration("a", value="b", effect="NoExecute", seconds=0),
    )
