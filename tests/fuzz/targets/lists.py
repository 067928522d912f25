"""Any bytes for a list or an event: nothing raises but ValueError, and no item costs another."""

from typing import Any

import orjson

from daemonset_job.kube.client.messages import MESSAGE_LIMIT
from daemonset_job.kube.client.unreadable import Unreadable, read_event, read_list
from tests.fuzz.source import Source

_DEEP = b"[" * 1100 + b"]" * 1100
# Items that can be read alone, those that cannot but are whole, and what is no item at all.
_ITEMS = (
    b'{"metadata":{"name":"a"}}',
    b'{"metadata":{"name":"b","x":"]}\\"{["},"spec":[{"y":"\\\\"}]}',
    b"{}",
    b'{"metadata":{"name":"deep"},"spec":' + _DEEP + b"}",
    b'{"metadata":{"name":"text"},"spec":"\xff"}',
    b'{"metadata":{"name":"number"},"spec":01}',
    b'{"metadata":{"name":"pair"},"spec":"\\ud800"}',
    b'{"metadata":{"name":5,"uid":[],"generation":1e400},"status":' + _DEEP + b"}",
    b'{"metadata":{"generation":"7","name":null},"status":{"phase":{},"conditions":5},"x":tru}',
    b"[]",
    b"1",
    b"null",
)
_PIECES = (b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b'"metadata"', b'"items"', b" ", b"1")


def check(data: bytes) -> None:
    source = Source(data)
    match source.below(4):
        case 0:
            _check_bytes(source.rest())
        case 1:
            _check_bytes(_draw_pieces(source))
        case 2:
            _check_event(source)
        case _:
            _check_list(source)


def _check_bytes(body: bytes) -> None:
    """Whatever it is: a list, or ValueError; and as a parser reads it if that can."""
    for raw in (body, b'{"metadata":{},"items":[' + body + b"]}"):
        items = _read(raw)
        if items is not None:
            assert all(isinstance(item, dict | Unreadable) for item in items)
    for line in (body, b'{"type":"ADDED","object":' + body):
        _check_found(read_event(line, "no"))


def _check_list(source: Source) -> None:
    """A list of whole items: each is read as it would be alone, whatever its neighbours are."""
    texts = [_draw_item(source) for _ in range(source.below(6))]
    alone = [_loaded(text) for text in texts]
    blank = source.pick((b"", b" ", b"\n\t"))
    parts = [
        b'"metadata"' + blank + b':{"resourceVersion":"9"}',
        b'"items":' + blank + b"[" + (blank + b"," + blank).join(texts) + b"]",
    ]
    if source.below(2):
        parts.reverse()
    items = _read(b"{" + blank + b",".join(parts) + b"}")
    assert items is not None
    assert len(items) == len(texts)
    for item, value in zip(items, alone, strict=True):
        if isinstance(value, dict):
            assert item == value
        else:
            assert isinstance(item, Unreadable)
            _check_unreadable(item)


def _check_event(source: Source) -> None:
    item = _draw_item(source)
    line = b'{"type":"' + source.pick((b"ADDED", b"MODIFIED", b"DELETED", b"BOOKMARK", b""))
    line += b'","object":' + item + b"}"
    _check_found(read_event(line[: len(line) - source.below(len(line))], "no"))


def _draw_item(source: Source) -> bytes:
    """Return a text that begins and ends as one value: the rest of it may be no JSON."""
    if source.below(3):
        return source.pick(_ITEMS)
    name, inner = source.take(source.below(8)), orjson.dumps(source.value())
    named = orjson.dumps(name.decode("utf-8", "replace"))
    fields = [
        b'"name":' + named,
        b'"resourceVersion":"7"',
        b'"generation":' + inner,
        b'"uid":' + inner,
        b'"namespace":' + inner,
    ]
    broken = source.pick((b"1", b"tru", b"01", _DEEP, b'"\xff"', b'"\\x"'))
    return (
        b'{"metadata":{' + b",".join(fields) + b'},"spec":' + broken + b',"status":' + inner + b"}"
    )


def _draw_pieces(source: Source) -> bytes:
    return b"".join(source.pick(_PIECES) for _ in range(source.below(60)))


def _read(body: bytes) -> Any:
    """Return the items of a list, None if it is none."""
    reading = read_list(body)
    try:
        while True:  # it only waits for its turn
            reading.send(None)
    except StopIteration as done:
        return done.value[1]
    except ValueError:
        return None


def _loaded(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def _check_found(event: dict[str, Any] | None) -> None:
    if event is None:
        return
    found = event["object"]
    assert event["type"] in {"ADDED", "MODIFIED", "DELETED"}
    assert found.name
    assert found.resource_version
    _check_unreadable(found)


def _check_unreadable(found: Unreadable) -> None:
    assert 0 < len(found.error) <= MESSAGE_LIMIT
    texts = (found.namespace, found.name, found.uid, found.resource_version)
    assert all(isinstance(text, str) for text in texts)
    assert isinstance(found.generation, int)
    assert found.status.keys() <= {"phase", "observedGeneration", "conditions"}
