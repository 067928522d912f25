"""The choices of options. It imports nothing, so that `--help` and completion stay fast."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """A form of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


class DryRun(StrEnum):
    """Who checks the manifest of a dry run."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"
