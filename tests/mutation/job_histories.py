"""Random histories of a Job for the pure core: any state that a cluster may show, step by step.

There is no server. The plan of a step is carried out on raw objects, then a random change follows,
and the next step decides on the new state. The core receives only what the API server would
accept, with texts that are as long and as unusual as possible.
"""

import json
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.daemon_set import parse_daemon_set
from daemonset_job.api.job import parse_job
from daemonset_job.api.node import parse_node
from daemonset_job.api.pod import parse_pod
from daemonset_job.api.report import parse_report
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    CreatePodsAgain,
    CreateReport,
    DeleteDaemonSet,
    DeletePods,
    DryRunDaemonSet,
    Plan,
    RefusedWrite,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.snapshot import Snapshot
from tests.mutation.schema import OBJECT_BYTES, part, problems, stored_bytes
from tests.mutation.values import draw, draw_object

Raw = dict[str, Any]

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_TEXTS = (
    "",
    "boom",
    "two\nlines\x00 and \x1b[31mred",
    "\N{LOBSTER}" * 2000,
    "<&>" * 1000,
    "x" * 5000,
    "\u202e" + "'\"" * 300,
)
# A runtime's words for an end or a wait (container status), some of them known to the core.
_REASONS = ("", "Error", "OOMKilled", "Completed", "StartError", "R" * 3000)
_WAITS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerError",
    "CrashLoopBackOff",
    "PodInitializing",
    "ContainerCreating",
    "W" * 3000,
)
_REFUSAL = "DaemonSet is invalid: spec.template.spec"
RETRIES = (None, "", "1", "2", "\N{LOBSTER}" * 256, "x" * 256, "x" * 257, "x" * 100_000)
# Times as the API server keeps them, from a kubelet whose clock is as wrong as can be.
_MOMENTS = ("0001-01-01T00:00:01Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", None)
# A spec that is larger is refused with the whole object.
_SPEC_BYTES = OBJECT_BYTES - 128 * 1024
_SECONDS = (0, 1, 4, 6, 11, 61, 301, 4000, 10**6)


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class JobHistory:
    """One Job, its nodes and what belongs to it, as raw objects."""

    def __init__(self, random: Random, spec: Raw | None = None, nodes: int | None = None) -> None:
        self.random = random
        self.now = NOW
        self.serial = 0
        name = random.choice(("a", "sample", "n" * 253, "a.b.c"))
        drawn = _draw_spec(random)
        self.job: Raw = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": "12345678-1234-1234-1234-123456789012",
                "resourceVersion": "1",
                "generation": 1,
                "creationTimestamp": stamp(NOW),
                "annotations": {},
            },
            "spec": drawn if spec is None else spec,
        }
        count = random.randint(0, 5) if nodes is None else nodes
        self.nodes = [self._node(index) for index in range(count)]
        self.pods: list[Raw] = []
        self.daemon_set: Raw | None = None
        self.reports: list[Raw] = []
        self.failed_create_message = ""
        self.refusal = ""

    # --- a pass -------------------------------------------------------------------------

    def step(self) -> Iterator[str]:
        """Make one pass, carry out its plan and change something; yield what is wrong with it."""
        for is_dry_run_done in (False, True):
            try:
                plan = decide(replace(self.snapshot(), is_dry_run_done=is_dry_run_done), self.now)
            except Exception:  # noqa: BLE001 - whatever it is, it is what we look for
                yield f"decide raised: {traceback.format_exc()}"
                return
            yield from self.check(plan)
            self.carry_out(plan)
            tries = any(isinstance(action, DryRunDaemonSet) for action in plan.actions)
            if self.refusal or not tries:
                break
        self.change()

    def snapshot(self) -> Snapshot:
        """Return what a controller with fresh caches sees."""
        return Snapshot(
            job=parse_job(self.job),
            daemon_set=parse_daemon_set(self.daemon_set) if self.daemon_set else None,
            pods=tuple(map(parse_pod, self.pods)),
            nodes={raw["metadata"]["name"]: parse_node(raw) for raw in self.nodes},
            reports=tuple(map(parse_report, self.reports)),
            failed_create_message=self.failed_create_message,
            refusals={RefusedWrite.DAEMON_SET: self.refusal} if self.refusal else {},
        )

    def check(self, plan: Plan) -> Iterator[str]:
        """Yield what of a plan the API server would not take as it is."""
        for action in plan.actions:
            match action:
                case WriteStatus(status=status):
                    raw = status.to_raw()
                    yield from problems(part("jobs", "status"), raw, "status")
                    yield from _size("Job", {**self.job, "status": raw})
                case CreateReport(body=body):
                    yield from problems(part("jobreports", "spec"), body["spec"], "report.spec")
                    yield from _size("JobReport", body)
                case WriteReportStatus(name=name, status=status):
                    raw = status.to_raw()
                    yield from problems(part("jobreports", "status"), raw, "report.status")
                    stored = next(r for r in self.reports if r["metadata"]["name"] == name)
                    yield from _size("JobReport", {**stored, "status": raw})
                case ApplyDaemonSet(body=body) | DryRunDaemonSet(body=body):
                    yield from _size("DaemonSet", body)
                    json.dumps(body)
        for event in plan.events:
            if not 0 < len(event.reason) <= 128:
                yield f"event.reason: {event.reason!r}"

    # --- what becomes of a plan ---------------------------------------------------------

    def carry_out(self, plan: Plan) -> None:  # noqa: C901 - one branch for each action
        """Do what the plan says to the objects."""
        for action in plan.actions:
            match action:
                case DryRunDaemonSet(body=body) if not _is_taken(body["spec"]["template"]["spec"]):
                    self.refusal = _REFUSAL
                    return
                case WriteStatus(status=status):
                    self.job["status"] = status.to_raw()
                case CreateReport(body=body):
                    meta = {**body["metadata"], "uid": self._uid("report"), "resourceVersion": "1"}
                    self.reports.append({**json.loads(json.dumps(body)), "metadata": meta})
                case WriteReportStatus(name=name, status=status):
                    stored = next(r for r in self.reports if r["metadata"]["name"] == name)
                    stored["status"] = status.to_raw()
                case ApplyDaemonSet(body=body):
                    self._apply(body)
                case CreatePodsAgain():
                    pass  # a change that causes nothing here
                case DeleteDaemonSet():
                    self.daemon_set, self.pods = None, []
                case DeletePods(pods=pods):
                    gone = {pod.uid for pod in pods}
                    self.pods = [raw for raw in self.pods if raw["metadata"]["uid"] not in gone]
                case RemoveSchedulingGates(pods=pods):
                    due = {pod.uid for pod in pods}
                    for raw in self.pods:
                        if raw["metadata"]["uid"] in due:
                            raw["spec"].pop("schedulingGates", None)

    def _apply(self, body: Mapping[str, Any]) -> None:
        if not _is_taken(body["spec"]["template"]["spec"]):
            self.refusal = _REFUSAL
            return
        old = self.daemon_set or {"metadata": {"uid": self._uid("set"), "generation": 0}}
        meta = {
            **body["metadata"],
            "uid": old["metadata"]["uid"],
            "generation": old["metadata"]["generation"] + 1,
            "resourceVersion": str(self._next()),
        }
        self.daemon_set = {"metadata": meta, "spec": body["spec"], "status": old.get("status")}

    # --- what changes -------------------------------------------------------------------

    def change(self) -> None:
        """Let time pass, and let the cluster do some of what a cluster does."""
        random = self.random
        self.now += timedelta(seconds=random.choice(_SECONDS))
        for _ in range(random.randint(1, 3)):
            random.choice(
                (
                    self._sync_daemon_set,
                    self._sync_daemon_set,
                    self._change_pod,
                    self._change_pod,
                    self._enter_evidence,
                    self._enter_evidence,
                    self._change_job,
                    self._change_nodes,
                    self._refuse,
                    self._delete_something,
                )
            )()

    def _sync_daemon_set(self) -> None:
        """Do what the DaemonSet controller does: a pod for each node, and the counters."""
        if self.daemon_set is None:
            return
        taken = {pod["spec"]["nodeName"] for pod in self.pods}
        template = self.daemon_set["spec"]["template"]
        for raw in self.nodes:
            if raw["metadata"]["name"] not in taken:
                self.pods.append(self._pod(raw["metadata"]["name"], template))
        count = len(self.nodes)
        self.daemon_set["status"] = {
            "observedGeneration": self.daemon_set["metadata"]["generation"],
            "desiredNumberScheduled": count,
            "currentNumberScheduled": count,
            "numberMisscheduled": 0,
        }

    def _change_pod(self) -> None:
        if not self.pods:
            return
        random, pod = self.random, self.random.choice(self.pods)
        moment = stamp(self.now - timedelta(seconds=random.choice(_SECONDS)))
        ended = {
            "exitCode": random.choice((0, 1, 3, 137, 255, 2**31 - 1, -1, -(2**31))),
            "reason": random.choice(_REASONS),
            "message": random.choice(_TEXTS),
            "startedAt": random.choice((moment, moment, moment, *_MOMENTS)),
            "finishedAt": random.choice((moment, moment, moment, *_MOMENTS)),
        }
        state = random.choice(
            (
                {"running": {"startedAt": random.choice((moment, moment, moment, *_MOMENTS))}},
                {"terminated": ended},
                {"waiting": {"reason": random.choice(_WAITS), "message": random.choice(_TEXTS)}},
                {},
            )
        )
        task = {
            "name": names.CONTAINER_NAME,
            "state": state,
            "lastState": random.choice(({}, {"terminated": ended})),
            "restartCount": random.choice((0, 1, 6, 7, 1001, 10**6, 2**31 - 1, -4, -(2**31))),
        }
        where = random.choice(("containerStatuses", "initContainerStatuses"))
        conditions = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"},
            {"type": "DisruptionTarget", "status": "True", "reason": random.choice(_REASONS)},
        ]
        conditions[0]["message"] = random.choice(_TEXTS)
        pod["status"] = {
            "phase": random.choice(("Pending", "Running", "Failed", "Succeeded", "Unknown")),
            "startTime": random.choice((moment, moment, moment, *_MOMENTS)),
            "reason": random.choice(("", "Evicted", "NodeShutdown", "P" * 3000)),
            "message": random.choice(_TEXTS),
            "conditions": [each for each in conditions if random.random() < 0.3],
            where: [task],
        }

    def _enter_evidence(self) -> None:
        """Do what the terminator does: enter what a log said, within the ledger's bounds."""
        if not (self.pods and self.reports):
            return
        random, pod = self.random, self.random.choice(self.pods)
        node = pod["spec"]["nodeName"]
        known = next((raw for raw in self.nodes if raw["metadata"]["name"] == node), None)
        if known is None:
            return
        entry: Raw = {
            "nodeUID": known["metadata"]["uid"],
            "pod": pod["metadata"]["name"],
            "podUID": pod["metadata"]["uid"],
        }
        moment = self.now - timedelta(seconds=random.choice(_SECONDS))
        at = moment.strftime(random.choice(("%Y-%m-%dT%H:%M:%S.123456789Z", "%Y-%m-%dT%H:%M:%SZ")))
        kind = random.random()
        if kind < 0.3:
            entry["completedAt"] = at
        elif kind < 0.5:
            entry["failedAt"] = at
        lines = (*(text[:256] for text in _TEXTS), f"at {self._next()}: it fails")
        entry["lastLines"] = [random.choice(lines) for _ in range(random.randint(0, 20))]
        entry["results"] = draw(
            random, "results", part("jobreports", "evidence")["additionalProperties"]["properties"]
            ["results"],
        )  # fmt: skip
        random.choice(self.reports).setdefault("evidence", {})[node] = entry

    def _change_job(self) -> None:
        random, meta = self.random, self.job["metadata"]
        if random.random() < 0.5:
            token = random.choice(RETRIES)
            meta["annotations"] = {} if token is None else {names.ANNOTATION_RETRY: token}
            return
        # What runs is fixed once the Job has started.
        fixed = ("image", "command", "args", "mountPath", "template", "completion")
        fresh = _draw_spec(random)
        kept = {key: value for key, value in self.job["spec"].items() if key in fixed}
        changed = {key: v for key, v in fresh.items() if key not in fixed} | kept
        if stored_bytes(changed) <= _SPEC_BYTES:
            self.job["spec"] = changed
            meta["generation"] += 1

    def _change_nodes(self) -> None:
        random = self.random
        if random.random() < 0.3:
            self.nodes.append(self._node(self._next()))
        elif self.nodes:
            raw = random.choice(self.nodes)
            moment = stamp(self.now - timedelta(seconds=random.choice(_SECONDS)))
            status = random.choice(("True", "False", "Unknown"))
            raw["status"] = {
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": moment}]
            }

    def _refuse(self) -> None:
        self.refusal = self.random.choice(_TEXTS)
        self.failed_create_message = self.random.choice(_TEXTS)

    def _delete_something(self) -> None:
        random = self.random
        match random.randint(0, 3):
            case 0 if self.nodes:
                self.nodes.remove(random.choice(self.nodes))
            case 1 if self.pods:
                self.pods.remove(random.choice(self.pods))
            case 2 if self.pods:
                random.choice(self.pods)["metadata"]["deletionTimestamp"] = stamp(self.now)
            case 3:
                self.daemon_set, self.pods = None, []

    # --- objects ------------------------------------------------------------------------

    def _node(self, index: int) -> Raw:
        name = f"node-{index}" if index % 3 else f"{'n' * 240}-{index}"
        return {
            "metadata": {
                "name": name,
                "uid": self._uid("node"),
                "resourceVersion": "1",
                "creationTimestamp": stamp(NOW - timedelta(days=1)),
            },
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }

    def _pod(self, node: str, template: Mapping[str, Any]) -> Raw:
        assert self.daemon_set is not None
        owner = {"kind": "DaemonSet", "uid": self.daemon_set["metadata"]["uid"]}
        gates = (template.get("spec") or {}).get("schedulingGates")
        spec = {"nodeName": node, **({"schedulingGates": list(gates)} if gates else {})}
        return {
            "metadata": {
                "name": f"pod-{self._next()}",
                "namespace": "default",
                "uid": self._uid("pod"),
                "resourceVersion": "1",
                "creationTimestamp": stamp(self.now),
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": spec,
        }

    def _next(self) -> int:
        self.serial += 1
        return self.serial

    def _uid(self, kind: str) -> str:
        return f"{kind}-{self._next():028}"


def _draw_spec(random: Random) -> Raw:
    """Return any spec of a Job that etcd takes, with room for metadata and status."""
    while stored_bytes(spec := draw_object(random, "spec", part("jobs", "spec"))) > _SPEC_BYTES:
        pass
    return spec


def _is_taken(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether the API server takes what the core reads of a pod's spec again."""
    affinity, selector = pod_spec.get("affinity") or {}, pod_spec.get("nodeSelector") or {}
    gates = pod_spec.get("schedulingGates") or []
    return (
        isinstance(affinity, Mapping)
        and isinstance(affinity.get("nodeAffinity") or {}, Mapping)
        and isinstance(selector, Mapping)
        and isinstance(gates, list)
        and all(isinstance(gate, Mapping) and isinstance(gate.get("name"), str) for gate in gates)
    )


def _size(what: str, raw: Any) -> Iterator[str]:
    size = stored_bytes(raw)
    if size > OBJECT_BYTES:
        yield f"{what}: {size} bytes, more than etcd takes"
