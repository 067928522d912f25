"""The exit codes of the plugin: part of its interface, and in docs/reference/cli.md."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a script reads from the end of a command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    PARTIAL = 3
    TIMEOUT = 4
    INTERRUPTED = 130
