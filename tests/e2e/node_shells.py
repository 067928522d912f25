"""Shells that stay on the nodes, for tests that look at a node again and again.

A script takes 4 ms in one of them, and 70 ms with a `docker exec` of its own: nearly all of it CPU.
"""

import contextlib
import os
import re
import secrets
import selectors
import shlex
import subprocess
import time
from collections import defaultdict

_READ_BYTES = 65536


class NodeShells:
    """Runs scripts on nodes that are containers, at any time by any number of threads."""

    def __init__(self) -> None:
        self._idle: dict[str, list[_Shell]] = defaultdict(list)

    def run(self, node: str, script: str, seconds: float) -> tuple[int, str]:
        """Run a script, and return its exit code and output; errors too unless the code is 0.

        Raises subprocess.TimeoutExpired after that number of seconds, and ConnectionError when the
        node ends meanwhile.
        """
        shell = self._take(node)
        result = shell.run(script, seconds)
        self._idle[node].append(shell)
        return result

    def _take(self, node: str) -> "_Shell":
        idle = self._idle[node]
        while idle:
            shell = idle.pop()
            if shell.is_alive():
                return shell
            shell.close()
        return _Shell(node)

    def close(self) -> None:
        """End all shells."""
        for shells in self._idle.values():
            while shells:
                shells.pop().close()


class _Shell:
    def __init__(self, node: str) -> None:
        self._process = subprocess.Popen(
            ["docker", "exec", "-i", node, "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, script: str, seconds: float) -> tuple[int, str]:
        mark = secrets.token_hex(8)
        errors = "/tmp/on-node.$$"
        command = (
            f"echo {mark}; sh -c {shlex.quote(script)} </dev/null 2>{errors}; code=$?; "
            f"[ $code -eq 0 ] || cat {errors}; printf '\\n{mark} %d\\n' $code\n"
        )
        try:
            return self._exchange(command.encode(), mark, seconds)
        except BaseException:
            self.close()
            raise

    def _exchange(self, command: bytes, mark: str, seconds: float) -> tuple[int, str]:
        process = self._process
        assert process.stdin is not None
        process.stdin.write(command)
        process.stdin.flush()
        whole = re.compile(rf"{mark}\n(.*)\n{mark} (\d+)\n".encode(), re.DOTALL)
        read = b""
        deadline = time.monotonic() + seconds
        while not (found := whole.search(read)):
            read += self._read(deadline, seconds)
        return int(found[2]), found[1].decode()

    def _read(self, deadline: float, seconds: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise subprocess.TimeoutExpired("docker exec", seconds)
        if not (chunk := os.read(stdout.fileno(), _READ_BYTES)):
            raise ConnectionError("the shell on the node has ended")
        return chunk

    def close(self) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()
