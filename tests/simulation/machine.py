"""The model of a node's machine: it is up or down, and has the pods that are bound to the node.

What a pod does on it is in `kubelet`, and what is modelled and what is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVarTuple

from tests.fakekube.containers import KILLED_EXIT_CODE, TERMINATED_EXIT_CODE
from tests.fakekube.pod_endings import EVICTED, SHUT_DOWN
from tests.simulation.kubelet import PodRun
from tests.simulation.oracle.start_problems import UNEXPLAINED
from tests.simulation.schedule import Task
from tests.simulation.server import PODS, Raw

if TYPE_CHECKING:
    from tests.simulation.world import World

Ts = TypeVarTuple("Ts")
TURNS_UNKNOWN_SECONDS = 4.0
# From the removal of a pod's object until its kubelet has killed what runs of it.
KILL_SECONDS = 0.5
LEAST_REBOOT_SECONDS = 1.0


class Machine:
    """One incarnation of a node: its kubelet, and the pods on it by UID."""

    def __init__(self, world: World, name: str, uid: str, task: Task, skew: float = 0.0) -> None:
        self.world = world
        self.skew = skew
        self.name = name
        self.uid = uid
        self.task = task
        # How often the task of each Job, by its key, was started here.
        self.attempts: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        # Until when a pod here may start by itself, and what follows from that.
        self.starts_by = 0.0
        self.is_up = True
        self.up_since = 0.0
        self.is_gone = False
        self.pods: dict[str, PodRun] = {}
        self._deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def call_later(self, seconds: float, act: Callable[[*Ts], object], *args: *Ts) -> None:
        """Do something later, once the machine is up, unless it is gone by then."""
        self.world.loop.call_later(seconds, self._do, act, args)

    def _do(self, act: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.is_gone:
            return
        if self.is_up:
            act(*args)
        else:
            self._deferred.append((act, args))

    def go_down(self) -> None:
        self.is_up = False
        for run in self.pods.values():
            self.world.oracle.evidence.results.cannot_be_asked(run)

    def come_back(self) -> None:
        self.is_up, self.up_since = True, self.world.loop.moment
        deferred, self._deferred = self._deferred, []
        delay = 0.0
        for act, args in deferred:  # in their order
            delay += self.lag(0.0, 0.2)
            self.call_later(delay, act, *args)

    def reboot(self, seconds: float) -> None:
        """Go down and come back after `seconds`, with all containers ended.

        No machine boots within the second in which a task ended, and times have whole seconds.
        """
        self.go_down()
        seconds = max(seconds, LEAST_REBOOT_SECONDS)

        def boot() -> None:
            if not self.is_gone and not self.is_up:
                self.come_back()
                for run in list(self.pods.values()):
                    run.rebooted()
                # It may have been down before that, and the node be unknown.
                self.world.loop.call_later(0.1, self._turn_ready)

        self.world.loop.call_later(seconds, boot)

    def reboot_by_task(self, seconds: float) -> None:
        """Reboot; if the node is away for longer than that takes, it turns NotReady meanwhile."""
        self.reboot(seconds)
        self._turn_unknown(seconds)

    def _turn_unknown(self, seconds: float) -> None:
        """Have the node NotReady if its machine is away for long."""
        self.world.expect_quiet_from(seconds)

        def unknown() -> None:
            if not self.is_up and not self.is_gone:
                self.world.set_ready(self.name, "Unknown")

        self.world.loop.call_later(TURNS_UNKNOWN_SECONDS, unknown)
        self.world.loop.call_later(max(seconds, LEAST_REBOOT_SECONDS) + 0.1, self._turn_ready)

    def _turn_ready(self) -> None:
        """Have the kubelet say that the node is Ready."""
        if self.is_up and not self.is_gone:
            self.world.set_ready(self.name, "True")

    def reimage(self, seconds: float) -> None:
        """Go down and come back after `seconds` without what it had: containers, logs, images."""
        if seconds > TURNS_UNKNOWN_SECONDS:
            self.world.oracle.failures.allow_failure(self.name)
        for run in self.pods.values():
            if run.is_at_work:
                self.world.oracle.failures.task_failed(run)
        self.go_down()

        def boot() -> None:
            if self.is_gone or self.is_up:
                return
            for run in list(self.pods.values()):
                run.over(stays=True)
            self.come_back()
            for pod in self.world.server.all(PODS):
                if pod["spec"].get("nodeName") == self.name:
                    self.pod_changed(pod)

        seconds = max(seconds, LEAST_REBOOT_SECONDS)
        self.world.loop.call_later(seconds, boot)
        self._turn_unknown(seconds)

    def lag(self, low: float, high: float) -> float:
        return self.world.lag(f"kubelet/{self.name}", low, high)

    def stamp(self) -> str:
        """Return API time by this machine's clock."""
        return self.world.clock.stamp(self.skew)

    # --- what the API says ---------------------------------------------------------------

    def pod_changed(self, pod: Raw) -> None:
        """Take notice of a pod that is bound to this node, or on its way out."""
        uid = pod["metadata"]["uid"]
        if uid not in self.pods:
            run = self.pods[uid] = PodRun(self, pod)
            if "deletionTimestamp" not in pod["metadata"]:
                self.world.oracle.timeouts.shows(run, UNEXPLAINED)
            self.call_later(self.lag(0.02, 0.6), run.admit)
        if "deletionTimestamp" in pod["metadata"]:
            run = self.pods[uid]
            if not run.is_ending:
                run.is_ending = True
                # Nothing searches the log of a pod that is deleted (guarantees.md, Results).
                self.world.oracle.evidence.results.cannot_be_asked(run)
                self.call_later(self.lag(0.05, 1.5), run.terminate)

    def pod_removed(self, uid: str) -> None:
        """Kill what runs of a pod that was deleted without a grace period: its object is gone."""
        run = self.pods.get(uid)
        if run is not None and not run.is_over:
            self.world.oracle.evidence.results.became_unreadable(run)
            self.call_later(KILL_SECONDS, run.over)

    def rejects(self, run: PodRun) -> bool:
        """Return whether a pod is one of those that the kubelet rejects."""
        self.rejected[run.plan.key] += 1
        return not run.is_forged and self.rejected[run.plan.key] <= run.task.times

    def evict(self) -> None:
        """Evict the pods, as for want of memory."""
        for run in list(self.pods.values()):
            if run.pod() is not None and not run.is_ending:
                run.end_for_node(EVICTED, KILLED_EXIT_CODE)

    def readmit(self) -> None:
        """Restart the kubelet, which then has no room for the pods that run."""
        for run in list(self.pods.values()):
            if run.pod() is not None and not run.is_ending and "running" in run.state:
                run.is_not_admitted()

    def shut_down(self) -> None:
        """End the pods, as the kubelet does before its machine shuts down."""
        for run in list(self.pods.values()):
            if run.pod() is not None and not run.is_ending:
                is_clean = run.task.on_term == "clean"
                run.end_for_node(SHUT_DOWN, 0 if is_clean else TERMINATED_EXIT_CODE)
