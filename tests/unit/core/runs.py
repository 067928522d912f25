"""Runs on a few nodes, for tests of the run as a whole: one fails, one is lost, a retry."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from daemonset_job.api import names
from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.node import Node
from daemonset_job.api.pod import Pod
from job_controller.core.decide import decide
from job_controller.core.plan import Plan, WriteReportStatus, WriteStatus
from tests.unit.builders import (
    NOW,
    START,
    SampleCluster,
    done,
    gated_pod,
    make_cluster,
    make_node,
    make_pod,
    seen_before,
)

Kind = TypeVar("Kind")
# A task that has ended with 2 once more than it may.
FAILED = Container(
    state="waiting",
    reason="CrashLoopBackOff",
    last_exit_code=2,
    last_finished_at=START,
    restart_count=9,
)


def failing(node: str) -> Pod:
    return make_pod(node, container=FAILED)


def lost(name: str) -> Node:
    return make_node(name, ready=False, ready_changed_at=START - timedelta(hours=1))


def reason_of(plan: Plan) -> str:
    """Return the reason of the condition Progressing that a plan writes."""
    (status,) = [a.status.to_raw() for a in plan.actions if isinstance(a, WriteStatus)]
    (found,) = [c["reason"] for c in status["conditions"] if c["type"] == "Progressing"]
    return str(found)


def run(
    cluster: SampleCluster,
    now: datetime = NOW,
    seen: timedelta = timedelta(minutes=1),
    **changes: Any,
) -> Plan:
    """Decide, take over what the plan writes, and return the plan.

    `seen` is for how long the controller has seen all that is there, and `changes` are of the
    snapshot. The API server would take the DaemonSet of a Job that has not started.
    """
    snapshot = cluster.snapshot(is_dry_run_done=True, **changes)
    plan = decide(seen_before(snapshot, seen, now), now)
    for action in plan.actions:
        if isinstance(action, WriteStatus):
            cluster.job = replace(cluster.job, status=action.status)
        if isinstance(action, WriteReportStatus):
            cluster.report_status = action.status.to_raw()
    return plan


def spec(cluster: SampleCluster, **changes: Any) -> SampleCluster:
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, **changes))
    return cluster


def three_nodes(action: str = "FailFast", allowed: int = 0, **changes: Any) -> SampleCluster:
    """Return a world in which b fails, a is done and c works; all pods are kept."""
    cluster = make_cluster("a", "b", "c", gated=True, evidence={"a": done("a")}, **changes)
    cluster.pods[1] = failing("b")
    return spec(
        cluster, failure_policy=FailurePolicy(FailureAction(action), allowed, pods=PodPolicy.KEEP)
    )


def conditions(cluster: SampleCluster) -> dict[str, tuple[str, str]]:
    return {
        c["type"]: (c["status"], c["reason"]) for c in cluster.job.status.to_raw()["conditions"]
    }


def acts(plan: Plan, kind: type[Kind]) -> list[Kind]:
    """Return the actions of a plan that are of one type."""
    return [action for action in plan.actions if isinstance(action, kind)]


def retried(cluster: SampleCluster) -> SampleCluster:
    """Ask for a retry; return a world in which the failed node has its next pod, which waits."""
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    cluster.pods[1] = gated_pod("b", serial=5)
    return cluster


def completion_time(cluster: SampleCluster) -> str:
    return str(cluster.job.status.to_raw()["completionTime"])
