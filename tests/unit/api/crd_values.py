"""Hypothesis strategies for values that a part of a CRD's schema allows."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]

_LIMIT = 20
_ZONES = st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-11))])
# Few, so that two values are often equal; with fractions, which the API server takes.
_TIMES = st.builds(
    lambda zone, seconds, microsecond: datetime(
        2026, 1, 1, 0, 0, seconds, microsecond, tzinfo=UTC
    ).astimezone(zone),
    _ZONES,
    st.integers(0, 2),
    st.sampled_from([0, 750_000]),
).map(lambda moment: moment.isoformat().replace("+00:00", "Z"))


def values(schema: Schema) -> st.SearchStrategy[Any]:
    """Return a strategy of all that a schema allows: of its texts and lists only short ones."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "integer":
            return st.integers(schema.get("minimum", -5), schema.get("maximum", 2**31 - 1))
        case "boolean":
            return st.booleans()
        case "string":
            return _texts(schema)
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys")
            unique = (lambda item: tuple(item[key] for key in keys)) if keys else None
            return st.lists(values(schema["items"]), max_size=3, unique_by=unique)
        case "object":
            return _objects(schema)
    raise AssertionError(schema)


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return _TIMES
    if "pattern" in schema:
        pattern = schema["pattern"].strip().removeprefix("^").removesuffix("$")
        return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= _LIMIT)
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=_LIMIT)


def _objects(schema: Schema) -> st.SearchStrategy[dict[str, Any]]:
    if "additionalProperties" in schema:
        return st.dictionaries(
            st.sampled_from(["a", "b", "c"]), values(schema["additionalProperties"])
        )
    fields = {name: values(child) for name, child in schema["properties"].items()}
    required = {name: fields.pop(name) for name in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=fields)
