"""The terminator's configuration: environment variables, overridden by a mounted file.

Reads and validates it, and describes each problem with its fix. Connects to nothing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import yaml

from daemonset_job.api import names
from daemonset_job.process.durations import parse_duration
from daemonset_job.process.logging_setup import LEVELS

DEFAULT_PATH = "/etc/terminator/config.yaml"
_FORMATS = ("human", "json")
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


class ConfigError(ValueError):
    """The configuration is invalid; one line per problem with its place, and the fix."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration. Times in seconds.

    `namespaces` empty: all. `termination_word`: the token of Jobs that name none. `max_streams`:
    logs followed at a time. `short_reads`: reads of a log's end at a time. `flush_interval`: how
    long evidence waits for more of it before it is written. `resync_period`: how often every Job
    is reconciled without an event.
    """

    namespaces: tuple[str, ...] = ()
    pod_label_selector: str = names.MANAGED_SELECTOR
    termination_word: str = names.DEFAULT_TOKEN
    resync_period: float = 30.0
    max_streams: int = 256
    short_reads: int = 16
    flush_interval: float = 0.5
    log_level: str = "INFO"
    log_format: str = "human"


def load_config(environ: Mapping[str, str], text: str | None) -> Config:
    """Return the configuration: the file's `text` over the environment over the defaults.

    Raises ConfigError with every problem there is, not only the first.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    for variable, field in _ENVIRONMENT.items():
        if environ.get(variable, "").strip():
            _take(values, field, environ[variable], f"environment variable {variable}", problems)
    for key, value in _file_values(text, problems).items():
        field = _FILE.get(key, "")
        if not field:
            known = ", ".join(_FILE)
            problems.append(f"{key}: there is no such setting; use one of {known}")
        elif value is not None:
            _take(values, field, value, key, problems)
    if problems:
        raise ConfigError(problems)
    return Config(**values)


def _file_values(text: str | None, problems: list[str]) -> Mapping[str, Any]:
    if text is None:
        return {}
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problems.append(f"the file is not YAML: {' '.join(str(error).split())}")
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict):
        problems.append("the file must hold settings, one `name: value` per line")
        return {}
    return {str(key): value for key, value in values.items()}


def _take(values: dict[str, Any], field: str, raw: object, where: str, problems: list[str]) -> None:
    try:
        values[field] = _READERS[field](raw)
    except ValueError as error:
        problems.append(f"{where}: {raw!r} is not valid; {error}")


# --- one reader per kind of value; each raises ValueError with the fix -----------------------


def _namespaces(raw: object) -> tuple[str, ...]:
    items = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("write a list of namespaces, or one text with commas; empty: all")
    found = sorted({item.strip() for item in items if item.strip()})
    for name in found:
        if not _NAMESPACE.fullmatch(name):
            raise ValueError(f"{name!r} is not the name of a namespace")
    return tuple(found)


def _selector(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or any(not c.isprintable() for c in raw):
        raise ValueError(f"write a label selector such as {names.MANAGED_SELECTOR}")
    return raw.strip()


def _token(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip() or any(not c.isprintable() for c in raw):
        raise ValueError("write a word, in quotes if YAML takes it for something else")
    return raw.strip()


def _seconds(least: float) -> Callable[[object], float]:
    def read(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float | str):
            raise ValueError("write a duration such as 10s, 1m30s or 500ms")  # noqa: TRY004
        seconds = parse_duration(raw.strip()) if isinstance(raw, str) else raw
        if not least <= seconds <= 86400:
            raise ValueError(f"write a duration between {least:g}s and 24h")
        return float(seconds)

    return read


def _number(least: int, most: int) -> Callable[[object], int]:
    def read(raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or not least <= raw <= most:
            raise ValueError(f"write a whole number from {least} to {most}")
        return raw

    return read


def _word(choices: tuple[str, ...], change: Callable[[str], str]) -> Callable[[object], str]:
    def read(raw: object) -> str:
        word = change(raw) if isinstance(raw, str) else ""
        if word not in choices:
            raise ValueError(f"write one of {', '.join(choices)}")
        return word

    return read


_READERS: Mapping[str, Callable[[object], Any]] = {
    "namespaces": _namespaces,
    "pod_label_selector": _selector,
    "termination_word": _token,
    "resync_period": _seconds(1.0),
    "max_streams": _number(0, 4000),
    "short_reads": _number(1, 64),
    "flush_interval": _seconds(0.0),
    "log_level": _word(LEVELS, str.upper),
    "log_format": _word(_FORMATS, str.lower),
}
# The first four are the seed's.
_ENVIRONMENT: Mapping[str, str] = {
    "NAMESPACE": "namespaces",
    "POD_LABEL_SELECTOR": "pod_label_selector",
    "TERMINATION_WORD": "termination_word",
    "TICKER_DURATION": "resync_period",
    "LOG_LEVEL": "log_level",
    "LOG_FORMAT": "log_format",
}
_FILE: Mapping[str, str] = {
    re.sub(r"_(.)", lambda found: found[1].upper(), field.name): field.name
    for field in fields(Config)
}
