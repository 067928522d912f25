"""The state of one node, for tests: what its container shows, and what is made of it."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import JobSpec
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from job_controller.core.settings import Timeouts
from job_controller.core.state.first_seen import ObservedObjects, update_sightings
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_state import NodeAssessment, assess_node
from tests.unit.builders import NOW, START, make_node, make_pod

SPEC = JobSpec(image="i", backoff_limit=1)
OLD = NOW - timedelta(seconds=30)


def assess(
    pod: Pod | None = None,
    *,
    evidence: Evidence | None = None,
    record: NodeRecord | None = None,
    node: Node | None = None,
    spec: JobSpec = SPEC,
    retry: str = "",
    now: datetime = NOW,
    seen: float | None = 30,
    ended_at: datetime | None = None,
) -> NodeAssessment:
    """Judge a node that the controller first saw `seen` seconds ago (None: at this look)."""
    node, pod = node or make_node("a"), pod or make_pod("a")
    failed = frozenset({"a"} if record is not None and record.state == "Failed" else ())
    since = now - timedelta(seconds=seen or 0)
    ends = {record.pod_uid: record.finished_in_pod} if record is not None else {}
    sightings = update_sightings(
        {}, ObservedObjects({"a": pod}, {"a": node}, failed, retry=retry, ended=ends), since
    )
    timeouts = Timeouts(start_seconds=300, unreachable_seconds=60)
    context = RunContext(spec, retry, timeouts, now, sightings, ended_at)
    return assess_node(context, NodeInputs(node, pod, evidence, record))


def with_container(**changes: Any) -> Pod:
    return make_pod("a", container=replace(Container(state="running"), **changes))


def crashed(code: int = 2, restarts: int = 0, at: datetime | None = OLD, **changes: Any) -> Pod:
    return with_container(
        state="waiting",
        reason="CrashLoopBackOff",
        restart_count=restarts,
        last_exit_code=code,
        last_finished_at=at,
        **changes,
    )


def ended(code: int, restarts: int = 0, at: datetime | None = OLD, reason: str = "Error") -> Pod:
    return with_container(
        state="terminated",
        exit_code=code,
        reason=reason,
        restart_count=restarts,
        finished_at=at,
        started_at=START,
    )
