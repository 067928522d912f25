"""The model of the log endpoint: what a read or a stream of a pod's log returns, and when.

Modelled: no log before the container has started, the previous instance, lines that become visible
late, `sinceTime`, `tailLines`. Nodes do not answer, and logs are deleted early. Streams end with
the instance, break, or lose lines (as the kubelet's do on rotation). Not modelled: limits of bytes,
partial lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

from daemonset_job.kube.client.errors import BadRequest, NotFound, Unavailable
from tests.simulation.server import PODS, node_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.world import World


class Logs:
    """The logs of all pods, as the API server proxies them."""

    def __init__(self, world: World) -> None:
        self._world = world

    def read(
        self,
        pod_key: tuple[str, str],
        previous: bool,
        since: datetime | None,
        tail: int | None = None,
    ) -> bytes:
        """Return the bytes of an instance's log that are visible now, its last `tail` lines."""
        run = self._run(pod_key)
        instance = run.instance - 1 if previous else run.instance
        if "waiting" in run.state and not previous:
            # The kubelet then shows the instance that has just ended.
            instance = run.instance
        if instance not in run.logs:
            raise BadRequest("previous terminated container not found" if previous else "waiting")
        now = self._world.loop.moment
        lines = [
            _line(stamp, text)
            for visible, stamp, text in run.logs[instance]
            if visible <= now and _is_since(stamp, since)
        ]
        return b"".join(lines if tail is None else lines[-tail:])

    async def follow(
        self, pod_key: tuple[str, str], since: datetime | None
    ) -> AsyncIterator[bytes]:
        """Yield the lines of the current instance as they become visible, until it ends."""
        world = self._world
        run = self._run(pod_key)
        if run.instance not in run.logs:
            raise BadRequest("the container is waiting to start")
        instance, sent = run.instance, 0
        log = run.logs[instance]
        machine = run.machine
        while True:
            if machine.is_up and world.logs_fail(machine.name):
                raise Unavailable("the connection broke off", status=0)
            now = world.loop.moment
            while machine.is_up and sent < len(log) and log[sent][0] <= now:
                _, stamp, text = log[sent]
                sent += 1
                if _is_since(stamp, since) and not world.loses_lines(machine.name):
                    yield _line(stamp, text)
            if sent == len(log) and (run.is_over or not run.is_running(instance)):
                return
            waiter = world.loop.create_future()
            run.waiters.append(waiter)
            if sent < len(log):
                world.loop.call_at(max(log[sent][0], now + 0.01), run.wake)
            await waiter

    def _run(self, pod_key: tuple[str, str]) -> PodRun:
        world = self._world
        namespace, name = pod_key
        pod = world.server.get(PODS, name, namespace)
        if pod is None:
            raise NotFound(f"pods {name} not found")
        machine = world.machines.get(node_of(pod))
        if machine is None or not machine.is_up:
            raise Unavailable("no route to host", status=0, reason="Timeout")
        if world.logs_fail(machine.name):
            raise Unavailable("the kubelet does not answer", status=500)
        run = machine.pods.get(pod["metadata"]["uid"])
        if run is None or not run.logs:
            raise BadRequest("the container is waiting to start")
        return run


def _line(stamp: str, text: bytes) -> bytes:
    return f"{stamp} ".encode() + text + b"\n"


def _is_since(stamp: str, since: datetime | None) -> bool:
    return since is None or stamp[:19] >= since.strftime("%Y-%m-%dT%H:%M:%S")
