"""A rollout on a cluster that obeys at once: pods start when their gate is removed."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Rollout, Step
from daemonset_job.api.rollout_requests import RolloutRequests
from job_controller.core.decide import decide
from job_controller.core.plan import (
    DeletePods,
    Plan,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.settings import Settings
from tests.unit.builders import (
    NOW,
    SampleCluster,
    done,
    gated_pod,
    make_cluster,
    make_node,
    make_pod,
    seen_before,
)
from tests.unit.core.runs import FAILED, spec


class RolloutWorld:
    """A cluster whose pods do what the controller lets them; time passes by a second a pass."""

    def __init__(self, *node_names: str, rollout: Rollout, **changes: Any) -> None:
        self.cluster: SampleCluster = make_cluster(*node_names, running=False, gated=True)
        self.cluster.pods = [gated_pod(name, serial=1) for name in node_names]
        spec(self.cluster, rollout=rollout, **changes)
        self.now: datetime = NOW
        self.settings = Settings()
        self.started: list[str] = []
        self.plan = Plan()
        self.extra: dict[str, Any] = {}
        # For how long the controller has seen all that there is.
        self.seen = timedelta(minutes=10)
        # How many actions of a plan are executed before the process ends, None for all.
        self.limit: int | None = None

    def label(self, name: str, **labels: str) -> None:
        """Give a node labels; a label `zone` is that of its zone."""
        found = {names.LABEL_ZONE if key == "zone" else key: text for key, text in labels.items()}
        self.cluster.nodes[name] = make_node(name, labels=found)

    def exclude(self, name: str) -> None:
        """Change the Job, so that it does not choose a node."""
        job = self.cluster.job
        self.cluster.started_with = job.selection_hash
        changed = replace(job.spec, nodes=NodeSelection(exclude=(name,)))
        raw = {**job.raw_spec, "nodes": {"exclude": [name]}}
        self.cluster.job = replace(job, spec=changed, raw_spec=raw, generation=2)

    def request(self, **requests: Any) -> None:
        self.cluster.job = replace(self.cluster.job, requests=RolloutRequests(**requests))

    def retry(self, value: str = "1") -> None:
        self.cluster.job = replace(self.cluster.job, annotations={names.ANNOTATION_RETRY: value})

    def step(self, passes: int = 1) -> Plan:
        """Decide, and do what the plan says; only what it opens starts."""
        for _ in range(passes):
            self.now += timedelta(seconds=1)
            found = self.cluster.snapshot(settings=self.settings, **self.extra)
            self.plan = decide(seen_before(found, self.seen, self.now), self.now)
            for action in self.plan.actions[: self.limit]:
                self._execute(action)
        return self.plan

    def _execute(self, action: Any) -> None:
        cluster = self.cluster
        match action:
            case WriteStatus():
                cluster.job = replace(cluster.job, status=action.status)
            case WriteReportStatus():
                cluster.report_status = action.status.to_raw()
            case RemoveSchedulingGates():
                for pod in action.pods:
                    self.started.append(pod.node_name)
                    self.put(make_pod(pod.node_name, uid=pod.uid))
            case DeletePods():
                for pod in action.pods:
                    serial = int(pod.uid.rsplit("-", 1)[1]) + 1
                    self.put(gated_pod(pod.node_name, serial=serial))

    def put(self, pod: Any) -> None:
        others = [each for each in self.cluster.pods if each.node_name != pod.node_name]
        self.cluster.pods = [*others, pod]

    def complete(self, *node_names: str) -> None:
        for name in node_names:
            (pod,) = [each for each in self.cluster.pods if each.node_name == name]
            self.cluster.evidence[name] = replace(done(name), pod_uid=pod.uid)

    def fail(self, name: str) -> None:
        (pod,) = [each for each in self.cluster.pods if each.node_name == name]
        self.put(replace(pod, container=FAILED))

    def lose(self, name: str) -> None:
        node = self.cluster.nodes[name]
        away = self.now - timedelta(hours=1)
        self.cluster.nodes[name] = replace(node, ready=False, ready_changed_at=away)

    def set_ready(self, name: str, *, is_ready: bool) -> None:
        """Have a node become Ready now, or cease to be."""
        node = self.cluster.nodes[name]
        self.cluster.nodes[name] = replace(node, ready=is_ready, ready_changed_at=self.now)

    def remove(self, name: str) -> None:
        """Take a node out of the cluster, with its pod."""
        del self.cluster.nodes[name]
        self.take_pod(name)

    def take_pod(self, name: str) -> None:
        """Take the pod of a node away; no other one follows."""
        self.cluster.pods = [pod for pod in self.cluster.pods if pod.node_name != name]

    def replace(self, name: str) -> None:
        """Put another node of the same name in the place of one that leaves."""
        self.remove(name)
        self.step()
        self.cluster.nodes[name] = make_node(name, uid=f"{name}-uid-2")
        self.put(gated_pod(name, serial=2))

    @property
    def at_work(self) -> list[str]:
        """The nodes whose pod has started, and that have not completed."""
        return sorted(
            pod.node_name
            for pod in self.cluster.pods
            if not pod.is_gated and pod.node_name not in self.cluster.evidence
        )

    def turns(self) -> dict[str, int]:
        """Return the steps of the nodes whose turn is on record."""
        states = (self.cluster.report_status or {}).get("nodeStates") or {}
        return {name: raw["step"] for name, raw in states.items() if raw.get("turnAt")}

    def condition(self, type_: str) -> tuple[str, str, str]:
        (found,) = [c for c in self.cluster.job.status.to_raw()["conditions"] if c["type"] == type_]
        return found["status"], found["reason"], found["message"]

    @property
    def phase(self) -> str:
        return str(self.cluster.job.status.phase)

    def finish(self, limit: int = 60) -> None:
        """Complete whatever is at work until the run has ended."""
        for _ in range(limit):
            self.step()
            self.complete(*self.at_work)
            if self.phase in {"Succeeded", "Failed"}:
                return
        raise AssertionError(f"{self.phase}: {self.condition('Progressing')}")


def steps(*each: Step, **fields: Any) -> Rollout:
    return Rollout(steps=each, **fields)


WITHIN_ONE = FailurePolicy(max_failed_nodes=1)
