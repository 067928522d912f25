"""The verb `bundle`: once, or again after each change of the folder."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from daemonset_job.kube.client.errors import OperatorError
from kubectl_dsjob.bundle.context import has_tag, job_name
from kubectl_dsjob.bundle.folder_watch import FolderWatch
from kubectl_dsjob.bundle.image import Built, ImageWish, build_image, fingerprint, write_only
from kubectl_dsjob.bundle.job import JobWish, bundle_job, format_manifest, order
from kubectl_dsjob.bundle.replacing import put_job
from kubectl_dsjob.edge import Answer, as_cli_error, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.live_view import lines_to
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.reading import follow
from kubectl_dsjob.target import Target


@dataclass(frozen=True, slots=True)
class BundleWish:
    """What a user wants of a folder; `job_file` is a manifest of theirs."""

    image: ImageWish
    name: str = ""
    mount: str = ""
    selector: str = ""
    arguments: tuple[str, ...] = ()
    job_file: Path | None = None

    @property
    def bundle(self) -> str:
        """The name of the bundle, a label's value: that of the folder."""
        return job_name(self.image.folder_name)

    def read_job(self) -> JobWish:
        """Return what the Job is to have; CliError if its file cannot be read."""
        text = _read(self.job_file) if self.job_file else ""
        name = self.name or self.bundle
        return JobWish(name, self.mount, self.selector, self.arguments, text)


async def bundle_once(
    wish: BundleWish, target: Target, output: Output, write: Path | None
) -> Answer:
    """Build the image, or write its build context only; return the Job's manifest."""
    if output not in (Output.YAML, Output.JSON):
        message = "bundle prints a manifest"
        raise CliError(message, "Use it with -o yaml or -o json.", ExitCode.USAGE)
    job_wish = wish.read_job()
    bundle_job(job_wish, "checked/before:build", wish.bundle, target.namespace)
    async with _ended_by_term():
        if write is not None:
            built = await write_only(wish.image, write)
        else:
            built = await build_image(wish.image)
    job = bundle_job(job_wish, built.image, wish.bundle, target.namespace)
    return Answer(format_manifest(job, built.folder, output), _next(wish.image, built, write))


async def bundle_watch(wish: BundleWish, target: Target) -> Answer:
    """Build, load and run it after each change, until it is interrupted."""
    if has_tag(wish.image.tag):
        way = "Leave the tag out: each image then gets one of its content."
        message = f"--watch builds many images, and {wish.image.tag} names one"
        raise CliError(message, way, ExitCode.USAGE)
    if not wish.image.is_pushed and not wish.image.load:
        say("Neither --push nor --load: the nodes must get the image from this machine's builder.")
    async with _ended_by_term(), FolderWatch(wish.image.folder) as changes:
        while True:
            known = await _fingerprint(wish)
            run = await _round(wish, target)
            try:
                while True:
                    is_event = await changes.wait()
                    # After a failure, a file that is only touched repeats it.
                    if await _fingerprint(wish) != known or (is_event and run is None):
                        break
            finally:
                await _stop(run)
            _log("the folder has changed")


async def _round(wish: BundleWish, target: Target) -> asyncio.Task[None] | None:
    """Build and run it once; return what follows the run, None if something failed."""
    namespace = target.find_namespace()
    try:
        job_wish = wish.read_job()
        built = await build_image(wish.image)
        job = bundle_job(job_wish, built.image, wish.bundle, namespace)
        where = job["metadata"]["namespace"]
        async with await target.connect() as client:
            uid, done = await put_job(client, job, where)
    except (CliError, OperatorError) as error:
        failure = as_cli_error(error)
        way = target.name_cluster(failure.way_out)
        _log(f"error: {failure.message}. {way} Waiting for a change of the folder.")
        return None
    _log(f"{done}, with image {built.image}")
    say("\n".join(order(built.folder)))
    there = Target(target.context, where, target.kubeconfig)
    return asyncio.create_task(_follow(there, job["metadata"]["name"], uid))


async def _follow(target: Target, name: str, uid: str) -> None:
    """Print the progress of the run until its end."""
    try:
        answer = await follow(target, name, None, lines_to(_log), uid)
    except (CliError, OperatorError) as error:
        _log(f"cannot follow the run: {as_cli_error(error).message}")
        return
    for text in (answer.data, answer.words):
        if text.strip():
            say(text.rstrip())
    _log("the run has ended. Waiting for a change of the folder.")


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _fingerprint(wish: BundleWish) -> str:
    def read() -> str:
        try:
            text = _read(wish.job_file) if wish.job_file else ""
        except CliError as error:
            text = error.message
        return fingerprint(wish.image) + text

    return await asyncio.to_thread(read)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        way = "Name the manifest of a Job."
        raise CliError(f"cannot read {path}: {reason}", way, ExitCode.USAGE) from error


def _next(wish: ImageWish, built: Built, write: Path | None) -> str:
    """Return what is left to do before the manifest can be applied."""
    if write is not None:
        return f"wrote {write}; build it: docker build -t {built.image} {write}"
    if wish.is_pushed or wish.load:
        return f"{built.image} is ready. Apply the manifest: kubectl apply{CLUSTER} -f -"
    if wish.save is not None:
        return (
            f"Put {wish.save} onto the nodes, then apply the manifest: kubectl apply{CLUSTER} -f -"
        )
    return f"{built.image} is on this machine only. Nodes get it with --push, --save or --load."


def _log(line: str) -> None:
    say(f"{datetime.now().astimezone():%H:%M:%S} {line.rstrip()}")


@asynccontextmanager
async def _ended_by_term() -> AsyncIterator[None]:
    """End the block on TERM as on Ctrl-C, so that no process of a builder is left."""
    if sys.platform == "win32":
        yield
        return
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    is_ended = False

    def end() -> None:
        nonlocal is_ended
        is_ended = True
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if is_ended:
            raise CliError("ended by TERM", "", ExitCode.INTERRUPTED) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
