"""Makes the image of a folder: reads, checks, builds, and brings it where it was asked for."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kubectl_dsjob.bundle import builders
from kubectl_dsjob.bundle.checks import check_folder
from kubectl_dsjob.bundle.context import (
    TASK_IMAGE,
    check_image,
    default_base,
    digest,
    image_name,
    write_context,
)
from kubectl_dsjob.bundle.folder import Folder, read_folder
from kubectl_dsjob.bundle.linters import lint
from kubectl_dsjob.bundle.problems import clean, errors, format_problems
from kubectl_dsjob.edge import say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.tables import counted

_LEFT_OUT_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ImageWish:
    """What is built, with which builder, and where it goes: "" and None for what is not given.

    `load` is a command that puts an archive onto the nodes.
    """

    folder: Path
    base: str = ""
    tag: str = ""
    builder: builders.Builder = builders.Builder.AUTO
    is_pushed: bool = False
    save: Path | None = None
    load: str = ""

    @property
    def base_image(self) -> str:
        """The image to build on: the task image of this version, unless another is named."""
        return self.base or default_base()

    @property
    def folder_name(self) -> str:
        """The name of the folder, also of `.`."""
        return self.folder.resolve().name


@dataclass(frozen=True, slots=True)
class Built:
    """An image that was built, or is to be: its name, and the folder that it is made of."""

    image: str
    folder: Folder
    digest: str


async def build_image(wish: ImageWish) -> Built:
    """Build the image and bring it where it was asked for. CliError if a script has an error."""
    words = _load_words(wish.load)
    async with _checked(wish) as (built, context):
        builder = await builders.choose_builder(wish.builder)
        try:
            await _bring(builder, wish, words, context, built.image)
        except builders.BuildError as error:
            say("\n".join(error.lines))
            raise
    return built


async def write_only(wish: ImageWish, target: Path) -> Built:
    """Check the folder and write the build context to `target`, a new folder; build nothing."""
    async with _checked(wish) as (built, _):
        try:
            await asyncio.to_thread(target.mkdir, parents=True)
            await asyncio.to_thread(write_context, built.folder, wish.base_image, target)
        except FileExistsError:
            way = "Name a folder that does not exist yet."
            raise CliError(f"{target} exists", way, ExitCode.USAGE) from None
        except OSError as error:
            raise CliError(f"cannot write {target}: {error.strerror}", "Name another.") from error
    return built


def fingerprint(wish: ImageWish) -> str:
    """Return what changes when another image is to be built; also of a folder with errors."""
    try:
        folder = read_folder(wish.folder)
    except CliError as error:
        return error.message
    return digest(folder, wish.base_image) + format_problems(folder.problems)


@asynccontextmanager
async def _checked(wish: ImageWish) -> AsyncIterator[tuple[Built, Path]]:
    """Yield the folder and a build context of it, in a temporary folder, if it has no error."""
    base = wish.base_image
    check_image(base)
    folder = await asyncio.to_thread(read_folder, wish.folder)
    content = digest(folder, base)
    image = image_name(wish.tag, wish.folder_name, content)
    is_base_ours = base.rpartition("/")[2].partition(":")[0] == TASK_IMAGE.rpartition("/")[2]
    problems = check_folder(folder, is_base_ours=is_base_ours)
    with tempfile.TemporaryDirectory(prefix="dsjob-bundle-") as name:
        context = Path(name)
        await asyncio.to_thread(write_context, folder, base, context)
        problems += await lint(folder, context / "task.d")
        if problems:
            say(format_problems(problems))
        if count := len(errors(problems)):
            raise CliError(
                f"{clean(str(wish.folder))} has {counted(count, 'error')}, nothing was built",
                "Correct what is listed above, and repeat the command.",
            )
        if folder.left_out:
            say(_left_out(folder))
        yield Built(image, folder, content), context


async def _bring(
    builder: builders.Builder, wish: ImageWish, words: list[str], context: Path, image: str
) -> None:
    say(f"building {image} with {builder}")
    await builders.build(builder, context, image)
    archive = wish.save or (context / "image.tar" if words else None)
    if archive is not None:
        await builders.save(builder, image, archive)
    if wish.save is not None:
        say(f"saved {wish.save}")
    if wish.is_pushed:
        await builders.push(builder, image)
        say(f"pushed {image}")
    if words and archive is not None:
        await builders.load(words, archive)
        say(f"loaded {image} with {words[0]}")


def _load_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        way = "Write it as in a shell: --load 'kind load image-archive'."
        raise CliError(f"--load: {error}", way, ExitCode.USAGE) from error


def _left_out(folder: Folder) -> str:
    shown = ", ".join(clean(name) for name in folder.left_out[:_LEFT_OUT_SHOWN])
    left = len(folder.left_out) - _LEFT_OUT_SHOWN
    more = f" and {left} more" if left > 0 else ""
    return f"left out, because it is no script or hidden: {shown}{more}"
