"""What is found in JSON that cannot be parsed. Not here: what a reflector makes of it."""

import asyncio
import contextlib
import json
import re
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.kube.client import unreadable
from daemonset_job.kube.client.unreadable import (
    Unreadable,
    _Value,
    _values,
    read_event,
    read_list,
)

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


# --- how the end of a value is found ---------------------------------------------------------

# Texts that would be taken for something else by what does not know where strings end.
ODD = st.text(st.sampled_from('\\"[]{},:/a\u00e9'), max_size=12)
KEYS = st.sampled_from(["metadata", "name", "status", '"]}', "\\", ""]) | ODD


@st.composite
def raw_json(draw, levels=4):
    """Any JSON with keys that come twice, blanks between, and sometimes many levels."""
    blank = draw(st.sampled_from(["", "", " ", "\n\t"]))
    kind = draw(st.integers(0, 5 if levels else 1))
    if kind <= 1:
        escaped = draw(st.booleans())
        return json.dumps(draw(ODD if kind else SCALARS), ensure_ascii=escaped)
    if kind == 2:
        deep = draw(st.integers(1, 40))
        opening = draw(st.sampled_from(["[", '{"":', '{"metadata":', '["]",']))
        closing = "}" if opening[0] == "{" else "]"
        return opening * deep + draw(raw_json(levels - 1)) + (blank + closing) * deep
    inner = draw(st.lists(raw_json(levels - 1), max_size=6))
    if kind == 3:
        return "[" + f"{blank},{blank}".join(inner) + blank + "]"
    pairs = [json.dumps(draw(KEYS)) + f"{blank}:{blank}" + value for value in inner]
    return "{" + blank + f",{blank}".join(pairs) + blank + "}"


TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{\]},:]|"', re.DOTALL)


def slow_values(raw):
    """Return what `_values` yields, by looking at each bracket."""
    key, start, depth, found = b"", 1, 1, []
    for token in TOKENS.finditer(raw, 1):
        text = token[0]
        if text in b"[{":
            depth += 1
        elif text in b"]}":
            depth -= 1
            if depth == 0:
                last = _Value(key, start, token.start())
                return [*found, last] if raw[start : token.start()].strip() else found
        elif text == b'"':
            break
        elif depth == 1 and text == b":":
            key, start = raw[start : token.start()].strip(), token.end()
        elif depth == 1 and text == b",":
            found.append(_Value(key, start, token.start()))
            key, start = b"", token.end()
    return [*found, _Value(key, start, -1)] if key else found


@given(raw_json().filter(lambda text: text[0] in "[{"), st.data())
def test_values_are_found_in_steps_of_any_size_as_by_each_bracket(text, data):
    raw = text.encode("utf-8", "surrogatepass")
    # A line that is too long is cut off anywhere.
    raw = raw[: data.draw(st.just(len(raw)) | st.integers(1, len(raw)))]
    expected = slow_values(raw)
    assert list(_values(raw, 0)) == expected
    size = data.draw(st.integers(1, 9))
    steps = {"_FIRST_STEP_BYTES": size, "_STEP_BYTES": data.draw(st.integers(size, 30))}
    with patch.multiple(unreadable, **steps):
        assert list(_values(raw, 0)) == expected


@pytest.mark.parametrize(
    "inner",
    [
        b"[" * 200_000 + b"]" * 200_000,
        b"[],{}," * 60_000 + b"1",
        (b"[" * 6 + b"]" * 6 + b",") * 30_000 + b"1",
        (b"[[[[[[]]]],[[]]],[[[]]]],") * 16_000 + b"1",
        b'["["],{"}":[]},' * 25_000 + b"1",
        b'"' + b'\\"' * 200_000 + b'"',
        b'"' + b"[" * 400_000 + b'"',
    ],
)
def test_each_bracket_is_looked_at_only_near_the_end_of_a_value(inner):
    """To look at all of them holds up whatever else the event loop has to do for 0.3 s."""
    looked_at = []

    def walk(raw, position, *args, **options):
        end = real(raw, position, *args, **options)
        looked_at.append(end - position)
        return end

    real = unreadable._walk
    line = b'{"type":"ADDED","object":' + job(spec=b"[" + inner + b"]") + b"}"
    with patch.object(unreadable, "_walk", walk):
        found = read_event(line, "no")
    assert found == {"type": "ADDED", "object": Unreadable("no", **FOUND)}
    assert sum(looked_at) < 20_000


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


def test_broken_text_in_one_item_affects_no_other_item():
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
