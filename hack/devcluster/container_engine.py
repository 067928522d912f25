"""Which docker to talk to, and which node image kind gets."""

import os
import socket as sockets
from contextlib import suppress
from enum import StrEnum

from hack.devcluster import debian, dockerd, shell
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.host import Host, read_host
from hack.devcluster.nodeimage import build
from hack.devcluster.progress import say, step
from hack.devcluster.settings import PUBLISHED_NODE_IMAGE, Paths

REGISTRY = ("registry-1.docker.io", 443)
PROBE_SECONDS = 5
DOCKER_FIX = "install docker (https://docs.docker.com/engine/install/) and start it"


class ContainerEngine(StrEnum):
    """Whose dockerd it is."""

    HOST = "host"
    PRIVATE = "private"


def host_answers() -> bool:
    """Say whether the user's own docker (DOCKER_HOST or the default one) answers."""
    if not debian.find_program("docker"):
        return False
    return shell.succeeds(["docker", "version", "-f", "{{.Server.Version}}"], timeout_seconds=20)


def choose(paths: Paths, host: Host, *, answers: bool) -> ContainerEngine | None:
    """Return the engine to use, or None if there is none to be had.

    A restricted machine gets a private one even beside docker: only ours has the runtime that
    asks for no more capabilities than there are.
    """
    if dockerd.is_up(paths):
        return ContainerEngine.PRIVATE
    if answers and not (host.is_restricted and dockerd.can_start(host)):
        return ContainerEngine.HOST
    return ContainerEngine.PRIVATE if dockerd.can_start(host) else None


def use(paths: Paths) -> ContainerEngine:
    """Make a docker answer; from here on DOCKER_HOST of this process names it."""
    host = read_host()
    engine = choose(paths, host, answers=host_answers())
    if engine is None:
        raise MissingError(
            "docker", why="the nodes of a kind cluster are containers", fix=DOCKER_FIX
        )
    if engine is ContainerEngine.PRIVATE:
        dockerd.start(paths)
        os.environ["DOCKER_HOST"] = dockerd.socket(paths)
    return engine


def use_running(paths: Paths) -> ContainerEngine | None:
    """Like `use`, but start nothing: None if no docker answers."""
    if dockerd.is_up(paths):
        os.environ["DOCKER_HOST"] = dockerd.socket(paths)
        return ContainerEngine.PRIVATE
    return ContainerEngine.HOST if host_answers() else None


def node_image(paths: Paths) -> str:
    """Return a node image docker has: published where it can be pulled, else built here.

    What is there already wins, so that nothing is probed or pulled on a warm start.
    DEVCLUSTER_NODE_IMAGE overrides: `built`, `published`, or an image of the user's.
    """
    wanted = os.environ.get("DEVCLUSTER_NODE_IMAGE", "")
    if wanted not in ("", "built", "published"):
        return wanted
    if wanted != "built" and has_image(PUBLISHED_NODE_IMAGE):
        return PUBLISHED_NODE_IMAGE
    host = read_host()
    required = wanted == "published"
    may_pull = required or (not wanted and not build.is_cached(paths, host))
    if may_pull and _pull(PUBLISHED_NODE_IMAGE, required=required):
        return PUBLISHED_NODE_IMAGE
    return build.ensure(paths, host).tag


def has_image(name: str) -> bool:
    """Say whether docker has an image of that name."""
    return shell.succeeds(["docker", "image", "inspect", name])


def registry_resolves() -> bool:
    """Say whether Docker Hub can be reached from here at all (or a proxy may know the way)."""
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    with suppress(OSError):
        sockets.create_connection(REGISTRY, timeout=PROBE_SECONDS).close()
        return True
    return False


def _pull(image: str, *, required: bool) -> bool:
    if not required and not registry_resolves():
        say("node image: no registry can be reached, so it is built here")
        return False
    try:
        with step(f"pulling {image.partition('@')[0]}"):
            shell.output(["docker", "pull", "-q", image], timeout_seconds=1800)
    except StepFailedError as failure:
        if required:
            raise
        say(f"node image: the published one cannot be pulled ({failure})")
        return False
    return True
