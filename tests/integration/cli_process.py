"""The plugin as a process, as its user starts it: with a kubeconfig, alone or on a terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

from tests.integration.kube_env import ROOT

COMMAND = (sys.executable, "-m", "kubectl_dsjob.main")
LIMIT_SECONDS = 60


def environment(kubeconfig: Path) -> dict[str, str]:
    """Return the environment of the process: nothing of the tests' terminal is in it."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    terminal = {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"}
    return {**kept, **terminal, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}


def call(kubeconfig: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin to its end."""
    return subprocess.run(
        [*COMMAND, *args],
        env=environment(kubeconfig),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def _take_interrupts() -> None:
    """Tests that run in the background ignore SIGINT, and so would the plugin."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminal:
    """A process on a pseudo-terminal of `width` columns."""

    def __init__(self, kubeconfig: Path, width: int, *args: str, colour: bool = True) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
        env = environment(kubeconfig) | ({} if colour else {"NO_COLOR": "1"})
        self.process = subprocess.Popen(
            [*COMMAND, *args],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            preexec_fn=_take_interrupts,  # noqa: PLW1509 - no threads here
        )
        os.close(slave)
        self._shown = b""

    @property
    def text(self) -> str:
        """What was written so far, with its control sequences."""
        return self._shown.decode("utf-8", "replace")

    @property
    def lines(self) -> list[str]:
        """What was written so far, as lines without control sequences."""
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.text)
        return re.split(r"[\r\n]+", plain)

    def wait_for(self, word: str) -> None:
        """Return once a word is shown."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while word not in "\n".join(self.lines):
            assert time.monotonic() < deadline, f"no {word!r} in {self.text}"
            assert self._read() or word in "\n".join(self.lines), f"ended: {self.text}"

    def end(self) -> int:
        """Return the exit code, after all was read."""
        while self._read():
            pass
        os.close(self._master)
        return self.process.wait(LIMIT_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], LIMIT_SECONDS)
        assert ready, f"nothing for {LIMIT_SECONDS} s: {self.text}"
        try:
            chunk = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self._shown += chunk
        return bool(chunk)
