"""The controller's process: it connects all parts and runs until it is stopped."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain

from daemonset_job.api import names
from daemonset_job.api.job import JobKey
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.recorder import EventRecorder
from daemonset_job.process.config_watch import read_text
from daemonset_job.process.leadership import lead_when_elected
from daemonset_job.process.logging_setup import configure_logging
from daemonset_job.process.program import Parts, Task, run_program, start, warn_of_renamed
from daemonset_job.process.reconcile_results import ReconcileResults
from daemonset_job.process.reload import Reloader
from daemonset_job.runtime.clock import Clock, SystemClock
from daemonset_job.runtime.expectations import VersionExpectations
from daemonset_job.runtime.sizes import Size, process_sizes
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue, namespace_of
from job_controller.caches import Caches, watch_id
from job_controller.config import SETTINGS, Config, find_file, parse_config
from job_controller.core.cluster_keys import make_cluster_keys
from job_controller.core.settings import Settings, Timeouts
from job_controller.dependencies import Dependencies
from job_controller.metrics import Metrics
from job_controller.policy_check import watch_policies
from job_controller.reconciler import Reconciler
from job_controller.schedules.schedules import Schedules
from job_controller.stop_watch import StopWatch


class Controller:
    """One controller process: caches that always follow, workers that run while it leads."""

    def __init__(
        self,
        client: KubeClient,
        config: Config,
        metrics: Metrics,
        *,
        clock: Clock,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._queue: WorkQueue[JobKey] = WorkQueue(
            group_of=namespace_of, group_limit=config.workers
        )
        self.written: VersionExpectations[JobKey] = VersionExpectations(self._clock)
        self._events = events
        self._schedules = Schedules(client, config, metrics, clock=clock)
        self.caches = Caches(
            client,
            config.namespaces,
            self._clock,
            wake=self._queue.add_after,
            progress=self._advanced,
            on_job=self._schedules.cache.job_changed,
            cluster_keys=make_cluster_keys(config.cluster_keys),
        )
        self._stop = StopWatch(client, config.lease_namespace, clock, on_change=self._add_all)
        metrics.watch_jobs(self.caches.jobs, clock.monotonic)
        metrics.watch_reports(self.caches.reports)
        metrics.watch_sizes(self.sizes())

    def sizes(self) -> list[Size]:
        """Return the gauges of what this process holds."""
        return [
            *process_sizes(lambda: self._queue, lambda: self.caches),
            Size(
                "unsatisfied_expectations",
                "Jobs with a write of this program that its caches do not show yet.",
                lambda: len(self.written),
            ),
        ]

    async def run(self) -> None:
        """Follow the cluster and, while leading, act on it; runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.caches.run())
            group.create_task(self._stop.run())
            group.create_task(self._schedules.cache.run())
            group.create_task(self._events.run())
            group.create_task(self.run_leader_election())

    async def run_leader_election(self) -> None:
        """Lead whenever the Lease is ours. Standing by with warm caches makes takeover quick."""
        await lead_when_elected(
            self._client,
            self._config,
            clock=self._clock,
            wait_synced=self.caches.wait_synced,
            lead=self._work,
            on_state=self._metrics.is_leader.set,
        )

    def _advanced(self, resource: str, namespace: str, version: str) -> None:
        self.written.observed(watch_id(resource, namespace), version)

    async def _work(self) -> None:
        """Look at every Job once, then at those that change or whose namespace is listed later."""
        await self._stop.wait_known()
        self._add_all()
        dependencies = Dependencies(
            client=self._client,
            events=self._events,
            clock=self._clock,
            metrics=self._metrics,
            settings=self._settings,
        )
        reconciler = Reconciler(dependencies, self.caches, self.written)
        results = ReconcileResults(self._metrics.reconciles)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._schedules.work(dependencies))
            for run in reconciler.beside:
                group.create_task(run())
            group.create_task(
                run_workers(
                    self._queue,
                    results.counted(reconciler.reconcile),
                    # One namespace holds all but one of them.
                    count=self._config.workers + 1,
                    on_error=results.on_error,
                )
            )

    def apply(self, config: Config) -> None:
        """Apply a new configuration, of which only what the file holds may differ, to all Jobs."""
        self._config = config
        self._add_all()

    def _add_all(self) -> None:
        for job in self.caches.jobs():
            self._queue.add((job.namespace, job.name))
        others = (
            self.caches.reported_keys(),
            self.caches.unreadable_keys(),
            self.caches.cordoning_keys(),
        )
        for key in chain(*others):
            self._queue.add(key)
        self._schedules.add_all()

    def _settings(self) -> Settings:
        config = self._config
        return Settings(
            token=config.token,
            timeouts=Timeouts(
                start_seconds=config.pod_start_timeout_seconds,
                unreachable_seconds=config.node_unreachable_grace_period_seconds,
            ),
            pause_image=config.pause_image,
            task_image=config.task_image,
            history_limit=config.history_limit,
            history_max_age_seconds=config.history_max_age_seconds,
            history_namespace_limit=config.history_namespace_limit,
            system_namespace=config.lease_namespace or names.SYSTEM_NAMESPACE,
            receivers=config.receivers,
            sources=config.sources,
            cluster_name=config.cluster_name,
            node_name=config.node_name,
            stop_message=self._stop.message(),
        )


def new_controller(client: KubeClient, config: Config, metrics: Metrics) -> Controller:
    """Return a controller with the system's clock, whose events go to the API server."""
    clock = SystemClock()
    events = EventRecorder(
        client, component="daemonset-job-controller", instance=config.identity, clock=clock
    )
    return Controller(client, config, metrics, clock=clock, events=events)


async def run(
    config: Config, text: str | None = None, load: Callable[[str | None], Config] | None = None
) -> None:
    """Connect and run until SIGTERM or SIGINT; raises OperatorError when that is impossible.

    `text` is the content of the configuration file at start, and `load` reads a later one.
    """
    metrics = Metrics()

    def create(client: KubeClient) -> Parts:
        controller = new_controller(client, config, metrics)
        others = [watch_policies(client, metrics.policies_missing.set)]
        fields = {"namespaces": ",".join(config.namespaces) or "all"}
        if config.path is not None and load is not None:
            reloader = Reloader(load, controller.apply, metrics.reloads)
            others.append(reloader.follow(config.path, text))
            fields["config"] = str(config.path)
        return Parts(
            controller.run(),
            is_ready=lambda: controller.caches.healthy,
            others=others,
            fields=fields,
        )

    await run_program(config, metrics, create, user_agent="daemonset-job-controller")


def main() -> None:
    """Run the controller; exits with 0 on SIGTERM, with 2 if the configuration is invalid."""
    start("job-controller", _prepare)


def _prepare() -> Task:
    load = partial(parse_config, sys.argv[1:], os.environ, socket.gethostname())
    path = find_file(sys.argv[1:], os.environ)
    text = read_text(path) if path is not None else None
    config = load(text)
    configure_logging(config.log_level, config.log_json)
    warn_of_renamed(SETTINGS, os.environ)
    return run(config, text, load)


if __name__ == "__main__":
    main()
