"""A node is called failed or unreachable for a time only when that time is over, by one clock.

The clock is the programs' own; those of kubelets and API servers may be hours away. And what keeps
a task from starting is not passed over: its node is called failed soon after the patience is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakekube import daemon_sets
from tests.simulation.oracle.facts import is_true
from tests.simulation.process import START_PATIENCE_SECONDS, UNREACHABLE_PATIENCE_SECONDS
from tests.simulation.server import JOBS, PODS

Raw = Mapping[str, Any]

# API times are whole seconds, and two of them are compared.
TOLERANCE_SECONDS = 3.0
# From the patience's end to the record of the failure, when nothing is in the controller's way.
TELLING_SECONDS = 20.0
# These cannot change while the pod stands: no time is given for them to.
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
BY_TIME = {"ImagePullFailed", "ContainerStartFailed", "Unschedulable"}

# A node fails after so many times the start patience where nothing says why its task does not
# start: a large image that is being pulled looks like that.
SILENT_FACTOR = 3


@dataclass(slots=True)
class Patience:
    """Hears of pods, tasks and nodes; times are moments of the programs' clock."""

    world: Any
    oracle: Any
    # By Job and node UID: since when there has been a pod whose task could start and has not.
    unstarted: dict[tuple[str, str], float] = field(default_factory=dict)
    # By Job and node UID: when the first pod of the current try was taken up.
    taken_up: dict[tuple[str, str], float] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    # By node: when it was last not Ready any more.
    not_ready: dict[str, float] = field(default_factory=dict)
    # By node: the last time that it was not, from and to.
    was_not_ready: dict[str, tuple[float, float]] = field(default_factory=dict)

    def pod_written(self, old: Raw | None, new: Raw | None) -> None:
        """Note a pod that may start from now on: made without the gate, or opened."""
        if new is None and old is not None and not daemon_sets.is_terminal(old):
            # What had kept it from starting went with it; of a rejected pod it stays.
            job_uid = self.oracle.job_of.get(old["metadata"]["uid"])
            for key in [key for key in self.unstarted if key[0] == job_uid]:
                machine = self.world.machines.get(old["spec"]["meant_for"])
                if machine is not None and machine.uid == key[1]:
                    del self.unstarted[key]
        if new is None or new["spec"].get("schedulingGates"):
            return
        if old is None or old["spec"].get("schedulingGates"):
            # The successor of a pod that went has waited at its gate, and the time begins again.
            name = new["spec"]["meant_for"]
            machine = self.world.machines.get(name)
            if machine is not None:
                key = (self.oracle.job_of[new["metadata"]["uid"]], machine.uid)
                if old is not None:
                    self.unstarted.pop(key, None)
                self.unstarted.setdefault(key, self.world.loop.moment)

    def admitted(self, run: Any) -> None:
        """Note a pod that its kubelet has taken up."""
        if key := self._key(run):
            self.taken_up.setdefault(key, self.world.loop.moment)
            self._watch(key, run.machine.name)

    def started(self, run: Any) -> None:
        """Note the start of a task."""
        if key := self._key(run):
            self.unstarted.pop(key, None)

    def node_ready(self, name: str, *, is_ready: bool) -> None:
        """Note that a node is Ready or no longer so."""
        if is_ready and name in self.not_ready:
            self.was_not_ready[name] = self.not_ready.pop(name), self.world.loop.moment
        elif not is_ready:
            self.not_ready.setdefault(name, self.world.loop.moment)

    def _key(self, run: Any) -> tuple[str, str] | None:
        job_uid = self.oracle.job_of.get(run.pod_uid)
        return (job_uid, run.machine.uid) if job_uid else None

    # --- too early -------------------------------------------------------------------------

    def judge(self, job_uid: str, node: str, old: Raw, record: Raw) -> None:
        """Judge what a report says of a node that it said otherwise of before."""
        key, now = (job_uid, record.get("uid") or ""), self.world.loop.moment
        if old.get("state") == "Failed" and record.get("state") != "Failed":
            self.taken_up.pop(key, None)  # it tries again
        reason, since, seconds = record.get("reason"), -1e9, 0.0
        if record.get("state") == "Unreachable":
            # Who is about to write it may not have heard yet that the node is back.
            began, ended = self.was_not_ready.get(node, (now, now))
            began = began if now - ended < TOLERANCE_SECONDS else now
            seconds, since = UNREACHABLE_PATIENCE_SECONDS, self.not_ready.get(node, began)
        elif record.get("state") != "Failed":
            return
        elif reason == "DeadlineExceeded":
            spec = self.oracle.completion.newest(job_uid)
            seconds = float(spec.get("nodeDeadlineSeconds") or 0)
            since = self.taken_up.get(key, now)
        elif reason in BY_TIME and not any(h in str(record.get("message")) for h in HOPELESS):
            seconds, since = START_PATIENCE_SECONDS, self.unstarted.get(key, -1e9)
        if now - since < seconds - TOLERANCE_SECONDS:
            words = f"{node} is called {record.get('state')} ({reason}) after {now - since:.1f} s"
            self.oracle.violate("hasty", f"{words} and not {seconds:g} s{self.skews()}")

    def skews(self) -> str:
        """Return in words whether clocks differ in this schedule."""
        schedule = self.world.schedule
        is_off = any(node.skew for node in schedule.nodes) or any(schedule.api_skews)
        return ", clocks differ" if is_off else ""

    # --- too late --------------------------------------------------------------------------

    def _watch(self, key: tuple[str, str], node: str) -> None:
        since = self.unstarted.get(key)
        if since is not None:
            limit = since + SILENT_FACTOR * START_PATIENCE_SECONDS + TELLING_SECONDS
            at = max(limit, self.world.loop.moment)
            self.world.loop.call_at(at, self._check, key, node, since)

    def _check(self, key: tuple[str, str], node: str, since: float) -> None:
        """Judge that a node whose task has not started by now is called failed."""
        world, (job_uid, node_uid) = self.world, key
        if world.is_over or key in self.told or self.unstarted.get(key) != since:
            return
        clear, now = world.clear_from["controller"], world.loop.moment
        if clear + TELLING_SECONDS > now or not world.processes["controller"].is_up:
            world.loop.call_later(TELLING_SECONDS, self._check, key, node, since)
            return
        # The patience counts again from a start of the controller (docs/reference/status.md).
        due = world.processes["controller"].started_at + SILENT_FACTOR * START_PATIENCE_SECONDS
        if due + TELLING_SECONDS > now:
            world.loop.call_at(due + TELLING_SECONDS, self._check, key, node, since)
            return
        machine = world.machines.get(node)
        job = next((j for j in world.server.all(JOBS) if j["metadata"]["uid"] == job_uid), None)
        if job is None or machine is None or machine.uid != node_uid or not machine.is_up:
            return
        if job["spec"].get("suspend") or any(
            is_true(job, t) for t in ("Complete", "Failed", "Suspended")
        ):
            return
        if not self._has_pod(job_uid, node) or self.oracle.has_failed(job, node, node_uid):
            return
        self.told.add(key)
        words = f"{node} ({machine.task.kind}): not started for {now - since:.0f} s, not failed"
        words += self.skews()
        self.oracle.violate("untold", words)

    def _has_pod(self, job_uid: str, node: str) -> bool:
        return any(
            self.oracle.job_of.get(pod["metadata"]["uid"]) == job_uid
            and pod["spec"]["meant_for"] == node
            and "deletionTimestamp" not in pod["metadata"]
            for pod in self.world.server.all(PODS)
        )
