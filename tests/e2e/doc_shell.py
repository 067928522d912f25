"""A shell that runs the commands of a page one after the other, as a reader does."""

import os
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_SECONDS = 180
_OUTPUT_LIMIT_BYTES = 1 << 20


class Shell:
    """One bash: directory, variables and functions last from command to command."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._environment = dict(environment)
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env=self._environment,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.communicate()

    def run(self, command: str, *, stops_at_error: bool = False) -> tuple[int, str]:
        """Return the exit code and the output of a command, stderr included.

        Args:
            command: one or more lines of bash; stdin is empty.
            stops_at_error: end at the first command that fails, with its exit code.

        Raises:
            AssertionError: it takes longer than 180 s, or prints more than 1 MiB.
        """
        mark = f"end-{secrets.token_hex(8)}"
        # The variables that a page cannot know are set again: `devcluster env` sets KUBECONFIG.
        sets = "".join(f"export {name}='{value}'\n" for name, value in self._kept().items())
        # With `set -e` the shell ends at an error; the trap still prints the mark. With `set -u` a
        # variable that only a task has is an error, instead of a path under `/`.
        guard = f"trap 'printf \"\\n{mark} %s\\n\" $?' EXIT; set -eu" if stops_at_error else ":"
        release = "trap - EXIT; set +eu" if stops_at_error else ":"
        script = (
            f"{sets}{guard}\n{{ {command}\n}} </dev/null\nprintf '\\n{mark} %s\\n' $?\n{release}\n"
        )
        assert self._bash.stdin is not None
        self._bash.stdin.write(script.encode())
        self._bash.stdin.flush()
        return self._read(mark, command)

    def _kept(self) -> dict[str, str]:
        return {"KUBECONFIG": self._environment["KUBECONFIG"]}

    def _read(self, mark: str, command: str) -> tuple[int, str]:
        assert self._bash.stdout is not None
        end = f"\n{mark} ".encode()
        output = b""
        deadline = time.monotonic() + LIMIT_SECONDS
        while end not in output or not output.endswith(b"\n"):
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._bash.stdout], [], [], max(left, 0))
            text = output.decode(errors="replace")
            assert ready, f"not within {LIMIT_SECONDS} s: {command}\n{text}"
            chunk = os.read(self._bash.stdout.fileno(), 65536)
            assert chunk, f"the shell has ended: {command}\n{text}"
            output += chunk
            assert len(output) <= _OUTPUT_LIMIT_BYTES, f"too much output: {command}"
        printed, _, code = output.partition(end)
        return int(code.split()[0]), printed.decode(errors="replace")


class Watch:
    """A command that runs until it is ended, as by Ctrl-C."""

    def __init__(self, command: str, directory: Path, environment: Mapping[str, str]) -> None:
        self._file = directory / f".watch-{secrets.token_hex(4)}"
        with self._file.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "--noprofile", "--norc", "-c", f"exec {command}"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=dict(environment),
                start_new_session=True,
            )

    def output(self) -> str:
        """Return what it has printed so far, 1 MiB at most."""
        with self._file.open("rb") as printed:
            return printed.read(_OUTPUT_LIMIT_BYTES).decode(errors="replace")

    def end(self) -> None:
        """End it and all that it has started, unless it has ended."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
