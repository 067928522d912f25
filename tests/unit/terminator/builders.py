"""Builders of what the terminator sees: a Job on some nodes, in a line or two.

Its own, and not those of the core's tests: the two counts share no code, nor do their tests.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job, nodes_hash
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.job_status import parse_job_status
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
STAMP = "2026-01-02T03:04:05.000000001Z"
COMPLETE = {"type": "Complete", "status": "True"}
FAILED = {"type": "Failed", "status": "True"}


def make_job(
    *conditions: Mapping[str, Any],
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Job:
    job = Job(
        namespace="default",
        name="sample",
        uid="job-uid",
        resource_version="1",
        generation=2,
        spec=JobSpec(image="x", **(spec or {})),
        status=parse_job_status(
            {"observedGeneration": 2, "conditions": list(conditions), **(status or {})}
        ),
    )
    return replace(job, **changes)


def make_daemon_set(desired: int, **changes: Any) -> DaemonSet:
    found = DaemonSet(
        namespace="default",
        name="sample-daemonset-job",
        uid="ds-uid",
        resource_version="1",
        owner_uid="job-uid",
        generation=3,
        observed_generation=3,
        desired=desired,
        scheduled=desired,
        annotations={names.ANNOTATION_NODES_HASH: nodes_hash({})},
    )
    return replace(found, **changes)


def make_node(name: str, **changes: Any) -> Node:
    return replace(Node(name, f"{name}-uid", "1", created_at=NOW - timedelta(days=1)), **changes)


def make_pod(node: str, **changes: Any) -> Pod:
    pod = Pod(
        namespace="default",
        name=f"sample-{node}",
        uid=f"pod-{node}",
        resource_version="1",
        owner_uid="ds-uid",
        node_name=node,
        is_scheduled=True,
        phase="Running",
        created_at=NOW,
        container=Container("running"),
    )
    return replace(pod, **changes)


def done(node: str, uid: str | None = None) -> Evidence:
    return Evidence(uid or f"{node}-uid", STAMP, f"sample-{node}", f"pod-{node}")


def make_report(
    evidence: Mapping[str, Evidence] | None = None, shard: int = 0, **changes: Any
) -> JobReport:
    report = JobReport(
        namespace="default",
        name=f"sample-{shard}",
        uid=f"report-{shard}",
        resource_version="1",
        job_name="sample",
        job_uid="job-uid",
        shard=shard,
        evidence=evidence or {},
    )
    return replace(report, **changes)


def running(restarts: int) -> Container:
    """A task that runs after that many restarts."""
    return Container("running", restart_count=restarts, last_finished_at=NOW)


def waiting(restarts: int, *, ended: bool = True) -> Container:
    """A task that waits in back-off; unless `ended`, no end of it is known."""
    return Container(
        "waiting",
        reason="CrashLoopBackOff",
        restart_count=restarts,
        last_exit_code=1 if ended else None,
        last_finished_at=NOW if ended else None,
    )
