"""Base images from Debian packages, under the names our Dockerfiles ask for.

They are for machines that cannot pull: `FROM python:3.11-slim` then builds unchanged.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hack.devcluster import debian, shell
from hack.devcluster.archive import Image, write_archive
from hack.devcluster.errors import DevclusterError
from hack.devcluster.files import digest, locked, scratch
from hack.devcluster.progress import step
from hack.devcluster.settings import Paths

PATH = "PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Base:
    """A base image and the Debian packages it is made of."""

    name: str
    packages: tuple[str, ...]
    finish: Callable[[Path], None]
    command: tuple[str, ...]


def _leave(_tree: Path) -> None:
    """Nothing to change."""


def _like_python_image(tree: Path) -> None:
    """Give Debian's Python what the official image's has: `python`, and a pip that may install."""
    (tree / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for mark in tree.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
        mark.unlink()


BASES = {
    "docker.io/library/debian:bookworm-slim": Base(
        "slim", ("busybox-static", "ca-certificates", "util-linux"), _leave, ("bash",)
    ),
    "docker.io/library/python:3.11-slim": Base(
        "python",
        ("ca-certificates", "python3", "python3-pip", "python3-venv", "util-linux"),
        _like_python_image,
        ("python3",),
    ),
}


def find(image: str) -> Base:
    """Return the base of that full name; `python:3.11-slim-bookworm` is the same one."""
    base = BASES.get(image.removesuffix("-bookworm"))
    if base is None:
        known = ", ".join(BASES)
        message = (
            f"base image {image}: it cannot be pulled here, and only these can be made: {known}"
        )
        raise DevclusterError(message)
    return base


def ensure(paths: Paths, image: str) -> Path:
    """Return a docker-archive of the base image, made if it is not in the cache yet."""
    base = find(image)
    key = digest([image, *base.packages, Path(__file__)])
    target = paths.cache / "bases" / f"{base.name}-{key}.tar"
    if target.exists():
        return target
    tree = debian.tree(paths, base.name, base.packages)
    with locked(paths.cache, f"base-{base.name}"):
        if target.exists():
            return target
        with step(f"base image {image}"), scratch(paths.cache, base.name) as work:
            shell.output(["cp", "-a", tree, work / "tree"], timeout_seconds=600)
            base.finish(work / "tree")
            _pack(work, image, base)
            target.parent.mkdir(parents=True, exist_ok=True)
            (work / "base.tar").rename(target)
    return target


def _pack(work: Path, image: str, base: Base) -> None:
    plain = ["--numeric-owner", "--sort=name", "--mtime=@0", "--exclude=./dev/*"]
    layer = work / "layer.tar"
    shell.output(["tar", "-C", work / "tree", *plain, "-cf", layer, "."], timeout_seconds=600)
    write_archive(
        work / "base.tar",
        [Image((image,), (layer,), environment=(PATH,), command=base.command)],
        machine=platform.machine(),
    )
