"""`kubectl dsjob` as its user starts it: kubectl itself finds the plugin and runs it."""

import os
import subprocess
import sys
from pathlib import Path

END_SECONDS = 180


class Plugin:
    """Starts `kubectl dsjob VERB` in one namespace, in a process of its own."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        programs = Path(sys.executable).parent
        assert (programs / "kubectl-dsjob").exists(), "install the project: make venv"
        paths = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": paths, "KUBECONFIG": kubeconfig}
        self._namespace = namespace

    def start(self, verb: str, *args: str) -> subprocess.Popen[str]:
        """Return the process, with its data and its words."""
        return subprocess.Popen(
            ["kubectl", "dsjob", verb, "-n", self._namespace, *args],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, verb: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        process = self.start(verb, *args)
        data, words = process.communicate(timeout=END_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, data, words)

    def succeed(self, verb: str, *args: str) -> str:
        """Run it to its end, which has to be exit code 0; return its data."""
        done = self(verb, *args)
        assert done.returncode == 0, done
        return done.stdout
