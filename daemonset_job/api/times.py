"""Kubernetes timestamps to UTC datetimes and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

# Each reconcile reads the records of all nodes again. Those of 1,000 nodes have mostly the same
# times.
_REMEMBERED = 4096
_LAST_TIME = datetime.max.replace(microsecond=0, tzinfo=UTC)


@lru_cache(_REMEMBERED)
def parse_time(text: str | None) -> datetime | None:
    """Return the UTC time of an RFC 3339 `text`, None for none; raises ValueError for nonsense.

    Fractions longer than microseconds (logs carry nanoseconds) are cut, not rounded.
    """
    if not text:
        return None
    head, dot, tail = text.partition(".")
    if dot:
        digits = len(tail) - len(tail.lstrip("0123456789"))
        text = f"{head}.{tail[: min(digits, 6)]}{tail[digits:]}"
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is outside of the years 1 to 9999 in UTC") from error


@lru_cache(_REMEMBERED)
def parse_whole_seconds(text: str | None) -> datetime | None:
    """Return the UTC time of an RFC 3339 `text` without its fraction, None for none.

    Two texts that `format_time` would write alike are then equal. Raises ValueError for nonsense.
    """
    moment = parse_time(text)
    return moment.replace(microsecond=0) if moment is not None else None


def whole_seconds(moment: datetime) -> datetime:
    """Return `moment` in UTC without its fraction: what reading back `format_time` returns."""
    return moment.astimezone(UTC).replace(microsecond=0)


def add_seconds(moment: datetime, seconds: float) -> datetime:
    """Return the time `seconds` after `moment`, in UTC; at most the end of the year 9999.

    An object may have any time that the API server takes, up to that one.
    """
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return _LAST_TIME


def format_time(moment: datetime) -> str:
    """Return `moment` as metav1.Time does: UTC, whole seconds, `Z`."""
    # Not strftime, which writes the year 1 with one digit.
    return moment.astimezone(UTC).isoformat(timespec="seconds")[: -len("+00:00")] + "Z"
