"""The project's images, each as build/NAME.tar: built by docker, or by buildah without a pull."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hack.devcluster import base_images, container_engine, debian, dockerfile, shell, wheelhouse
from hack.devcluster.errors import DevclusterError, MissingError
from hack.devcluster.files import digest, locked, unfinished
from hack.devcluster.host import read_host
from hack.devcluster.progress import say, step
from hack.devcluster.settings import Paths

DEFAULT_PREFIX = "docker.io/darkowlzz"
NAMES = {
    "task": "daemonset-job-task:v0.1.0",
    "cleanup": "cleanup:v0.0.2",
    "controller": "daemonset-job-controller:v0.1.0",
    "terminator": "daemonset-job-terminator:v0.1.0",
}
"""In build order: an image may be built on an earlier one."""
WHEELHOUSE = "build/wheelhouse"


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image to build: `name` is its archive's, `context` the folder that COPY reads from."""

    name: str
    file: Path
    context: Path
    image: str


class Builder(Protocol):
    """What turns a Dockerfile into an archive."""

    @property
    def name(self) -> str:
        """What the user reads."""

    def provide_base_image(self, base: str) -> None:
        """Make a foreign base image available."""

    def provide_project_image(self, image: str, archive: Path) -> None:
        """Make an image of ours, which another is built on, available."""

    def build(self, recipe: Recipe, file: Path, archive: Path, log: Path) -> None:
        """Build a recipe, its Dockerfile read from `file`, and write the image as an archive."""

    def clean_up(self) -> None:
        """Remove what only this run needed."""


def prefix() -> str:
    """Return where the images' names begin: IMAGE_PREFIX, or the project's own."""
    return os.environ.get("IMAGE_PREFIX", "").rstrip("/") or DEFAULT_PREFIX


def full_name(name: str) -> str:
    """Return an image's name with the prefix."""
    return f"{prefix()}/{NAMES[name]}"


def build(paths: Paths, names: Sequence[str]) -> list[Path]:
    """Build the named images (default: all whose Dockerfile is there); return their archives."""
    unknown = sorted(set(names) - set(NAMES))
    if unknown:
        message = f"no image called {', '.join(unknown)}; there are: {', '.join(NAMES)}"
        raise DevclusterError(message)
    wanted = [name for name in NAMES if name in names or not names]
    with locked(paths.cache, "images"):
        builder = _choose(paths)
        try:
            for name in wanted:
                _build(paths, builder, _own_recipe(paths, name))
        finally:
            builder.clean_up()
    return [paths.build / f"{name}.tar" for name in wanted]


def build_folder(paths: Paths, folder: Path, image: str) -> Path:
    """Build the Dockerfile in a folder, with the folder as context; return the archive.

    Its bases may be the project's own images, which are built first where they changed.
    """
    name = folder.resolve().name
    if name in NAMES:
        message = f"{folder}: {name} is the name of one of the project's own images"
        raise DevclusterError(message)
    recipe = Recipe(name, folder / "Dockerfile", folder, dockerfile.full_name(image))
    with locked(paths.cache, "images"):
        builder = _choose(paths)
        try:
            _build(paths, builder, recipe)
        finally:
            builder.clean_up()
    return paths.build / f"{name}.tar"


def _own_recipe(paths: Paths, name: str) -> Recipe:
    file = paths.root / "images" / name / "Dockerfile"
    return Recipe(name, file, paths.root, full_name(name))


def _build(paths: Paths, builder: Builder, wanted: Recipe) -> str:
    """Build one image unless its inputs are those of the last time; return their hash."""
    if not wanted.file.exists():
        message = f"{wanted.file}: no such file"
        raise DevclusterError(message)
    text = wanted.file.read_text()
    recipe = dockerfile.parse(text)
    inputs: list[str | Path] = [text, builder.name, wanted.image]
    renamed: dict[str, str] = {}
    own: dict[str, str] = {}
    for base in recipe.bases:
        renamed[base] = dockerfile.full_name(base)
        parent = _own_image(renamed[base])
        if parent:
            own[parent] = renamed[base] = full_name(parent)
            inputs.append(_build(paths, builder, _own_recipe(paths, parent)))
    for source in recipe.sources:
        if source.rstrip("/") == WHEELHOUSE or source.startswith(f"{WHEELHOUSE}/"):
            inputs.append(wheelhouse.ensure(paths))
        else:
            inputs += [source, *sorted(wanted.context.glob(source.removeprefix("./").rstrip("/")))]
    key = digest(inputs)
    archive, mark = paths.build / f"{wanted.name}.tar", paths.build / f"{wanted.name}.inputs"
    if archive.exists() and mark.exists() and mark.read_text() == key:
        return key
    for base, full in renamed.items():
        if full in own.values():
            continue
        builder.provide_base_image(full if builder.name == "buildah" else base)
    for parent, full in own.items():
        builder.provide_project_image(full, paths.build / f"{parent}.tar")
    mark.unlink(missing_ok=True)
    changes = {b: f for b, f in renamed.items() if builder.name == "buildah" or f in own.values()}
    local = paths.build / f"{wanted.name}.Dockerfile"
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_text(dockerfile.with_bases(text, changes))
    log = paths.logs / f"image-{wanted.name}.log"
    log.unlink(missing_ok=True)
    with step(f"image {wanted.image} ({builder.name})"), unfinished(archive) as work:
        builder.build(wanted, local, work, log)
    mark.write_text(key)
    return key


def _own_image(full: str) -> str | None:
    for name, short in NAMES.items():
        if full == f"{DEFAULT_PREFIX}/{short}":
            return name
    return None


def _choose(paths: Paths) -> Builder:
    host = read_host()
    if container_engine.registry_resolves():
        try:
            container_engine.use(paths)
        except MissingError as missing:
            say(str(missing))
        else:
            return Docker(paths)
    if host.is_root and host.is_debian:
        debian.require(paths, {"buildah": "buildah"}, why="building images without a registry")
        return Buildah(paths, _driver(paths))
    raise MissingError(
        "docker with a registry, or root on Debian",
        why="building the project's images",
        fix="start docker and see that `docker pull debian:bookworm-slim` works",
    )


@dataclass(frozen=True, slots=True)
class Docker:
    """docker build, base images pulled."""

    paths: Paths
    name: str = "docker"

    def provide_base_image(self, base: str) -> None:
        """Docker pulls by itself."""

    def provide_project_image(self, image: str, archive: Path) -> None:
        """Load the archive, unless docker has the image from its own build."""
        if not container_engine.has_image(image):
            shell.output(["docker", "load", "-q", "-i", archive], timeout_seconds=300)

    def build(self, recipe: Recipe, file: Path, archive: Path, log: Path) -> None:
        """Build and save; the classic builder where buildx is not installed."""
        environment = {}
        if not shell.succeeds(["docker", "buildx", "version"]):
            environment["DOCKER_BUILDKIT"] = "0"
        command = ["docker", "build", "--network=host", "-f", str(file), "-t", recipe.image]
        shell.logged([*command, recipe.context], log, env=environment)
        shell.output(["docker", "save", "-o", archive, recipe.image], timeout_seconds=300)

    def clean_up(self) -> None:
        """Leave docker's cache alone: it is the user's."""


@dataclass(frozen=True, slots=True)
class Buildah:
    """buildah in a chroot, on base images made here: needs root, no daemon, no registry."""

    paths: Paths
    driver: str
    name: str = "buildah"

    def provide_base_image(self, base: str) -> None:
        """Make the base image from Debian packages, if it is not there."""
        archive = base_images.ensure(self.paths, base)
        self._import(base, archive, key=archive.stem)

    def provide_project_image(self, image: str, archive: Path) -> None:
        """Import the archive."""
        self._import(image, archive, key=digest([archive]))

    def build(self, recipe: Recipe, file: Path, archive: Path, log: Path) -> None:
        """Build without any pull, write the archive, and leave no container behind."""
        # Layers: two images of ours begin with the same steps, and the second finds them done.
        arguments = [
            "bud",
            "--layers",
            "--isolation=chroot",
            "--pull-never",
            "--format=docker",
            "--quiet",
        ]
        command = [
            *self._buildah(),
            *arguments,
            "-f",
            str(file),
            "-t",
            recipe.image,
            str(recipe.context),
        ]
        shell.logged(command, log)
        target = f"docker-archive:{archive}:{recipe.image}"
        shell.logged([*self._buildah(), "push", "--quiet", recipe.image, target], log)

    def clean_up(self) -> None:
        """Remove containers and layers without a name: of this run, and of interrupted ones."""
        if self._storage().exists():
            shell.output([*self._buildah(), "rm", "--all"], timeout_seconds=300)
            shell.output([*self._buildah(), "rmi", "--prune"], timeout_seconds=300)

    def _import(self, image: str, archive: Path, *, key: str) -> None:
        mark = self._store() / "imported" / digest([image])
        if mark.exists() and mark.read_text() == key:
            return
        source = f"docker-archive:{archive}:{image}"
        shell.output([*self._buildah(), "pull", "--quiet", source], timeout_seconds=300)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(key)

    def _buildah(self) -> list[str]:
        return ["buildah", f"--storage-driver={self.driver}", *_places(self._store())]

    def _storage(self) -> Path:
        return self._store() / "storage"

    def _store(self) -> Path:
        return self.paths.cache / f"buildah-{self.driver}"


def _places(store: Path) -> list[str]:
    return [f"--root={store}/storage", f"--runroot={store}/run"]


def _driver(paths: Paths) -> str:
    """Return overlay where the cache's disk can do it (seconds), else vfs (copies everything)."""
    probe = [*_places(paths.cache / "buildah-overlay"), "info"]
    works = shell.succeeds(["buildah", "--storage-driver=overlay", *probe])
    return "overlay" if works else "vfs"
