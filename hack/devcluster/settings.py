"""Pinned versions, and where everything lives. Nothing here touches the machine."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

KIND_VERSION = "v0.33.0"
KWOK_VERSION = "v0.7.0"
KUBERNETES_VERSION = "v1.34.4"
"""What the node image built here runs; its Go sources pin the same version in go.mod."""

PUBLISHED_NODE_IMAGE = (
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
)
"""kind v0.33.0's own default (its pkg/apis/config/defaults/image.go)."""

DEBIAN_SUITE = "bookworm"
MINIMUM_GO = (1, 24)
SCALE_FROM_FAKE_NODES = 100
MAXIMUM_NODES = 12
SOURCES = Path(__file__).resolve().parent / "nodeimage"


@dataclass(frozen=True, slots=True)
class Paths:
    """Every place devcluster writes to: one folder in the clone and one cache outside it."""

    root: Path
    """The clone."""
    cache: Path
    """Builds, bases, the private dockerd's data: shared by all clones of one user."""

    @property
    def state(self) -> Path:
        """The current cluster's kubeconfig, pid files and notes."""
        return self.root / ".devcluster"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the current cluster."""
        return self.state / "kubeconfig"

    @property
    def build(self) -> Path:
        """The project's image archives and wheels."""
        return self.root / "build"

    @property
    def logs(self) -> Path:
        """One log file for each long step."""
        return self.cache / "logs"

    @property
    def docker(self) -> Path:
        """The private dockerd's data root, exec root, socket and pid file."""
        return self.cache / "docker"

    @property
    def cluster_name(self) -> str:
        """A name of this clone's own, so that two clones never share a cluster."""
        return f"dsj-{hashlib.sha256(str(self.root).encode()).hexdigest()[:6]}"


def find_paths() -> Paths:
    """Return the paths of this clone, following DAEMONSET_JOB_CACHE and XDG_CACHE_HOME."""
    own = os.environ.get("DAEMONSET_JOB_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(own or Path(shared) / "daemonset-job").expanduser().resolve()
    return Paths(root=Path(__file__).resolve().parents[2], cache=cache)
