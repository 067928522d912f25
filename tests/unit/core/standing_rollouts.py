"""A rollout of a Job of policy Continuous, pass by pass."""

from dataclasses import replace
from typing import Any

from daemonset_job.api.rollout import Rollout
from job_controller.core.plan import RemoveSchedulingGates
from tests.unit.core.rollouts import RolloutWorld
from tests.unit.core.standing_jobs import CONTINUOUS, change


class StandingWorld(RolloutWorld):
    """A Job of policy Continuous; `ran` has the nodes and the revisions of their pods."""

    def __init__(self, *node_names: str, rollout: Rollout, **changes: Any) -> None:
        super().__init__(*node_names, rollout=rollout)
        change(self.cluster, completion=CONTINUOUS, **changes)
        job = self.cluster.job
        self.cluster.job = replace(job, status=replace(job.status, revision=job.revision))
        self.cluster.pods = [replace(pod, revision=self.revision) for pod in self.cluster.pods]
        self.ran: list[tuple[str, str]] = []

    @property
    def revision(self) -> str:
        return self.cluster.job.revision

    def put(self, pod: Any) -> None:
        super().put(replace(pod, revision=self.revision))

    def _execute(self, action: Any) -> None:
        if isinstance(action, RemoveSchedulingGates):
            self.ran += [(pod.node_name, pod.revision) for pod in action.pods]
        super()._execute(action)

    def complete(self, *node_names: str) -> None:
        super().complete(*node_names)
        for name in node_names:
            entry = replace(self.cluster.evidence[name], revision=self.revision)
            self.cluster.evidence[name] = entry

    @property
    def at_work(self) -> list[str]:
        done = {entry.pod_uid for entry in self.cluster.evidence.values()}
        return sorted(
            pod.node_name for pod in self.cluster.pods if not pod.is_gated and pod.uid not in done
        )

    def finish(self, limit: int = 60) -> None:
        """Complete and approve whatever there is, and take the approval back."""
        for _ in range(limit):
            self.step()
            self.complete(*self.at_work)
            self.request(approved_step=1)
        assert self.phase == "Succeeded"
        self.request()

    def ran_newest(self) -> list[str]:
        return [name for name, revision in self.ran if revision == self.revision]

    def change_and_lag(self) -> None:
        """Change what the Job runs; the DaemonSet controller sees it some passes later."""
        change(self.cluster, args=("x",))
        self.cluster.observed = False
        self.step(4)
        self.cluster.observed = True
        self.step(10)
