"""The error of the plugin: a sentence for the user, and a way out."""

from __future__ import annotations

from kubectl_dsjob.exit_codes import ExitCode


class CliError(Exception):
    """A command cannot do what it is asked for.

    `message` says what happened, `way_out` what to do, and `code` is the exit code.
    """

    def __init__(self, message: str, way_out: str = "", code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.way_out = way_out
        self.code = code
