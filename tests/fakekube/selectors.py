"""Label and field selectors, as a request spells them (apimachinery pkg/labels and pkg/fields)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.fakekube.kinds import Kind
from tests.fakekube.refusals import bad_request

Raw = Mapping[str, Any]

_NAME = r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_KEY = rf"(?:{_NAME}/)?{_NAME}"
_IN = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([\w.-]*)")
_COMPARED = re.compile(rf"({_KEY})\s*([<>])\s*(\d+)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_FIELD = re.compile(r"([\w.]+)(==|=|!=)(.*)")
# Commas within "in (…)" do not end a requirement.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch asks for: rules about labels, and (path, value, equal) of fields."""

    labels: tuple[Raw, ...] = ()
    fields: tuple[tuple[str, str, bool], ...] = ()

    def selects(self, raw: Raw) -> bool:
        """Return whether an object is asked for."""
        labels = raw["metadata"].get("labels") or {}
        return all(matches(rule, labels) for rule in self.labels) and all(
            (_text_at(raw, path) == value) == is_equal for path, value, is_equal in self.fields
        )


def parse_selector(kind: Kind, labels: str | None, fields: str | None) -> Selector:
    """Return the selector of a request; 400 for one that cannot be read, or an unknown field."""
    return Selector(
        tuple(map(_label_rule, _requirements(labels))),
        tuple(_field_rule(kind, part) for part in _requirements(fields)),
    )


def carries(raw: Raw, requested: Mapping[str, str] | None) -> bool:
    """Return whether an object has all these labels (`matchLabels`)."""
    return not requested or requested.items() <= (raw["metadata"].get("labels") or {}).items()


def matches(rule: Raw, values: Mapping[str, str]) -> bool:
    """Return whether one requirement (key, operator, values) holds for these labels or fields."""
    key, allowed = rule["key"], list(rule.get("values") or [])
    match rule["operator"]:
        case "In":
            return values.get(key) in allowed
        case "NotIn":
            return values.get(key) not in allowed
        case "Exists":
            return key in values
        case "DoesNotExist":
            return key not in values
        case "Gt":
            return key in values and int(values[key]) > int(allowed[0])
        case "Lt":
            return key in values and int(values[key]) < int(allowed[0])
    raise ValueError(f"unknown operator {rule['operator']!r}")


def _requirements(selector: str | None) -> Iterator[str]:
    return (part.strip() for part in _COMMA.split(selector or "") if part.strip())


def _label_rule(text: str) -> Raw:
    if match := _IN.fullmatch(text):
        values = [value.strip() for value in match[3].split(",")]
        return _rule(match[1], "In" if match[2] == "in" else "NotIn", values)
    if match := _EQUAL.fullmatch(text):
        return _rule(match[1], "NotIn" if match[2] == "!=" else "In", [match[3]])
    if match := _COMPARED.fullmatch(text):
        return _rule(match[1], "Gt" if match[2] == ">" else "Lt", [match[3]])
    if match := _EXISTS.fullmatch(text):
        return _rule(match[2], "DoesNotExist" if match[1] else "Exists", [])
    raise bad_request(f"unable to parse requirement: {text!r}")


def _rule(key: str, operator: str, values: list[str]) -> Raw:
    return {"key": key, "operator": operator, "values": values}


def _field_rule(kind: Kind, text: str) -> tuple[str, str, bool]:
    match = _FIELD.fullmatch(text)
    if match is None:
        raise bad_request(f"invalid selector: {text!r}; cannot be understood")
    path, operator, value = match.groups()
    if path not in kind.fields:
        raise bad_request(f"field label not supported: {path}")
    return path, value, operator != "!="


def _text_at(raw: Raw, path: str) -> str:
    node: Any = raw
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return "" if node is None else str(node)
