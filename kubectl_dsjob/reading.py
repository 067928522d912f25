"""The verbs that read: list, status, wait, report, results, history and diff."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from daemonset_job.api.states import Phase
from kubectl_dsjob import node_tables
from kubectl_dsjob.cluster import (
    find_near,
    list_jobs,
    need_report,
    need_run,
    read_history,
    read_rollback,
)
from kubectl_dsjob.edge import Answer, is_terminal
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.html_page import html_page
from kubectl_dsjob.node_tables import format_rows
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.patience import PatientReader
from kubectl_dsjob.run_view import RunView, view_run
from kubectl_dsjob.status_text import next_step, status_screen
from kubectl_dsjob.target import Target

POLL_SECONDS = 1.0
# Between two reads of a run with many nodes, whose reports have megabytes.
SLOW_POLL_SECONDS = 5.0
_MANY_NODES = 500
# Another program reads the lines: they are not cut for a screen.
_PLAIN_WIDTH = 4096
# What a read may take that begins before the end of the timeout, or is the first one.
READ_SECONDS = 5.0
# Names of results in a sentence.
_RESULTS_SHOWN = 8


Show = Callable[[RunView], None]


@dataclass(frozen=True, slots=True)
class End:
    """What ends a `follow`: whether a run is over, what is said then, and the exit code."""

    is_over: Callable[[RunView], bool]
    words: Callable[[RunView], str]
    exit_code: Callable[[RunView], ExitCode]


def _end_words(view: RunView) -> str:
    """Return how a run has ended, and its rollback."""
    rollback = f"rollback: {view.rollback.line}" if view.rollback else ""
    words = f"{view.name}: {view.phase_text}: {view.message or view.reason}".removesuffix(": ")
    return "; ".join(filter(None, (words, rollback)))


RUN_END: Final = End(
    lambda view: view.is_ended,
    _end_words,
    lambda view: view.exit_code,
)


async def list_runs(
    target: Target, selector: str, output: Output, *, is_everywhere: bool
) -> Answer:
    """Return the Jobs of a namespace, or of all."""
    namespace = None if is_everywhere else target.find_namespace()
    async with await target.connect() as client:
        jobs = await list_jobs(client, namespace, selector or None)
    views = [view_run(job, ()) for job in jobs]
    views.sort(key=lambda view: (view.namespace, view.name))
    if not views and output in (Output.TABLE, Output.WIDE):
        where = "in any namespace" if namespace is None else f"in namespace {namespace}"
        return Answer(
            words=f"There are no Jobs {where}. `kubectl dsjob history NAME` has past runs."
        )
    return Answer(
        format_rows(*node_tables.run_rows(views, _now(), has_namespace=is_everywhere), output)
    )


async def status(target: Target, name: str) -> Answer:
    """Return the screen of a run; on a terminal it has a bar, and the nodes in colours."""
    view = await _read(target, name)
    if is_terminal():
        # It needs rich, which plain lines do not.
        from kubectl_dsjob.live_view import screen  # noqa: PLC0415

        return Answer(screen(view, _now(), target.cluster_flags()))
    return Answer(status_screen(view, _now(), width=_PLAIN_WIDTH, flags=target.cluster_flags()))


async def report(target: Target, name: str, output: Output, html: str) -> Answer:
    """Return the nodes of a run, or write them as a page."""
    async with await target.connect() as client:
        view = await need_run(client, target.find_namespace(), name)
        view = await read_rollback(client, view)
    if html:
        try:
            await asyncio.to_thread(Path(html).write_text, html_page(view), "utf-8")
        except OSError as error:
            raise CliError(
                f"cannot write {html}: {error.strerror}", "Name another file."
            ) from error
        return Answer(words=f"wrote {html}")
    is_wide = output != Output.TABLE
    words = "\n".join(node_tables.former_results(view)) if is_wide else ""
    return Answer(format_rows(*node_tables.node_rows(view, is_wide=is_wide), output), words)


async def results(target: Target, name: str, output: Output) -> Answer:
    """Return the results of a run, a row for each node."""
    view = await _read(target, name)
    header, rows = node_tables.result_rows(view)
    words = _words_about_omitted(view)
    if len(header) == 1 and not words:
        words = ["No task of this run has declared a result."]
    words += node_tables.former_results(view)
    # The name of a result stays as the task has written it: `Kernel` and `kernel` are two.
    return Answer(format_rows(header, rows, output, keys=header), "\n".join(words))


def _words_about_omitted(view: RunView) -> list[str]:
    """Return a sentence about results that tasks have printed and the report lacks, if any."""
    nodes, names = node_tables.omitted_results(view)
    if not nodes:
        return []
    left = len(names) - _RESULTS_SHOWN
    shown = ", ".join(names[:_RESULTS_SHOWN]) + (f" and {left} more" if left > 0 else "")
    why = "too long or not listed in spec.results"
    return [node_tables.of_nodes(nodes, f"lack some that are {why} ({shown})")]


async def history(target: Target, name: str, output: Output) -> Answer:
    """Return the runs of a name."""
    namespace = target.find_namespace()
    async with await target.connect() as client:
        views = await read_history(client, namespace, name)
        if not views:
            way = await find_near(client, namespace, name)
            raise CliError(f"there is no report of {name!r} in {namespace!r}", way)
    return Answer(format_rows(*node_tables.history_rows(views, _now()), output))


async def diff(target: Target, before: str, after: str, output: Output) -> Answer:
    """Return what changed between two runs."""
    namespace = target.find_namespace()
    async with await target.connect() as client:
        left = await need_report(client, namespace, before)
        right = await need_report(client, namespace, after)
    header, rows = node_tables.diff_rows(left, right)
    return Answer(format_rows(header, rows, output), "" if rows else "Nothing changed.")


async def follow(
    target: Target,
    name: str,
    limit_seconds: float | None,
    show: Show,
    uid: str = "",
    *,
    end: End = RUN_END,
) -> Answer:
    """Show a run until it has ended, also if its Job is deleted meanwhile: the report answers.

    Ends with TIMEOUT after `limit_seconds`, None for no limit.
    """
    namespace = target.find_namespace()
    # The live view, which is not imported here, has shown how the run is.
    has_shown = getattr(show, "shows_the_end", False)
    deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
    async with await target.connect() as client:
        reader = PatientReader(client)
        try:
            async with _until(deadline):
                view = await (
                    reader.read_first(namespace, name, uid)
                    if uid
                    else need_run(client, namespace, name)
                )
        except TimeoutError:
            words = f"the API server has not said within {limit_seconds:g} seconds how {name} is"
            return Answer(words=words, code=ExitCode.TIMEOUT)
        while True:
            show(view)
            if end.is_over(view):
                words = "" if has_shown else "\n".join(_last_words(view, target, end))
                return Answer(words=words, code=end.exit_code(view))
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                late = f"{view.name} has not ended within {limit_seconds:g} seconds."
                words = f"{late} {_open_words(view)}"
                steps = [] if has_shown else next_step(view, target.cluster_flags())
                return Answer(words="\n".join([words, *steps]), code=ExitCode.TIMEOUT)
            is_large = view.totals.desired > _MANY_NODES
            pause = SLOW_POLL_SECONDS if is_large else POLL_SECONDS
            await asyncio.sleep(min(pause, left) if deadline is not None else pause)
            with suppress(TimeoutError):
                async with _until(deadline):
                    view = await reader.read(view)


def _until(deadline: float | None) -> asyncio.Timeout:
    """Return the bound of a read: that of the command, and some seconds at least."""
    if deadline is None:
        return asyncio.timeout(None)
    return asyncio.timeout(max(deadline - time.monotonic(), READ_SECONDS))


def _open_words(view: RunView) -> str:
    """Return how it is with a run that has not ended."""
    if not view.exists or view.is_going:
        return "It is being deleted." if view.exists else "Its Job is deleted."
    if view.rollback is not None and not view.rollback.is_ended:
        return "Its rollback goes on."
    return "The run is paused." if view.phase == Phase.PAUSED else "The run goes on."


def _last_words(view: RunView, target: Target, end: End) -> list[str]:
    return [
        end.words(view),
        *(next_step(view, target.cluster_flags()) if end.exit_code(view) else []),
    ]


async def _read(target: Target, name: str) -> RunView:
    async with await target.connect() as client:
        return await need_run(client, target.find_namespace(), name)


def _now() -> datetime:
    return datetime.now(UTC)
