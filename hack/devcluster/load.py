"""Putting an image archive on every node of the current cluster."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.devcluster import cluster, container_engine, shell, state
from hack.devcluster.archive import merge
from hack.devcluster.errors import DevclusterError
from hack.devcluster.progress import step
from hack.devcluster.settings import Paths

NO_CLUSTER = "there is no cluster: run `make cluster` first"
NOT_KIND = (
    "the nodes of {name} are not kind containers, so no image can be put on them: "
    "push the images to a registry its nodes can pull from, and set IMAGE_PREFIX to it"
)


def load(paths: Paths, archives: Sequence[Path]) -> None:
    """Load docker-archives on every node; kind does the nodes at the same time."""
    for archive in archives:
        if not archive.is_file():
            message = f"{archive}: no such file (`make images` builds the project's own)"
            raise DevclusterError(message)
    name = kind_name(paths)
    kind = cluster.require_kind(paths)
    log = paths.logs / "kind-load.log"
    log.unlink(missing_ok=True)
    names = ", ".join(archive.name for archive in archives)
    with step(f"loading {names} on every node"), tempfile.TemporaryDirectory() as scratch:
        one = archives[0]
        if len(archives) > 1:  # ours share most of their layers, which then go over once
            one = Path(scratch) / "images.tar"
            merge(one, archives)
        command: list[str | Path] = [kind, "load", "image-archive", f"--name={name}", one]
        shell.logged(command, log)


def kind_name(paths: Paths) -> str:
    """Return the name of the current kind cluster; raise if it is none, or there is no cluster."""
    known = state.read(paths)
    if known is None:
        raise DevclusterError(NO_CLUSTER)
    name = known.name if known.is_ours else known.name.removeprefix("kind-")
    if not container_engine.use_running(paths) or not cluster.containers(name):
        raise DevclusterError(NOT_KIND.format(name=known.name) if not known.is_ours else NO_CLUSTER)
    return name


def enter(paths: Paths, node: str, command: Sequence[str]) -> None:
    """Become `docker exec` in a node's container, input and exit code included."""
    nodes = cluster.containers(kind_name(paths))
    if node not in nodes:
        message = f"no node {node}; there are: {', '.join(nodes)}"
        raise DevclusterError(message)
    arguments = ["docker", "exec", "-i", node, *command]
    os.execvp(arguments[0], arguments)  # noqa: S606 - the user's own command, without a shell
