"""Running other programs, so that none is left behind when we are interrupted."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from hack.devcluster.errors import StepFailedError

GRACE_SECONDS = 10

Command = Sequence[str | Path]


def output(
    command: Command,
    *,
    stdin: str | None = None,
    timeout_seconds: float = 60,
    env: Mapping[str, str] | None = None,
) -> str:
    """Return what a short command printed on stdout; raise StepFailedError with its stderr."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout_seconds,
            env=_environment(env),
        )
    except FileNotFoundError as error:
        raise StepFailedError(f"{command[0]}: no such program") from error
    except subprocess.TimeoutExpired as error:
        raise StepFailedError(f"{_short(command)}: no answer in {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise StepFailedError(f"{_short(command)}: {words or f'exit code {done.returncode}'}")
    return done.stdout


def succeeds(command: Command, *, timeout_seconds: float = 60) -> bool:
    """Say whether a short command exits with 0."""
    try:
        output(command, timeout_seconds=timeout_seconds)
    except StepFailedError:
        return False
    return True


def logged(
    command: Command,
    log: Path,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
) -> None:
    """Run a long command, its words appended to a log; raise StepFailedError with the log's end.

    The command gets a process group of its own, which ends with us, grandchildren included.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        sink.write(f"$ {_short(command)}\n".encode())
        sink.flush()
        try:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=stdin or subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=_environment(env),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise StepFailedError(f"{command[0]}: no such program") from error
        try:
            code = process.wait()
        except BaseException:
            end_group(process)
            raise
    if code != 0:
        raise StepFailedError(f"{_short(command)}: exit code {code}", log=log)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process group of ours: politely first, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
            return


def _environment(extra: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if extra is None else {**os.environ, **extra}


def _short(command: Command) -> str:
    text = " ".join(str(part) for part in command).replace("\n", " ")
    limit = 160
    return text if len(text) <= limit else f"{text[:limit]}…"
