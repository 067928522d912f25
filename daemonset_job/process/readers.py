"""Readers of settings: from what a user wrote to a checked value.

A reader gets a text (an argument, a variable) or a value of YAML. It raises ValueError with the
fix, such as "write a whole number from 1 to 64".
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from daemonset_job.process.durations import parse_duration
from daemonset_job.process.logging_setup import LEVELS

T = TypeVar("T")
Reader = Callable[[object], T]

# RFC 1123 label, which is what names a namespace.
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-\w.]*[A-Za-z0-9])?)?"
_VALUES = rf"\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\)"
_REQUIREMENT = (
    rf"(?:!\s*{_KEY}|{_KEY}(?:\s*(?:==?|!=)\s*{_VALUE}|\s*[<>]\s*\d+|\s+(?:not)?in\s*{_VALUES})?)"
)
# As of `kubectl get -l`. The API server also checks how long keys and values are.
_SELECTOR = re.compile(rf"{_REQUIREMENT}(?:\s*,\s*{_REQUIREMENT})*", re.ASCII)
_NO_LIMIT = 10**9
_HOUR_SECONDS = 3600


class MistakesError(ValueError):
    """All that is wrong with a value that has parts: a text for each, with its place."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        super().__init__("; ".join(self.texts))


def read_text(raw: object) -> str:
    """Return any text as it is."""
    if not isinstance(raw, str):
        raise ValueError("write a text, in quotes if YAML takes it for something else")  # noqa: TRY004 - its text is for the author of the setting
    return raw


def read_optional_text(raw: object) -> str | None:
    """Return any text as it is, None for an empty one."""
    return read_text(raw) or None


def read_namespaces(raw: object) -> tuple[str, ...]:
    """Return the sorted names of namespaces; a list, or one text with commas."""
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("write a list of namespaces, or one text with commas; empty: all")
    found = sorted({item.strip() for item in items if item.strip()})
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a namespace")
    return tuple(found)


def line(fix: str) -> Reader[str]:
    """Return a reader of one line of printable text, without the blanks around it."""

    def read(raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or any(not c.isprintable() for c in raw):
            raise ValueError(fix)
        return raw.strip()

    return read


def read_label_selector(raw: object) -> str:
    """Return a label selector, without the blanks around it."""
    text = raw.strip() if isinstance(raw, str) else ""
    if not _SELECTOR.fullmatch(text):
        raise ValueError("write a label selector such as daemonset-job=true,team in (a, b)")
    return text


def duration(least: float, most: float) -> Reader[float]:
    """Return a reader of durations, in seconds; a number without a unit is seconds."""

    def read(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError("write a duration such as 10s, 1m30s or 500ms")  # noqa: TRY004 - as above
        seconds = parse_duration(raw.strip()) if isinstance(raw, str) else raw
        if not least <= seconds <= most:
            raise ValueError(f"write a duration between {least:g}s and {most / _HOUR_SECONDS:.0f}h")
        return float(seconds)

    return read


def number(least: int, most: int = _NO_LIMIT) -> Reader[int]:
    """Return a reader of whole numbers."""
    limit = "up" if most == _NO_LIMIT else f"to {most}"

    def read(raw: object) -> int:
        is_text = isinstance(raw, str) and raw.isdecimal() and len(raw) <= len(str(_NO_LIMIT))
        value = int(raw) if isinstance(raw, str) and is_text else raw
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"write a whole number from {least} {limit}")
        return value

    return read


def zero_is_none(read: Reader[T]) -> Reader[T | None]:
    """Return a reader of which 0 means no limit: None."""
    return lambda raw: read(raw) or None


def word(choices: tuple[str, ...], change: Callable[[str], str]) -> Reader[str]:
    """Return a reader of one of the `choices`; `change` brings a word to their case."""

    def read(raw: object) -> str:
        found = change(raw) if isinstance(raw, str) else ""
        if found not in choices:
            raise ValueError(f"write one of {', '.join(choices)}")
        return found

    return read


read_port = number(0, 65535)
read_log_level = word(LEVELS, str.upper)
read_log_format = word(("human", "json"), str.lower)
