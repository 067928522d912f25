"""A rollout with Jobs of its own, which pull images or run scripts; how they end is scripted."""

from dataclasses import replace
from typing import Any

from daemonset_job.api.job import Job, parse_job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.states import ConditionType, Phase
from daemonset_job.api.times import format_time
from job_controller.core.job_actions import CreateJob, DeleteJob
from job_controller.core.plan import Plan
from tests.unit.core.rollouts import RolloutWorld
from tests.unit.core.standing_rollouts import StandingWorld


class PartsWorld(RolloutWorld):
    """A rollout; `owned` are the Jobs that it owns, `created` the names of all that it created."""

    def __init__(self, *node_names: str, rollout: Rollout, **changes: Any) -> None:
        super().__init__(*node_names, rollout=rollout, **changes)
        self.owned: dict[str, Job] = {}
        self.created: list[str] = []

    def step(self, passes: int = 1) -> Plan:
        for _ in range(passes):
            self.extra["owned_jobs"] = tuple(self.owned.values())
            super().step()
        return self.plan

    def crash_after(self, actions: int) -> None:
        """Decide, and end after that many actions."""
        self.limit = actions
        self.step()
        self.limit = None

    def _execute(self, action: Any) -> None:
        match action:
            case CreateJob():
                self._create(action.body)
            case DeleteJob():
                assert self.owned.pop(action.name).uid == action.uid
            case _:
                super()._execute(action)

    def _create(self, body: Any) -> None:
        name = body["metadata"]["name"]
        assert name not in self.owned
        self.created.append(name)
        meta = {**body["metadata"], "uid": f"{name}-uid-{len(self.created)}"}
        meta["creationTimestamp"] = format_time(self.now)
        self.owned[name] = parse_job({**body, "metadata": meta})

    def end_owned(self, name: str, message: str = "", **nodes: Any) -> None:
        """End an owned Job: it has failed with a message, or succeeded without one."""
        type_, reason, phase = ConditionType.COMPLETE, "AllNodesCompleted", Phase.SUCCEEDED
        if message:
            type_, phase = ConditionType.FAILED, Phase.FAILED
            reason = nodes.pop("reason", FailedReason.MAX_FAILED_NODES_EXCEEDED)
        self.show_owned(name, Condition(type_, True, reason, message), phase=phase, **nodes)

    def show_owned(self, name: str, *conditions: Condition, phase: Any = "", **nodes: Any) -> None:
        """Give an owned Job a status with conditions, and with totals of its nodes."""
        job = self.owned[name]
        desired = nodes.pop("desired", len(job.spec.nodes.include) or len(self.cluster.nodes))
        nodes.setdefault("completed", desired)
        status = JobStatus(
            phase=phase or Phase.RUNNING,
            start_time=self.now,
            nodes=NodeTotals(desired=desired, **nodes),
            conditions=conditions,
        )
        self.owned[name] = replace(job, status=status)


class StandingPartsWorld(PartsWorld, StandingWorld):
    """The same for a Job of policy Continuous."""
