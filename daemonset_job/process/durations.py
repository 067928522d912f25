"""Durations in settings: written as in Go, as Kubernetes' own flags are."""

import re

# Go's units (time.ParseDuration).
_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_BARE_NUMBER = re.compile(_NUMBER)
_DURATION_PART = re.compile(_NUMBER + r"(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration such as 10s, 1m30s or 500ms; ValueError otherwise.

    A number without a unit is seconds: manifests of this project's first version have
    `TICKER_DURATION: "10"`.
    """
    if _BARE_NUMBER.fullmatch(text):
        return float(text)
    parts = list(_DURATION_PART.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        raise ValueError("write a duration such as 10s, 1m30s or 500ms")
    return sum(float(part[1]) * _UNITS[part[2]] for part in parts)
