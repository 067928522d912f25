"""Builders of the core's inputs: a world of nodes, and a Job on it, in a line or two."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import parse_report_status
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.plan import RefusedWrite
from job_controller.core.render.job_status import first_status
from job_controller.core.render.report_status import build_report
from job_controller.core.settings import Settings
from job_controller.core.state.first_seen import update_sightings
from job_controller.core.state.snapshot import Snapshot
from job_controller.sightings import observe

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
START = NOW - timedelta(minutes=1)
BIRTH = NOW - timedelta(days=1)
DS_UID = "ds-uid"


def make_job(name: str = "sample", **changes: Any) -> Job:
    job = Job(
        namespace="default",
        name=name,
        uid="12345678-job-uid",
        resource_version="7",
        generation=1,
        spec=JobSpec(image="example/task:1"),
        created_at=START,
    )
    return replace(job, **changes)


def started(job: Job) -> Job:
    return replace(job, status=first_status(job, START))


def make_node(name: str, **changes: Any) -> Node:
    return replace(Node(name, f"{name}-uid", "1", created_at=BIRTH), **changes)


def make_pod(node: str, *, state: str = "running", serial: int = 1, **changes: Any) -> Pod:
    container = Container(state=state) if state else None
    pod = Pod(
        namespace="default",
        name=f"sample-{node}-{serial}",
        uid=f"pod-{node}-{serial}",
        resource_version=str(serial),
        owner_uid=DS_UID,
        node_name=node,
        is_scheduled=True,
        phase="Running" if state == "running" else "Pending",
        created_at=START + timedelta(seconds=serial),
        container=container,
        has_run=state in {"running", "terminated"},
    )
    return replace(pod, **changes)


def gated_pod(node: str, *, serial: int = 2, **changes: Any) -> Pod:
    return make_pod(
        node, state="", serial=serial, is_scheduled=False, gates=(names.START_GATE,), **changes
    )


def done(node: str, uid: str | None = None, at: str = "2026-01-02T03:04:00.123456789Z") -> Evidence:
    return Evidence(
        node_uid=uid or f"{node}-uid",
        completed_at=at,
        pod=f"sample-{node}-1",
        pod_uid=f"pod-{node}-1",
    )


@dataclass
class SampleCluster:
    """A Job's surroundings; `snapshot()` is what a controller with fresh caches sees."""

    job: Job = field(default_factory=lambda: started(make_job()))
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: list[Pod] = field(default_factory=list)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    desired: int | None = None
    scheduled: int | None = None
    misscheduled: int = 0
    # How long ago the controller saw first whatever its timers count from.
    seen: timedelta | None = None
    gated: bool = False
    observed: bool = True
    has_daemon_set: bool = True
    has_report: bool = True
    report_status: dict[str, Any] | None = None
    # The hash of the selection of nodes with which the run started; that of the Job without one.
    started_with: str = ""
    # Whether the DaemonSet has had another one.
    selection_changed: bool = False
    failed_create_message: str | None = ""
    refusal: str = ""

    def daemon_set(self) -> DaemonSet:
        body = build_daemon_set(
            self.job,
            gated=self.gated,
            settings=Settings(),
            selection_changed=self.selection_changed,
        )
        return DaemonSet(
            namespace=self.job.namespace,
            name=self.job.daemon_set_name,
            uid=DS_UID,
            resource_version="3",
            owner_uid=self.job.uid,
            generation=2,
            observed_generation=2 if self.observed else 1,
            desired=len(self.nodes) if self.desired is None else self.desired,
            scheduled=self._scheduled(),
            misscheduled=self.misscheduled,
            labels=body["metadata"]["labels"],
            annotations=body["metadata"]["annotations"],
            spec=body["spec"],
        )

    def _scheduled(self) -> int:
        """Return how many nodes that should run a pod have one, unless the test says."""
        if self.scheduled is not None:
            return self.scheduled
        there = {pod.node_name for pod in self.pods if not (pod.is_terminating and pod.is_terminal)}
        return len(there & self.nodes.keys()) - self.misscheduled

    def report(self) -> JobReport:
        raw = build_report(self.job)
        return JobReport(
            namespace=self.job.namespace,
            name=raw["metadata"]["name"],
            uid="report-uid",
            resource_version="4",
            job_name=self.job.name,
            job_uid=self.job.uid,
            evidence=self.evidence,
            status=parse_report_status(self.report_status or {}),
            selection_hash=self.started_with or self.job.selection_hash,
        )

    def snapshot(self, **changes: Any) -> Snapshot:
        snapshot = Snapshot(
            job=self.job,
            daemon_set=self.daemon_set() if self.has_daemon_set else None,
            pods=tuple(self.pods),
            nodes=self.nodes,
            reports=(self.report(),) if self.has_report else (),
            failed_create_message=self.failed_create_message,
            refusals={RefusedWrite.DAEMON_SET: self.refusal} if self.refusal else {},
        )
        snapshot = replace(snapshot, **changes)
        return snapshot if self.seen is None else seen_before(snapshot, self.seen)


def seen_before(snapshot: Snapshot, since: timedelta, now: datetime = NOW) -> Snapshot:
    """Return the snapshot of a controller that has seen all of it for the time `since`."""
    return replace(snapshot, seen=update_sightings({}, observe(snapshot), now - since))


def make_cluster(*node_names: str, running: bool = True, **changes: Any) -> SampleCluster:
    """Return a SampleCluster with these nodes, a running pod on each unless `running` is False."""
    return SampleCluster(
        nodes={name: make_node(name) for name in node_names},
        pods=[make_pod(name) for name in node_names] if running else [],
        **changes,
    )
