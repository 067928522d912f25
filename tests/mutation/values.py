"""Values at the edges of a schema: the smallest, the largest, and the strangest.

`edges` lists those of one field. `draw` makes a whole value of a schema with a random generator,
which hypothesis provides in unit tests and a seed elsewhere.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

from tests.mutation.schema import Schema

# Values that a pattern or a CEL rule accepts, if types and lengths are not enough. The key is the
# end of the field's path. The shortest value is the first, the longest the last.
_LABEL_VALUES = ("", "a", "A-_.9", "1.10", "01", "1e3", "a" * 63)
_KEYS = ("a", "example.com/team", "kubernetes.io/arch", "a" * 253 + "/" + "b" * 63)
_NODES = ("a", "node-a", "node-b", "node-c", "node..2", "a.-b", "0", "1e3", "n" * 253)
_EMOJI = "\N{LOBSTER}"
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "spec.image": ("a", "example/task:v1", "a" * 1024, _EMOJI * 1024, "'\"`$(x)<>&\\"),
    "spec.mountPath": ("/", "/tmp", "//a//", "/ ", f"/{_EMOJI}", "/" + "a" * 4095),
    "nodes.selector.matchLabels{}": _LABEL_VALUES,
    "template.metadata.labels{}": _LABEL_VALUES,
    "matchExpressions[].values[]": _LABEL_VALUES,
    "matchExpressions[].key": _KEYS,
    "nodes.include[]": _NODES,
    "nodes.exclude[]": _NODES,
    "completion.token": ("x", "done", "all done", _EMOJI * 256, "<&>", "\u202eenod", "(", "\\"),
    "completion.failureToken": ("x", "failed", "has failed", _EMOJI * 256, "<&>", "[", "\\"),
    "failurePolicy.maxFailedNodes": (0, 1, 2**31 - 1, "0%", "1%", "99%", "100%"),
    "failurePolicy.maxUnreachableNodes": (0, 1, 2**31 - 1, "0%", "1%", "99%", "100%"),
    "rollout.maxParallel": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "rollout.maxParallelPerZone": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "rollout.steps[].nodes": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "check.script.image": ("a", "example/task:v1", "a" * 1024, _EMOJI * 1024),
    "check.script.script": ("a", "exit 0", "#!/bin/sh\nexit 1\n", "a" * 16384, _EMOJI * 16384),
    "successPolicy.minCompleted": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "results[].name": ("a", "A-_.9", "v.1_2-3", "a" * 63),
}
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


def accepted(path: str) -> tuple[Any, ...]:
    """Return values known to be accepted at a path, () when the schema alone says it all."""
    return next((values for end, values in ACCEPTED.items() if path.endswith(end)), ())


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
            yield "deep", _nested(90)


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
    yield "widest", _EMOJI * high
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
        for key in (*MAP_KEYS, "", " ", "a b", "-", "a/b/c", _EMOJI, "job", "x" * 64, "\n"):
            yield "key", {key: item(0)}


def _one(path: str, schema: Schema) -> Callable[[int], Any]:
    """Return a function that gives a valid item, another one for another index."""

    def item(index: int) -> Any:
        if path.endswith(("include[]", "exclude[]")):
            return f"node-{index}"
        if path.endswith("results[]"):
            return {"name": f"r{index}"}
        if path.endswith("rules[]"):
            return {"exitCodes": [index % 256], "action": "Retry"}
        if path.endswith("matchExpressions[]"):
            return {"key": f"k{index}", "operator": "DoesNotExist"}
        if path.endswith("exitCodes[]"):
            return index % 256
        return {"name": f"x{index}"} if schema.get("type") == "object" else f"v{index}"

    return item


def _nested(depth: int) -> Any:
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
    texts += ["a" * high, _EMOJI * high, "x"]
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
