"""The entry point of `kubectl dsjob`."""

from __future__ import annotations

from kubectl_dsjob import (
    commands_bundle,
    commands_logs,
    commands_read,
    commands_system,
    commands_write,
)
from kubectl_dsjob.options import app


def main() -> None:
    """Run the command line."""
    app(prog_name="kubectl dsjob")


__all__ = [
    "app",
    "commands_bundle",
    "commands_logs",
    "commands_read",
    "commands_system",
    "commands_write",
    "main",
]

if __name__ == "__main__":
    main()
