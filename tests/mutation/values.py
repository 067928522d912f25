"""Values at the edges of a schema: the smallest, the largest, and the strangest.

`edges` lists those of one field. `draw` makes a whole value of a schema with a random generator,
which hypothesis provides in unit tests and a seed elsewhere.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from tests.mutation.accepted import EMOJI, accepted
from tests.mutation.schema import Schema

MAP_KEYS = ("a", "example.com/team", "x" * 63, "a" * 253 + "/" + "b" * 63)

_INTEGERS = (0, 1, -1, 2, 255, 2**31 - 1, 2**31, 10**12, 2**53 + 1, 2**63 - 1, -(2**63), 2**63)
_NUMBERS = (0, 1, -1, 0.5, -1.5, 1e-300, 1e300, 2**53 + 1, -(2**63))
_PLAIN: Mapping[str, tuple[Any, ...]] = {
    "boolean": (True, False, "true", 1, {}),
    "number": (*_NUMBERS, "1", True, [], {}),
}
_TEXTS = (
    "",
    " ",
    "a\nb",
    "\x00",
    "\x1b[31mred",
    "\u202e\u200b",
    "\ufeff",
    "\ud800",
    "null",
    "<script>&amp;",
    "${HOME} $(NODE_NAME) {{.}}",
    "../..",
    "-",
    "'\"`\\",
)
# What a field without a type may hold, which is any JSON.
_ANYTHING: tuple[Any, ...] = (
    None,
    {},
    [],
    0,
    2**63 - 1,
    -1.5,
    True,
    "",
    "x",
    {"name": "x"},
    {"name": None},
    {"name": {}},
    {"name": []},
    {"name": 7},
    {"": ""},
    [None],
    [[]],
    [{}],
    ["x"],
)


def edges(path: str, schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield the values to try at a field, each with a word for it; refusals are part of it."""
    for value in accepted(path):
        yield "accepted", value
    yield "null", None
    if schema.get("x-kubernetes-int-or-string"):
        yield from _each("odd", (-1, 2**31, 2**63 - 1, "", "101%", "1.5%", "%"))
        yield from _each("odd", ("007%", True, [], {}, 1.5))
        return
    for value in schema.get("enum", ()):
        yield "enum", value
        yield "case", value.lower()
    match schema.get("type"):
        case "boolean" | "number" as kind:
            yield from _each(kind, _PLAIN[kind])
        case "integer":
            yield from _integer_edges(schema)
        case "string":
            yield from _text_edges(schema)
        case "array":
            yield from _list_edges(path, schema)
        case "object":
            yield from _object_edges(path, schema)
        case None:
            yield from (("any", value) for value in _ANYTHING)
            yield "deep", nested(90)


def _each(word: str, values: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield values, each with the word."""
    return ((word, value) for value in values)


def _integer_edges(schema: Schema) -> Iterator[tuple[str, Any]]:
    for name, step in (("minimum", -1), ("maximum", 1)):
        if name in schema:
            yield name, schema[name]
            yield f"beyond {name}", schema[name] + step
    yield from (("integer", value) for value in _INTEGERS)
    yield from _each("type", (1.5, 1e300, "1", True, [], {}))


def _text_edges(schema: Schema) -> Iterator[tuple[str, Any]]:
    high = schema.get("maxLength", 10_000)
    yield "longest", "a" * high
    yield "too long", "a" * (schema.get("maxLength", 2**19) + 1)
    yield "widest", EMOJI * high
    yield from (("text", value) for value in _TEXTS)
    yield from _each("type", (0, 1.5, True, [], {}, ["a"]))


def _list_edges(path: str, schema: Schema) -> Iterator[tuple[str, Any]]:
    item, items = _one(f"{path}[]", schema["items"]), schema.get("maxItems", 200)
    yield "empty", []
    yield "one", [item(0)]
    yield "twice", [item(0), item(0)]
    yield "longest", [item(index) for index in range(items)]
    yield "too long", [item(index) for index in range(items + 1)]
    yield "null within", [None]
    yield from _each("type", ({}, "a", 0, True))


def _object_edges(path: str, schema: Schema) -> Iterator[tuple[str, Any]]:
    yield "empty", {}
    yield "unknown", {"noSuchField": 1}
    yield from _each("type", ([], "a", 0, True, [{}]))
    if isinstance(schema.get("additionalProperties"), Mapping):
        item, many = _one(f"{path}{{}}", schema["additionalProperties"]), 64
        yield "many", {f"k{index}": item(index) for index in range(many)}
        yield "too many", {f"k{index}": item(index) for index in range(many + 1)}
        for key in (*MAP_KEYS, "", " ", "a b", "-", "a/b/c", EMOJI, "job", "x" * 64, "\n"):
            yield "key", {key: item(0)}


# Valid items by the end of a list's path, another one for another index.
_ITEMS: Mapping[str, Callable[[int], Any]] = {
    "include[]": lambda index: f"node-{index}",
    "exclude[]": lambda index: f"node-{index}",
    "results[]": lambda index: {"name": f"r{index}"},
    "rules[]": lambda index: {"exitCodes": [index % 256], "action": "Retry"},
    "matchExpressions[]": lambda index: {"key": f"k{index}", "operator": "DoesNotExist"},
    "exitCodes[]": lambda index: index % 256,
    "steps[]": lambda index: {"nodes": 1 + index},
    "mounts[]": lambda index: {"hostPath": f"/etc/x{index}", "mountPath": f"/mnt/x{index}"},
    "notify[]": lambda index: {"receiver": f"r{index}" if index else "chat"},
}


def _one(path: str, schema: Schema) -> Callable[[int], Any]:
    """Return a function that gives a valid item, another one for another index."""
    if known := next((item for end, item in _ITEMS.items() if path.endswith(end)), None):
        return known
    if words := schema.get("enum"):
        return lambda index: words[index % len(words)]
    if schema.get("type") == "object":
        return lambda index: {"name": f"x{index}"}
    return lambda index: f"v{index}"


def nested(depth: int) -> Any:
    """Return an object with `depth` objects, each within the one before."""
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


# --- a whole value --------------------------------------------------------------------------


def draw(  # noqa: C901, PLR0911 - one branch and return for each kind of schema
    random: Random, path: str, schema: Schema
) -> Any:
    """Return a value that the schema accepts, more often at its edges than between them."""
    if schema.get("nullable") and random.random() < 0.1:
        return None
    if known := accepted(path):
        return random.choice(known)
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return random.choice((0, 1, 2**31 - 1, "1", "100m", "1Gi"))
    match schema.get("type"):
        case "boolean":
            return random.random() < 0.5
        case "integer":
            return _draw_integer(random, schema)
        case "number":
            return random.choice(_NUMBERS)
        case "string":
            return _draw_text(random, schema)
        case "array":
            return _draw_list(random, path, schema)
        case "object":
            return draw_object(random, path, schema)
        case _:
            return random.choice([value for value in _ANYTHING if value is not None])


def draw_object(random: Random, path: str, schema: Schema, share: float = 0.4) -> dict[str, Any]:
    """Return an object with all that is required and a share of what is not."""
    found = {
        name: draw(random, f"{path}.{name}", child)
        for name, child in (schema.get("properties") or {}).items()
        if name in schema.get("required", ()) or random.random() < share
    }
    if isinstance(schema.get("additionalProperties"), Mapping):
        for key in random.sample(MAP_KEYS, random.randint(0, len(MAP_KEYS))):
            found[key] = draw(random, f"{path}{{}}", schema["additionalProperties"])
    return found


def _draw_integer(random: Random, schema: Schema) -> int:
    high = schema.get("maximum", 2**63 - 1 if schema["format"] == "int64" else 2**31 - 1)
    low = schema.get("minimum", 0)
    near = (low, low + 1, low + 5, high, high - 1, (low + high) // 2, 30, 3600)
    return int(min(max(random.choice(near), low), high))


def _draw_text(random: Random, schema: Schema) -> str:
    high = schema.get("maxLength", 300)
    texts = [text for text in _TEXTS if text != "\ud800" and "\x00" not in text]
    texts += ["a" * high, EMOJI * high, "x"]
    low = schema.get("minLength", 0)
    return random.choice([text for text in texts if low <= len(text) <= high])


def _draw_list(random: Random, path: str, schema: Schema) -> list[Any]:
    low, high = schema.get("minItems", 0), schema.get("maxItems", 50)
    count = min(max(random.choice((0, 1, 1, 2, 3, 5, high)), low), high, 50)
    found = [draw(random, f"{path}[]", schema["items"]) for _ in range(count)]
    if schema.get("x-kubernetes-list-type") not in {"set", "map"}:
        return found
    unique = {str(item): item for item in found}
    return list(unique.values()) or found
