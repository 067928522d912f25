"""The two processes under test: the project's own, over the model's client and watches.

Everything above HTTP is real: `job_controller.main.Controller` (queue, workers, expectations,
reconciler, core) and `terminator.scope.NamespaceScope` (scanner, ledger, reconciler). Replaced are
the client, the reflectors' transport (see `watch`), the clock, events, metrics and leader election.
There is one process of each kind at a time. A new one starts with empty memory and fresh lists. A
crash ends the client first and the tasks next, so nothing is cleaned up in the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from daemonset_job.api import shard_room
from daemonset_job.api.names import LABEL_MANAGED, LABEL_MANAGED_VALUE, SYSTEM_NAMESPACE
from daemonset_job.informers.informers import SharedInformers
from job_controller import main, reconciler
from job_controller.config import Config as ControllerConfig
from job_controller.core.plan import Plan, WriteReportStatus, WriteStatus
from job_controller.core.state.snapshot import Snapshot
from job_controller.stop_watch import StopWatch
from terminator.config import Config as TerminatorConfig
from terminator.ledger import writer
from terminator.scope import NamespaceScope
from tests.simulation.client import Client
from tests.simulation.fast_runs import NOTHING, fast_run
from tests.simulation.oracle.processes import judge_end
from tests.simulation.server import CONFIG_MAPS, DAEMON_SETS, JOBS, NODES, PODS, SCHEDULED_JOBS
from tests.simulation.settings import (
    NODE_UNREACHABLE_GRACE_PERIOD_SECONDS,
    POD_START_TIMEOUT_SECONDS,
    RESYNC_SECONDS,
)
from tests.simulation.watch import Watch

if TYPE_CHECKING:
    from daemonset_job.kube.client.client import KubeClient
    from daemonset_job.kube.recorder import EventRecorder
    from job_controller.metrics import Metrics
    from terminator.metrics import Metrics as TerminatorMetrics
    from tests.simulation.world import World

# What decides, or a mutant of it.
Decide = Callable[[Snapshot, datetime], Plan]
MANAGED = {LABEL_MANAGED: LABEL_MANAGED_VALUE}


class Process:
    """A process that can be killed and started; `name` is also the actor in the trace."""

    name = ""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_up = False
        self.started_at = 0.0
        self.client: Client | None = None
        self.watches: dict[str, Watch] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start with nothing in memory."""
        if self.is_up or self._world.is_over:
            return
        self.is_up = True
        self.started_at = self._world.loop.moment
        self._world.note(self.name, "starts")
        self.client = Client(self._world, self)
        self.watches = {}
        self._task = self._world.loop.create_task(self._run(self.client))

    def crash(self, seconds: float) -> None:
        """End at once, and come back after `seconds`."""
        if not self.is_up:
            return
        self.is_up = False
        self._world.note(self.name, "crashes")
        self._world.expect_delay(self.name, seconds)
        if self.client is not None:
            self.client.is_dead = True
        self._end()
        self._world.loop.call_later(seconds, self.start)

    def stop(self, seconds: float) -> None:
        """End as on SIGTERM, with time to tidy up, and come back after `seconds`."""
        self.crash(seconds)

    def _end(self) -> None:
        for watch in self.watches.values():
            watch.close()
        if self._task is not None:
            self._task.cancel()

    async def _run(self, client: Client) -> None:
        try:
            await self._main(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            judge_end(self._world, self.name, error)

    async def _main(self, client: Client) -> None:
        raise NotImplementedError

    def _follow(self, caches: SharedInformers) -> None:
        for plural, (reflector,) in caches.reflectors().items():
            labels = MANAGED if plural in {"daemonsets", "pods"} else None
            watch = self.watches[plural] = Watch(self._world, self, plural, reflector, labels)
            self._world.server.watches[plural].append(watch)

    def cached(self, plural: str, name: str, namespace: str) -> Any:
        """Return what this process knows of an object, None for nothing."""
        watch = self.watches.get(plural)
        return watch.reflector.store.get((namespace, name)) if watch is not None else None


class ControllerProcess(Process):
    """`job_controller.main.Controller`, without a Lease."""

    name = "controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.controller: main.Controller | None = None

    async def _main(self, client: Client) -> None:
        config = ControllerConfig(
            lease_namespace="",
            workers=2,
            pod_start_timeout_seconds=POD_START_TIMEOUT_SECONDS,
            node_unreachable_grace_period_seconds=NODE_UNREACHABLE_GRACE_PERIOD_SECONDS,
        )
        controller = self.controller = main.Controller(
            cast("KubeClient", client),
            config,
            cast("Metrics", NOTHING),
            clock=self._world.clock,
            events=cast("EventRecorder", NOTHING),
        )
        self._follow(controller.caches)
        if any(each.kind == "stop_all" for each in self._world.schedule.disturbances):
            self._follow_stop(controller, client)
        if self._world.schedule.scheduled:
            (reflector,) = controller._schedules.cache._reflector.reflectors
            watch = Watch(self._world, self, SCHEDULED_JOBS, reflector, None)
            self.watches[SCHEDULED_JOBS] = watch
            self._world.server.watches[SCHEDULED_JOBS].append(watch)
        await controller.run_leader_election()

    def _follow_stop(self, controller: main.Controller, client: Client) -> None:
        """Have the controller follow the stop of all Jobs, as it does with a namespace of its own.

        Here it has none: with one there would be a Lease.
        """
        stop = controller._stop = StopWatch(
            cast("KubeClient", client),
            SYSTEM_NAMESPACE,
            self._world.clock,
            on_change=controller._add_all,
        )
        watch = Watch(self._world, self, CONFIG_MAPS, stop._reflector, None)
        self.watches[CONFIG_MAPS] = watch
        self._world.server.watches[CONFIG_MAPS].append(watch)

    @property
    def expects_something(self) -> bool:
        """Whether a write of its own is yet to be seen by its caches."""
        return bool(self.is_up and self.controller and self.controller.written)


class TerminatorProcess(Process):
    """`terminator.scope.NamespaceScope`, leading."""

    name = "terminator"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._scope: NamespaceScope | None = None

    async def _main(self, client: Client) -> None:
        config = TerminatorConfig(
            resync_period=RESYNC_SECONDS, max_streams=self._world.schedule.streams, short_reads=4
        )
        scope = self._scope = NamespaceScope(
            cast("KubeClient", client),
            self._world.clock,
            cast("TerminatorMetrics", NOTHING),
            lambda: config,
            cast("EventRecorder", NOTHING),
        )
        self._follow(scope.caches)
        await scope.caches.wait_synced()
        await scope.lead()

    def stop(self, seconds: float) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self._world.note(self.name, "stops")
        self._world.expect_delay(self.name, seconds)
        if self._scope is not None:
            self._scope.is_stopping = True
        self._end()
        if self.client is not None and self._task is not None:
            self._world.loop.create_task(self._restart(self.client, self._task, seconds))

    async def _restart(self, client: Client, task: asyncio.Task[None], seconds: float) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
        client.is_dead = True
        await asyncio.sleep(seconds)
        self.start()


@contextmanager
def virtual(world: World, decide: Decide) -> Iterator[None]:
    """Put a `decide` that notes what it is asked in place of the core's.

    Only while the block runs: the modules belong to other tests as well. Both programs put as many
    nodes into a shard as the schedule says.
    """

    snapshot_times: dict[str, datetime] = {}

    def deciding(snapshot: Snapshot, now: datetime) -> Plan:
        # With a refusal it decides again on the same snapshot, which has the same time.
        if snapshot_times.get(snapshot.job.uid) != now:
            snapshot_times[snapshot.job.uid] = now
            jobs = world.controller.watches[JOBS]
            world.decided_at[snapshot.job.uid] = world.loop.moment
            world.seen_until[snapshot.job.uid] = jobs.known_until
            pods = world.controller.watches[PODS]
            world.pods_seen_until[snapshot.job.uid] = pods.known_until
            nodes = world.controller.watches[NODES]
            world.decided_on[snapshot.job.uid] = jobs.known_until, nodes.known_until
            world.oracle.holds.controller_decides(snapshot.job.uid, world.controller)
            counts = world.controller.watches[DAEMON_SETS]
            until = min(nodes.known_until, counts.known_until)
            world.oracle.chosen_steps.controller_decides(snapshot.job.uid, until)
            world.oracle.demands.controller_decides(snapshot)
        plan = decide(snapshot, now)
        for action in plan.actions:
            if isinstance(action, WriteStatus | WriteReportStatus):
                end = snapshot.job.uid, action.status.to_raw().get("completionTime")
                world.ended_at.setdefault(end, world.loop.moment)
            if isinstance(action, WriteStatus) and action.status.phase == "Succeeded":
                controller = world.processes["controller"]
                uid = snapshot.job.uid
                # None is left if a user has taken it away.
                generation = action.status.observed_generation or snapshot.job.generation
                completion = world.oracle.completion
                completion.views[uid] = completion.view(controller, uid, generation)
        return plan

    size = world.schedule.shard_nodes
    with (
        fast_run(),
        patch.object(shard_room, "SHARD_BYTES", size * 600),
        patch.object(shard_room, "NODES_PER_SHARD", size),
        patch.object(shard_room, "NODES_PER_ROLLOUT_SHARD", size),
        patch.object(writer, "NODES_PER_SHARD", size),
        patch.object(writer, "NODES_PER_ROLLOUT_SHARD", size),
        patch.object(reconciler, "decide", deciding),
    ):
        yield
