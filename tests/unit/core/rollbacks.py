"""A run that is rolled back, on a cluster that obeys at once; the rollback's Jobs are scripted."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job, parse_job
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import parse_report_status
from daemonset_job.api.rollback_status import RollbackStatus
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.rollout_requests import RolloutRequests
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.job_actions import CreateJob
from job_controller.core.plan import Plan, RefusedWrite
from tests.unit.builders import seen_before
from tests.unit.core.rollouts import RolloutWorld

SPEC: Mapping[str, Any] = {
    "image": "example/task:1",
    "args": ["apply"],
    "rollback": {"args": ["undo"]},
    "failurePolicy": {"action": "Rollback"},
    "rollout": {"maxParallel": 1},
}


class RollbackWorld(RolloutWorld):
    """A rollout whose Job has a rollback. `refused` are writes that the API server refuses."""

    def __init__(self, *node_names: str, **changes: Any) -> None:
        raw = {key: part for key, part in {**SPEC, **changes}.items() if part is not None}
        super().__init__(*node_names, rollout=Rollout(max_parallel=1))
        self.cluster.job = replace(self.cluster.job, raw_spec=raw, spec=parse_spec(raw))
        self.refused: dict[RefusedWrite, str] = {}
        self.created: list[dict[str, Any]] = []
        self.events: list[tuple[str, str]] = []
        self.owned: dict[str, Job] = {}
        self.done: dict[str, set[str]] = {}
        # By the name of a Job of the rollback: raw records of its report.
        self.records: dict[str, dict[str, Any]] = {}

    def step(self, passes: int = 1) -> Plan:
        for _ in range(passes):
            reports = tuple(self._report(owned) for owned in self.owned.values())
            self.extra.update(
                owned_jobs=tuple(self.owned.values()),
                owned_reports=reports,
                refusals=dict(self.refused),
            )
            super().step()
            self.events += [(event.type, str(event.reason)) for event in self.plan.events]
        return self.plan

    def _execute(self, action: Any) -> None:
        if isinstance(action, CreateJob):
            name = action.body["metadata"]["name"]
            assert name not in self.owned
            self.created.append(dict(action.body))
            meta = {**action.body["metadata"], "uid": f"{name}-uid"}
            self.owned[name] = parse_job({**action.body, "metadata": meta})
            self.done[name] = set()
        super()._execute(action)

    def _report(self, owned: Job) -> JobReport:
        evidence = {
            name: Evidence(f"{name}-uid", completed_at="2026-01-02T03:04:00Z")
            for name in self.done[owned.name]
        }
        status = parse_report_status({"nodeStates": self.records.get(owned.name, {})})
        return JobReport(
            "default",
            f"{owned.name}-report",
            "u",
            "1",
            owned.name,
            owned.uid,
            evidence=evidence,
            status=status,
        )

    def included(self, number: int = 0) -> list[str]:
        return list(self.created[number]["spec"]["nodes"]["include"])

    def end_rollback(self, name: str = "sample-rollback", *done: str, failed: str = "") -> None:
        """Let a Job of the rollback end: on all of its nodes, or on those named."""
        owned = self.owned[name]
        self.done[name] = set(done or (() if failed else owned.spec.nodes.include))
        type_ = ConditionType.FAILED if failed else ConditionType.COMPLETE
        status = JobStatus(
            phase=Phase.FAILED if failed else Phase.SUCCEEDED,
            report=f"{name}-report",
            conditions=(Condition(type_, True, "Why", failed),),
        )
        self.owned[name] = replace(owned, status=status)

    def ask(self, why: str = "it was wrong", by: str = "kubectl-annotate") -> None:
        requests = RolloutRequests(rollback=why, rollback_by=by)
        self.cluster.job = replace(self.cluster.job, requests=requests)

    def run_until_failure(self, failing: str) -> None:
        """Complete each node in its turn, up to one that fails."""
        for _ in range(60):
            self.step()
            if failing in self.at_work:
                self.fail(failing)
                self.step(3)
                return
            self.complete(*self.at_work)
        raise AssertionError(f"{failing} had no turn")

    @property
    def rollback(self) -> RollbackStatus | None:
        return self.cluster.job.status.rollback

    @property
    def rolled_back(self) -> tuple[str, str]:
        """The status and the reason of the condition, ("", "") without it."""
        found = self.cluster.job.condition(ConditionType.ROLLED_BACK)
        return ("", "") if found is None else (str(found.status), str(found.reason))

    @property
    def message(self) -> str:
        found = self.cluster.job.condition(ConditionType.ROLLED_BACK)
        return found.message if found is not None else ""

    @property
    def report(self) -> dict[str, Any]:
        return self.cluster.report_status or {}

    def history(self) -> list[str]:
        return [entry["reason"] for entry in self.report.get("history") or ()]

    def is_at_rest(self) -> bool:
        """Whether one more pass does nothing."""
        self.step()
        return not self.plan.actions

    def wait(self, **time: int) -> None:
        self.now += timedelta(**time)


__all__ = ["SPEC", "RollbackWorld", "seen_before"]
