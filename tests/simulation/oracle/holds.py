"""Nothing of a Job begins while its user, or an administrator, holds it up.

The controller knows what its watches have shown it by the time of its decision, and no gate is
removed by a decision that knew of a hold. A gate that was removed before stays so: the task at work
finishes. By the time a pod has its node, the hold may have come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemonset_job.api import names
from tests.simulation.loop import EPOCH
from tests.simulation.oracle import shards
from tests.simulation.oracle.facts import is_continuous, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import CONFIG_MAPS, JOBS, REPORTS, Raw

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.machine import Machine
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.process import Process
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "held",
        "No gate is removed while the Job is suspended or aborted, or all Jobs are stopped, or "
        "after its run has failed, unless a retry is requested. No node begins outside the window "
        "of its Job, or before its step is approved. Nor does the "
        "run succeed before the step with the last nodes is.",
        mutant="ignores_stops",
        seed=1_000_000_005,
    ),
    Invariant(
        "after",
        "A run starts only after the Jobs have succeeded that its spec.after names.",
        mutant="waits_for_no_job",
        seed=1_000_000_001,
    ),
    Invariant(
        "exclusive",
        "Tasks of two Jobs with the same key are never at work on a node at the same time.",
        mutant="shares_exclusive_nodes",
        seed=1_000_000_008,
        excuses={
            "killed late": "A pod was deleted by force, and its kubelet is about to kill its task.",
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Decision:
    """When the controller decided, and up to when it knew all of Jobs, and of the stop of all."""

    at: float
    jobs_until: float
    stop_until: float


@dataclass(slots=True)
class Holds:
    """Receives what holds Jobs up, and what begins all the same."""

    world: World
    oracle: Oracle
    # By the UID of a Job: its newest decision, and that which removes the gate that is removed now.
    decisions: dict[str, Decision] = field(default_factory=dict)
    gates_decided: dict[str, Decision] = field(default_factory=dict)
    # When all Jobs were stopped or no longer so, in order.
    stops: list[tuple[float, bool]] = field(default_factory=list)
    # By the UID of a Job: when its abort was asked for, and up to which step it is approved.
    aborts: dict[str, float] = field(default_factory=dict)
    approvals: dict[str, float] = field(default_factory=dict)
    # When the run of a Job failed that has an end, and was not tried again since.
    failures: dict[str, float] = field(default_factory=dict)
    # The (namespace, name) of Jobs that were complete at some time.
    succeeded: set[tuple[str, str]] = field(default_factory=set)

    # --- what happens ------------------------------------------------------------------------

    def all_stopped(self, *, is_stopped: bool) -> None:
        """Note that an administrator stops all Jobs, or lets them go on."""
        self.stops.append((self.world.loop.moment, is_stopped))

    def controller_decides(self, job_uid: str, controller: Process) -> None:
        """Note what the controller knows when it decides about a Job."""
        now, stop = self.world.loop.moment, controller.watches.get(CONFIG_MAPS)
        jobs_until = controller.watches[JOBS].known_until
        stop_until = stop.known_until if stop is not None else now
        self.decisions[job_uid] = Decision(now, jobs_until, stop_until)

    def job_written(self, old: Raw | None, new: Raw) -> None:
        """Note what a person asks for, and the success of a Job; judge the start of another."""
        meta, now = new["metadata"], self.world.loop.moment
        uid, annotations = meta["uid"], meta.get("annotations") or {}
        if names.ANNOTATION_ABORT in annotations and not self._has_succeeded(new):
            self.aborts.setdefault(uid, now)
        step = float(annotations.get(names.ANNOTATION_APPROVE, 0))
        if names.ANNOTATION_PROMOTE in annotations:
            step = math.inf
        self.approvals[uid] = max(self.approvals.get(uid, 0), step)
        if is_true(new, "Complete"):
            self.succeeded.add((meta["namespace"], meta["name"]))
        if is_true(new, "Failed") and not is_continuous(new):
            self.failures.setdefault(uid, now)
        else:
            self.failures.pop(uid, None)
        is_start = "startTime" in (new.get("status") or {}) and (
            old is None or "startTime" not in (old.get("status") or {})
        )
        if is_start and (missing := self.lacking_predecessors(new)):
            self.oracle.violate("after", f"{meta['name']} starts before {missing} has succeeded")

    def _has_succeeded(self, job: Raw) -> bool:
        """Return whether the run has succeeded: an abort comes too late then."""
        reports = shards.reports_of(self.world, job["metadata"]["uid"])
        phases = {(report.get("status") or {}).get("phase") for report in reports}
        return is_true(job, "Complete") or "Succeeded" in phases

    def lacking_predecessors(self, job: Raw) -> list[str]:
        """Return the Jobs that a raw Job waits for and that have not succeeded."""
        namespace = job["metadata"]["namespace"]
        return [
            name
            for name in job["spec"].get("after") or ()
            if (namespace, name) not in self.succeeded and not self._is_reported(namespace, name)
        ]

    def open_predecessors(self, job: Raw) -> list[str]:
        """Return the Jobs that a raw Job waits for now: one may have more to do since it was done.

        A Job of policy Continuous has, if it is changed or a node joins.
        """
        living = self._living(job["metadata"]["namespace"])
        lacking = self.lacking_predecessors(job)
        return [
            name
            for name in job["spec"].get("after") or ()
            if name in lacking or (name in living and not is_true(living[name], "Complete"))
        ]

    def _living(self, namespace: str) -> dict[str, Raw]:
        """Return the raw Jobs of a namespace by their names."""
        return {
            job["metadata"]["name"]: job
            for job in self.world.server.all(JOBS)
            if job["metadata"]["namespace"] == namespace
        }

    def _is_reported(self, namespace: str, name: str) -> bool:
        """Return whether the newest report of a Job that is gone says that its run succeeded."""
        if name in self._living(namespace):
            return False
        reports = [
            report
            for report in self.world.server.all(REPORTS)
            if report["metadata"]["namespace"] == namespace
            and report["spec"]["job"]["name"] == name
            and not report["spec"].get("shard")
        ]
        born = self.oracle.born
        newest = max(reports, key=lambda each: born[each["metadata"]["uid"]], default=None)
        return newest is not None and (newest.get("status") or {}).get("phase") == "Succeeded"

    # --- gates -------------------------------------------------------------------------------

    def judge_gate(self, pod: Raw) -> None:
        """Judge the removal of a pod's gate by the controller."""
        uid = self.oracle.job_of.get(pod["metadata"]["uid"], "")
        decision = self.gates_decided.get(uid)
        if decision is None:
            return
        node = pod["spec"]["meant_for"]
        if self._is_stopped(decision.stop_until):
            self.oracle.violate("held", f"{node} may start while all Jobs are stopped")
        if self.aborts.get(uid, 1e9) < decision.jobs_until:
            self.oracle.violate("held", f"{node} may start after the abort")
        if self.failures.get(uid, 1e9) < decision.jobs_until and not self._is_tried_again(uid):
            self.oracle.violate("held", f"{node} may start after the run has failed")
        specs = self.oracle.completion.known(uid, decision.jobs_until)
        if specs and all(spec.get("suspend") for spec in specs):
            self.oracle.violate("held", f"{node} may start while the Job is suspended")
        machine = self.world.machines.get(node)
        has_begun = machine is not None and machine.attempts[self.world.plan_of(pod).key] > 0
        windows = [(spec.get("rollout") or {}).get("window") for spec in specs]
        if windows and not has_begun and not any(_is_open(each, decision.at) for each in windows):
            self.oracle.violate("held", f"{node} may start outside the window")

    def _is_tried_again(self, uid: str) -> bool:
        """Return whether a retry is requested that the status of the Job does not have yet."""
        job = self.oracle.job(uid)
        if job is None:
            return False
        asked = (job["metadata"].get("annotations") or {}).get(names.ANNOTATION_RETRY, "")
        return bool(asked != (job.get("status") or {}).get("observedRetry", ""))

    def _is_stopped(self, until: float) -> bool:
        known = [is_stopped for at, is_stopped in self.stops if at < until]
        return bool(known) and known[-1]

    def judge_step(self, job: Raw, node: str, finished: Sequence[int]) -> None:
        """Judge the first start of a node after the last one of these steps, counted from 1.

        Only the first of them has nodes of its own. If that is approved, no other one has to be.
        """
        uid, steps = job["metadata"]["uid"], job["spec"]["rollout"].get("steps") or ()
        for number in finished:
            is_needed = steps[number - 1].get("approval") == "Required"
            if is_needed and self.approvals[uid] < finished[0]:
                self.oracle.violate("held", f"{node} starts before step {number} is approved")

    # --- exclusive keys ----------------------------------------------------------------------

    def judge_start(self, run: PodRun) -> None:
        """Judge that no task of another Job with the same key is at work on the node."""
        key = _key(run.plan.spec)
        own_uid = self.oracle.job_of.get(run.pod_uid, "")
        if not key or run.is_forged or self._is_done(run, own_uid):
            return
        for other in run.machine.pods.values():
            job_uid = self.oracle.job_of.get(other.pod_uid, "")
            is_other = job_uid not in {own_uid, ""} and other.namespace == run.namespace
            if not is_other or _key(other.plan.spec) != key or not other.is_at_work:
                continue
            if self._is_done(other, job_uid) or other.is_forged:
                continue
            if other.pod() is None:
                self.oracle.excuse("exclusive", "killed late")
                continue
            words = f"{run.plan.name} starts on {run.machine.name} beside {other.plan.name}"
            self.oracle.violate("exclusive", words)

    def is_in_use(self, machine: Machine, job: Raw) -> bool:
        """Return whether another Job with the key of a raw Job is at work on a machine."""
        key, meta = _key(job["spec"]), job["metadata"]
        return bool(key) and any(
            (job_uid := self.oracle.job_of.get(other.pod_uid, "")) not in {meta["uid"], ""}
            and other.namespace == meta["namespace"]
            and _key(other.plan.spec) == key
            and not other.is_over
            and not self._is_done(other, job_uid)
            for other in machine.pods.values()
        )

    def _is_done(self, run: PodRun, job_uid: str) -> bool:
        """Return whether this very pod has completed its node, whatever is due since.

        It has, too, if the node was registered again after that.
        """
        entered = self.oracle.evidence.entered_pods.get((job_uid, run.machine.name))
        return bool(entered == run.pod_uid)


def _key(spec: Raw) -> str:
    return str((spec.get("rollout") or {}).get("exclusive") or "")


def _is_open(window: Raw | None, moment: float) -> bool:
    """Return whether a window that opens each second minute for a minute is open; None always."""
    if window is None:
        return True
    assert (window["start"], window["duration"]) == ("*/2 * * * *", "1m")
    # The programs' clock has whole microseconds.
    return (EPOCH.minute + int(EPOCH.second + moment + 1e-6) // 60) % 2 == 0
