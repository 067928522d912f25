"""Deliberate defects of the product, each of which the simulation must detect.

Each is a context manager that breaks the code under test in one place while its block runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import AsyncMock, patch

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport
from daemonset_job.api.states import NodeState
from daemonset_job.api.times import whole_seconds
from daemonset_job.kube.client.resource import JOBS, Resource
from job_controller.actions.pods import PodActions
from job_controller.core import daemon_set_actions, taken_back_start
from job_controller.core import decide as decision
from job_controller.core.plan import Plan, RemoveSchedulingGates, WriteStatus
from job_controller.core.render import job_status as status
from job_controller.core.rollout import places, rollout_state, set_aside
from job_controller.core.rollout.rollout_state import RolloutState
from job_controller.core.rollout.turns import Limits
from job_controller.core.state import counting as tally
from job_controller.core.state import node_state as judge
from job_controller.core.state import run_state
from job_controller.core.state.absence import Absence
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.node_exits import task_failure
from job_controller.core.state.node_state import NodeAssessment
from job_controller.core.state.run_state import RunOutcome, RunState
from job_controller.core.state.snapshot import Snapshot, merge_evidence
from terminator import deletion_decision, node_count
from terminator import reconciler as terminator
from terminator.caches import Caches
from terminator.ledger import report_patches, writer
from terminator.ledger.assignment import build_patch
from terminator.ledger.evidence import log_evidence
from terminator.ledger.report_patches import ReportPatches
from terminator.ledger.run_buffer import RunBuffer
from terminator.logs import findings, read_policy
from terminator.logs.findings import Findings
from tests.simulation.client import Client
from tests.simulation.cordon_mutants import CORDON_MUTANTS
from tests.simulation.hold_mutants import HOLD_MUTANTS
from tests.simulation.node_mutants import NODE_MUTANTS
from tests.simulation.process import Decide
from tests.simulation.record_mutants import RECORD_MUTANTS, Mutant
from tests.simulation.rollback_mutants import ROLLBACK_MUTANTS
from tests.simulation.schedule_mutants import SCHEDULE_MUTANTS
from tests.simulation.server import Raw
from tests.simulation.start_mutants import START_MUTANTS

# What fails a node, if anything does, and when to look again.
NodeFailure = tuple[NodeRecord | None, datetime | None]
# A defect of `decide` as a whole, which the caller passes to `simulate`.
DECIDE: dict[str, Decide] = {}
_LEDGER: dict[str, Evidence] = {}


@contextmanager
def removes_gates_of_completed_nodes() -> Iterator[None]:
    """Gates are removed for completed nodes too, whatever the ledger says."""

    def due(
        snapshot: Snapshot, tally_: NodeCounts, run: RunState, rollout: RolloutState
    ) -> tuple[Pod, ...]:
        return tuple(n.pod for n in tally_.nodes.values() if n.pod.is_gated)

    def unread(self: PodActions, job: Job, reports: Sequence[JobReport]) -> dict[str, str]:
        return {}

    with (
        patch.object(decision, "pods_with_removable_gate", due),
        patch.object(PodActions, "_completed_nodes", unread),
    ):
        yield


@contextmanager
def removes_gates_by_cached_ledger() -> Iterator[None]:
    """Gates are removed on the cached ledger, without reading it afresh."""

    def unread(self: PodActions, job: Job, reports: Sequence[JobReport]) -> dict[str, str]:
        return {}

    with patch.object(PodActions, "_completed_nodes", unread):
        yield


@contextmanager
def completes_early() -> Iterator[None]:
    """The run is complete when one node is still at work."""
    real = run_state.evaluate_run

    def evaluate_run(snapshot: Snapshot, tally_: NodeCounts, now: datetime) -> RunState:
        if tally_.is_exact and len(tally_.names(NodeState.COMPLETED)) >= max(tally_.desired - 1, 1):
            return RunState(RunOutcome.SUCCEEDED, "AllNodesCompleted", "nearly")
        return real(snapshot, tally_, now)

    with patch.object(decision, "evaluate_run", evaluate_run):
        yield


@contextmanager
def never_adds_gates() -> Iterator[None]:
    """The gate never goes up."""
    with patch.object(daemon_set_actions, "should_gate_new_pods", lambda *_: False):
        yield


@contextmanager
def counts_by_name() -> Iterator[None]:
    """Both counts know nodes by name: a new node of an old name has the old one's evidence."""
    real = judge.assess_node

    def blind(context: RunContext, inputs: NodeInputs) -> NodeAssessment:
        ledger_ = _LEDGER.get(inputs.node.name)
        return real(context, replace(inputs, evidence=ledger_ or inputs.evidence))

    real_take = tally.count_nodes

    def take(snapshot: Snapshot, now: datetime) -> NodeCounts:
        _LEDGER.clear()
        _LEDGER.update(merge_evidence(snapshot))
        return real_take(snapshot, now)

    def is_completed(name: str, snapshot: node_count.Snapshot) -> bool:
        entry = snapshot.ledger.get(name)
        return entry is not None and entry.is_completed

    with (
        patch.object(tally, "assess_node", blind),
        patch.object(decision, "count_nodes", take),
        patch.object(node_count, "_is_completed", is_completed),
    ):
        yield
    _LEDGER.clear()


@contextmanager
def judges_exits_at_once() -> Iterator[None]:
    """A task that ends is judged by its exit at once, and at its first."""

    def failure(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> NodeFailure:
        container = inputs.pod.container
        if container is not None and container.state == "terminated":
            return replace(
                record, state=NodeState.FAILED, reason="FailurePolicyRule", message="too early"
            ), None
        return None, None

    with patch.object(judge, "task_failure", failure):
        yield


@contextmanager
def changes_every_transition_time() -> Iterator[None]:
    """lastTransitionTime moves with every write, and there is always something to write."""
    real = status.set_conditions

    def restless(job: Job, changes: Sequence[Condition], now: datetime) -> tuple[Condition, ...]:
        found = real(job, changes, now)
        return tuple(replace(c, last_transition_time=whole_seconds(now)) for c in found)

    with patch.object(status, "set_conditions", restless):
        yield


@contextmanager
def writes_unchanged_status() -> Iterator[None]:
    """Every pass writes the status, changed or not."""
    real = decision.decide

    def decide(snapshot: Snapshot, now: datetime) -> Plan:
        plan = real(snapshot, now)
        if any(isinstance(action, WriteStatus) for action in plan.actions):
            return plan
        return replace(plan, actions=(*plan.actions, WriteStatus(snapshot.job.status)))

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def drops_unwritten_evidence() -> Iterator[None]:
    """What could not be written is forgotten."""
    real = ReportPatches.write

    async def write(
        self: ReportPatches,
        buffer: RunBuffer,
        report: JobReport,
        entries: Mapping[str, Evidence],
    ) -> None:
        try:
            await real(self, buffer, report, entries)
        finally:
            for node in entries:
                buffer.pending.pop(node, None)

    with patch.object(ReportPatches, "write", write):
        yield


@contextmanager
def counts_pods_by_label() -> Iterator[None]:
    """Pods count by their labels: a forged one's token is taken for its node's."""

    def owned(job: Job, daemon_set: DaemonSet | None, pods: Iterable[Pod]) -> list[Pod]:
        return list(pods)

    def pods_of(self: Caches, daemon_set: DaemonSet) -> Iterable[Pod]:
        return self._pods.store.values()

    with (
        patch.object(terminator, "owned_pods", owned),
        patch.object(Caches, "pods_of", pods_of),
    ):
        yield


@contextmanager
def sets_no_timers() -> Iterator[None]:
    """Nothing is looked at again because time has passed."""
    real = decision.decide

    def decide(snapshot: Snapshot, now: datetime) -> Plan:
        return replace(real(snapshot, now), requeue_after=None)

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def reads_no_previous_log() -> Iterator[None]:
    """The log of the instance before a restart is never read."""
    real = read_policy.LogReadState._step_running

    def step(self: read_policy.LogReadState, now: float) -> read_policy.Step:
        self._previous_read = self._instance
        return real(self, now)

    with patch.object(read_policy.LogReadState, "_step_running", step):
        yield


@contextmanager
def never_removes_gates() -> Iterator[None]:
    """No gate is ever removed."""
    real = decision.decide

    def decide(snapshot: Snapshot, now: datetime) -> Plan:
        plan = real(snapshot, now)
        actions = tuple(a for a in plan.actions if not isinstance(a, RemoveSchedulingGates))
        return replace(plan, actions=actions)

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def completes_at_any_exit_code() -> Iterator[None]:
    """In mode Exit a task that has ended completes its node, whatever its exit code."""

    def has_ended(pod: Pod) -> bool:
        return pod.container is not None and pod.container.state == "terminated"

    with patch.object(terminator, "has_succeeded", has_ended):
        yield


@contextmanager
def records_results_of_first_node() -> Iterator[None]:
    """All nodes that are entered together get the results of the first of them."""
    real = build_patch

    def mixed(report: JobReport, entries: Mapping[str, Evidence]) -> Raw:
        results = entries[min(entries)].results
        return real(report, {n: replace(e, results=results) for n, e in entries.items()})

    with patch.object(report_patches, "build_patch", mixed):
        yield


@contextmanager
def records_no_results() -> Iterator[None]:
    """A node's results are left behind when it is entered."""
    real = log_evidence

    def without(pod: Pod, *about: Any, **how: Any) -> Evidence | None:
        evidence = real(pod, *about, **how)
        return replace(evidence, results={}) if evidence is not None else None

    with patch.object(terminator, "log_evidence", without):
        yield


@contextmanager
def keeps_results_after_gaps() -> Iterator[None]:
    """A result is kept though lines that were printed after it were not seen."""

    def keep(self: Findings, timestamp: str) -> None:
        pass

    with (
        patch.object(findings.Findings, "drop_results_before", keep),
        patch.object(findings.Findings, "drop_results_up_to", keep),
    ):
        yield


@contextmanager
def keeps_findings_of_earlier_attempts() -> Iterator[None]:
    """What a start of the task has printed counts for the next one too."""
    real = read_policy.LogReadState._new_instance

    def new_instance(self: read_policy.LogReadState, restart_count: int) -> None:
        real(self, restart_count)
        self.log.findings.results.update(self.previous_log.findings.results)

    with patch.object(read_policy.LogReadState, "_new_instance", new_instance):
        yield


@contextmanager
def records_in_every_shard() -> Iterator[None]:
    """Evidence is entered in every shard that lacks it."""

    def assign_to_shards(
        pending: Mapping[str, Evidence], shards: Iterable[JobReport], *_rule: object, **_how: object
    ) -> dict[str, dict[str, Evidence]]:
        plans = {
            report.name: {n: e for n, e in pending.items() if n not in report.evidence}
            for report in shards
        }
        return {name: entries for name, entries in plans.items() if entries}

    with patch.object(writer, "assign_to_shards", assign_to_shards):
        yield


@contextmanager
def finds_daemon_set_by_name() -> Iterator[None]:
    """The DaemonSet of a Job is any of its name, whatever its namespace and owner."""

    def daemon_set_of(self: Caches, job: Job) -> DaemonSet | None:
        found = (d for d in self._daemon_sets.store if d.name == job.daemon_set_name)
        return next(found, None)

    def owned(job: Job, daemon_set: DaemonSet | None, pods: Iterable[Pod]) -> list[Pod]:
        return list(pods)

    with (
        patch.object(terminator, "owned_pods", owned),
        patch.object(Caches, "daemon_set_of", daemon_set_of),
    ):
        yield


@contextmanager
def ignores_failure_tokens() -> Iterator[None]:
    """A node that printed the failure token is given more time."""

    def failure(context: RunContext, record: NodeRecord, inputs: NodeInputs) -> NodeFailure:
        evidence = inputs.evidence
        if evidence is not None and evidence.failed_at:
            return None, None
        return real(context, record, inputs)

    real = task_failure
    with patch.object(judge, "task_failure", failure):
        yield


@contextmanager
def reports_pause_early() -> Iterator[None]:
    """A run is called paused as soon as it should be."""

    def take(snapshot: Snapshot, now: datetime) -> NodeCounts:
        return replace(real(snapshot, now), new_pods_are_gated=True)

    real = tally.count_nodes
    with patch.object(decision, "count_nodes", take):
        yield


@contextmanager
def ignores_deadlines() -> Iterator[None]:
    """A run never fails by its deadline."""
    with patch.object(run_state, "deadline", lambda *_: None):
        yield


@contextmanager
def ignores_ttl() -> Iterator[None]:
    """A Job that has ended goes at once, whatever its time to live."""
    at_once = deletion_decision.DeletionDecision()
    with patch.object(deletion_decision, "_decide_by_ttl", lambda *_: at_once):
        yield


@contextmanager
def observes_first_generation_only() -> Iterator[None]:
    """The status always says that the first spec was observed."""
    real = status.next_status

    def next_status(job: Job, *rest: Any, **words: Any) -> JobStatus:
        found = real(job, *rest, **words)
        return replace(found, observed_generation=job.status.observed_generation or 1)

    with patch.object(decision, "next_status", next_status):
        yield


@contextmanager
def ignores_nodes_without_pod() -> Iterator[None]:
    """A node whose pod has gone is desired only if the DaemonSet controller counts it."""
    with (
        patch.object(tally, "find_absence", lambda *_: Absence()),
        patch.object(node_count, "_nodes_without_pod", lambda *_: (frozenset(), "")),
    ):
        yield


@contextmanager
def deletes_without_version() -> Iterator[None]:
    """A Job's deletion names its UID alone, and not the version that was counted.

    A schedule of its own shows it, see test_simulation: drawn ones do so too rarely.
    """
    real = Client.delete

    async def delete(
        self: Client,
        resource: Resource,
        *where: str,
        resource_version: str | None = None,
        **how: Any,
    ) -> Raw:
        version = None if resource == JOBS else resource_version
        return await real(self, resource, *where, resource_version=version, **how)

    with patch.object(Client, "delete", delete):
        yield


@contextmanager
def gives_turns_to_all() -> Iterator[None]:
    """All nodes get their turn at once, whatever maxParallel says."""
    with patch.object(rollout_state, "find_limits", lambda *_: Limits()):
        yield


@contextmanager
def ignores_zones() -> Iterator[None]:
    """All nodes of a zone may be at work, whatever maxParallelPerZone says."""
    real = places.find_limits

    def find_limits(snapshot: Snapshot, counts: NodeCounts) -> Limits:
        return replace(real(snapshot, counts), by_zone=None)

    with patch.object(rollout_state, "find_limits", find_limits):
        yield


@contextmanager
def sets_reachable_nodes_aside() -> Iterator[None]:
    """Nodes whose task is at work are set aside as if they were unreachable."""

    def unreachable(tally_: NodeCounts) -> frozenset[str]:
        return frozenset(tally_.names(NodeState.UNREACHABLE) + tally_.names(NodeState.ACTIVE))

    with patch.object(set_aside, "_unreachable", unreachable):
        yield


@contextmanager
def takes_back_what_has_begun() -> Iterator[None]:
    """The start of a suspended run is taken back, whatever has begun."""
    with (
        patch.object(taken_back_start, "find_begun", lambda _snapshot: ""),
        patch.object(PodActions, "check_none_may_start", AsyncMock()),
    ):
        yield


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        removes_gates_of_completed_nodes,
        removes_gates_by_cached_ledger,
        reads_no_previous_log,
        completes_early,
        never_adds_gates,
        counts_by_name,
        judges_exits_at_once,
        changes_every_transition_time,
        writes_unchanged_status,
        drops_unwritten_evidence,
        counts_pods_by_label,
        sets_no_timers,
        never_removes_gates,
        completes_at_any_exit_code,
        records_results_of_first_node,
        records_no_results,
        keeps_results_after_gaps,
        keeps_findings_of_earlier_attempts,
        records_in_every_shard,
        finds_daemon_set_by_name,
        ignores_failure_tokens,
        reports_pause_early,
        ignores_deadlines,
        ignores_ttl,
        observes_first_generation_only,
        ignores_nodes_without_pod,
        gives_turns_to_all,
        ignores_zones,
        sets_reachable_nodes_aside,
        takes_back_what_has_begun,
        *CORDON_MUTANTS,
        *HOLD_MUTANTS,
        *START_MUTANTS,
        *NODE_MUTANTS,
        *RECORD_MUTANTS,
        *ROLLBACK_MUTANTS,
        *SCHEDULE_MUTANTS,
    )
}
