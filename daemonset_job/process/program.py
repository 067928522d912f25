"""Runs a program from its start to its exit code: client, probes, tasks, signals.

A program brings its parts (`Parts`); what it does with the cluster is not known here.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loguru import logger

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import OperatorError
from daemonset_job.process.healthz import serve_probes
from daemonset_job.process.process_options import ProcessOptions
from daemonset_job.process.program_metrics import ProgramMetrics
from daemonset_job.process.settings import Table, renamed_variables

EXIT_CONFIGURATION = 2
Task = Coroutine[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process runs, over one client.

    The process is live as long as `work` runs. When `work` or one of the `others` ends, the whole
    process ends. `is_ready` answers the readiness probe. `fields` are for the line "started".
    """

    work: Task
    is_ready: Callable[[], bool]
    others: Sequence[Task] = ()
    fields: dict[str, str] = field(default_factory=dict)


async def run_program(
    options: ProcessOptions,
    metrics: ProgramMetrics,
    create: Callable[[KubeClient], Parts],
    *,
    user_agent: str,
) -> None:
    """Connect and run until SIGTERM or SIGINT; raises OperatorError if that is impossible.

    What a task raises is raised, after all tasks have ended.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await KubeClient.connect(
        kubeconfig=options.kubeconfig,
        context=options.context,
        user_agent=user_agent,
        on_request=metrics.count_request,
    ) as client:
        parts = create(client)
        work = asyncio.create_task(parts.work)
        tasks = [
            work,
            *(asyncio.create_task(other) for other in parts.others),
            asyncio.create_task(_stopped(stop)),
        ]
        try:
            async with serve_probes(
                host=options.probe_host,
                port=options.probe_port,
                live=lambda: not work.done(),
                ready=parts.is_ready,
                registry=metrics.registry,
            ) as port:
                logger.bind(probe_port=port, **parts.fields).info("started")
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                # While the probes are still served: what stops in order is not restarted.
                await _end(tasks)
        finally:
            # Also of a process whose probes cannot be served, and of one that is cancelled.
            results = await _end(tasks)
    _raise_first(results)
    logger.info("stopped")


def start(name: str, prepare: Callable[[], Task]) -> None:
    """Run what `prepare` returns; exits with 2 and a line for each problem of the configuration.

    `prepare` reads the configuration, and raises a ValueError, OSError or OperatorError if it
    cannot be used. An error with `problems` has one text for each.
    """
    try:
        task = prepare()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(task)
    except (OperatorError, OSError, ValueError) as error:
        problems = getattr(error, "problems", None)
        lines = [f"configuration: {each}" for each in problems] if problems else [str(error)]
        sys.stderr.writelines(f"{name}: {line}\n" for line in lines)
        sys.exit(EXIT_CONFIGURATION)


def warn_of_renamed(table: Table, environ: Mapping[str, str]) -> None:
    """Log a warning for each variable that is set by its earlier name, and so is not read."""
    for problem in renamed_variables(table, environ):
        logger.warning("ignored an environment variable", problem=problem)


async def _stopped(stop: asyncio.Event) -> None:
    await stop.wait()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


def _raise_first(results: Sequence[BaseException | None]) -> None:
    """Raise the first failure; any further ones are logged."""
    errors = [result for result in results if isinstance(result, Exception)]
    for error in errors[1:]:
        logger.opt(exception=error).error("another task failed while the program was stopping")
    if errors:
        raise errors[0]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform, and nothing depends on it
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
