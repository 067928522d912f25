"""The world of one run: its processes, its cluster, its disturbances, and the trace.

Lags are drawn from one stream of random numbers per name, all from the seed. So if one disturbance
is removed, most lags of the others stay the same.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random
from zlib import crc32

from daemonset_job.api.names import LABEL_JOB
from job_controller.core.decide import decide as real_decide
from tests.fakekube.conditions import condition, with_condition
from tests.fakekube.node_lifecycle import (
    NETWORK_TAINT,
    READY_KEYS,
    network_unavailable,
    ready,
    ready_status,
    ready_taints,
    replace_taints,
    taints_of,
)
from tests.simulation.cluster import ClusterModel
from tests.simulation.logs import Logs
from tests.simulation.loop import SimClock, VirtualLoop
from tests.simulation.machine import Machine
from tests.simulation.oracle import Oracle
from tests.simulation.process import ControllerProcess, Decide, Process, TerminatorProcess
from tests.simulation.schedule import TOPOLOGY_ZONE, JobPlan, Schedule, Task
from tests.simulation.server import DAEMON_SETS, NODES, PODS, Raw, Server, Write, controller_of
from tests.simulation.workloads import Workloads

# How often a lag is long, and how many times as long it is then.
ROUGH = 0.06
ROUGH_FACTOR = 12.0
FOREVER_SECONDS = 1e6
# A line of the trace: when, who, and what.
Step = tuple[float, str, str]


class World:
    """One run. `decide` is the core's, or a mutant of it."""

    def __init__(
        self,
        loop: VirtualLoop,
        schedule: Schedule,
        *,
        decide: Decide | None = None,
        is_tracing: bool = False,
    ) -> None:
        self.loop = loop
        self.schedule = schedule
        self.decide = decide or real_decide
        self.is_over = False
        self.clock = SimClock(loop)
        self.trace: list[Step] | None = [] if is_tracing else None
        # Objects as the programs parse them, by program, resource, version and UID.
        self.projections: dict[tuple[str, str, str, str], object] = {}
        # By the UID of a Job: when the controller last decided.
        self.decided_at: dict[str, float] = {}
        # By the UID of a Job: up to when it then knew all that had happened to Jobs.
        self.seen_until: dict[str, float] = {}
        # By the UID of a Job: up to when it then knew all that had happened to pods.
        self.pods_seen_until: dict[str, float] = {}
        # By the UID of a Job: up to when it then knew all that had happened to Jobs, and to nodes.
        self.decided_on: dict[str, tuple[float, float]] = {}
        # The same, of the decision that removes the gate that is removed now.
        self.gates_decided: dict[str, tuple[float, float]] = {}
        # By the UID of a Job and its completionTime: when the controller first decided so.
        self.ended_at: dict[tuple[str, str | None], float] = {}
        self.steps = 0
        self._lags: dict[str, Callable[[], float]] = {}
        self._faults: list[tuple[str, str, str, float]] = []
        self._slowed: dict[str, float] = {}
        self._late: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._refused_writes: dict[tuple[str, str], tuple[str, float]] = {}
        self.quiet_from = 0.0
        # When a write was last refused, by process, write and UID of the Job.
        self.refused_last: dict[tuple[str, str, str], float] = {}
        self._full: dict[str, float] = {}
        self._log_faults: dict[tuple[str, str], float] = {}
        self.undisturbed_from = {"controller": 0.0, "terminator": 0.0}
        # Processes that do not know the outcome of a write of their own or of a predecessor.
        self.unconfirmed_writers: set[str] = set()
        # Whether the write that is applied now is that of a process that died meanwhile.
        self.writer_is_dead = False
        # When the write was sent that a process asked for and that is applied now.
        self.sent_at: float | None = None
        # The nodes whose evidence such a write brought, each with the name of the report.
        self.written_after_death: set[tuple[str, str]] = set()
        self.machines: dict[str, Machine] = {}
        self.incarnations: dict[str, int] = {}
        # Of Jobs that another one owns, by namespace and name.
        self._owned_plans: dict[str, JobPlan] = {}
        self.oracle = Oracle(self)
        self.server = Server(self.clock, self._written, schedule.api_skews)
        self.cluster = ClusterModel(self)
        self.workloads = Workloads(self)
        self.logs = Logs(self)
        self.controller = ControllerProcess(self)
        self.terminator = TerminatorProcess(self)
        self.processes: dict[str, Process] = {
            found.name: found for found in (self.controller, self.terminator)
        }

    # --- time and chance -----------------------------------------------------------------

    def lag(self, name: str, low: float, high: float) -> float:
        """Return how long something takes: from `low` to `high`, in 6 % of cases 12 times that."""
        if self.schedule.calm:
            return low + (high - low) * 0.1
        draw = self._lags.get(name)
        if draw is None:
            draw = Random(self.schedule.seed * 0x9E3779B1 + crc32(name.encode())).random
            self._lags[name] = draw
        lag = low + (high - low) * draw()
        return lag * ROUGH_FACTOR if draw() < ROUGH else lag

    def note(self, actor: str, *words: object) -> None:
        """Add a line to the trace."""
        self.steps += 1
        if self.trace is not None:
            self.trace.append((round(self.loop.moment, 4), actor, " ".join(map(str, words))))

    # --- what happens in the API ---------------------------------------------------------

    def _written(self, write: Write) -> None:
        self.oracle.written(write)
        self.cluster.changed(write)
        self.workloads.changed(write)
        if self.trace is not None:
            self._note_write(write)

    def _note_write(self, write: Write) -> None:
        actor, plural, old, new = write.actor, write.plural, write.old, write.new
        raw = write.raw
        name, namespace = raw["metadata"]["name"], raw["metadata"].get("namespace")
        if namespace not in {None, "", "default"}:
            name = f"{namespace}/{name}"
        if new is None:
            self.note(actor, "removes", plural, name)
            return
        verb = "creates" if old is None else "changes"
        parts = [key for key in new if old is None or new[key] != old.get(key)]
        detail = ""
        if plural == PODS:
            detail = _pod_words(new)
        elif plural == DAEMON_SETS:
            status = new.get("status") or {}
            gates = new["spec"]["template"]["spec"].get("schedulingGates")
            detail = f"desired {status.get('desiredNumberScheduled', '-')}"
            detail += ", gated" if gates else ", not gated"
        elif "status" in parts or "evidence" in parts:
            detail = str({k: new[k] for k in ("status", "evidence") if k in parts})
        changed = ",".join(part for part in parts if part != "metadata")
        self.note(actor, verb, plural, name, changed, detail)

    # --- disturbances --------------------------------------------------------------------

    def expect_delay(self, who: str, seconds: float) -> None:
        """Record that a process may be late until `seconds` from now."""
        self.undisturbed_from[who] = max(self.undisturbed_from[who], self.loop.moment + seconds)

    def expect_quiet_from(self, seconds: float) -> None:
        """Record that something that a task did is not over before `seconds` from now."""
        self.quiet_from = max(self.quiet_from, self.loop.moment + seconds)

    def add_fault(self, who: str, what: str, mode: str, seconds: float) -> None:
        self._faults.append((who, what, mode, seconds))

    def take_fault(self, who: str, verb: str, plural: str) -> tuple[str, float]:
        """Return the fault that the request of a process meets, ("", 0) for none."""
        if self._faults and verb != "log":
            for i, (name, what, mode, seconds) in enumerate(self._faults):
                if name == who and what in {plural, "*"}:
                    del self._faults[i]
                    self.expect_delay(who, 3.0 + 2 * seconds)
                    return mode, seconds
        return "", 0.0

    def clear_faults(self) -> None:
        self._faults.clear()

    def slow_down(self, what: str, seconds: float) -> None:
        self._slowed[what] = until = self.loop.moment + seconds
        self._late[what] = max(self._late.get(what, 0.0), until)

    def slowed_until(self, what: str) -> float:
        return self._slowed.get(what, 0.0)

    def late_until(self, what: str) -> float:
        """Return until when something may be late: a shorter delay brings nothing forward."""
        return self._late.get(what, 0.0)

    def refuse(self, plural: str, seconds: float) -> None:
        self._refused[plural] = self.loop.moment + seconds

    def refuse_write(self, who: str, what: str, mode: str, seconds: float) -> None:
        """Refuse writes of a process: `what` is "verb resource", `mode` the status."""
        self._refused_writes[who, what] = (mode, self.loop.moment + (seconds or FOREVER_SECONDS))
        self.expect_delay(who, seconds + 35.0 if seconds else FOREVER_SECONDS)
        if seconds:
            # Who was refused for long tries again after a while only.
            self.quiet_from = max(self.quiet_from, self.loop.moment + seconds + 35.0)

    def refused_forever(self) -> list[tuple[str, str]]:
        """Return the (process, "verb resource") of writes that are refused from now on."""
        limit = self.loop.moment + FOREVER_SECONDS / 2
        return [what for what, (_, end) in self._refused_writes.items() if end > limit]

    def refused_write(self, who: str, verb: str, plural: str) -> str:
        """Return the status with which a write is refused now, "" for none."""
        mode, end = self._refused_writes.get((who, f"{verb} {plural}"), ("", -1.0))
        return mode if end > self.loop.moment else ""

    def is_refused(self, plural: str) -> bool:
        return self._refused.get(plural, -1.0) > self.loop.moment

    def fill(self, node: str, seconds: float) -> None:
        """Leave no room for pods on a node ("*": on any) for `seconds`."""
        self._full[node] = self.loop.moment + seconds

    def has_room(self, node: str) -> bool:
        ends = (self._full.get(name, -1.0) for name in (node, "*"))
        return max(ends) <= self.loop.moment

    def disturb_logs(self, kind: str, node: str, seconds: float) -> None:
        if kind == "log_fails" and (machine := self.machines.get(node)):
            for run in machine.pods.values():
                self.oracle.evidence.results.cannot_be_asked(run)
        self._log_faults[kind, node] = self.loop.moment + seconds
        self.expect_delay("terminator", seconds + 3.0)

    def logs_fail(self, node: str) -> bool:
        return self._log_faults.get(("log_fails", node), -1.0) > self.loop.moment

    def logs_failed_lately(self, node: str, seconds: float) -> bool:
        """Return whether the node's logs could not be read, or not all of them, lately."""
        machine = self.machines.get(node)
        if machine is not None and not machine.is_up:
            return True
        ends = [self._log_faults.get((kind, node), -seconds) for kind in ("log_fails", "log_late")]
        ends.append(machine.up_since if machine is not None and machine.up_since else -seconds)
        return max(ends) > self.loop.moment - seconds

    def loses_lines(self, node: str) -> bool:
        return self._log_faults.get(("lose_lines", node), -1.0) > self.loop.moment

    def log_delay(self, node: str) -> float:
        """Return how late a line that is written now becomes visible."""
        end = self._log_faults.get(("log_late", node), -1.0)
        return max(end - self.loop.moment, 0.0)

    # --- nodes ---------------------------------------------------------------------------

    def plan_of(self, pod: Raw) -> JobPlan:
        """Return the plan of the Job that a raw pod is labelled as a part of."""
        meta = pod["metadata"]
        key = f"{meta['namespace']}/{meta['labels'][LABEL_JOB]}"
        plan = self.schedule.job(key) or self._owned_plans.get(key)
        assert plan is not None
        return plan

    def plan_of_job(self, job: Raw) -> JobPlan:
        """Return the plan of a new Job; that of a Job which another one owns follows from it."""
        meta = job["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        plan = self.schedule.job(key)
        if plan is None:
            owner = self.oracle.plans[controller_of(job)]
            tasks = {node.name: Task(after=0.2) for node in self.schedule.nodes}
            tasks |= owner.owned_tasks
            plan = JobPlan(meta["name"], meta["namespace"], job["spec"], tasks)
            self._owned_plans[key] = plan
        return plan

    def add_node(self, name: str, zone: str | None = None) -> None:
        """Have a new machine join under a name; without effect if the node is there."""
        if self.server.get(NODES, name, "") is not None:
            return
        plan = next((plan for plan in self.schedule.nodes if plan.name == name), None)
        if plan is None:
            return  # the shrinker took it away
        number = self.incarnations.get(name, 0)
        self.incarnations[name] = number + 1
        raw = self.register(name, zone or plan.zone)
        task = plan.tasks[number % len(plan.tasks)]
        if former := self.machines.get(name):
            former.is_gone = True  # it lost its Node object, and went down before it made another
        machine = Machine(self, name, raw["metadata"]["uid"], task, plan.skew)
        self.machines[name] = machine
        for pod in self.server.all(PODS):
            if pod["spec"].get("nodeName") == name:
                machine.pod_changed(pod)

    def register(self, name: str, zone: str) -> Raw:
        """Make the Node object."""
        plan = next(plan for plan in self.schedule.nodes if plan.name == name)
        since = self.clock.stamp(plan.skew)
        labels = {"zone": zone, "slot": plan.slot, "kubernetes.io/hostname": name}
        labels |= dict(plan.labels)
        if plan.topology_zone:
            labels[TOPOLOGY_ZONE] = plan.topology_zone
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"conditions": [ready("True", since)]},
        }
        return self.server.create("kubelet", NODES, body, "", age=self.schedule.nodes_age)

    def set_ready(self, name: str, status: str) -> None:
        """Have the node controller, or its kubelet, say whether a node is Ready."""
        raw = self.server.get(NODES, name, "")
        if raw is None:
            return
        if ready_status(raw) != status:
            is_ready = status == "True"
            self.oracle.timeouts.node_ready(name, is_ready=is_ready)
            is_reachable = is_ready and NETWORK_TAINT not in taints_of(raw)
            self.oracle.timeouts.node_reachable(name, is_reachable=is_reachable)
            machine = self.machines.get(name)
            skew = self.schedule.api_skews[0]
            if status != "Unknown" and machine is not None:
                skew = machine.skew
            since = self.clock.stamp(skew)
            others = [each for each in raw["status"]["conditions"] if each["type"] != "Ready"]
            conditions = [ready(status, since), *others]
            self.server.set_status("node-controller", NODES, raw, {"conditions": conditions})
            self._mark_pods(name, status)
            delay = self.lag("node-controller", 0.01, 0.5)
            self.loop.call_later(delay, self._taint_by_condition, name)

    def set_network(self, name: str, *, is_there: bool) -> None:
        """Have a cloud's controller say whether a node has a network."""
        raw = self.server.get(NODES, name, "")
        if raw is not None:
            since = self.clock.stamp(self.schedule.api_skews[0])
            ready_, *_ = raw["status"]["conditions"]
            status = {"conditions": [ready_, network_unavailable(since, is_so=not is_there)]}
            self.server.set_status("cloud", NODES, raw, status)
            taints = [] if is_there else [NETWORK_TAINT]
            self.put_taints("cloud", raw, {NETWORK_TAINT["key"]}, taints)
            is_ready = ready_status(raw) == "True"
            self.oracle.timeouts.node_reachable(name, is_reachable=is_ready and is_there)

    def _taint_by_condition(self, name: str) -> None:
        """Put the taints on a node that say that it is not Ready, or take them away."""
        raw = self.server.get(NODES, name, "")
        if raw is not None:
            self.put_taints("node-controller", raw, READY_KEYS, ready_taints(ready_status(raw)))

    def put_taints(
        self, actor: str, raw: Raw, keys: Collection[str], taints: Sequence[Raw]
    ) -> None:
        """Replace the taints of a raw node with these keys by others."""
        body = {"spec": {"taints": replace_taints(taints_of(raw), keys, taints) or None}}
        self.server.patch(actor, NODES, raw["metadata"]["name"], body, namespace="")

    def _mark_pods(self, node: str, status: str) -> None:
        """Take Ready from the pods that had it, as the node lifecycle controller does."""
        for pod in self.server.all(PODS):
            pod_status = pod.get("status") or {}
            if pod["spec"].get("nodeName") == node and pod_status.get("phase") == "Running":
                new = condition("Ready", "True" if status == "True" else "False")
                pod_status = {
                    **pod_status,
                    "conditions": with_condition(pod_status.get("conditions"), new),
                }
                self.server.set_status("node-controller", PODS, pod, pod_status)


def _pod_words(pod: Raw) -> str:
    spec, status = pod["spec"], pod.get("status") or {}
    words = ["gated" if spec.get("schedulingGates") else "not gated"]
    words.append("bound" if spec.get("nodeName") else "unbound")
    if "deletionTimestamp" in pod["metadata"]:
        words.append("deleting")
    words += [
        f"{next(iter(container['state']))} restarts {container['restartCount']}"
        for group in ("initContainerStatuses", "containerStatuses")
        for container in status.get(group) or ()
    ]
    words.append(status.get("phase", ""))
    return ", ".join(words)
