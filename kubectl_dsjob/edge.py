"""The edge of the plugin: runs a verb, prints its data, and turns errors into sentences.

Verbs return data and an exit code. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import typer
from loguru import logger

from daemonset_job.kube.client.errors import (
    ConfigurationError,
    Forbidden,
    KubeError,
    NotFound,
    OperatorError,
    Unauthorized,
)
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode

_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb returns: its data for stdout, its words for stderr, and the exit code."""

    data: str = ""
    words: str = ""
    code: ExitCode = ExitCode.SUCCESS


def run(verb: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
    """Run a verb, print its answer, and end the command with its exit code."""
    logger.disable("daemonset_job")
    try:
        answer = asyncio.run(verb())
        show(answer)
    except KeyboardInterrupt:
        say("interrupted. The run goes on in the cluster.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except (CliError, OperatorError, ValueError) as error:
        failure = as_cli_error(error)
        say(f"error: {clean_text(failure.message, _MESSAGE_LIMIT)}")
        if failure.way_out:
            say(failure.way_out)
        raise typer.Exit(failure.code) from None
    raise typer.Exit(answer.code)


def show(answer: Answer) -> None:
    """Print the answer: data to stdout, words to stderr."""
    if answer.data:
        sys.stdout.write(answer.data if answer.data.endswith("\n") else answer.data + "\n")
        sys.stdout.flush()
    if answer.words:
        say(answer.words)


def say(words: str) -> None:
    """Print a line of talk to stderr."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def as_cli_error(error: Exception) -> CliError:
    """Return the error as a sentence with a way out."""
    match error:
        case CliError():
            return error
        case ConfigurationError():
            way = "Name a kubeconfig with --kubeconfig, or set KUBECONFIG."
            return CliError(f"cannot reach a cluster: {error}", way, ExitCode.USAGE)
        case Unauthorized():
            way = "Log in to the cluster again, then repeat the command."
            return CliError("the API server refuses your credentials", way)
        case Forbidden():
            way = "Ask an administrator for the ClusterRole daemonset-job-view or -edit."
            return CliError(f"you may not do this: {error.message}", way)
        case NotFound() if error.request and not error.details.get("name"):
            way = "Install daemonset-job, or name another cluster with --context."
            return CliError("the cluster does not know this kind of object", way)
        case _:
            known = error.message if isinstance(error, KubeError) else ""
            return CliError(known or str(error))
