"""Checks the end of a run, when nothing disturbs it any more and nothing changes.

The status has to be true: its counts are compared with the model's own nodes, ledger and
containers. The run has ended, or it waits and the condition Progressing names a true reason. A
completed Job is deleted, and its report exists, closed and complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_ROLLBACK
from tests.fakekube.node_lifecycle import taints_of
from tests.simulation import intent
from tests.simulation.oracle import due_again, sufficiency
from tests.simulation.oracle.ending_pods import ending_nodes, has_held_pull
from tests.simulation.oracle.facts import is_continuous, is_true, owned_by, rollout_of
from tests.simulation.oracle.failed_tasks import judge_failed_tasks
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states, reports_of, rest_faults
from tests.simulation.server import JOBS, NODES, PODS, REPORTS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "stuck",
        "A run that waits names a true reason, and each node that is not done is kept by something "
        "that the product cannot change. A Job with every node completed is deleted.",
        mutant="never_removes_gates",
        seed=3,
        excuses={
            "lost log": "The kubelet deleted the log of an attempt that had printed the token. The "
            "next attempts print nothing.",
        },
    ),
    Invariant(
        "counts",
        "The counts of the status are those of the model's own nodes, ledger and containers.",
        mutant="ignores_taints",
        seed=1191,
    ),
    Invariant(
        "observed",
        "observedGeneration of the status is the generation of the Job.",
        mutant="observes_first_generation_only",
        seed=3,
    ),
    Invariant(
        "former pod",
        "No pod of a deleted node stays in the way of the node that has its name now.",
        mutant="counts_pods_of_former_nodes",
        seed=50,
    ),
    Invariant(
        "ending pod",
        "If a pod cannot end because its machine is down, the Job says NodesUnreachable, and the "
        "node is unreachable, unless it has completed or failed.",
        mutant="reports_no_unreachable_node",
        seed=544,
    ),
    Invariant(
        "report",
        "The report of a Job that is gone is closed, and says how the run ended.",
        mutant="closes_no_reports",
        seed=0,
        excuses={
            "superseded": "A node joined after the end: the Job was deleted without it, and its "
            "report counts it. So may one that joined while the controller did not know yet that "
            "the Job was gone.",
        },
    ),
)

# Who is refused for good tries again within that time, or has given up.
REFUSED_LATELY_SECONDS = 100.0
CLOSED = {"Succeeded", "Failed", "Cancelled"}
# Of taints that Kubernetes sets for a condition of a node.
CONDITIONS = "node.kubernetes.io/"


def judge_final_state(world: World) -> None:
    """Check the invariants of the end state."""
    jobs = world.server.all(JOBS)
    is_refused = bool(world.refused_forever())
    living = {job["metadata"]["uid"] for job in jobs}
    for report in world.server.all(REPORTS):
        uid = report["spec"]["job"]["uid"]
        for node, entry in (report.get("evidence") or {}).items() if not is_refused else ():
            world.oracle.evidence.results.judge_whole(world.oracle.plans[uid], node, entry)
        if report["spec"].get("shard", 0) or is_refused:
            continue
        for words in rest_faults(world, uid):
            world.oracle.violate("shards", words)
        if uid not in living:
            _judge_closed(world, report)
    for job in jobs:
        _Rest(world, job).judge()
    if not is_refused:
        world.oracle.cordons.judge_rest()
    world.oracle.schedules.judge_rest()


def _judge_closed(world: World, report: Raw) -> None:
    violate = world.oracle.violate
    status, uid = report.get("status") or {}, report["spec"]["job"]["uid"]
    phase = status.get("phase")
    evidence = {node for shard in reports_of(world, uid) for node in shard.get("evidence") or ()}
    if phase not in CLOSED:
        violate("report", f"the Job is gone and its report says {phase}")
    if uid not in world.oracle.deleted_by_us:
        return
    states = node_states(world, uid)
    completed = {n for n, record in states.items() if record.get("state") == "Completed"}
    if lacking := completed - evidence:
        violate("report", f"completed without evidence: {sorted(lacking)}")
    nodes = status.get("nodes") or {}
    done = nodes.get("completed", 0) + nodes.get("failed", 0)
    least = sufficiency.required(world.oracle.completion.newest(uid), nodes.get("desired", 0))
    if phase == "Succeeded" and done != nodes.get("desired") and nodes.get("completed", 0) < least:
        joined = _joined_since(world, uid)
        if uid in world.oracle.completion.superseded or done + joined >= nodes.get("desired", 0):
            world.oracle.excuse("report", "superseded")
            return
        violate("report", f"the Job was deleted as completed, the report says {phase}, {nodes}")


def _joined_since(world: World, job_uid: str) -> int:
    """Return how many nodes have joined since we deleted a Job, or could be one of its nodes."""
    oracle, nodes = world.oracle, world.server.all(NODES)
    moment, before = oracle.deleted_by_us[job_uid], oracle.desired_at_deletion[job_uid]
    desired = intent.desired_nodes(oracle.completion.newest(job_uid), nodes, (), ())
    joined = {uid for node in nodes if oracle.born[uid := node["metadata"]["uid"]] > moment}
    return len(joined | (set(desired.values()) - before))


class _Rest:
    """The living Job at rest."""

    def __init__(self, world: World, job: Raw) -> None:
        self.world = world
        self.job = job
        self.uid = job["metadata"]["uid"]
        self.status = job.get("status") or {}
        self.daemon_set = world.oracle.daemon_set_of(self.uid)
        found = self.daemon_set
        self.desired = world.oracle.completion.desired(job)
        self.pods = owned_by(world.server, found) if found is not None else {}
        namespace = job["metadata"]["namespace"]
        report = world.server.get(REPORTS, self.status.get("report", ""), namespace) or {}
        self.report = report.get("status") or {}
        self.records = node_states(world, self.uid)
        self.is_continuous = is_continuous(job)

    def violate(self, invariant: str, words: str) -> None:
        why = self.world.oracle.completion.explain(self.uid, self.desired)
        why += self.world.cluster.explain(self.uid)
        self.world.oracle.violate(invariant, words + why)

    def judge(self) -> None:
        if "startTime" not in self.status:
            asked = ANNOTATION_ROLLBACK in (self.job["metadata"].get("annotations") or {})
            if not (self.job["spec"].get("suspend") or asked):
                self.judge_unstarted()
            return
        has_ended = is_true(self.job, "Complete") or is_true(self.job, "Failed")
        if refused := self.world.refused_forever():
            self.judge_refused(refused, has_ended=has_ended)
            return
        judge_failed_tasks(self.world, self.job, self.pods, self.records)
        self.world.oracle.failure_rules.judge_rest(self.job, self.records)
        self.world.oracle.chosen_steps.judge_rest(self.job)
        generation = self.job["metadata"]["generation"]
        if self.status.get("observedGeneration") != generation:
            self.violate("observed", f"generation {generation} is not on record")
        if self.is_in_the_way(has_ended):
            return
        truth = {node: self.state_of(node) for node in self.desired}
        due_again.judge_rest(self.world, self.job, self.desired, truth)
        truth |= self.judge_counts(truth)
        self.judge_end(truth, has_ended=has_ended)
        self.world.oracle.deadlines.judge_rest(self.job)
        self.world.oracle.rollbacks.judge_rest(self.job)
        # One that is away and has no pod keeps its Job for ten minutes.
        living = {
            node
            for node, state in truth.items()
            if state == "unreachable"
            or (node in self.pods and state not in {"completed", "failed"})
        }
        self.world.oracle.lifetime.judge_rest(self.job, is_at_work=has_ended and bool(living))
        if self.report.get("phase") != self.status.get("phase"):
            self.violate("report", f"{self.report.get('phase')}, Job {self.status.get('phase')}")

    def judge_end(self, truth: dict[str, str], *, has_ended: bool) -> None:
        """Judge what keeps nodes, and the Job; one that is rolled back is final, and is kept."""
        if "rollback" in self.status:
            return
        if is_true(self.job, "Complete"):
            self.judge_complete(truth)
        elif not has_ended:
            self.judge_reason(truth)
            self.judge_nodes(truth)

    def judge_unstarted(self) -> None:
        if refused := self.world.refused_forever():
            # A Job does not start while its DaemonSet is refused.
            own = [what for what in refused if what[1].endswith(" daemonsets")]
            self.judge_refused(own, has_ended=False)
        elif not self.waits_to_start():
            self.violate("stuck", "the run was never started")

    def judge_complete(self, truth: Raw) -> None:
        # One that failed and left the selection keeps its Job for people to look at.
        has_failed = any(record.get("state") == "Failed" for record in self.records.values())
        is_done = all(state == "completed" for state in truth.values())
        is_kept = "ownerReferences" in self.job["metadata"]  # it is deleted with its owner
        if truth and is_done and not (has_failed or self.is_continuous or is_kept):
            self.violate("stuck", "every node completed, and the Job is still there")
        if "successPolicy" not in self.job["spec"]:
            # Else some do not start any more: whether rightly so was judged at the end of the run.
            self.judge_nodes(truth)

    def waits_to_start(self) -> bool:
        """Whether the Job names what keeps it from its start, and that is so."""
        holds = self.world.oracle.holds
        conditions = {c["type"]: c for c in self.status.get("conditions") or ()}
        reason = conditions.get("Progressing", {}).get("reason")
        if self.uid in holds.aborts:
            return bool(reason == "Aborted")
        return reason == "WaitingForJob" and bool(holds.open_predecessors(self.job))

    def judge_refused(self, refused: list[tuple[str, str]], *, has_ended: bool) -> None:
        """A write of the controller that is refused for good keeps the run: the Job must say so.

        Unless what is refused as well is to say it, whatever else the writes in question are.
        """
        if has_ended or ("controller", "patch status jobs") in self.world.refused_forever():
            return
        now = self.world.loop.moment
        conditions = {c["type"]: c for c in self.status.get("conditions") or ()}
        progressing = conditions.get("Progressing", {})
        for who, what in refused:
            verb, _, plural = what.rpartition(" ")
            last = self.world.refused_last
            hit = max(last.get((who, what, uid), -1e9) for uid in (self.uid, ""))
            is_about_it = who == "controller" and plural not in {"jobs", "scheduledjobs"}
            if not is_about_it or now - hit > REFUSED_LATELY_SECONDS:
                continue
            if progressing.get("status") != "False":
                reason = progressing.get("reason")
                words = f"{verb} {plural} is refused, and Progressing says {reason}"
                self.violate("not reported", words)

    def is_in_the_way(self, has_ended: bool) -> bool:
        """Whether something keeps nodes from being counted, and have it judged by itself."""
        if former := sorted(node for node in self.desired if self.has_former_pod(node)):
            self.violate("former pod", f"{former}: the pod of a deleted node is in the way")
            return True
        if ending := ending_nodes(self.world, self.job):
            reasons = {c["reason"] for c in self.status["conditions"]}
            if not has_ended and "NodesUnreachable" not in reasons:
                words = f"{ending}: down, the pod there cannot end: {sorted(reasons)}"
                done = sum(self.is_entered(node) for node in self.desired)
                if (self.status.get("nodes") or {}).get("completed", 0) > done:
                    words += ", and completed nodes are counted that are not desired"
                self.violate("ending pod", words)
            is_suspended = self.job["spec"].get("suspend")
            if not has_ended and not is_suspended and (missed := self.uncalled(ending)):
                self.violate("ending pod", f"down, and not called unreachable: {missed}")
            return True
        if kept_out := sorted(node for node in self.desired if self.is_kept_out(node)):
            self.violate("stuck", f"no shard has room for {kept_out}")
        return bool(kept_out)

    def uncalled(self, ending: Iterable[str]) -> dict[str, str]:
        """Return the state of each of the nodes that is to be unreachable and is not called so.

        A taint that an administrator chose takes a node out of the count. The pod of a former node
        of that name says nothing of it.
        """
        found = {}
        for name in ending:
            node = self.world.server.get(NODES, name, "") or {}
            state = (self.records.get(name) or {}).get("state", "")
            is_chosen = any(not taint["key"].startswith(CONDITIONS) for taint in taints_of(node))
            is_out = is_chosen or not self.has_own_pod(node)
            if not is_out and state not in {"Unreachable", "Completed", "Failed"}:
                found[name] = state
        return found

    def has_own_pod(self, node: Raw) -> bool:
        """Whether a pod of the Job on the node seems no older than that, by the API server."""
        daemon_set, meta = self.world.oracle.daemon_set_of(self.uid), node.get("metadata") or {}
        return daemon_set is not None and any(
            pod["metadata"]["creationTimestamp"] >= meta["creationTimestamp"]
            for pod in self.world.server.all(PODS)
            if controller_of(pod) == daemon_set["metadata"]["uid"]
            and pod["spec"].get("nodeName") == meta["name"]
        )

    def has_former_pod(self, node: str) -> bool:
        """Whether the pod was made for a node of this name that is no more."""
        raw, pod = self.world.server.get(NODES, node, ""), self.pods.get(node)
        if pod is None or raw is None:
            return False
        born = self.world.oracle.born
        # API times are whole seconds, of two servers' clocks.
        skew = self.world.server.skew
        ahead = max(skew("daemonset-controller") - skew("kubelet"), 0.0)
        return born[pod["metadata"]["uid"]] < born[raw["metadata"]["uid"]] - 4.0 - ahead

    def is_kept_out(self, node: str) -> bool:
        """Whether a node's task has ended well or refused, and there is no shard to enter it in."""
        run, oracle = self.run_of(node), self.world.oracle
        if run is None or not {(run.pod_uid, run.instance)} & (
            oracle.failures.printed | oracle.failures.refused
        ):
            return False
        ledgers = [report.get("evidence") or {} for report in reports_of(self.world, self.uid)]
        is_full = all(len(ledger) >= self.world.schedule.shard_nodes for ledger in ledgers)
        return is_full and not any(node in ledger for ledger in ledgers)

    # --- counts --------------------------------------------------------------------------

    def state_of(self, node: str) -> str:
        """Return the true state of a desired node."""
        world = self.world
        record, node_uid = self.records.get(node) or {}, self.desired[node]
        if self.is_entered(node) and not due_again.is_followed(
            world, self.uid, node, node_uid, record
        ):
            return "completed"
        if self.world.oracle.has_failed(self.job, node, self.desired[node]):
            return "failed"  # whether rightly so was judged when it was written
        machine = world.machines[node]
        if not machine.is_up or self.is_held(node):
            return "unreachable"
        run = self.run_of(node)
        if run is None or not run.logs or self.is_of_earlier_try(run):
            return "waiting"
        instances = {(run.pod_uid, run.instance)}
        if not run.plan.is_exit:
            # The kubelet keeps the log of one instance before the current one. guarantees.md: in
            # mode Exit, an end that a reboot has hidden counts for nothing.
            instances.add((run.pod_uid, run.instance - 1))
        # A pod that a machine before this one has run has not proved anything about this one.
        tokens = world.oracle.evidence.tokens.get((node, self.desired[node]), ())
        proofs = instances & world.oracle.failures.printed if self.uid in tokens else set()
        if proofs & world.oracle.failures.lost.keys():
            world.oracle.excuse("stuck", "lost log")
        elif proofs:
            self.violate("stuck", f"{node} has succeeded and is not in the ledger")
        return "active"

    def is_of_earlier_try(self, run: PodRun) -> bool:
        """Whether the node of a pod is due again since that was let start."""
        demands, node = self.world.oracle.demands, run.machine
        if self.uid not in demands.images:
            return False
        due = demands.due(self.uid, node.name, node.uid)
        if not demands.meets(run.pod_uid, due):
            return True
        listed = (self.records.get(node.name) or {}).get("earlierPods") or ()
        return run.pod_uid in listed and demands.may_be_earlier(self.uid, run.pod_uid)

    def is_held(self, node: str) -> bool:
        """Whether the node's condition keeps off a pod that is yet to come, or to be scheduled."""
        raw, pod = self.world.server.get(NODES, node, ""), self.pods.get(node)
        is_bound = pod is not None and bool(pod["spec"].get("nodeName"))
        return not is_bound and raw is not None and intent.is_held(self.job["spec"], raw)

    def is_entered(self, node: str) -> bool:
        return self.world.oracle.is_entered(self.uid, node, self.desired[node])

    def run_of(self, node: str) -> PodRun | None:
        pod = self.pods.get(node)
        machine = self.world.machines[node]
        return machine.pods.get(pod["metadata"]["uid"]) if pod is not None else None

    def judge_counts(self, truth: dict[str, str]) -> dict[str, str]:
        """Judge the counts; return the nodes that count as completed and are no longer chosen."""
        if is_true(self.job, "Failed") and self.daemon_set is None:
            return {}  # its pods were not to be kept: the status is that of its end
        unselected = self.world.oracle.completion.completed_unselected(self.job)
        right = [truth | dict.fromkeys(names, "completed") for names in unselected]
        shown = self.status.get("nodes") or {}
        states = ("waiting", "active", "completed", "failed", "unreachable")
        counts = [
            {s: sum(v == s for v in each.values()) for s in states} | {"desired": len(each)}
            for each in right
        ]
        found = {key: shown.get(key, 0) for key in counts[0]}
        if found not in counts:
            self.violate("counts", f"the status says {found}, true {counts[0]} ({right[0]})")
        summary = self.report.get("nodes") or {}
        if summary != shown:
            self.violate("counts", f"the report says {summary}, the Job {shown}")
        fitting = [each for each, count in zip(unselected, counts, strict=True) if count == found]
        # Sets of as many nodes have the same counts: the records say which of them is meant.
        left = min(fitting or unselected[:1], key=lambda names: len(self.uncompleted(names)))
        for node in self.uncompleted(left):
            words = f"{node} completed and left, the report says {self.records.get(node)}"
            self.violate("counts", words)
        return truth | dict.fromkeys(left, "completed")

    def uncompleted(self, names: Iterable[str]) -> list[str]:
        """Return the nodes that are not recorded as completed."""
        states = {node: (self.records.get(node) or {}).get("state") for node in names}
        return sorted(node for node, state in states.items() if state != "Completed")

    # --- reasons -------------------------------------------------------------------------

    def judge_reason(self, truth: Raw) -> None:
        """The reason that the status names must be so."""
        progressing = next(c for c in self.status["conditions"] if c["type"] == "Progressing")
        reason = progressing["reason"]
        open_ = {node for node, state in truth.items() if state not in {"completed", "failed"}}
        is_paused = is_true(self.job, "Suspended")
        backing = {
            "NodesActive": any(self.is_at_work(node) for node in open_),
            "NodesUnreachable": any(truth[node] == "unreachable" for node in open_),
            "TaskFailing": any(self.is_failing(node) for node in open_),
            "NoMatchingNodes": not truth,
            "Paused": is_paused,
            "PullingImages": has_held_pull(self.world, self.job),
            "NodeInUse": any(self.is_in_use(node) for node in open_),
            "NodesFailed": self.is_continuous and "failed" in truth.values() and not open_,
        }
        if not backing.get(reason, False):
            self.violate("stuck", f"waits for {reason}, which is not so: {truth}")

    def waits_for_turn(self, node: str, truth: Raw) -> bool:
        """Whether the node waits for its turn: in the rollout of the Job others are at work."""
        others = (name for name in truth if name != node and truth[name] != "completed")
        return rollout_of(self.job) is not None and any(
            truth[name] == "unreachable"
            or self.is_at_work(name)
            or self.is_failing(name)
            or self.is_in_use(name)
            for name in others
        )

    def is_in_use(self, node: str) -> bool:
        """Whether another Job has the node: with the same key, or because it has cordoned it."""
        machine = self.world.machines.get(node)
        if self.world.oracle.cordons.is_of_another_job(node, self.job):
            return True
        return machine is not None and self.world.oracle.holds.is_in_use(machine, self.job)

    def judge_nodes(self, truth: Raw) -> None:
        """Each node that has not come to its end must have something that keeps it."""
        is_paused = is_true(self.job, "Suspended") or self.job["spec"].get("suspend")
        for node in sorted(n for n, state in truth.items() if state not in {"completed", "failed"}):
            if not (
                truth[node] == "unreachable"
                or self.is_at_work(node)
                or self.is_failing(node)
                or (is_paused and truth[node] == "waiting")
                or (truth[node] == "waiting" and has_held_pull(self.world, self.job))
                or self.waits_for_turn(node, truth)
                or self.is_in_use(node)
            ):
                self.violate("stuck", f"{node} is {truth[node]} and nothing keeps it")

    def is_at_work(self, node: str) -> bool:
        run = self.run_of(node)
        return run is not None and "running" in run.state and run.is_at_work_for_ever

    def is_failing(self, node: str) -> bool:
        run = self.run_of(node)
        rules = self.job["spec"].get("failurePolicy", {}).get("rules") or ()
        ignores = any(rule["action"] == "Ignore" for rule in rules)
        if run is None or run.instance == 0:
            return False
        # Its new instance may still come to an end, as far as anybody knows.
        return run.is_at_work_for_ever or (ignores and not run.task.is_good)
