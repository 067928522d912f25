"""Label and field selectors."""

import pytest

from tests.fakekube.kinds import kind_of
from tests.fakekube.refusals import Refused
from tests.fakekube.selectors import carries, matches, parse_selector

PODS = kind_of("", "pods")
POD = {
    "metadata": {"name": "p", "namespace": "n", "labels": {"a": "1", "example.com/b": "x"}},
    "spec": {"nodeName": "node"},
}


def selects(labels, fields=None, raw=POD):
    return parse_selector(PODS, labels, fields).selects(raw)


@pytest.mark.parametrize(
    "selector",
    [
        *(None, "", "a", "!c", "a=1", "a==1", "a!=2", "c!=1", "a in (1, 2)", "a notin (2),a"),
        *("c notin (1)", "a>0", "a<2", "example.com/b=x,a=1"),
    ],
)
def test_labels_are_selected(selector):
    assert selects(selector)


@pytest.mark.parametrize(
    "selector",
    ["c", "!a", "a=2", "a!=1", "a in (2,3)", "a in ()", "a notin (1)", "a>1", "a<1", "a,c", "a="],
)
def test_labels_are_not_selected(selector):
    assert not selects(selector)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=p", True),
        ("metadata.name==p,spec.nodeName!=other", True),
        ("status.phase=", True),
        ("spec.nodeName=other", False),
        ("metadata.namespace!=n", False),
    ],
)
def test_fields_are_selected(selector, expected):
    assert selects(None, selector) == expected


@pytest.mark.parametrize(
    ("labels", "fields"),
    [
        *(("a===1", None), ("a in 1", None), ("a&b", None), ("-a", None)),
        *((None, "metadata.name"), (None, "spec.containers=x"), (None, "metadata.uid=x")),
    ],
)
def test_a_selector_that_cannot_be_used_is_refused(labels, fields):
    with pytest.raises(Refused) as caught:
        parse_selector(PODS, labels, fields)
    assert caught.value.status == 400


def test_an_object_without_labels_has_none():
    bare = {"metadata": {"name": "p"}}
    assert not selects("a", raw=bare)
    assert selects("!a", raw=bare)
    assert carries(bare, None)
    assert carries(bare, {})
    assert not carries(bare, {"a": "1"})
    assert carries(POD, {"a": "1"})
    assert not carries(POD, {"a": "2"})


def test_an_unknown_operator_is_an_error():
    with pytest.raises(ValueError, match="Near"):
        matches({"key": "a", "operator": "Near"}, {})
