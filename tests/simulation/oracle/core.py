"""Receives everything that happens in a run, and has each invariant checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from tests.simulation.oracle import gates, shards
from tests.simulation.oracle.changed_steps import ChangedSteps
from tests.simulation.oracle.check_scripts import CheckScripts
from tests.simulation.oracle.chosen_steps import ChosenSteps
from tests.simulation.oracle.completed_count import CompletedCount
from tests.simulation.oracle.completion import Completion
from tests.simulation.oracle.conventions import status_faults
from tests.simulation.oracle.cordons import Cordons
from tests.simulation.oracle.corrections import Corrections
from tests.simulation.oracle.deadlines import Deadlines
from tests.simulation.oracle.demand import FOREVER, Due
from tests.simulation.oracle.demands import Demands
from tests.simulation.oracle.evictions import Evictions
from tests.simulation.oracle.evidence import Evidence
from tests.simulation.oracle.excluded_nodes import ExcludedNodes
from tests.simulation.oracle.facts import find_job, is_continuous, is_true
from tests.simulation.oracle.failure_rules import FailureRules
from tests.simulation.oracle.failures import Failures
from tests.simulation.oracle.holds import Holds
from tests.simulation.oracle.images_first import ImagesFirst
from tests.simulation.oracle.lifetime import Lifetime
from tests.simulation.oracle.node_changes import NodeChanges
from tests.simulation.oracle.pod_deletions import judge_pod_deletion
from tests.simulation.oracle.reboots import Reboots
from tests.simulation.oracle.record_history import judge_history
from tests.simulation.oracle.rollbacks import Rollbacks
from tests.simulation.oracle.schedules import Schedules
from tests.simulation.oracle.set_aside import judge_set_aside
from tests.simulation.oracle.started_nodes import StartedNodes
from tests.simulation.oracle.starts import Starts
from tests.simulation.oracle.step_nodes import StepNodes
from tests.simulation.oracle.timeouts import Timeouts
from tests.simulation.oracle.turn_specs import TurnSpecs
from tests.simulation.oracle.turns import Turns
from tests.simulation.schedule import JobPlan
from tests.simulation.server import (
    DAEMON_SETS,
    JOBS,
    NODES,
    PODS,
    REPORTS,
    Raw,
    Write,
    controller_of,
)

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.completion import View
    from tests.simulation.process import Process
    from tests.simulation.world import World

OURS = ("controller", "terminator")
# When an invariant did not hold, its name, and what is wrong.
Violation = tuple[float, str, str]


class Oracle:
    """Receives everything that happens; `violations`, and `excused` cases by name and reason."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stops_at: Container[str] = ()
        self._stop: Callable[[], object] = lambda: None
        self.violations: list[Violation] = []
        self.excused: Counter[str] = Counter()
        self.last_write_at = 0.0
        self.our_writes: Counter[str] = Counter()
        self.their_writes = 0
        # By UID: when an object was made in truth, the Job of a pod, the plan of a Job.
        self.born: dict[str, float] = {}
        self.job_of: dict[str, str] = {}
        self.plans: dict[str, JobPlan] = {}
        # By the UID of a Job that another one owns: that one.
        self.owners: dict[str, str] = {}
        self.deleted_by_us: dict[str, float] = {}
        # By UID of such a Job: the UIDs of the nodes that it was for when it was deleted.
        self.desired_at_deletion: dict[str, frozenset[str]] = {}
        # By UID of a Job: when the writer of what is written now last read its ledger afresh.
        self.ledger_read_at: dict[str, float] = {}
        self.started_nodes = StartedNodes(world, self)
        self.demands = Demands(world, self)
        self.completion = Completion(world, self)
        self.evidence = Evidence(world, self)
        self.failures = Failures(world, self)
        self.failure_rules = FailureRules(world, self)
        self.completed_count = CompletedCount(world, self)
        self.starts = Starts(world, self)
        self.turns = Turns(world, self)
        self.turn_specs = TurnSpecs(self)
        self.changed_steps = ChangedSteps(world, self)
        self.chosen_steps = ChosenSteps(world, self)
        self.check_scripts = CheckScripts(world, self)
        self.step_nodes = StepNodes(self)
        self.rollbacks = Rollbacks(world, self)
        self.images_first = ImagesFirst(world, self)
        self.timeouts = Timeouts(world, self)
        self.reboots = Reboots(world, self)
        self.deadlines = Deadlines(world, self)
        self.lifetime = Lifetime(world, self)
        self.holds = Holds(world, self)
        self.gates = gates.Gates(world)
        self.node_changes = NodeChanges(world, self)
        self.corrections = Corrections(world, self)
        self.cordons = Cordons(world, self)
        self.schedules = Schedules(world, self)
        self.evictions = Evictions(world, self)
        self.excluded_nodes = ExcludedNodes(world, self)

    def violate(self, invariant: str, words: str) -> None:
        self.violations.append((round(self._world.loop.moment, 3), invariant, words))
        self._world.note("ORACLE", f"VIOLATION {invariant}: {words}")
        if invariant in self._stops_at:
            self._stop()

    def stop_at(self, invariants: Container[str], stop: Callable[[], object]) -> None:
        """Call `stop` at each violation of these."""
        self._stops_at, self._stop = invariants, stop

    def excuse(self, invariant: str, reason: str) -> None:
        """Count a case in which an invariant does not hold, for a reason that it declares."""
        self.excused[f"{invariant}: {reason}"] += 1

    def _owner(self, pod: Raw) -> str:
        """Return the UID of the Job that a pod's owners lead to, "" for none."""
        for daemon_set in self._world.server.all(DAEMON_SETS):
            if daemon_set["metadata"]["uid"] == controller_of(pod):
                return controller_of(daemon_set)
        return ""

    # --- writes --------------------------------------------------------------------------

    def written(self, write: Write) -> None:
        """Judge a write that changed something."""
        actor, plural, old, new = write.actor, write.plural, write.old, write.new
        self.last_write_at = self._world.loop.moment
        if actor in OURS:
            self.our_writes[actor] += 1
        else:
            self.their_writes += 1
        if old is None:
            self.born[write.raw["metadata"]["uid"]] = self._world.loop.moment
        self.schedules.written(write)
        self.excluded_nodes.written(write)
        if plural == JOBS and new is not None:
            self._job_written(old, new)
        elif plural == REPORTS and new is not None:
            self._report_written(old or {}, new)
        elif plural == DAEMON_SETS and old is None:
            self.gates.daemon_set_made(write.raw)
        elif plural == NODES and new is not None:
            self.timeouts.node_written(new)
            self.demands.node_written(old, new)
            self.node_changes.node_written(actor, old, new)
            self.cordons.node_written(actor, old, new)
            self.rollbacks.node_written(old, new)
            self.turns.node_written(old, new)
            self.completion.node_versions.written(new, self._world.loop.moment)
            self.turns.nodes_changed()
        elif plural == PODS:
            if old is None:
                self.job_of[write.raw["metadata"]["uid"]] = job_uid = self._owner(write.raw)
                self.demands.pod_made(write.raw, job_uid)
                self.starts.judge_pause(write.raw)
            self.gates.pod_written(write, self.ledger_read_at)
            self.timeouts.pod_written(old, new)
            if new is not None:
                self.rollbacks.pod_written(new, self.job_of.get(new["metadata"]["uid"], ""))

    def _job_written(self, old: Raw | None, new: Raw) -> None:
        self.completion.job_written(new)
        self.demands.job_written(old, new)
        self.holds.job_written(old, new)
        self.turns.job_written(old, new)
        self.changed_steps.job_written(old, new)
        self.chosen_steps.job_written(old, new)
        self.check_scripts.job_written(old, new)
        meta = new["metadata"]
        if old is None or old["spec"] != new["spec"]:
            self.turns.nodes_changed()
        if old is None:
            self.plans[meta["uid"]] = self._world.plan_of_job(new)
            if owner := controller_of(new):
                self.owners[meta["uid"]] = owner
            self.images_first.job_made(new)
            self.schedules.job_made(new)
            return
        self.corrections.job_written(old, new)
        self.deadlines.job_written(old, new)
        self.timeouts.job_written(old, new)
        self.reboots.job_written(new)
        self.lifetime.job_written(old, new)
        self.rollbacks.job_written(old, new)
        for words in status_faults(old, new, self._world.clock.stamp()):
            self.violate("conventions", words + self.timeouts.skews())
        self.completion.judge_end(old, new)
        self.failures.judge_end(old, new)
        self.node_changes.judge_end(old, new)
        self.completed_count.judge(old, new)

    def _report_written(self, old: Raw, new: Raw) -> None:
        if not old:
            self.completion.report_made(new)
        self.demands.report_written(old, new)
        self.evidence.judge(old, new)
        self.evictions.judge_report(old, new)
        self.failures.judge(old, new)
        self.failure_rules.judge(old, new)
        self.reboots.judge_report(new)
        judge_set_aside(self._world, old, new)
        self.turns.report_written(new)
        self.turn_specs.report_written(new)
        self.chosen_steps.report_written(new)
        self.changed_steps.report_written(old, new)
        self.started_nodes.judge_record(new)
        self.completion.judge_report(new)
        judge_history(self._world, self, old, new)
        for words in (
            *shards.evidence_faults(self._world, self.job_of, old, new),
            *shards.record_faults(self._world, self.job_of, old, new),
        ):
            self.violate("shards", words)

    def job_about(self, plural: str, raw: Raw) -> str:
        """Return the UID of the Job that an object belongs to, or is."""
        if plural == REPORTS:
            return str(raw["spec"]["job"]["uid"])
        if plural == PODS:
            return self.job_of.get(raw["metadata"]["uid"], "")
        return str(raw["metadata"]["uid"]) if plural == JOBS else controller_of(raw)

    # --- deletion ------------------------------------------------------------------------

    def before_delete(self, process: Process, plural: str, raw: Raw, view: View | None) -> None:
        """Judge the deletion of an object that is about to take effect."""
        if plural == PODS:
            judge_pod_deletion(self._world, raw)
        if plural == JOBS:
            self._judge_job_deletion(process, raw, view)

    def _judge_job_deletion(self, process: Process, job: Raw, view: View | None) -> None:
        uid = job["metadata"]["uid"]
        if controller_of(job) and process.name == "controller":
            self.schedules.judge_deletion(job)
            return  # a part of the run of another Job, which needs it no more
        if process.name != "terminator":
            self.violate("deletion", f"{process.name} deletes the Job")
        if is_continuous(job):
            self.violate("deletion", "a Job that has no end")
        self.lifetime.judge_deletion(job)
        self.rollbacks.judge_deletion(job)
        self.node_changes.judge_unchanged(job)
        if is_true(job, "Failed"):
            if "ttlSecondsAfterFinished" not in job["spec"]:
                self.violate("deletion", "a failed Job without a time to live")
            return
        self.completion.judge_deletion(job, view)
        desired = self.completion.desired(job)
        for report in shards.reports_of(self._world, uid):
            for node, entry in (report.get("evidence") or {}).items():
                is_desired = desired.get(node) == entry.get("nodeUID")
                self.evidence.results.note_deletion(
                    self.plans[uid], node, entry, is_desired=is_desired
                )
        self.completion.judge_left_report(job)
        self.deleted_by_us[uid] = self._world.loop.moment
        self.desired_at_deletion[uid] = frozenset(desired.values())

    # --- facts ---------------------------------------------------------------------------

    def job(self, uid: str) -> Raw | None:
        """Return the raw Job with that UID, None if it is gone."""
        return find_job(self._world.server, uid)

    def has_failed(self, job: Raw, node: str, node_uid: str, until: float = FOREVER) -> bool:
        """Return whether the node is recorded as failed (rightly: judged when written).

        For policy Continuous a failure counts only of what runs by the Jobs up to a moment.
        """
        uid = job["metadata"]["uid"]
        record = shards.node_states(self._world, uid).get(node) or {}
        pod = self.demands.pods.get(record.get("podUID") or "")
        if pod is not None and pod.image != self.demands.newest_image(uid, until):
            return False
        return record.get("state") == "Failed" and record.get("uid") == node_uid

    def daemon_set_of(self, job_uid: str) -> Raw | None:
        """Return the Job's DaemonSet, None if it has none."""
        for daemon_set in self._world.server.all(DAEMON_SETS):
            if controller_of(daemon_set) == job_uid:
                return daemon_set
        return None

    def is_entered(self, job_uid: str, node: str, node_uid: str) -> bool:
        """Return whether the completion of this node is in the ledger, and nothing is due since."""
        if job_uid not in self.demands.images:
            return self.evidence.entered.get((job_uid, node), ("",))[0] == node_uid
        return self.has_met(job_uid, node, node_uid, self.demands.due(job_uid, node, node_uid))

    def has_met(self, job_uid: str, node: str, node_uid: str, due: Due) -> bool:
        """Return whether the completion of this node is in the ledger, and of what is due."""
        entry = self.evidence.entered.get((job_uid, node))
        if entry is None or entry[0] != node_uid:
            return False
        return self.demands.meets(self.evidence.entered_pods.get((job_uid, node)), due)

    # --- tasks ---------------------------------------------------------------------------

    def task_starts(self, run: PodRun) -> None:
        """Receive an instance of a task that starts."""
        self.starts.task_starts(run)
        self.corrections.task_starts(run)
        self.turns.task_starts(run)
        self.rollbacks.task_starts(run)
        self.holds.judge_start(run)
        self.cordons.task_starts(run)
        self.images_first.task_starts(run)
        self.excluded_nodes.task_starts(run)

    def task_succeeds(self, run: PodRun) -> None:
        """Receive an instance that prints the token, or ends with 0 in mode Exit."""
        self.evidence.task_succeeds(run)
        self.rollbacks.task_succeeds(run)
        self.images_first.task_succeeds(run)
        self.check_scripts.task_succeeds(run)
        self.lifetime.task_succeeds(self.job_of.get(run.pod_uid, ""), run.machine.uid)
        self.failures.task_succeeds(run)
