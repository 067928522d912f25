"""The error of the plugin: a sentence for the user, and a way out."""

from __future__ import annotations

from typing import Final

from kubectl_dsjob.exit_codes import ExitCode

# Where a command that is proposed names its cluster: the edge puts --context and --kubeconfig of
# the user's command there. Without them the proposed command would go to another cluster.
CLUSTER: Final = "{cluster}"


class CliError(Exception):
    """A command cannot do what it is asked for.

    `message` says what happened, `way_out` what to do, and `code` is the exit code.
    """

    def __init__(self, message: str, way_out: str = "", code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.message = message
        self.way_out = way_out
        self.code = code
