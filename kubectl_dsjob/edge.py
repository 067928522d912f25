"""The edge of the plugin: runs a verb, prints its data, and turns errors into sentences.

Verbs return data and an exit code. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO

import typer
from loguru import logger

from daemonset_job.kube.client.errors import (
    ConfigurationError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    OperatorError,
    Throttled,
    Unauthorized,
    Unavailable,
)
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.target import Target

_MESSAGE_LIMIT = 1024
# A refusal by a quota or by admission, which has the status of a missing right.
_NO_RIGHT: Final = re.compile(r"(?:exceeded|failed) quota|denied (?:the )?request")
# The cluster that kubectl chooses without options.
_ANYWHERE: Final = Target()


class OutputError(CliError):
    """stdout takes no data."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb returns: its data for stdout, its words for stderr, and the exit code."""

    data: str = ""
    words: str = ""
    code: ExitCode = ExitCode.SUCCESS


def run(verb: Callable[[], Coroutine[Any, Any, Answer]], target: Target = _ANYWHERE) -> None:
    """Run a verb, print its answer, and end the command with its exit code.

    Commands that the answer or an error proposes name the cluster of `target`.
    """
    logger.disable("daemonset_job")
    try:
        answer = asyncio.run(verb())
        show(replace(answer, words=target.name_cluster(answer.words)))
    except KeyboardInterrupt:
        say("interrupted. What has begun goes on in the cluster.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has seen enough, as `head` has.
        _discard(sys.stdout)
        raise typer.Exit(ExitCode.FAILURE) from None
    except OutputError as error:
        _discard(sys.stdout)
        _fail(error)
    except ExceptionGroup as group:
        _fail(_first(group), target)
    except (CliError, OperatorError, ValueError) as error:
        _fail(error, target)
    raise typer.Exit(answer.code)


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first error of a group; an error of the program itself is raised instead."""
    error: Exception = group
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, CliError | OperatorError | ValueError):
        raise error
    return error


def _fail(error: Exception, target: Target = _ANYWHERE) -> NoReturn:
    failure = as_cli_error(error)
    say(f"error: {clean_text(failure.message, _MESSAGE_LIMIT)}")
    if failure.way_out:
        say(target.name_cluster(clean_text(failure.way_out, _MESSAGE_LIMIT)))
    raise typer.Exit(failure.code) from None


def read_script(path: Path) -> str:
    """Return the text of a script; the command ends with a sentence if that cannot be read."""
    try:
        # A byte order mark is no part of the text: with it, the first line names no interpreter.
        text = path.read_text("utf-8-sig")
        if text.strip():
            return text
        what, way = "it is empty", "Write the script, or name another file."
    except UnicodeDecodeError:
        what, way = "it is no text in UTF-8", "Put a program that is no script into an image."
    except OSError as error:
        what, way = str(error.strerror), "Name another file."
    _fail(CliError(f"cannot read the script {path}: {what}", way, ExitCode.USAGE))


def need_wait(timeout: float | None) -> None:
    """End the command if a timeout is given to one that does not wait."""
    if timeout is not None:
        way = "Leave --timeout out, or have the command wait: --wait."
        _fail(CliError("--timeout is for a command that waits", way, ExitCode.USAGE))


def write(text: str) -> None:
    """Print data to stdout at once; OutputError if it takes none, as a full disk."""
    if sys.stdout is None:  # closed by the shell: >&-
        raise OutputError("cannot write the output: stdout is closed")
    try:
        _write(sys.stdout, text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror}") from error


def _write(stream: TextIO, text: str) -> None:
    """Write a text; characters that the encoding of the stream lacks are replaced."""
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "replace").decode(stream.encoding))


def is_terminal() -> bool:
    """Return whether stdout is a terminal. One that is closed, or a variable, makes it none."""
    return sys.stdout is not None and sys.stdout.isatty()


def _discard(stream: TextIO | None) -> None:
    """Have nothing more written: Python flushes the stream once more at its end."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(answer: Answer) -> None:
    """Print the answer: data to stdout, words to stderr."""
    if answer.data:
        write(answer.data if answer.data.endswith("\n") else answer.data + "\n")
    if answer.words:
        say(answer.words)


def say(words: str) -> None:
    """Print a line of talk to stderr. If nobody reads it, the exit code still counts."""
    if sys.stderr is None:  # closed by the shell: 2>&-
        return
    try:
        sys.stderr.write(words + "\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def as_cli_error(error: Exception) -> CliError:
    """Return the error as a sentence with a way out."""
    code = ExitCode.FAILURE
    match error:
        case CliError():
            return error
        case ConfigurationError():
            message, code = f"cannot reach a cluster: {error}", ExitCode.USAGE
            way = "Name a kubeconfig with --kubeconfig or KUBECONFIG, or a context with --context."
        case Unauthorized():
            message = "the API server refuses your credentials"
            way = (
                "They may have expired: log in to the cluster again, then repeat the command. "
                f"`kubectl auth whoami{CLUSTER}` shows who you are."
            )
        case Forbidden():
            message, way = _forbidden(error)
        case NotFound():
            message, way = _not_found(error)
        case Unavailable():
            message = f"the API server does not answer: {error.message}"
            way = (
                f"Is the cluster up, and are you in its network? Try: kubectl cluster-info{CLUSTER}"
            )
        case Invalid():
            message, way = error.message, "Correct what it names, then repeat the command."
        case Conflict() | Gone() | Throttled():
            message, way = error.message, "This may pass: repeat the command."
        case KubeError():
            message, way = error.message, f"Look at the cluster: kubectl cluster-info{CLUSTER}"
        case _:
            message, way = str(error), ""
    return CliError(message, way, code)


def _forbidden(error: Forbidden) -> tuple[str, str]:
    """Return what is refused, and the way out."""
    if error.is_namespace_ending:
        return error.message, "The namespace is being deleted. Use another one: -n"
    if _NO_RIGHT.search(error.message):
        way = "No right is missing: correct what it names, or ask an administrator."
        return error.message, way
    way = (
        "Ask an administrator for the ClusterRole view, or edit to write: daemonset-job "
        f"adds its rights to both. `kubectl auth can-i --list{CLUSTER}` shows yours."
    )
    return f"you may not do this: {error.message}", way


def _not_found(error: NotFound) -> tuple[str, str]:
    """Return what does not exist, and the way out."""
    if error.request and not error.details.get("name"):
        install = f"kubectl dsjob install{CLUSTER}"
        way = f"Install it with {install}, or name another cluster with --context."
        return "the cluster has no CRD of daemonset-job", way
    if error.details.get("kind") == "namespaces":
        way = f"Name another one with -n, or create it: kubectl create namespace NAME{CLUSTER}"
        return f"there is no namespace {error.details.get('name')!r}", way
    return error.message, f"Look at the cluster: kubectl cluster-info{CLUSTER}"
