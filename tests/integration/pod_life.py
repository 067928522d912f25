"""What the kubelet of a simulated node does with one pod, from its binding to its end."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.resource import PODS
from tests.contract.fake_logs import FakeLog
from tests.fakekube.containers import KILLED_EXIT_CODE
from tests.integration.kubelet import BACK_OFF_SECONDS, Kubelet, now

if TYPE_CHECKING:
    from tests.integration.simulated_nodes import SimulatedNodes

Raw = dict[str, Any]


@dataclass(eq=False)
class Life:
    """One pod on its node, from its binding to its end."""

    nodes: SimulatedNodes
    pod: Raw
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_ending: bool = False

    def __post_init__(self) -> None:
        self.node = self.nodes.short(self.pod["spec"]["nodeName"])
        self.namespace: str = self.pod["metadata"]["namespace"]
        self.kubelet = Kubelet(self.nodes.admin, self.pod, self.nodes.clock(self.node))

    def begin(self) -> None:
        """Start the pod's containers."""
        self.tasks.append(asyncio.create_task(self._live()))

    def takes_time(self, *, keeps_grace: bool) -> bool:
        """Return whether the pod's end takes time: its task stops in order, or does not stop."""
        run = self.kubelet.running
        return self._is_ending or (
            run is not None and (keeps_grace or run.exit_on_term is not None)
        )

    async def end_unstarted(self) -> None:
        """Say how the pod ends if its task has waited all the time, and start nothing any more."""
        if self.kubelet.is_waiting and self.kubelet.running is None:
            self.tasks[0].cancel()
            await self.kubelet.never_started()

    def end(self, pod: Raw) -> None:
        """Stop the task, once, and delete the pod after that."""
        if not self._is_ending:
            self._is_ending = True
            self.tasks.append(asyncio.create_task(self._stop(pod)))

    async def _stop(self, pod: Raw) -> None:
        run = self.kubelet.running
        exit_code = run.exit_on_term if run is not None else None
        if exit_code is None:
            end = datetime.fromisoformat(pod["metadata"]["deletionTimestamp"])
            # What the task does within its grace period counts as ever; then it is killed.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max((end - now()).total_seconds(), 0)):
                    await self.kubelet.idle.wait()
            exit_code = KILLED_EXIT_CODE
        self.tasks[0].cancel()
        with contextlib.suppress(NotFound):
            if self.kubelet.running is not None:
                await self.kubelet.stopped(exit_code)
        await self.nodes.delete(PODS, self.pod, grace=0)

    async def _live(self) -> None:
        nodes, kubelet = self.nodes, self.kubelet
        log: FakeLog | None = None
        try:
            while True:
                run = nodes.behaviour(self.node, nodes.executions[self.node] + 1)
                if run.rejected:
                    await kubelet.rejects(run)
                    return
                if run.waiting:
                    await kubelet.waits(run)
                    await asyncio.sleep(BACK_OFF_SECONDS)
                    continue
                if run.init_exit_code is not None:
                    await kubelet.fails_to_initialize(run)
                    continue
                nodes.executions[self.node] += 1
                nodes.images[self.kubelet.image] += 1
                log = nodes.logs.begin(self.namespace, self.pod["metadata"]["name"], kubelet.clock)
                await kubelet.started(run)
                if run.after is not None:
                    await run.after.wait()
                log.write(*run.lines)
                if run.exit_code is None:
                    await asyncio.get_running_loop().create_future()
                log.end()
                await kubelet.ended(run)
                # The kubelet starts nothing again in a pod that is being deleted.
                if kubelet.is_over or self._is_ending:
                    return
                await asyncio.sleep(run.back_off)
                kubelet.restarts += 1
        except NotFound:
            return  # deleted meanwhile
        finally:
            if log is not None:
                log.end()
