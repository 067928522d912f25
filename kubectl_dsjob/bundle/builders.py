"""The programs that build an image: docker, podman or buildah, whichever is there."""

from __future__ import annotations

import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Final

from kubectl_dsjob.bundle.problems import clean
from kubectl_dsjob.bundle.processes import run_program
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode

_PROBE_SECONDS: Final = 20.0
_BUILD_SECONDS: Final = 1800.0
_SHOWN_LINES: Final = 15


class Builder(StrEnum):
    """A program that builds images; the first one that works is used."""

    AUTO = "auto"
    DOCKER = "docker"
    PODMAN = "podman"
    BUILDAH = "buildah"


_CHOICE: Final = (Builder.DOCKER, Builder.PODMAN, Builder.BUILDAH)
# docker is only a client: without its daemon it cannot build.
_PROBES: Final = {
    Builder.DOCKER: ("version", "--format", "{{.Server.Version}}"),
    Builder.PODMAN: ("info",),
    Builder.BUILDAH: ("info",),
}


async def choose_builder(wish: Builder) -> Builder:
    """Return the builder to use. CliError if there is none that works."""
    if wish != Builder.AUTO:
        if shutil.which(wish) is None:
            way = f"Install {wish}, or leave out --builder."
            raise CliError(f"there is no program {wish}", way, ExitCode.USAGE)
        return wish
    for builder in _CHOICE:
        if shutil.which(builder) and await _works(builder):
            return builder
    way = "Start or install one of them, or write the build context with --write DIR."
    raise CliError("neither docker, podman nor buildah works here", way)


async def build(builder: Builder, context: Path, image: str) -> None:
    """Build the image of a context. CliError with the end of its output if that fails."""
    verb = ["bud", "--quiet", "--layers", "--format=docker"] if builder == Builder.BUILDAH else None
    # The base is pulled only if it is not here.
    command = [builder, *(verb or ["build", "--quiet"]), "--pull=false"]
    command += ["-t", image, "-f", str(context / "Dockerfile"), str(context)]
    way = "Read the output above. The base image must be here, or in a registry: --base IMAGE."
    await _must(command, f"{builder} cannot build {image}", way)


async def save(builder: Builder, image: str, file: Path) -> None:
    """Write the image as an archive that `docker load` reads, in place of an older one."""
    try:
        await _save(builder, image, file)
    except OSError as error:
        way = "Name a file in a folder that exists, and that you may write to."
        raise CliError(f"cannot write {file}: {error.strerror}", way, ExitCode.USAGE) from error


async def _save(builder: Builder, image: str, file: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".dsjob-", dir=file.parent) as folder:
        new = Path(folder) / "image.tar"
        match builder:
            case Builder.BUILDAH:
                command = ["buildah", "push", "--quiet", image, f"docker-archive:{new}:{image}"]
            case Builder.PODMAN:
                command = ["podman", "save", "--quiet", "--format=docker-archive"]
                command += ["-o", str(new), image]
            case _:
                command = ["docker", "save", "-o", str(new), image]
        await _must(command, f"{builder} cannot save {image}", "Is there room on the disk?")
        new.replace(file)


async def push(builder: Builder, image: str) -> None:
    """Push the image to its registry."""
    way = f"Log in to the registry ({builder} login), or name another one with --tag."
    await _must([builder, "push", image], f"{builder} cannot push {image}", way)


async def load(command: list[str], file: Path) -> None:
    """Run the user's command that puts an archive onto the nodes; the file is its last word."""
    way = "Run the command by hand with an archive of --save, and correct --load."
    await _must([*command, str(file)], f"{command[0]} cannot load the image", way)


async def _works(builder: Builder) -> bool:
    try:
        ended = await run_program([builder, *_PROBES[builder]], timeout_seconds=_PROBE_SECONDS)
    except (OSError, TimeoutError):
        return False
    return ended.code == 0


async def _must(command: list[str], failure: str, way: str) -> None:
    try:
        ended = await run_program(command, timeout_seconds=_BUILD_SECONDS)
    except OSError as error:
        raise CliError(f"{failure}: {error.strerror}", way) from error
    except TimeoutError:
        raise CliError(f"{failure}: it did not end within {_BUILD_SECONDS:g} s", way) from None
    if ended.code:
        lines = [clean(line) for line in ended.output.splitlines() if line.strip()]
        raise BuildError(f"{failure}: exit code {ended.code}", way, lines[-_SHOWN_LINES:])


class BuildError(CliError):
    """A program has failed; `lines` is the end of its output."""

    def __init__(self, message: str, way_out: str, lines: list[str]) -> None:
        super().__init__(message, way_out)
        self.lines = lines
