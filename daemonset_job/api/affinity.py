"""Whether a pod's node selector and required node affinity match a node: labels and name only.

The rules are those of the scheduler (k8s.io/component-helpers scheduling/corev1/nodeaffinity).
Taints are not checked: a node that does not match here is certainly not desired.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class _Requirement(NamedTuple):
    """One requirement of a term. `bound` is the value that Gt and Lt compare with."""

    key: str
    operator: Any
    values: frozenset[str]
    bound: Any

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> _Requirement:
        """Return the requirement in its raw form. What is no text is no value of a label."""
        values = list(rule.get("values") or ())
        texts = frozenset(value for value in values if isinstance(value, str))
        return cls(str(rule.get("key")), rule.get("operator"), texts, values[0] if values else None)


class _Term(NamedTuple):
    """One term: what the labels of a node have to be, and its name."""

    expressions: tuple[_Requirement, ...]
    names: tuple[_Requirement, ...]

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> _Term:
        """Return the term in its raw form."""
        return cls(
            tuple(map(_Requirement.of, raw.get("matchExpressions") or ())),
            tuple(map(_Requirement.of, raw.get("matchFields") or ())),
        )


class NodeAffinity:
    """Node selector and required node affinity of a raw pod spec, made ready for many nodes.

    Terms that name one node are looked up by its name: a selection of a thousand names costs no
    more for each node than one of two. So are the values of a requirement: a thousand of them cost
    no more than one.
    """

    def __init__(self, pod_spec: Mapping[str, Any]) -> None:
        """Read the parts of a pod's spec that choose nodes by label and name."""
        self._selector: Mapping[str, str] = _part(pod_spec, "nodeSelector")
        required = _part(_part(_part(pod_spec, "affinity"), "nodeAffinity"), REQUIRED)
        self._is_open = not required
        self._by_name: dict[str, list[_Term]] = {}
        self._others: list[_Term] = []
        for raw in required.get("nodeSelectorTerms") or ():
            if name := _named(raw):
                self._by_name.setdefault(name, []).append(_Term.of(raw))
            else:
                self._others.append(_Term.of(raw))

    @property
    def requirements(self) -> int:
        """How many requirements a node is checked against at most, those of its name aside."""
        return len(self._selector) + sum(len(term.expressions) for term in self._others)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the pods may run on a node of that name and those labels."""
        if any(labels.get(key) != value for key, value in self._selector.items()):
            return False
        terms = (*self._by_name.get(name, ()), *self._others)
        return self._is_open or any(
            _matches_term(term, {"metadata.name": name}, labels) for term in terms
        )


def label_keys(pod_spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the node labels that the pods' node selector and required affinity name.

    A node whose other labels change matches as it did before.
    """
    required = _part(_part(_part(pod_spec, "affinity"), "nodeAffinity"), REQUIRED)
    return frozenset(_part(pod_spec, "nodeSelector")) | frozenset(
        str(rule.get("key"))
        for term in required.get("nodeSelectorTerms") or ()
        for rule in term.get("matchExpressions") or ()
    )


def changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of the labels that one of two sets of labels lacks or has otherwise."""
    if old == new:
        return frozenset()
    return frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _part(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside another one, empty where there is none."""
    found = raw.get(key)
    return found if isinstance(found, Mapping) else {}


def _named(term: Mapping[str, Any]) -> str:
    """Return the name of the only node that a term can match, "" if it names none."""
    for rule in term.get("matchFields") or ():
        values = list(rule.get("values") or ())
        if rule.get("operator") == "In" and len(values) == 1:
            return str(values[0])
    return ""


def _matches_term(term: _Term, fields: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    if not term.expressions and not term.names:
        return False  # an empty term matches no node
    return all(_holds(rule, labels) for rule in term.expressions) and all(
        _holds(rule, fields) for rule in term.names
    )


def _holds(rule: _Requirement, values: Mapping[str, str]) -> bool:
    """Return whether one requirement holds; one that makes no sense holds nowhere."""
    value = values.get(rule.key)
    match rule.operator:
        case "In":
            return value in rule.values
        case "NotIn":
            return value not in rule.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(operator, value, rule.bound)
    return False


def _compares(operator: str, value: str | None, bound_text: Any) -> bool:
    number, bound = _parse_int64(value), _parse_int64(bound_text)
    if number is None or bound is None:
        return False
    return number > bound if operator == "Gt" else number < bound


def _parse_int64(value: Any) -> int | None:
    """Return the number that strconv.ParseInt of Go reads in a text, None if it reads none."""
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None
