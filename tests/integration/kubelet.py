"""A simulated kubelet: what one start of a task does, and what the kubelet writes about its pod.

Statuses are applied under a field manager of the kubelet's own, so that conditions that others set
(PodScheduled, DisruptionTarget) stay.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import PODS
from daemonset_job.runtime.clock import SystemClock

Raw = dict[str, Any]

# A kubelet waits ten seconds and more before it starts a failed container again.
BACK_OFF_SECONDS = 0.1
# A failing init container has the same status again and again: it is reported less often.
INIT_BACK_OFF_SECONDS = 1.0
# The time in which a kubelet takes a pod down whose containers have ended. The status with their
# ends is there to be seen meanwhile (a real one looks at its containers once a second).
TEARDOWN_SECONDS = 0.5
KILLED_EXIT_CODE = 137
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
    _init: Raw = field(default_factory=dict)
    _last: Raw = field(default_factory=dict)
    _waiting: Raw = field(default_factory=dict)
    _began: datetime = field(default_factory=now)

    @property
    def is_init(self) -> bool:
        """Whether the task is an init container, as in mode Exit."""
        return names.CONTAINER_NAME in _names(self.pod, "initContainers")

    async def waits(self, run: TaskRun) -> None:
        """Say why the task cannot be started, once."""
        state = {"waiting": {"reason": run.waiting, "message": run.message}}
        if state != self._waiting:
            self._waiting = state
            await self._say(state, "Pending", began=self.clock.now() - run.since)

    async def fails_to_initialize(self, run: TaskRun) -> None:
        """Say that the first init container has ended once more, and wait a while."""
        moment = stamp(self.clock.now())
        ended = {"exitCode": run.init_exit_code, "reason": "Error"}
        ended |= {"startedAt": moment, "finishedAt": moment}
        if not self._init:
            self._init = {"state": {"terminated": ended}, "restartCount": 0}
        else:
            message = "back-off restarting failed container"
            self._init = {
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": message}},
                "lastState": {"terminated": ended},
                "restartCount": self._init["restartCount"] + 1,
            }
        await self._say({"waiting": {"reason": "PodInitializing"}}, "Pending")
        await asyncio.sleep(INIT_BACK_OFF_SECONDS)

    async def rejects(self, run: TaskRun) -> None:
        """Say that the node does not take the pod: it is over before anything was started."""
        meta = self.pod["metadata"]
        status = {
            "phase": "Failed",
            "reason": run.rejected,
            "message": f"Pod was rejected: {run.message}",
            "startTime": stamp(self.clock.now()),
        }
        await self._apply(meta, status)

    async def started(self, run: TaskRun) -> None:
        """Say that the task runs."""
        self.running = run
        self.idle.clear()
        self._began = self.clock.now()
        self._init = {}
        phase = "Pending" if self.is_init else "Running"
        await self._say({"running": {"startedAt": stamp(self._began)}}, phase)

    async def ended(self, run: TaskRun) -> None:
        """Say how the task ended by itself."""
        self.running = None
        self.idle.set()
        assert run.exit_code is not None
        terminated = self._terminated(run.exit_code, run.late)
        self.is_over = self.is_init and run.exit_code == 0
        phase = "Running" if self.is_over or not self.is_init else "Pending"
        await self._say({"terminated": terminated}, phase)
        self._last = {"terminated": terminated}

    async def stopped(self, exit_code: int) -> None:
        """Say how the task ended when its pod was deleted, and take the pod down.

        Since Kubernetes 1.27 the phase of a deleted pod is final before the pod goes (KEP-3329). A
        container that never started, as the one behind the task in mode Exit, makes it Failed.
        """
        self.running = None
        self.idle.set()
        succeeded = exit_code == 0 and not self.is_init
        terminated = self._terminated(exit_code, timedelta(0))
        await self._say({"terminated": terminated}, "Succeeded" if succeeded else "Failed")
        await asyncio.sleep(TEARDOWN_SECONDS)

    def _terminated(self, exit_code: int, late: timedelta) -> Raw:
        return {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": stamp(self._began - late),
            "finishedAt": stamp(self.clock.now() - late),
        }

    async def _say(self, state: Raw, phase: str, *, began: datetime | None = None) -> None:
        meta = self.pod["metadata"]
        start = (self.pod.get("status") or {}).get("startTime")
        if began is not None or start is None:
            start = stamp(began or self.clock.now())
            self.pod = {**self.pod, "status": {"startTime": start}}
        is_ready = phase == "Running" and ("running" in state or self.is_over)
        ready = {"type": "Ready", "status": "True" if is_ready else "False"}
        if not is_ready:
            ready["reason"] = "PodCompleted" if phase == "Succeeded" else "ContainersNotReady"
        status: Raw = {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "startTime": start,
            "conditions": [ready],
            "containerStatuses": self._statuses("containers", state),
        }
        if _names(self.pod, "initContainers"):
            status["initContainerStatuses"] = self._statuses("initContainers", state)
        await self._apply(meta, status)

    def _statuses(self, group: str, task_state: Raw) -> list[Raw]:
        return [
            self._status(container, task_state, is_init=group == "initContainers")
            for container in self.pod["spec"].get(group) or ()
        ]

    def _status(self, container: Raw, task_state: Raw, *, is_init: bool) -> Raw:
        """Return the status of one container of the pod, the task or one beside it."""
        name = container["name"]
        own: Raw = {"restartCount": 0}
        if name == names.CONTAINER_NAME:
            own = {"state": task_state, "lastState": self._last, "restartCount": self.restarts}
        elif is_init and self._init:
            own = self._init
        elif "waiting" in task_state or (self.is_init and not is_init and not self.is_over):
            own["state"] = {"waiting": {"reason": "PodInitializing"}}
        elif is_init:
            own["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        else:
            own["state"] = {"running": {"startedAt": stamp(self._began)}}
        uid = self.pod["metadata"]["uid"]
        state = own["state"]
        has_passed = is_init and state.get("terminated", {}).get("exitCode") == 0
        return {
            "name": name,
            "image": container["image"],
            "imageID": "",
            "ready": "running" in state or has_passed,
            **({} if "waiting" in state else {"containerID": f"played://{uid}/{self.restarts}"}),
            **own,
        }

    async def _apply(self, meta: Raw, status: Raw) -> None:
        await self.admin.apply(
            PODS.with_subresource("status"),
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": status},
            meta["namespace"],
            field_manager="kubelet",
        )


def _names(pod: Raw, group: str) -> set[str]:
    return {container["name"] for container in pod["spec"].get(group) or ()}
