"""A simulated kubelet: what one start of a task does, and what the kubelet writes about its pod.

What follows from the state of the task is that of tests/fakekube: the other containers, the phase,
whether the pod is Ready, and its last status. Statuses are applied under a field manager of the
kubelet's own, so that conditions that others set (PodScheduled, DisruptionTarget) stay.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.container import STATUS_UNKNOWN
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import PODS
from daemonset_job.runtime.clock import SystemClock
from tests.fakekube.containers import Container, backs_off, running, terminated, waiting
from tests.fakekube.pod_endings import final_status, rejected
from tests.fakekube.pod_status import (
    container_statuses,
    default_waiting_reason,
    phase_of,
    ready_condition,
)

Raw = dict[str, Any]

# A kubelet waits ten seconds and more before it starts a failed container again.
BACK_OFF_SECONDS = 0.1
# A failing init container has the same status again and again: it is reported less often.
INIT_BACK_OFF_SECONDS = 1.0
# The time in which a kubelet takes a pod down whose containers have ended. The status with their
# ends is there to be seen meanwhile (a real one looks at its containers once a second).
TEARDOWN_SECONDS = 0.5
# How long ago a simulated kubelet says that a task ended.
LATE = timedelta(0)


@dataclass(frozen=True)
class TaskRun:
    """What one start of the task does: waits for `after`, prints, and then ends or stays.

    `exit_on_term` is the code with which a running task ends when its pod is deleted; None: it
    takes no notice. `late` is how long ago the kubelet says that the task ended.

    What keeps the task from starting: `waiting` is why the container cannot be started, and `since`
    for how long the pod has been there. `init_exit_code` is that of the pod's first init container,
    again and again. `rejected` is the reason for which the kubelet does not take the pod at all.
    `message` goes with `waiting` or `rejected`.
    """

    lines: Sequence[str] = ("done",)
    exit_code: int | None = None
    exit_on_term: int | None = None
    after: asyncio.Event | None = None
    waiting: str = ""
    init_exit_code: int | None = None
    rejected: str = ""
    message: str = ""
    since: timedelta = timedelta(0)
    late: timedelta = LATE
    back_off: float = BACK_OFF_SECONDS


Behaviour = Callable[[str, int], TaskRun]
"""What the task does on a node (by its short name) when it is started for the nth time there."""


def done(_node: str, _start: int) -> TaskRun:
    """Print the token and wait, as a task should."""
    return TaskRun()


def now() -> datetime:
    return datetime.now(UTC)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class NodeClock(SystemClock):
    """The clock of one node; `skew` is how far it is ahead, asked at every look."""

    def __init__(self, skew: Callable[[], timedelta]) -> None:
        self._skew = skew

    def now(self) -> datetime:
        """Return what the node takes for the time."""
        return super().now() + self._skew()


@dataclass(eq=False)
class Kubelet:
    """What the kubelet of a node says of one pod.

    `running` is the start of the task that runs now; `idle` is set while none does.
    """

    admin: KubeClient
    pod: Raw
    clock: NodeClock
    restarts: int = 0
    is_over: bool = False
    running: TaskRun | None = None
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _init: Container | None = None
    _last: Mapping[str, Any] = field(default_factory=dict)
    _waiting: Mapping[str, Any] = field(default_factory=dict)
    _began: datetime = field(default_factory=now)

    @property
    def is_init(self) -> bool:
        """Whether the task is an init container, as in mode Exit."""
        return names.CONTAINER_NAME in _names(self.pod, "initContainers")

    @property
    def image(self) -> str:
        """The image of the task."""
        spec = self.pod["spec"]
        containers = (*(spec.get("initContainers") or ()), *spec["containers"])
        return str(next(c["image"] for c in containers if c["name"] == names.CONTAINER_NAME))

    async def waits(self, run: TaskRun) -> None:
        """Say why the task cannot be started, once."""
        state = waiting(run.waiting, run.message)
        if state != self._waiting:
            self._waiting = state
            await self._say(state, began=self.clock.now() - run.since)

    async def fails_to_initialize(self, run: TaskRun) -> None:
        """Say that the first init container has ended once more, and wait a while."""
        assert run.init_exit_code is not None
        moment = stamp(self.clock.now())
        ended = terminated(run.init_exit_code, moment, moment)
        if self._init is None:
            self._init = Container(ended)
        else:
            state = backs_off("back-off restarting failed container")
            self._init = Container(state, ended, self._init.restarts + 1)
        await self._say(waiting(default_waiting_reason(self.pod)))
        await asyncio.sleep(INIT_BACK_OFF_SECONDS)

    async def rejects(self, run: TaskRun) -> None:
        """Say that the node does not take the pod: it is over before anything was started."""
        await self._apply(rejected(run.rejected, run.message, stamp(self.clock.now())))

    async def started(self, run: TaskRun) -> None:
        """Say that the task runs."""
        self.running = run
        self.idle.clear()
        self._began = self.clock.now()
        self._init = None
        await self._say(running(stamp(self._began)))

    async def ended(self, run: TaskRun) -> None:
        """Say how the task ended by itself."""
        self.running = None
        self.idle.set()
        assert run.exit_code is not None
        ended = self._terminated(run.exit_code, run.late)
        self.is_over = self.is_init and run.exit_code == 0
        await self._say(ended)
        self._last = ended

    async def never_started(self) -> None:
        """Say for the last time that the task waits, before its deleted pod is removed."""
        await self._say(self._waiting, is_final=True)

    @property
    def is_waiting(self) -> bool:
        """Whether it has said why the task cannot be started."""
        return bool(self._waiting)

    async def stopped(self, exit_code: int) -> None:
        """Say how the task ended when its pod was deleted, and take the pod down.

        The kubelet ends the other containers without a word.
        """
        self.running = None
        self.idle.set()
        await self._say(self._terminated(exit_code, timedelta(0)), is_final=True)
        await asyncio.sleep(TEARDOWN_SECONDS)

    def _terminated(self, exit_code: int, late: timedelta) -> Mapping[str, Any]:
        began, ended = self._began - late, self.clock.now() - late
        return terminated(exit_code, stamp(began), stamp(ended))

    async def _say(
        self,
        state: Mapping[str, Any],
        *,
        began: datetime | None = None,
        is_final: bool = False,
    ) -> None:
        start = (self.pod.get("status") or {}).get("startTime")
        if began is not None or start is None:
            start = stamp(began or self.clock.now())
            self.pod = {**self.pod, "status": {"startTime": start}}
        status: Raw = {**container_statuses(self.pod, self._known(state), stamp(self._began))}
        status = {**status, "phase": phase_of(self.pod, status)}
        if is_final:
            status = final_status(self.pod, status)
        status["conditions"] = [ready_condition(self.pod, status, status["phase"])]
        for group in ("initContainerStatuses", "containerStatuses"):
            if group in status:
                status[group] = [self._with_image(row) for row in status[group]]
        await self._apply({**status, "hostIP": "127.0.0.1", "startTime": start})

    def _known(self, state: Mapping[str, Any]) -> dict[str, Container]:
        """Return what the containers do that a test has a say in: the task, and an init one."""
        task = {names.CONTAINER_NAME: Container(state, self._last, self.restarts)}
        if self._init is None:
            return task
        inits = _names(self.pod, "initContainers")
        first = next(name for name in inits if name != names.CONTAINER_NAME)
        return {first: self._init, **task}

    def _with_image(self, row: Mapping[str, Any]) -> Raw:
        """Return the status of a container with the fields that the API server asks for."""
        spec = self.pod["spec"]
        containers = (*(spec.get("initContainers") or ()), *spec["containers"])
        image = next(found["image"] for found in containers if found["name"] == row["name"])
        uid = self.pod["metadata"]["uid"]
        ended = row["state"].get("terminated") or {}
        has_run = "waiting" not in row["state"] and ended.get("reason") != STATUS_UNKNOWN
        ran = {"containerID": f"played://{uid}/{self.restarts}"} if has_run else {}
        return {**row, "image": image, "imageID": "", **ran}

    async def _apply(self, status: Mapping[str, Any]) -> None:
        meta = self.pod["metadata"]
        await self.admin.apply(
            PODS.with_subresource("status"),
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": status},
            meta["namespace"],
            field_manager="kubelet",
        )


def _names(pod: Raw, group: str) -> list[str]:
    return [container["name"] for container in pod["spec"].get(group) or ()]
