"""Whatever happens to a Job that stays: each node does what was requested last, and then nothing.

A small model of what is around the controller: the DaemonSet controller, tasks, the terminator, a
user, crashes after any write, and an API server that refuses reports for a while.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.pod import Pod
from daemonset_job.api.report_status import parse_report_status
from job_controller.core.decide import decide
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    DeletePods,
    RefusedWrite,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.snapshot import Snapshot
from terminator.ledger.evidence import combine_evidence
from tests.unit.builders import NOW, SampleCluster, gated_pod
from tests.unit.core.runs import conditions
from tests.unit.core.standing_jobs import change, request, standing

NODES = ("a", "b", "c")
HELD = {"matchExpressions": [{"key": "configured", "operator": "DoesNotExist"}]}


@dataclass
class Model:
    """A Job that stays on three nodes, and what is around it."""

    random: Random
    cluster: SampleCluster = field(default_factory=lambda: standing(*NODES))
    applied: Job | None = None
    late: list[tuple[str, Evidence]] = field(default_factory=list)
    # The text that each run began with, by node; `serial` numbers pods.
    runs: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in NODES})
    serial: int = 1
    refuses: bool = False

    def __post_init__(self) -> None:
        self.cluster.pods = []
        change(self.cluster, nodes=NodeSelection(selector=HELD))
        self.applied = self.cluster.job

    # --- around the controller -------------------------------------------------------------

    def daemon_set(self) -> DaemonSet:
        wished, self.cluster.job = self.cluster.job, self.applied or self.cluster.job
        selected = [name for name in NODES if self.is_selected(name)]
        there = {pod.node_name for pod in self.cluster.pods}
        self.cluster.desired = len(selected)
        self.cluster.scheduled = len(there & set(selected))
        self.cluster.misscheduled = len(there - set(selected))
        found = self.cluster.daemon_set()
        self.cluster.job = wished
        return found

    def snapshot(self) -> Snapshot:
        found = self.cluster.snapshot(daemon_set=self.daemon_set())
        return found.with_refusal(RefusedWrite.REPORT, "quota") if self.refuses else found

    def is_selected(self, name: str) -> bool:
        return "configured" not in self.cluster.nodes[name].labels

    def reconcile(self, limit: int | None = None) -> int:
        """Decide and execute, up to `limit` actions; return how many there were."""
        actions = decide(self.snapshot(), NOW).actions[:limit]
        for action in actions:
            self.execute(action)
        return len(actions)

    def execute(self, action: Action) -> None:
        cluster = self.cluster
        match action:
            case WriteStatus():
                cluster.job = replace(cluster.job, status=action.status)
            case WriteReportStatus():
                cluster.report_status = action.status.to_raw()
            case ApplyDaemonSet():
                assert cluster.job.status.revision == cluster.job.revision
                self.applied = cluster.job
            case DeletePods():
                doomed = {pod.uid for pod in action.pods}
                cluster.pods = [
                    replace(pod, is_terminating=pod.is_terminating or pod.uid in doomed)
                    for pod in cluster.pods
                    if pod.is_scheduled or pod.uid not in doomed
                ]
            case RemoveSchedulingGates():
                for pod in action.pods:
                    self.start(pod)

    def start(self, pod: Pod) -> None:
        started = self.cluster.pods.index(pod)
        found = gated_pod(pod.node_name, serial=int(pod.resource_version), revision=pod.revision)
        self.cluster.pods[started] = replace(
            found,
            is_scheduled=True,
            gates=(),
            phase="Running",
            container=Container(state="running"),
        )
        self.runs[pod.node_name].append(pod.revision.partition("-")[2])

    def sync(self) -> bool:
        """Do as the DaemonSet controller and the kubelets do; return whether anything changed."""
        assert self.applied is not None
        before = list(self.cluster.pods)
        self.cluster.pods = [
            pod
            for pod in self.cluster.pods
            if not pod.is_terminating and self.is_selected(pod.node_name)
        ]
        there = {pod.node_name for pod in self.cluster.pods}
        for name in NODES:
            if name not in there and self.is_selected(name):
                self.serial += 1
                pod = gated_pod(name, serial=self.serial, revision=self.applied.revision)
                self.cluster.pods.append(pod)
        return before != self.cluster.pods

    def complete(self) -> bool:
        """Let the tasks at work print the token; the terminator finds it now or later."""
        job, late = self.cluster.job, {entry.pod_uid for _, entry in self.late}
        if job.has_new_revision:
            return False
        found = [
            pod
            for pod in self.cluster.pods
            if pod.is_scheduled
            and pod.uid not in {*late, *self.earlier_pods(pod.node_name)}
            and pod.revision == job.revision
            and not self.is_completed(pod.node_name)
        ]
        self.late += [(pod.node_name, completion(pod)) for pod in found]
        return bool(found)

    def earlier_pods(self, node: str) -> tuple[str, ...]:
        records = parse_report_status(self.cluster.report_status or {}).node_states
        return records[node].earlier_pods if node in records else ()

    def is_completed(self, node: str) -> bool:
        entry = self.cluster.evidence.get(node)
        return (
            entry is not None
            and entry.revision == self.cluster.job.revision
            and entry.pod_uid not in self.earlier_pods(node)
        )

    def write_evidence(self) -> bool:
        """Do as the terminator does with what it found."""
        found, self.late = self.late, []
        for name, entry in found:
            earlier = self.earlier_pods(name)
            if entry.pod_uid not in earlier:
                new = replace(entry, replaces=earlier)
                known = self.cluster.evidence.get(name)
                self.cluster.evidence[name] = combine_evidence(known, new)
        return bool(found)

    # --- a life ----------------------------------------------------------------------------

    def live(self, steps: int, *, with_user: bool) -> None:
        for _ in range(steps):
            self.random.choice(self._events(with_user=with_user))()

    def _events(self, *, with_user: bool) -> list[Callable[[], object]]:
        events: list[Callable[[], object]] = [self.reconcile, self._crash, self._crash]
        events += [self.sync, self.complete, self.write_evidence, self._refuse]
        return [*events, self._edit, self._request, self._label] if with_user else events

    def _crash(self) -> None:
        self.reconcile(self.random.randint(0, 2))

    def _refuse(self) -> None:
        self.refuses = not self.refuses

    def _edit(self) -> None:
        change(self.cluster, image=self.random.choice(["t:1", "t:2"]))

    def _request(self) -> None:
        request(self.cluster, self.random.choice(["", "a", "b,c", "*"]))

    def _label(self) -> None:
        name = self.random.choice(NODES)
        node = self.cluster.nodes[name]
        labels = {} if node.labels else {"configured": "yes"}
        self.cluster.nodes[name] = replace(node, labels=labels)

    def settle(self) -> None:
        """Let all go on, until nothing changes any more."""
        self.refuses = False
        for _ in range(60):
            acted = self.reconcile()
            changed = [self.sync(), self.complete(), self.write_evidence()]
            if not acted and not any(changed):
                return
        raise AssertionError(f"it does not settle: {decide(self.snapshot(), NOW).actions}")


def completion(pod: Pod) -> Evidence:
    at = f"2026-01-02T03:04:00.{int(pod.resource_version):09}Z"
    return Evidence(f"{pod.node_name}-uid", at, pod.name, pod.uid, revision=pod.revision)


def check(model: Model, words: str) -> None:
    selected = [name for name in NODES if model.is_selected(name)]
    wished = model.cluster.job.revision_hash
    for name in selected:
        assert model.runs[name][-1:] == [wished], (words, name, model.runs[name])
    if selected:
        assert conditions(model.cluster)["Complete"][0] == "True", words
    assert not model.cluster.job.has_open_request


@pytest.mark.parametrize("seed", range(80))
def test_each_node_does_what_was_requested_last(seed: int) -> None:
    model = Model(Random(seed))
    model.live(60, with_user=True)
    model.settle()
    check(model, "after a life")
    kind = model.random.choice(["change", "change back", "request", "same request", "nothing"])
    if "request" in kind:
        request(model.cluster, "")
        model.settle()
    if kind == "same request":
        for node in ("a", "b"):
            request(model.cluster, node)
            model.settle()
    before = {name: len(runs) for name, runs in model.runs.items()}
    image = model.cluster.job.spec.image
    named: set[str] = set(NODES) if "change" in kind else set()
    if "change" in kind:
        change(model.cluster, image="t:3")
    if kind == "change back":
        model.reconcile()
        change(model.cluster, image=image)
    if "request" in kind:
        request(model.cluster, "a")
        named = {"a"}
    model.live(30, with_user=False)
    model.settle()
    check(model, kind)
    for name in NODES:
        ran = len(model.runs[name]) - before[name]
        expected = name in named and model.is_selected(name)
        assert ran == expected, (kind, name, ran)
