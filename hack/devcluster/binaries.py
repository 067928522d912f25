"""A folder with a control plane's programs, for tests that need an API server and no node."""

import os
from pathlib import Path

from hack.devcluster import gobuild
from hack.devcluster.errors import MissingError
from hack.devcluster.files import remove
from hack.devcluster.settings import Paths

NAMES = ("kube-apiserver", "etcd", "kubectl", "kube-controller-manager")


def ensure(paths: Paths) -> Path:
    """Return the folder: KUBEBUILDER_ASSETS if the user has one, else built from Go modules."""
    own = os.environ.get("KUBEBUILDER_ASSETS")
    if own:
        absent = [name for name in NAMES[:3] if not (Path(own) / name).exists()]
        if absent:
            raise MissingError(
                f"{', '.join(absent)} in KUBEBUILDER_ASSETS ({own})",
                why="integration tests run a real API server",
                fix="unset KUBEBUILDER_ASSETS, or fill it with `setup-envtest use -p path`",
            )
        return Path(own)
    folder = gobuild.ensure(paths, gobuild.HYPERKUBE).parent
    for name in NAMES:
        link = folder / name
        if not link.is_symlink():
            remove(link)
            link.symlink_to(gobuild.HYPERKUBE.name)
    return folder


def find_ready(paths: Paths) -> Path | None:
    """Return the folder if nothing has to be built for it, else None."""
    if gobuild.location(paths, gobuild.HYPERKUBE).exists() or os.environ.get("KUBEBUILDER_ASSETS"):
        return ensure(paths)
    return None
