"""The two processes under test: the project's own, over the model's client and feeds.

Everything above HTTP is real: `job_controller.main.Controller` (queue, workers, high-water marks,
reconciler, core) and `terminator.scope.NamespaceScope` (scanner, ledger, reconciler). Replaced are
the client, the reflectors' transport (see `feed`), the clock, events, metrics and leader election.
There is one process of each kind at a time. A new one starts with empty memory and fresh lists. A
crash ends the client first and the tasks next, so nothing is cleaned up in the API.
"""

import asyncio
from contextlib import contextmanager, suppress
from unittest.mock import patch

from daemonset_job.api.names import LABEL_MANAGED, LABEL_MANAGED_VALUE
from job_controller import main, reconciler
from job_controller.config import Config as ControllerConfig
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.render import report_status as report
from terminator.config import Config as TerminatorConfig
from terminator.ledger import writer
from terminator.scope import NamespaceScope
from tests.simulation.client import Client
from tests.simulation.feed import Feed
from tests.simulation.quick import NOTHING, quick

MANAGED = {LABEL_MANAGED: LABEL_MANAGED_VALUE}
# Shorter than the defaults, so that a run in trouble comes to rest sooner.
POD_START_TIMEOUT_SECONDS = 30.0
NODE_UNREACHABLE_GRACE_PERIOD_SECONDS = 12.0
RESYNC_SECONDS = 60.0


class Process:
    """A process that can be killed and started; `name` is also the actor in the trace."""

    name = ""

    def __init__(self, world):
        self._world = world
        self.is_up = False
        self.started_at = 0.0
        self.client = None
        self.feeds = {}
        self._task = None

    def start(self):
        """Start with nothing in memory."""
        if self.is_up or self._world.is_over:
            return
        self.is_up = True
        self.started_at = self._world.loop.moment
        self._world.note(self.name, "starts")
        self.client = Client(self._world, self)
        self.feeds = {}
        self._task = self._world.loop.create_task(self._run(self.client))

    def crash(self, seconds):
        """End at once, and come back after so long."""
        if not self.is_up:
            return
        self.is_up = False
        self._world.note(self.name, "crashes")
        self._world.expect_delay(self.name, seconds)
        self.client.is_dead = True
        self._end()
        self._world.loop.call_later(seconds, self.start)

    def stop(self, seconds):
        """End as on SIGTERM, with time to tidy up, and come back after so long."""
        self.crash(seconds)

    def _end(self):
        for feed in self.feeds.values():
            feed.close()
        self._task.cancel()

    async def _run(self, client):
        try:
            await self._main(client)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._world.oracle.violate("process", f"{self.name} died: {error!r}")

    async def _main(self, client):
        raise NotImplementedError

    def _follow(self, caches):
        for plural, (reflector,) in caches.reflectors().items():
            labels = MANAGED if plural in {"daemonsets", "pods"} else None
            feed = self.feeds[plural] = Feed(self._world, self, plural, reflector, labels)
            self._world.server.feeds[plural].append(feed)

    def cached(self, plural, name, namespace):
        """Return what this process knows of an object, None for nothing."""
        feed = self.feeds.get(plural)
        return feed.reflector.store.get((namespace, name)) if feed is not None else None


class ControllerProcess(Process):
    """`job_controller.main.Controller`, without a Lease."""

    name = "controller"

    def __init__(self, world):
        super().__init__(world)
        self.controller = None

    async def _main(self, client):
        config = ControllerConfig(
            lease_namespace="",
            workers=2,
            pod_start_timeout_seconds=POD_START_TIMEOUT_SECONDS,
            node_unreachable_grace_period_seconds=NODE_UNREACHABLE_GRACE_PERIOD_SECONDS,
        )
        controller = self.controller = main.Controller(
            client, config, NOTHING, clock=self._world.clock, events=NOTHING
        )
        self._follow(controller.caches)
        await controller.run_leader_election()

    @property
    def expects_something(self):
        """Whether a write of its own is yet to be seen by its caches."""
        return bool(self.is_up and self.controller and self.controller.written)


class TerminatorProcess(Process):
    """`terminator.scope.NamespaceScope`, leading."""

    name = "terminator"

    def __init__(self, world):
        super().__init__(world)
        self._scope = None

    async def _main(self, client):
        config = TerminatorConfig(
            resync_period=RESYNC_SECONDS, max_streams=self._world.schedule.streams, short_reads=4
        )
        scope = self._scope = NamespaceScope(client, self._world.clock, NOTHING, lambda: config)
        self._follow(scope.caches)
        await scope.caches.wait_synced()
        await scope.lead()

    def stop(self, seconds):
        if not self.is_up:
            return
        self.is_up = False
        self._world.note(self.name, "stops")
        self._world.expect_delay(self.name, seconds)
        if self._scope is not None:
            self._scope.is_stopping = True
        self._end()
        self._world.loop.create_task(self._restart(self.client, self._task, seconds))

    async def _restart(self, client, task, seconds):
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
        client.is_dead = True
        await asyncio.sleep(seconds)
        self.start()


@contextmanager
def virtual(world, decide):
    """Put a `decide` that notes what it is asked in place of the core's.

    Only while the block runs: the modules belong to other tests as well. Both programs put as many
    nodes into a shard as the schedule says.
    """

    def deciding(snapshot, now):
        if not snapshot.daemon_set_refusal:  # else it decides anew on what it gathered before
            world.decided_at[snapshot.job.uid] = world.loop.moment
        plan = decide(snapshot, now)
        for action in plan.actions:
            if isinstance(action, WriteStatus | WriteReportStatus):
                end = snapshot.job.uid, action.status.to_raw().get("completionTime")
                world.ended_at.setdefault(end, world.loop.moment)
            if isinstance(action, WriteStatus) and action.status.phase == "Succeeded":
                controller = world.processes["controller"]
                uid, generation = snapshot.job.uid, snapshot.job.generation
                completion = world.oracle.completion
                completion.views[uid] = completion.view(controller, uid, generation)
        return plan

    size = world.schedule.shard_nodes
    with (
        quick(),
        patch.object(report, "NODES_PER_SHARD", size),
        patch.object(writer, "NODES_PER_SHARD", size),
        patch.object(reconciler, "decide", deciding),
    ):
        yield
