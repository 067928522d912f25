"""The forms of output, as `-o` names them. It imports nothing, so that `--help` stays fast."""

from __future__ import annotations

from enum import StrEnum


class Output(StrEnum):
    """A form of output."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
