"""kubectl: the one built here if it is there, else the user's, else built."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hack.devcluster import binaries, debian, gobuild, shell
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.settings import Paths


def find(paths: Paths) -> Path:
    """Return a kubectl; raise MissingError if there is none and none can be built."""
    ready = binaries.find_ready(paths)
    if ready is not None:
        return ready / "kubectl"
    found = debian.find_program("kubectl")
    if found:
        return Path(found)
    if not gobuild.has_go():
        raise MissingError(
            "kubectl",
            why="talking to the cluster",
            fix="https://kubernetes.io/docs/tasks/tools/ (or Go, to build it)",
        )
    return binaries.ensure(paths) / "kubectl"


def kubeconfig(paths: Paths) -> Path:
    """Return the kubeconfig in use: the user's KUBECONFIG, else the current cluster's."""
    return Path(os.environ.get("KUBECONFIG") or paths.kubeconfig)


class Kubectl:
    """kubectl on one cluster."""

    def __init__(self, paths: Paths, config: Path | None = None) -> None:
        """Use `config`, or the kubeconfig in use."""
        self._program = find(paths)
        self.config = config or kubeconfig(paths)

    def __call__(
        self, *arguments: str | Path, stdin: str | None = None, timeout_seconds: float = 60
    ) -> str:
        """Run kubectl and return its output; raise StepFailedError with its error."""
        return shell.output(
            [self._program, f"--kubeconfig={self.config}", *arguments],
            stdin=stdin,
            timeout_seconds=timeout_seconds,
        )

    def items(self, *arguments: str) -> Sequence[dict[str, Any]]:
        """Return the objects of a `get`."""
        found = json.loads(self("get", *arguments, "-o", "json", "--request-timeout=20s"))
        return list(found["items"])

    def exists(self, *arguments: str) -> bool:
        """Say whether a `get` of one object finds it."""
        try:
            return bool(self("get", *arguments, "--ignore-not-found", "-o", "name").strip())
        except StepFailedError as failure:
            if "the server doesn't have a resource type" in str(failure):
                return False
            raise


def is_ready(node: dict[str, Any]) -> bool:
    """Say whether a node's Ready condition is true."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
