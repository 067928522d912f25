"""Which of many terms fail for a node: alternatives of requirements on its labels, or on its name.

One process checks the terms of all tenants. A tenant may write thousands of them, and a cluster may
have thousands of nodes, so terms are not checked one by one. Each term is a bit of a number, and
a label costs a few operations on such numbers, however many terms there are.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from operator import or_
from typing import Any, Final

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")


class LabelTerms:
    """The requirements of terms on labels, by the label. All terms are added before one is asked.

    The rules are those of the scheduler (k8s.io/apimachinery labels.Requirement).
    """

    def __init__(self) -> None:
        self._keys: defaultdict[str, _Key] = defaultdict(_Key)
        # The terms that fail for lack of a label, by the labels that are there.
        self._lacking: dict[frozenset[str], int] = {}

    def add(self, term: int, rules: Iterable[Mapping[str, Any]]) -> None:
        """Add the raw requirements of a term, which is a bit. All of them have to hold."""
        choices: dict[str, frozenset[str]] = {}
        for rule in rules:
            key = str(rule.get("key"))
            if rule.get("operator") == "In":
                values = _texts(rule)
                choices[key] = values & choices.get(key, values)
            else:
                self._keys[key].add(term, rule)
        for key, values in choices.items():
            self._keys[key].add_choice(term, values)

    def failing(self, labels: Mapping[str, str]) -> int:
        """Return the terms with a requirement that does not hold for these labels, as bits."""
        there = frozenset(self._keys.keys() & labels.keys())
        found = self._lacking.get(there)
        if found is None:
            found = 0
            for key, rules in self._keys.items():
                if key not in there:
                    found |= rules.absent
            self._lacking[there] = found
        for key in there:
            found |= self._keys[key].failing(labels[key])
        return found


class _Key:
    """The terms with a requirement on one label: those that fail without it, and with a value."""

    __slots__ = (
        "_bounds",
        "_choosing",
        "_compared",
        "_present",
        "_refused",
        "_taken",
        "absent",
    )

    def __init__(self) -> None:
        self.absent = 0
        self._present = 0
        self._choosing = 0
        self._taken: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._compared = 0
        # Those of Gt, and of Lt as negatives. Most labels have none.
        self._bounds: dict[str, _Bounds] = {}

    def add_choice(self, term: int, values: Iterable[str]) -> None:
        """Add the values of a term's requirements In."""
        self.absent |= term
        self._choosing |= term
        for value in values:
            self._taken[value] = self._taken.get(value, 0) | term

    def add(self, term: int, rule: Mapping[str, Any]) -> None:
        """Add any other requirement of a term; one that makes no sense holds nowhere."""
        operator = rule.get("operator")
        if operator == "NotIn":
            for value in _texts(rule):
                self._refused[value] = self._refused.get(value, 0) | term
            return
        if operator != "DoesNotExist":
            self.absent |= term
        if operator == "Exists":
            return
        bound = _bound(rule)
        if operator not in {"Gt", "Lt"} or bound is None:
            self._present |= term
            return
        self._compared |= term
        bounds = self._bounds.setdefault(str(operator), _Bounds())
        bounds.add(term, bound if operator == "Gt" else -bound)

    def failing(self, value: str) -> int:
        """Return the terms that fail if the label has that value."""
        found = self._present | self._refused.get(value, 0)
        found |= self._choosing & ~self._taken.get(value, 0)
        if self._compared:
            number = _parse_int64(value)
            if number is None:
                return found | self._compared
            for operator, bounds in self._bounds.items():
                found |= bounds.from_number(number if operator == "Gt" else -number)
        return found


class _Bounds:
    """Terms that fail up to a bound, each with its own."""

    __slots__ = ("_bounds", "_failing", "_terms")

    def __init__(self) -> None:
        self._terms: dict[int, int] = {}
        self._bounds: list[int] = []
        self._failing: list[int] = []

    def add(self, term: int, bound: int) -> None:
        """Add a term and its bound."""
        self._terms[bound] = self._terms.get(bound, 0) | term

    def from_number(self, number: int) -> int:
        """Return the terms whose bound is that number, or above."""
        if not self._failing:
            self._bounds = sorted(self._terms)
            masks = (self._terms[bound] for bound in reversed(self._bounds))
            self._failing = [*accumulate(masks, or_, initial=0)][::-1]
        return self._failing[bisect_left(self._bounds, number)]


def _texts(rule: Mapping[str, Any]) -> frozenset[str]:
    """Return the values of a raw requirement. What is no text is no value of a label."""
    return frozenset(value for value in rule.get("values") or () if isinstance(value, str))


def _bound(rule: Mapping[str, Any]) -> int | None:
    """Return the number that Gt and Lt compare with."""
    values = list(rule.get("values") or ())
    return _parse_int64(values[0]) if values else None


def _parse_int64(value: Any) -> int | None:
    """Return the number that strconv.ParseInt of Go reads in a text, None if it reads none."""
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        return None
    number = int(value)
    return number if -(2**63) <= number < 2**63 else None
