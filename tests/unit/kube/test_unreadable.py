"""What is found in JSON that cannot be parsed. Not here: what a reflector makes of it."""

import asyncio
import contextlib
import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.kube.client.unreadable import Unreadable, _values, read_event, read_list

DEEP = b"[" * 1100 + b"]" * 1100
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


def job(name=b"a", spec=DEEP, managed=DEEP):
    return (
        b'{"apiVersion":"g/v1","kind":"Job","metadata":{"annotations":{"k\\"}":"{[,:\\\\"},'
        b'"generation":3,"labels":{"name":"no"},"managedFields":[{"f:spec":' + managed + b"}],"
        b'"name":"' + name + b'","namespace":"ns","resourceVersion":"77","uid":"u"},'
        b'"spec":{"metadata":{"name":"no"},"x":' + spec + b"},"
        b'"status":{"phase":"Pending","nodes":{"desired":1}}}'
    )


FOUND = {
    "namespace": "ns",
    "name": "a",
    "uid": "u",
    "resource_version": "77",
    "generation": 3,
    "status": {"phase": "Pending"},
}


def read(body):
    return asyncio.run(read_list(body))


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON), st.sampled_from([None, 1]))
def test_values_are_those_that_a_parser_finds(whole, indent):
    raw = json.dumps(whole, ensure_ascii=False, indent=indent).encode("utf-8", "surrogatepass")
    found = [(value.key, raw[value.begin : value.end]) for value in _values(raw, 0)]
    if isinstance(whole, dict):
        assert [(json.loads(key), json.loads(value)) for key, value in found] == list(whole.items())
    else:
        assert [json.loads(value) for _, value in found] == whole


@given(st.binary())
def test_nothing_is_found_in_what_is_no_json(raw):
    assert read_event(raw, "no") is None
    assert read_event(b'{"type":"ADDED","object":' + raw, "no") is None


@given(st.binary(), st.integers(0, 3000))
def test_no_bytes_make_it_raise_but_value_error(raw, cut):
    event = b'{"type":"ADDED","object":' + job(spec=DEEP + raw)[:cut]
    read_event(event, "no")
    with contextlib.suppress(ValueError):
        read(b'{"items":[' + job(spec=raw)[:cut] + b'],"metadata":{}}')


@pytest.mark.parametrize("type_", [b"ADDED", b"MODIFIED", b"DELETED"])
def test_event_that_is_too_deep_names_its_object(type_):
    line = b'{"type":"' + type_ + b'","object":' + job() + b"}"
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(line)
    assert read_event(line, "too deep") == {
        "type": type_.decode(),
        "object": Unreadable("too deep", **FOUND),
    }


def test_event_that_was_cut_off_names_its_object():
    line = b'{"type":"ADDED","object":' + job(spec=b'"' + b"x" * 100_000 + b'"')
    without_status = FOUND | {"status": {}}
    expected = {"type": "ADDED", "object": Unreadable("long", **without_status)}
    assert read_event(line[:50_000], "long") == expected
    # Nothing can be said if not even the version was read.
    assert read_event(line[: line.index(b'"resourceVersion"')], "long") is None


@pytest.mark.parametrize("type_", [b"ERROR", b"BOOKMARK", b"x"])
def test_only_events_of_objects_are_found(type_):
    assert read_event(b'{"type":"' + type_ + b'","object":' + job() + b"}", "no") is None


def test_list_is_read_around_what_is_too_deep():
    # In the order of a list of custom resources, and in that of a built-in type.
    items = b'"items":[' + b",".join([job(), b'{"metadata":{"name":"b"}}', job(b"c")]) + b"]"
    metadata = b'"metadata":{"continue":"x","resourceVersion":"99"}'
    for body in (b"{" + items + b"," + metadata + b"}\n", b"{" + metadata + b"," + items + b"}\n"):
        head, found = read(body)
        assert head == {"continue": "x", "resourceVersion": "99"}
        assert [x.name if isinstance(x, Unreadable) else x["metadata"]["name"] for x in found] == [
            "a",
            "b",
            "c",
        ]
        assert found[0] == Unreadable(found[0].error, **FOUND)
        assert "depth" in found[0].error


def test_broken_text_in_one_item_is_its_own_trouble():
    broken = job(spec=b'"\xff"', managed=b"1")
    _, found = read(b'{"items":[' + broken + b',{}],"metadata":{}}')
    assert found == [Unreadable(found[0].error, **FOUND), {}]


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"5", b'{"items":{},"metadata":{}}', b'{"items":[]}', b'{"items":[{'],
)
def test_what_is_no_list_is_a_value_error(body):
    with pytest.raises(ValueError, match="not a list"):
        read(body)


def test_items_that_are_no_objects_are_unreadable():
    assert read(b'{"metadata":{},"items":[1,{}]}')[1] == [Unreadable("not an object"), {}]
    assert read(b'{"metadata":{},"items":null}')[1] == []


def test_objects_that_were_parsed_give_what_they_have():
    odd = {"metadata": {"name": 5, "generation": "x"}, "status": []}
    assert Unreadable.of(odd, "no\x1b[31m") == Unreadable("no [31m", name="5")
    assert Unreadable.of({"metadata": 5}, "no") == Unreadable("no")
