"""What can be found in JSON that cannot be parsed: where its values are, and whose it is.

The API server reads and writes JSON that is nested 10,000 levels deep, orjson reads 1,024 levels.
One object of that kind must not make the list or the watch unreadable in which it comes. So the
bytes are cut into their values here without parsing them: quotes and brackets are enough for that.
This is done only for what orjson refuses, because it is slower: 1.3 MB take up to 40 ms.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from daemonset_job.kube.client.messages import MESSAGE_LIMIT, clean_text

# A string, or what opens (1), closes (2) or divides (3); a quote alone (4) is a string cut off.
# Possessive, because backtracking could not find another end of a string. DOTALL for "\\.".
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+"|([\[{])|([\]}])|([,:])|(")', re.DOTALL)
# The rest of a string whose begin was passed.
_STRING_REST = re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)
# The search for the end of a value reads this many bytes in one step. The first step is smaller, as
# most values are small. A step costs some microseconds, and the last one reads each bracket, which
# costs up to 0.3 us for a byte.
_FIRST_STEP_BYTES = 64
_STEP_BYTES = 2048
# Makes brackets of braces, and drops all but brackets and quotes.
_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
# How often pairs with nothing between them are removed. After that, the remaining brackets form at
# most a fifth as many runs as there were brackets.
_REMOVALS = 4
_RUNS = re.compile(rb"(\]*)(\[*)")
# How the API server begins an event (apimachinery pkg/apis/meta/v1, WatchEvent).
_EVENT = re.compile(rb'\s*\{\s*"type"\s*:\s*"(ADDED|MODIFIED|DELETED)"\s*,\s*"object"\s*:')
_NAMING = frozenset({b'"namespace"', b'"name"', b'"uid"', b'"resourceVersion"', b'"generation"'})
_STATUS = ("phase", "observedGeneration", "conditions")
_OPENS, _CLOSES, _DIVIDES, _CUT_OFF = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that cannot be read: why, and what was found of its metadata and its status.

    A field that was not found is empty. Of the status, which may be large, only what all kinds
    have in common is kept.
    """

    error: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    status: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Mapping[str, Any], error: object) -> "Unreadable":
        """Return it for an object that was parsed, but is not what it should be."""
        metadata = raw.get("metadata")
        status = raw.get("status")
        found = metadata if isinstance(metadata, Mapping) else {}
        said = status if isinstance(status, Mapping) else {}
        generation = found.get("generation")
        return cls(
            # Without the place in the text, which says nothing of the object.
            clean_text(str(getattr(error, "msg", error)), MESSAGE_LIMIT),
            namespace=str(found.get("namespace") or ""),
            name=str(found.get("name") or ""),
            uid=str(found.get("uid") or ""),
            resource_version=str(found.get("resourceVersion") or ""),
            generation=generation if isinstance(generation, int) else 0,
            status={name: said[name] for name in _STATUS if said.get(name)},
        )


class _Value(NamedTuple):
    """Where one value of an object or a list is; `key` is empty in a list, `end` -1 if cut off."""

    key: bytes
    begin: int
    end: int


def read_event(line: bytes, error: object) -> dict[str, Any] | None:
    """Return the watch event in a line that cannot be parsed, whose object is Unreadable.

    `line` may lack its end. None if there is no event in it that says of which object it is.
    """
    head = _EVENT.match(line)
    if head is None:
        return None
    found = _describe(line, _Value(b"", head.end(), len(line)), error)
    if not found.name or not found.resource_version:
        return None
    return {"type": head[1].decode(), "object": found}


async def read_list(
    body: bytes,
) -> tuple[Mapping[str, Any], Sequence[dict[str, Any] | Unreadable]]:
    """Return the metadata of a list and its items, those that cannot be parsed as Unreadable.

    ValueError if `body` is no list, or its end is missing.
    """
    metadata: object
    items: object
    try:
        parsed = orjson.loads(body)
    except ValueError:
        metadata, items = await _read_parts(body)
    else:
        parsed = parsed if isinstance(parsed, dict) else {}
        metadata, items = parsed.get("metadata"), parsed.get("items")
        items = [] if items is None else items
    if not isinstance(metadata, dict) or not isinstance(items, list):
        raise ValueError("not a list")  # noqa: TRY004 - as if it could not be parsed
    known = (dict, Unreadable)
    return metadata, [x if isinstance(x, known) else Unreadable("not an object") for x in items]


async def _read_parts(body: bytes) -> tuple[object, object]:
    found = {value.key: value for value in _values(body, _first_bracket(body, 0))}
    metadata, items = found.get(b'"metadata"'), found.get(b'"items"')
    if items is None or metadata is None or min(items.end, metadata.end) < 0:
        return None, None
    read = []
    for item in _values(body, _first_bracket(body, items.begin, items.end)):
        read.append(_read(body, item))
        # One of them can take a moment, all of them together longer than others can wait.
        await asyncio.sleep(0)
    return _loaded(body, metadata), read


def _read(raw: bytes, value: _Value) -> Any:
    try:
        return orjson.loads(memoryview(raw)[value.begin : value.end])
    except ValueError as error:
        return _describe(raw, value, error)


def _describe(raw: bytes, value: _Value, error: object) -> Unreadable:
    """Return what is found of an object's metadata and status."""
    metadata: dict[str, Any] = {}
    status: Any = None
    for member in _values(raw, _first_bracket(raw, value.begin, value.end)):
        if member.key == b'"metadata"':
            # One by one: managedFields follow the object's structure, and so can be as deep.
            for each in _values(raw, _first_bracket(raw, member.begin, member.end)):
                if each.key in _NAMING and each.end >= 0:
                    metadata[each.key.strip(b'"').decode()] = _loaded(raw, each)
        elif member.key == b'"status"' and member.end >= 0:
            status = _loaded(raw, member)
    return Unreadable.of({"metadata": metadata, "status": status}, error)


def _loaded(raw: bytes, value: _Value) -> Any:
    try:
        return orjson.loads(raw[value.begin : value.end])
    except ValueError:
        return None


def _first_bracket(raw: bytes, begin: int, end: int = -1) -> int:
    """Return where the object or list begins that is the value at `begin`, -1 if it is neither."""
    text = raw[begin : begin + 64 if end < 0 else min(end, begin + 64)]
    blank = len(text) - len(text.lstrip())
    return begin + blank if text[blank : blank + 1] in (b"{", b"[") else -1


def _values(raw: bytes, begin: int) -> Iterator[_Value]:  # noqa: C901 - one automaton
    """Yield the values directly inside of the object or list that begins at `begin`, in order.

    The last one has the end -1 if `raw` ends inside of it.
    """
    if begin < 0:
        return
    key, start = b"", begin + 1
    tokens = _TOKENS.finditer(raw, begin + 1)
    while (token := next(tokens, None)) is not None:
        which = token.lastindex
        if which == _OPENS:
            past = _find_end(raw, token.end())
            if past < 0:
                break
            tokens = _TOKENS.finditer(raw, past)
        elif which == _CLOSES:
            if raw[start : token.start()].strip():
                yield _Value(key, start, token.start())
            return
        elif which == _CUT_OFF:
            break
        elif which == _DIVIDES:
            if token[0] == b":":
                key = raw[start : token.start()].strip()
            else:
                yield _Value(key, start, token.start())
                key = b""
            start = token.end()
    if key:
        yield _Value(key, start, -1)


def _find_end(raw: bytes, position: int) -> int:
    """Return where the object or list ends inside of which `position` is, -1 if `raw` ends first.

    To look at each bracket takes long. So this counts, in one step after the other, the brackets
    that are in no string, and only where they may come to the end looks at each.
    """
    depth, is_in_string, size = 1, False, _FIRST_STEP_BYTES
    while position < len(raw):
        step = raw[position : position + size]
        if (len(step) - len(step.rstrip(b"\\"))) % 2:
            # What the last backslash escapes belongs to it.
            step += raw[position + size : position + size + 1]
        size = min(2 * size, _STEP_BYTES)
        bare = step.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_TO_BRACKETS, _NO_BRACKETS)
        # Two quotes side by side change nothing for what is before or after them.
        parts = bare.replace(b'""', b"").split(b'"')
        brackets = b"".join(parts[is_in_string::2])
        if _closes(brackets, depth):
            return _walk(raw, position, depth, is_in_string=is_in_string)
        position += len(step)
        depth += len(brackets) - 2 * brackets.count(b"]")
        is_in_string ^= len(parts) % 2 == 0
    return -1


def _closes(brackets: bytes, depth: int) -> bool:
    """Return whether `brackets` close `depth` more levels than they open, at any point."""
    if brackets.count(b"]") < depth:
        return False
    for _ in range(_REMOVALS):
        brackets = brackets.replace(b"[]", b"")
    for closing, opening in _RUNS.findall(brackets):
        depth -= len(closing)
        if depth <= 0:
            return True
        depth += len(opening)
    return False


def _walk(raw: bytes, position: int, depth: int, *, is_in_string: bool) -> int:
    """Return where `depth` levels are closed, -1 if `raw` ends first; reads each bracket."""
    if is_in_string:
        rest = _STRING_REST.match(raw, position)
        if rest is None:
            return -1
        position = rest.end()
    for token in _TOKENS.finditer(raw, position):
        which = token.lastindex
        if which == _OPENS:
            depth += 1
        elif which == _CLOSES:
            depth -= 1
            if depth == 0:
                return token.end()
        elif which == _CUT_OFF:
            break
    return -1
