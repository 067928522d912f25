"""Whether raw JSON has the expected types: checked once, when an object is parsed.

The API server lets nothing else in. But it does not look again at what is stored already, under
another version of a CRD for instance. One value of another type would otherwise raise wherever it
is used first, in a cache that all Jobs share at worst.

What is missing or null has every type; fields that are not named are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from daemonset_job.api.times import parse_time

T = TypeVar("T")
# Raises ShapeError for a value of another type.
Check = Callable[[Any], None]


class ShapeError(ValueError):
    """A value has another type than what is read there; `path` leads to it."""

    def __init__(self, found: object, expected: str) -> None:
        super().__init__()
        self.path: list[str] = []
        self._words = f"{type(found).__name__} instead of {expected}"

    def __str__(self) -> str:
        """Return where it is, and what is wrong with it."""
        return f"{'.'.join(reversed(self.path))}: {self._words}"


class _Kind:
    """The check of a value without parts: of one of these classes."""

    def __init__(self, expected: str, *kinds: type) -> None:
        self.kinds = kinds
        self._expected = expected

    def __call__(self, value: Any) -> None:
        # By class and not by isinstance: bool is a kind of int to Python alone.
        if value.__class__ in self.kinds:
            return
        # Mappings other than dict, and members of StrEnum, are what they look like.
        if not any(kind in self.kinds and isinstance(value, kind) for kind in (Mapping, str)):
            raise ShapeError(value, self._expected)


def _time(value: Any) -> None:
    if not isinstance(value, str):
        raise ShapeError(value, "a time")
    parse_time(value)


STRING: Final = _Kind("a text", str)
NUMBER: Final = _Kind("a number", int)
BOOLEAN: Final = _Kind("true or false", bool)
OBJECT: Final = _Kind("an object", dict, Mapping)
LIST: Final = _Kind("a list", list)
TIME: Final = _time


def parse_at(field: str, parse: Callable[[Mapping[str, Any]], T], raw: Mapping[str, Any]) -> T:
    """Return what `parse` makes of the value of a field; its ShapeErrors get the field's path."""
    try:
        return parse(raw)
    except ShapeError as error:
        error.path.append(field)
        raise


def fields(**checks: Check) -> Check:
    """Return the check of an object with these fields."""
    # A look at the class spares the call: there are some twenty fields of each of 5,000 pods.
    parts = [
        (key, inner.kinds if isinstance(inner, _Kind) else (), inner)
        for key, inner in checks.items()
    ]

    def check(value: Any) -> None:
        # An isinstance check of an abstract class costs ten times that of its own class.
        if value.__class__ is not dict and not isinstance(value, Mapping):
            raise ShapeError(value, "an object")
        for key, kinds, inner in parts:
            found = value.get(key)
            if found is not None and found.__class__ not in kinds:
                try:
                    inner(found)
                except ShapeError as error:
                    error.path.append(key)
                    raise

    return check


def list_of(inner: Check) -> Check:
    """Return the check of a list of such values."""

    def check(value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise ShapeError(value, "a list")
        for index, item in enumerate(value):
            try:
                inner(item)
            except ShapeError as error:
                error.path.append(str(index))
                raise

    return check


def map_of(inner: Check) -> Check:
    """Return the check of an object with such values under any keys."""

    def check(value: Any) -> None:
        if value.__class__ is not dict and not isinstance(value, Mapping):
            raise ShapeError(value, "an object")
        for key, item in value.items():
            try:
                inner(item)
            except ShapeError as error:
                error.path.append(key)
                raise

    return check


STRINGS: Final = map_of(STRING)
METADATA: Final = fields(
    name=STRING,
    namespace=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=NUMBER,
    creationTimestamp=TIME,
    deletionTimestamp=STRING,
    labels=STRINGS,
    annotations=STRINGS,
    ownerReferences=list_of(fields(uid=STRING, controller=BOOLEAN)),
    managedFields=list_of(
        fields(manager=STRING, operation=STRING, subresource=STRING, fieldsV1=OBJECT),
    ),
)
REQUIREMENTS: Final = list_of(fields(key=STRING, operator=STRING, values=list_of(STRING)))
CONDITIONS: Final = list_of(
    fields(type=STRING, status=STRING, reason=STRING, message=STRING, lastTransitionTime=TIME)
)
_REQUIRED: Final = fields(
    nodeSelectorTerms=list_of(fields(matchExpressions=REQUIREMENTS, matchFields=REQUIREMENTS))
)
AFFINITY: Final = fields(
    nodeAffinity=fields(requiredDuringSchedulingIgnoredDuringExecution=_REQUIRED)
)
