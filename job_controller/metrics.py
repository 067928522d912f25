"""What the controller counts. Labels are bounded: names of 100 Jobs at most, none of nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.reasons import CancelledReason, CompleteReason, FailedReason, NodeReason
from daemonset_job.api.report import JobReport
from daemonset_job.api.states import FINAL_PHASES, ConditionType, Phase
from daemonset_job.process.program_metrics import ProgramMetrics
from job_controller.last_run_metrics import LastRunCollector
from job_controller.notification_metrics import NotificationMetrics
from job_controller.progress_metrics import ProgressCollector

_PHASES = (
    Phase.PENDING,
    Phase.RUNNING,
    Phase.PAUSED,
    Phase.SUCCEEDED,
    Phase.FAILED,
)
# How a run can end: its phase, and the reason of the condition that says so.
_ENDS = (
    (Phase.SUCCEEDED, CompleteReason.ALL_NODES_COMPLETED),
    (Phase.SUCCEEDED, CompleteReason.COMPLETED_WITHIN_FAILURE_LIMIT),
    (Phase.FAILED, FailedReason.MAX_FAILED_NODES_EXCEEDED),
    (Phase.FAILED, FailedReason.DEADLINE_EXCEEDED),
    (Phase.CANCELLED, CancelledReason.JOB_DELETED),
)
# Why a node can fail.
_NODE_REASONS = (
    NodeReason.BACKOFF_LIMIT_EXCEEDED,
    NodeReason.FAILURE_POLICY_RULE,
    NodeReason.FAILURE_TOKEN,
    NodeReason.DEADLINE_EXCEEDED,
    NodeReason.IMAGE_PULL_FAILED,
    NodeReason.CONTAINER_START_FAILED,
    NodeReason.POD_REJECTED,
    NodeReason.UNSCHEDULABLE,
)
_OTHER = "Other"
_STATES = ("waiting", "active", "completed", "failed", "unreachable")
# Jobs of which the nodes are given one by one; the sums are of all of them.
JOBS_LIMIT = 100
# Which Jobs come first there: those that work, then those that are about to, then the others.
_RANKS: Mapping[str, int] = {
    Phase.RUNNING: 0,
    Phase.PENDING: 1,
    Phase.PAUSED: 2,
    Phase.FAILED: 3,
    Phase.SUCCEEDED: 4,
}


class Metrics(ProgramMetrics):
    """The controller's metrics."""

    def __init__(self) -> None:
        super().__init__("controller")
        self.reconcile_seconds = Histogram(
            "dsj_reconcile_duration_seconds",
            "Duration of one reconcile of a Job.",
            registry=self.registry,
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2, 10),
        )
        self.run_seconds = Histogram(
            "dsj_run_duration_seconds",
            "Duration of a run from start to end, by how it ended.",
            ["phase"],
            registry=self.registry,
            buckets=(5, 15, 60, 300, 900, 3600, 14400, 86400),
        )
        for phase in FINAL_PHASES:
            self.run_seconds.labels(phase)
        self._runs_ended = Counter(
            "dsj_runs_ended",
            "Runs that ended, by how and why.",
            ["phase", "reason"],
            registry=self.registry,
        )
        for phase, reason in _ENDS:
            self._runs_ended.labels(phase, reason)
        self._nodes_failed = Counter(
            "dsj_nodes_failed",
            "Nodes that failed, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for node_reason in (*_NODE_REASONS, _OTHER):
            self._nodes_failed.labels(node_reason)
        self.notifications = NotificationMetrics(self.registry)
        self.policies_missing = Gauge(
            "dsj_admission_policies_missing",
            "Admission policies of deploy/ that are not in force; NaN: not known.",
            registry=self.registry,
        )
        self.policies_missing.set(math.nan)

    def count_end(self, before: JobStatus, after: JobStatus) -> None:
        """Count a run whose written status says, other than before, that it has ended."""
        if after.phase not in FINAL_PHASES or before.phase == after.phase:
            return
        is_success = after.phase == Phase.SUCCEEDED
        type_ = ConditionType.COMPLETE if is_success else ConditionType.FAILED
        condition = after.condition(type_)
        end = after.phase, condition.reason if condition is not None else ""
        self._runs_ended.labels(*(end if end in _ENDS else (after.phase, _OTHER))).inc()
        began, ended = after.start_time, after.completion_time
        if began is not None and ended is not None:
            seconds = max((ended - began).total_seconds(), 0.0)
            self.run_seconds.labels(after.phase).observe(seconds)

    def count_cancelled(self) -> None:
        """Count a run whose Job was deleted before it had ended."""
        self._runs_ended.labels(Phase.CANCELLED, CancelledReason.JOB_DELETED).inc()

    def count_failed_nodes(self, reasons: Iterable[str]) -> None:
        """Count nodes that are recorded as failed and were not before, each by its reason."""
        for reason in reasons:
            self._nodes_failed.labels(reason if reason in _NODE_REASONS else _OTHER).inc()

    def watch_jobs(self, jobs: Callable[[], Iterable[Job]], monotonic: Callable[[], float]) -> None:
        """Export Jobs and nodes by state, read from the cache at each scrape."""
        self.registry.register(_JobCollector(jobs))
        self.registry.register(ProgressCollector(jobs, monotonic))

    def watch_reports(self, reports: Callable[[], Iterable[JobReport]]) -> None:
        """Export how the last run of each name of a Job ended, read from the cache."""
        self.registry.register(LastRunCollector(reports))


class _JobCollector(Collector):
    def __init__(self, jobs: Callable[[], Iterable[Job]]) -> None:
        self._jobs = jobs

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        phases = dict.fromkeys(map(str, _PHASES), 0)
        states = dict.fromkeys(_STATES, 0)
        by_job = GaugeMetricFamily(
            "dsj_job_nodes",
            f"Nodes of a Job, by state; of {JOBS_LIMIT} Jobs, those that run first.",
            labels=["namespace", "job", "state"],
        )
        for place, job in enumerate(_in_order(self._jobs())):
            phase = _phase(job)
            phases[phase] = phases.get(phase, 0) + 1
            for state, count in _node_counts(job).items():
                states[state] += count
                if place < JOBS_LIMIT:
                    by_job.add_metric([job.namespace, job.name, state], count)
        by_phase = GaugeMetricFamily("dsj_jobs", "Jobs, by phase.", labels=["phase"])
        for phase, count in phases.items():
            by_phase.add_metric([phase], count)
        by_state = GaugeMetricFamily("dsj_nodes", "Nodes of all Jobs, by state.", labels=["state"])
        for state, count in states.items():
            by_state.add_metric([state], count)
        return (by_phase, by_state, by_job)


def _in_order(jobs: Iterable[Job]) -> list[Job]:
    """Return the Jobs by phase, and of one phase one of each namespace after the other.

    So the Jobs of one namespace, of any number and age, never fill the list alone.
    """
    places: dict[tuple[str, int], int] = {}
    keyed = []
    for job in sorted(jobs, key=_age):
        own = job.namespace, _RANKS.get(_phase(job), len(_RANKS))
        places[own] = places.get(own, 0) + 1
        keyed.append((own[1], places[own], job))
    return [job for _, _, job in sorted(keyed, key=lambda each: each[:2])]


def _node_counts(job: Job) -> dict[str, int]:
    nodes = job.status.nodes or NodeTotals()
    return {
        "waiting": nodes.waiting,
        "active": nodes.active,
        "completed": nodes.completed,
        "failed": nodes.failed,
        "unreachable": nodes.unreachable,
    }


def _phase(job: Job) -> str:
    return str(job.status.phase or Phase.PENDING)


def _age(job: Job) -> tuple[float, str, str]:
    created = job.created_at.timestamp() if job.created_at is not None else 0.0
    return created, job.namespace, job.name
