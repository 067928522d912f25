"""The CRDs' schemas as data: which values violate them, and which fields they have.

The validator is independent of the product. So what the product writes is judged only by the
manifest that users install. It follows the API server: lengths are counted in characters, an
object's size in bytes of the JSON that Go writes.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).resolve().parents[2] / "crds"
Schema = Mapping[str, Any]

# etcd's --max-request-bytes, 1.5 MiB, is what an object has to fit into.
OBJECT_BYTES = 1536 * 1024

_FORMATS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
# strfmt.DateTime of kube-openapi: RFC 3339 with an optional fraction.
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}


@cache
def load(plural: str) -> Schema:
    """Return the OpenAPI schema of `jobs` or `jobreports`."""
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema: Schema = version["schema"]["openAPIV3Schema"]
    return schema


def part(plural: str, name: str) -> Schema:
    """Return the schema of one of the top fields: spec, status, evidence."""
    schema: Schema = load(plural)["properties"][name]
    return schema


# --- does a value fit -----------------------------------------------------------------------


def problems(  # noqa: C901 - one branch for each kind of schema
    schema: Schema, value: Any, path: str
) -> Iterator[str]:
    """Yield what the API server would refuse or silently drop of a value, a line each."""
    if value is None:
        if not schema.get("nullable"):
            yield f"{path}: null"
        return
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield f"{path}: neither a number nor a text: {value!r}"
        return
    kind = schema.get("type")
    if kind and not _TYPES[kind](value):
        yield f"{path}: {type(value).__name__} instead of {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    match kind:
        case "integer":
            yield from _number_problems(schema, value, path)
        case "string":
            yield from _text_problems(schema, value, path)
        case "array":
            yield from _list_problems(schema, value, path)
        case "object":
            yield from _object_problems(schema, value, path)


def _number_problems(schema: Schema, value: int, path: str) -> Iterator[str]:
    low, high = _FORMATS[schema["format"]]
    low, high = max(low, schema.get("minimum", low)), min(high, schema.get("maximum", high))
    if not low <= value <= high:
        yield f"{path}: {value} is not within {low} and {high}"


def _text_problems(schema: Schema, value: str, path: str) -> Iterator[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    if len(value) < low or (high is not None and len(value) > high):
        yield f"{path}: {len(value)} characters, not within {low} and {high}: {value[:60]!r}…"
    if "pattern" in schema and not re.search(schema["pattern"].strip(), value):
        yield f"{path}: {value[:60]!r} does not match {schema['pattern'].strip()}"
    if schema.get("format") == "date-time" and not _is_time(value):
        yield f"{path}: {value[:60]!r} is no time"
    try:
        value.encode()
    except UnicodeEncodeError:
        yield f"{path}: {value[:60]!r} is no Unicode text"


def _is_time(text: str) -> bool:
    """Return whether a text is a time to the API server: strict on hours and days, not on years."""
    if not _DATE_TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(re.sub(r"\.\d+", "", text))
    except ValueError:
        return False
    return True


def _list_problems(schema: Schema, value: list[Any], path: str) -> Iterator[str]:
    low, high = schema.get("minItems", 0), schema.get("maxItems")
    if len(value) < low or (high is not None and len(value) > high):
        yield f"{path}: {len(value)} items, not within {low} and {high}"
    keys = schema.get("x-kubernetes-list-map-keys")
    objects = [item for item in value if isinstance(item, Mapping)]
    seen = [tuple(item.get(key) for key in keys) for item in objects] if keys else list(value)
    is_unique = keys or schema.get("x-kubernetes-list-type") == "set"
    if is_unique and len({json.dumps(item) for item in seen}) < len(seen):
        yield f"{path}: the same item twice"
    for index, item in enumerate(value):
        yield from problems(schema["items"], item, f"{path}[{index}]")


def _object_problems(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: missing"
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: {len(value)} keys, more than {schema['maxProperties']}"
    declared, others = schema.get("properties") or {}, schema.get("additionalProperties")
    for name, child in value.items():
        if name in declared:
            yield from problems(declared[name], child, f"{path}.{name}")
        elif isinstance(others, Mapping):
            yield from problems(others, child, f"{path}[{name}]")
        elif declared or not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}: no such field, it would be dropped"


def stored_bytes(raw: Any) -> int:
    """Return the size of an object in etcd: Go escapes <, >, & and two line separators."""
    text = json.dumps(raw, separators=(",", ":"), ensure_ascii=False)
    escaped = sum(text.count(character) for character in "<>&")
    separators = sum(text.count(character) for character in "\u2028\u2029")
    return len(text.encode()) + 5 * escaped + 3 * separators


# --- where fields are ------------------------------------------------------------------------

# What else an item needs for one of its fields to be looked at.
_SIBLINGS: Mapping[str, Mapping[str, Any]] = {
    "exitCodes": {"exitCodes": [3]},
    "action": {"action": "Retry"},
    "key": {"key": "kubernetes.io/arch"},
    "operator": {"operator": "Exists"},
    "name": {"name": "version"},
    "image": {"image": "example/task:v1"},
    "hostPath": {"hostPath": "/etc/example"},
    "mountPath": {"mountPath": "/mnt/example"},
    "source": {"source": "web"},
    "start": {"start": "0 22 * * *"},
    "duration": {"duration": "6h"},
    "receiver": {"receiver": "chat"},
    # Of a ScheduledJob.
    "schedule": {"schedule": "0 0 29 2 *"},
    "jobTemplate": {"jobTemplate": {"spec": {"image": "example/task:v1"}}},
    "spec": {"spec": {"image": "example/task:v1"}},
}


# The same for one parent only: the end of the path, its field, and what is needed beside it.
_BESIDE: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("KeyRef", "name", {"key": "run.sh"}),
    ("steps[].check", "timeoutSeconds", {"nodeReady": True}),
    ("check.prometheus", "source", {"query": "errors", "above": 1}),
    ("check.prometheus", "query", {"above": 1}),
    ("check.prometheus", "expression", {"above": 1}),
    ("check.prometheus", "above", {"query": "errors"}),
    ("check.prometheus", "below", {"query": "errors"}),
    ("check.script", "image", {"args": ["true"]}),
    ("spec.rollback", "image", {"args": ["true"]}),
)


@dataclass(frozen=True)
class Field:
    """One field of spec: its path, its schema, and the shortest spec that has a value there."""

    path: str
    schema: Schema
    spec_with: Callable[[Any], dict[str, Any]]

    @property
    def name(self) -> str:
        """The last word of its path that a person would look for."""
        return self.path.replace("[]", "").replace("{}", "").rpartition(".")[2]


def fields() -> list[Field]:
    """Return every field of a Job's spec, lists' items and maps' values included."""
    return list(walk(part("jobs", "spec"), "spec", lambda value: value))


# A field of a pod's spec. What is inside it, a thousand fields, is Kubernetes' to judge.
_POD_FIELD = re.compile(r"spec\.template\.spec\.\w+(\[\]|\{\})?")


def walk(schema: Schema, path: str, wrap: Callable[[Any], Any]) -> Iterator[Field]:
    """Yield the fields of a schema at `path`; `wrap` puts a value of it into the whole."""
    is_inner = _POD_FIELD.fullmatch(path) is not None
    for name, child in () if is_inner else (schema.get("properties") or {}).items():
        needs = {
            key: value
            for other in schema.get("required", ())
            if other != name
            for key, value in _SIBLINGS[other].items()
        }
        if path.endswith(".rollout.steps[]") and name not in {"nodes", "selector"}:
            needs = {"nodes": 1}
        for end, field, beside in _BESIDE:
            if path.endswith(end) and name == field:
                needs = {**needs, **beside}

        def within(value: Any, name: str = name, needs: dict[str, Any] = needs) -> Any:
            extra = {"operator": "In"} if name == "values" else {}
            return wrap({**needs, **extra, name: value})

        yield Field(f"{path}.{name}", child, within)
        yield from walk(child, f"{path}.{name}", within)
    if isinstance(schema.get("items"), Mapping):
        yield Field(f"{path}[]", schema["items"], lambda value: wrap([value]))
        yield from walk(schema["items"], f"{path}[]", lambda value: wrap([value]))
    if isinstance(schema.get("additionalProperties"), Mapping):
        inner = schema["additionalProperties"]
        yield Field(f"{path}{{}}", inner, lambda value: wrap({"example.com/key": value}))
        yield from walk(inner, f"{path}{{}}", lambda value: wrap({"example.com/key": value}))
