"""The terminator's process: its parts, and its start and stop."""

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from functools import partial

from daemonset_job.api import names
from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.recorder import EventRecorder
from daemonset_job.process.config_watch import read_text
from daemonset_job.process.leadership import lead_when_elected
from daemonset_job.process.logging_setup import configure_logging
from daemonset_job.process.program import Parts, Task, run_program, start, warn_of_renamed
from daemonset_job.process.reload import Reloader
from daemonset_job.runtime.clock import Clock, SystemClock
from daemonset_job.runtime.sizes import Size, process_sizes
from daemonset_job.runtime.workqueue import WorkQueue
from terminator.caches import Caches
from terminator.config import OPTIONS, SETTINGS, Config, Options, load_config, parse_options
from terminator.metrics import Metrics
from terminator.scope import NamespaceScope


class Terminator:
    """One terminator process over one client; its configuration can be replaced while it runs."""

    def __init__(
        self,
        client: KubeClient,
        options: Options,
        config: Config,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self.config = config
        self._client = client
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._events = EventRecorder(
            client,
            component="daemonset-job-terminator",
            instance=options.identity,
            clock=clock,
        )
        self._scope_changed = asyncio.Event()
        self._scope = self._new_scope()
        metrics.watch_sizes(self.sizes())

    def sizes(self) -> list[Size]:
        """Return the gauges of what this process holds."""
        return [
            *process_sizes(self._queue, self._caches),
            Size(
                "ledger_runs",
                "Runs of which the ledger keeps something in memory.",
                lambda: self._scope.ledger_run_count,
            ),
        ]

    @property
    def is_ready(self) -> bool:
        """Return whether every cache has had a complete list and follows the cluster."""
        return self._scope.caches.healthy

    async def run(self) -> None:
        """Follow the cluster and, while leading, act on it; runs until cancelled.

        Other namespaces or another selector need other caches, so the scope is replaced.
        """
        while True:
            self._scope_changed.clear()
            running = asyncio.create_task(self._run_scope())
            changed = asyncio.create_task(self._scope_changed.wait())
            try:
                await asyncio.wait({running, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._scope.is_stopping = True
                changed.cancel()
                running.cancel()
                await asyncio.wait({running})
            if not running.cancelled():
                running.result()
            self._scope = self._new_scope()

    # Not bound methods of the scope: a new configuration replaces it.

    def _queue(self) -> WorkQueue[JobKey]:
        return self._scope.queue

    def _caches(self) -> Caches:
        return self._scope.caches

    def apply(self, config: Config) -> None:
        """Apply a new configuration."""
        old, self.config = self.config, config
        if (old.namespaces, old.pod_label_selector) != (
            config.namespaces,
            config.pod_label_selector,
        ):
            self._scope_changed.set()
        else:
            self._scope.apply(config)

    def _new_scope(self) -> NamespaceScope:
        return NamespaceScope(
            self._client, self._clock, self._metrics, lambda: self.config, self._events
        )

    async def _run_scope(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._scope.caches.run())
            group.create_task(self._run_leader_election())
            group.create_task(self._events.run())

    async def _run_leader_election(self) -> None:
        """Lead whenever this process holds the Lease. A follower keeps its caches up to date."""
        await lead_when_elected(
            self._client,
            self._options,
            clock=self._clock,
            wait_synced=self._scope.caches.wait_synced,
            lead=self._scope.lead,
            on_state=self._metrics.is_leader.set,
        )


async def run(
    options: Options, config: Config, text: str | None, load: Callable[[str | None], Config]
) -> None:
    """Connect and run until SIGTERM or SIGINT; raises OperatorError if that is impossible.

    `text` is the content of the configuration file at start, and `load` reads a later one.
    """
    metrics = Metrics()

    def create(client: KubeClient) -> Parts:
        terminator = Terminator(client, options, config, metrics, SystemClock())
        reloader = Reloader(load, terminator.apply, metrics.reloads)
        return Parts(
            terminator.run(),
            is_ready=lambda: terminator.is_ready,
            others=[reloader.follow(options.path, text)],
            fields={"config": str(options.path)},
        )

    await run_program(options, metrics, create, user_agent=names.TERMINATOR_FIELD_MANAGER)


def main() -> None:
    """Run the terminator; exits with 0 on SIGTERM, with 2 if the configuration is invalid."""
    start("terminator", _prepare)


def _prepare() -> Task:
    options = parse_options(sys.argv[1:], os.environ, socket.gethostname())
    text = read_text(options.path)
    load = partial(load_config, os.environ)
    config = load(text)
    configure_logging(config.log_level, config.log_json)
    warn_of_renamed((*OPTIONS, *SETTINGS), os.environ)
    return run(options, config, text, load)
