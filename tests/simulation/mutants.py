"""Deliberate defects of the product, each of which the simulation must detect.

Each is a context manager that breaks the code under test in one place while its block runs.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from daemonset_job.api.states import NodeState
from daemonset_job.kube.client.resource import JOBS
from job_controller import sightings as sighting_store
from job_controller.actions.pods import PodActions
from job_controller.core import decide as decision
from job_controller.core.plan import RemoveSchedulingGates, WriteStatus
from job_controller.core.render import job_status as status
from job_controller.core.settings import Timeouts
from job_controller.core.state import counting as tally
from job_controller.core.state import first_seen as sightings
from job_controller.core.state import node_observed as observed
from job_controller.core.state import node_state as judge
from job_controller.core.state import node_timeouts as timeouts
from job_controller.core.state import run_state as verdict
from job_controller.core.state.absence import Absence
from job_controller.core.state.causes import has_started
from job_controller.core.state.run_state import RunOutcome, RunState
from terminator import completion, node_count
from terminator import reconciler as terminator
from terminator.ledger import report_patches, writer
from terminator.logs import findings, read_policy
from tests.simulation.client import Client

# A defect of `decide` as a whole, for whoever runs the schedule to hand in.
DECIDE = {}
_LEDGER = {}


@contextmanager
def opens_completed():
    """Gates are opened for completed nodes too, whatever the ledger says."""

    def due(snapshot, tally_, run):
        return tuple(n.pod for n in tally_.nodes.values() if n.pod.is_gated)

    async def unread(self, job):
        return {}

    with (
        patch.object(decision, "pods_to_ungate", due),
        patch.object(PodActions, "_completed_nodes", unread),
    ):
        yield


@contextmanager
def trusts_the_cache():
    """Gates are opened on the cached ledger, without reading it afresh."""

    async def unread(self, job):
        return {}

    with patch.object(PodActions, "_completed_nodes", unread):
        yield


@contextmanager
def complete_early():
    """The run is complete when one node is still at work."""
    real = decision.evaluate_run

    def evaluate_run(snapshot, tally_, now):
        if tally_.is_exact and len(tally_.names(NodeState.COMPLETED)) >= max(tally_.desired - 1, 1):
            return RunState(RunOutcome.SUCCEEDED, "AllNodesCompleted", "nearly")
        return real(snapshot, tally_, now)

    with patch.object(decision, "evaluate_run", evaluate_run):
        yield


@contextmanager
def never_gates():
    """The gate never goes up."""
    with patch.object(decision, "should_gate_new_pods", lambda *_: False):
        yield


@contextmanager
def counts_by_name():
    """Both counts know nodes by name: a new node of an old name has the old one's evidence."""
    real = tally.assess_node

    def blind(context, inputs):
        ledger_ = _LEDGER.get(inputs.node.name)
        return real(context, replace(inputs, evidence=ledger_ or inputs.evidence))

    real_take = decision.count_nodes

    def take(snapshot, now):
        _LEDGER.clear()
        _LEDGER.update(tally.merge_evidence(snapshot))
        return real_take(snapshot, now)

    def is_completed(name, snapshot):
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
def no_grace():
    """A task that ends is judged by its exit at once, and at its first."""

    def failure(context, record, inputs):
        container = inputs.pod.container
        if container is not None and container.state == "terminated":
            return replace(
                record, state=NodeState.FAILED, reason="FailurePolicyRule", message="hasty"
            ), None
        return None, None

    with patch.object(judge, "task_failure", failure):
        yield


@contextmanager
def always_moves():
    """lastTransitionTime moves with every write, and there is always something to write."""
    real = status.set_conditions

    def restless(job, changes, now):
        found = real(job, changes, now)
        return tuple(replace(c, last_transition_time=status.whole_seconds(now)) for c in found)

    with patch.object(status, "set_conditions", restless):
        yield


@contextmanager
def writes_idly():
    """Every pass writes the status, changed or not."""
    real = decision.decide

    def decide(snapshot, now):
        plan = real(snapshot, now)
        if any(isinstance(action, WriteStatus) for action in plan.actions):
            return plan
        return replace(plan, actions=(*plan.actions, WriteStatus(snapshot.job.status)))

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def forgets_evidence():
    """What could not be written is forgotten."""
    real = report_patches.ReportPatches.write

    async def write(self, book, report, entries):
        try:
            await real(self, book, report, entries)
        finally:
            for node in entries:
                book.pending.pop(node, None)

    with patch.object(report_patches.ReportPatches, "write", write):
        yield


@contextmanager
def believes_labels():
    """Pods count by their labels: a forged one's token is taken for its node's."""

    def owned(job, daemon_set, pods):
        return list(pods)

    def pods_of(self, daemon_set):
        return self._pods.store.values()

    with (
        patch.object(terminator, "owned_pods", owned),
        patch.object(terminator.Caches, "pods_of", pods_of),
    ):
        yield


@contextmanager
def no_timers():
    """Nothing is looked at again because time has passed."""
    real = decision.decide

    def decide(snapshot, now):
        return replace(real(snapshot, now), requeue_after=None)

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def ignores_the_past():
    """The log of the instance before a restart is never read."""
    real = read_policy.LogReadState._step_running

    def step(self, now):
        self._previous_read = self._instance
        return real(self, now)

    with patch.object(read_policy.LogReadState, "_step_running", step):
        yield


@contextmanager
def never_opens():
    """No gate is ever opened."""
    real = decision.decide

    def decide(snapshot, now):
        plan = real(snapshot, now)
        actions = tuple(a for a in plan.actions if not isinstance(a, RemoveSchedulingGates))
        return replace(plan, actions=actions)

    with patch.dict(DECIDE, decide=decide):
        yield


@contextmanager
def exits_anyhow():
    """In mode Exit a task that has ended completes its node, whatever its exit code."""

    def has_ended(pod):
        return pod.container is not None and pod.container.state == "terminated"

    with patch.object(terminator, "has_succeeded", has_ended):
        yield


@contextmanager
def mixes_results():
    """All nodes that are entered together get the results of the first of them."""
    real = report_patches.build_patch

    def mixed(report, entries):
        results = entries[min(entries)].results
        return real(report, {n: replace(e, results=results) for n, e in entries.items()})

    with patch.object(report_patches, "build_patch", mixed):
        yield


@contextmanager
def forgets_results():
    """A node's results are left behind when it is entered."""
    real = terminator.log_evidence

    def without(pod, node_uid, found, lines):
        evidence = real(pod, node_uid, found, lines)
        return replace(evidence, results={}) if evidence is not None else None

    with patch.object(terminator, "log_evidence", without):
        yield


@contextmanager
def overlooks_gaps():
    """A result is kept though lines that were printed after it were not seen."""

    def keep(self, timestamp):
        pass

    with (
        patch.object(findings.Findings, "drop_results_before", keep),
        patch.object(findings.Findings, "drop_results_up_to", keep),
    ):
        yield


@contextmanager
def mixes_starts():
    """What a start of the task has printed is told of the next one too."""
    real = read_policy.LogReadState._new_instance

    def new_instance(self, restart_count):
        real(self, restart_count)
        self.log.findings.results.update(self.previous_log.findings.results)

    with patch.object(read_policy.LogReadState, "_new_instance", new_instance):
        yield


@contextmanager
def enters_twice():
    """Evidence is entered in every shard that lacks it."""

    def assign_to_shards(pending, shards, **_how):
        plans = {
            report.name: {n: e for n, e in pending.items() if n not in report.evidence}
            for report in shards
        }
        return {name: entries for name, entries in plans.items() if entries}

    with patch.object(writer, "assign_to_shards", assign_to_shards):
        yield


@contextmanager
def believes_names():
    """The DaemonSet of a Job is any of its name, whatever its namespace and owner."""

    def daemon_set_of(self, job):
        found = (d for d in self._daemon_sets.store if d.name == job.daemon_set_name)
        return next(found, None)

    def owned(job, daemon_set, pods):
        return list(pods)

    with (
        patch.object(terminator, "owned_pods", owned),
        patch.object(terminator.Caches, "daemon_set_of", daemon_set_of),
    ):
        yield


@contextmanager
def ignores_refusals():
    """A node that printed the failure token is given more time."""

    def failure(context, record, inputs):
        evidence = inputs.evidence
        if evidence is not None and evidence.failed_at:
            return None, None
        return real(context, record, inputs)

    real = judge.task_failure
    with patch.object(judge, "task_failure", failure):
        yield


@contextmanager
def pauses_early():
    """A run is called paused as soon as it should be."""

    def take(snapshot, now):
        return replace(real(snapshot, now), new_pods_are_gated=True)

    real = decision.count_nodes
    with patch.object(decision, "count_nodes", take):
        yield


@contextmanager
def ignores_deadlines():
    """A run never fails by its deadline."""
    with patch.object(verdict, "deadline", lambda *_: None):
        yield


@contextmanager
def ignores_lifetimes():
    """A Job that has ended goes at once, whatever its time to live."""
    with patch.object(completion, "_decide_by_ttl", lambda *_: completion.DeletionDecision()):
        yield


@contextmanager
def forgets_generations():
    """The status says for ever that the first spec was observed."""
    real = decision.next_status

    def next_status(job, *rest, **words):
        found = real(job, *rest, **words)
        return replace(found, observed_generation=job.status.observed_generation or 1)

    with patch.object(decision, "next_status", next_status):
        yield


@contextmanager
def never_gives_up():
    """A task that cannot be started is given all the time there is."""
    real = judge.timeout_failure

    def late(context, record, pod):
        return real(
            replace(context, timeouts=Timeouts(1e6, context.timeouts.unreachable_seconds)),
            record,
            pod,
        )

    with patch.object(judge, "timeout_failure", late):
        yield


@contextmanager
def forgets_the_absent():
    """A node whose pod has gone is wanted only if the DaemonSet controller counts it."""
    with (
        patch.object(tally, "find_absence", lambda *_: Absence()),
        patch.object(node_count, "_absent_nodes", lambda *_: (frozenset(), "")),
    ):
        yield


@contextmanager
def waits_for_restarts():
    """A task that has been started is started again, whatever its container waits for."""

    def is_start_pending(pod):
        return not has_started(pod)

    with (
        patch.object(observed, "is_start_pending", is_start_pending),
        patch.object(sightings, "is_start_pending", is_start_pending),
    ):
        yield


@contextmanager
def counts_slow_pulls():
    """What keeps a task from starting has done so from when its pod was silent."""
    real = sightings.update_sightings

    def look(before, *rest):
        after = real(before, *rest)
        for fact in [found for found in after if found.kind == sightings.BLOCKED]:
            silent = before.get(fact._replace(kind=sightings.UNEXPLAINED))
            if silent is not None and silent.first < after[fact].first:
                after[fact] = replace(after[fact], first=silent.first)
        return after

    with patch.object(sighting_store, "update_sightings", look):
        yield


@contextmanager
def _not_starting(adapt):
    """What keeps a task from starting is found with other arguments."""
    real = sightings.not_starting

    def not_starting(*about):
        return real(*adapt(*about))

    with (
        patch.object(timeouts, "not_starting", not_starting),
        patch.object(sightings, "not_starting", not_starting),
    ):
        yield


@contextmanager
def counts_absences():
    """The time counts in which a node is not Ready."""
    with _not_starting(lambda node, *rest: (replace(node, ready=True), *rest)):
        yield


@contextmanager
def counts_former_tries():
    """The time before a retry counts."""
    with _not_starting(lambda node, pod, _retry, seen: (node, pod, "", seen)):
        yield


@contextmanager
def pardons_rejections():
    """Rejections are forgotten with each pod that waits at its gate."""
    real = sightings.update_sightings

    def look(before, scene, now):
        gated = {pod.node_name for pod in scene.pods.values() if pod.is_gated}
        uids = {node.uid for name, node in scene.nodes.items() if name in gated}
        kept = {f: s for f, s in before.items() if f.kind != "rejected" or f.uid not in uids}
        return real(kept, scene, now)

    with patch.object(sighting_store, "update_sightings", look):
        yield


@contextmanager
def forgets_versions():
    """A Job's deletion names its UID alone, and not the version that was counted.

    A schedule of its own shows it, see test_simulation: drawn ones do so too rarely.
    """
    real = Client.delete

    async def delete(self, resource, *where, resource_version=None, **how):
        version = None if resource == JOBS else resource_version
        return await real(self, resource, *where, resource_version=version, **how)

    with patch.object(Client, "delete", delete):
        yield


MUTANTS = {
    mutant.__name__: mutant
    for mutant in (
        opens_completed,
        trusts_the_cache,
        ignores_the_past,
        complete_early,
        never_gates,
        counts_by_name,
        no_grace,
        always_moves,
        writes_idly,
        forgets_evidence,
        believes_labels,
        no_timers,
        never_opens,
        exits_anyhow,
        mixes_results,
        forgets_results,
        overlooks_gaps,
        mixes_starts,
        enters_twice,
        believes_names,
        ignores_refusals,
        pauses_early,
        ignores_deadlines,
        ignores_lifetimes,
        forgets_generations,
        never_gives_up,
        forgets_the_absent,
        waits_for_restarts,
        counts_slow_pulls,
        counts_absences,
        counts_former_tries,
        pardons_rejections,
    )
}
