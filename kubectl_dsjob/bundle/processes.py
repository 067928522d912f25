"""Runs programs of the user's machine: each with a limit of time, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

# Of a build's output only the end is shown, when it has failed.
OUTPUT_LIMIT_BYTES: Final = 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_TERM_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended: its exit code, and the end of both outputs as one text."""

    code: int
    output: str


async def run_program(
    command: Sequence[str],
    *,
    timeout_seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program without input, and return how it ended; TimeoutError, OSError.

    It gets a process group of its own, which is ended whenever this function ends early. So Ctrl-C
    leaves no process.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelled itself, it would end the program and leave those that it has started.
        await _end(await starting)
        raise
    try:
        async with asyncio.timeout(timeout_seconds):
            output = await _read(process)
            code = await process.wait()
    finally:
        await _end(process)
    return Ended(code, output.decode("utf-8", "replace"))


async def _read(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    kept = b""
    while chunk := await process.stdout.read(_READ_BYTES):
        kept = (kept + chunk)[-OUTPUT_LIMIT_BYTES:]
    return kept


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process group, at first with TERM, so that a builder can remove its containers."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TERM_SECONDS):
                await process.wait()
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
