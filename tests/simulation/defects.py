"""What clusters do to a run, each with a defect that nothing else makes visible.

| what clusters do                      | switched off by   | the mutant that needs it       |
|---------------------------------------|-------------------|--------------------------------|
| taints that come and go               | `taints`          | `ignores_taints`               |
| cordons                               | `cordons`         | `excludes_cordoned_nodes`      |
| numberMisscheduled                    | `taints`          | `ignores_misscheduled`         |
| tasks that end with 0 on TERM         | `endings`         | `completes_at_exit_after_term` |
| grace periods that tasks use          | `grace_periods`   | `takes_deleted_pods_for_ended` |
| evictions and drains                  | `evictions`       | `fails_nodes_by_eviction`      |
| clocks of nodes                       | `node_clocks`     | `uses_node_clocks`             |
| clocks of two API servers             | `api_clocks`      | `uses_api_clocks`              |
| API servers' clocks that differ       | `clock_gaps`      | `compares_api_clocks`          |
| volumes that cannot be mounted        | `volumes`         | `never_fails_unstarted_tasks`  |
| init containers that do not end       | `init_containers` | `never_fails_unstarted_tasks`  |
| pods that the kubelet rejects         | `rejections`      | `never_fails_unstarted_tasks`  |
| refused writes                        | `refusals`        | `hides_refusals`               |
| writes that are refused as too large  | `refusals`        | `repeats_too_large_writes`     |
| spec edits: wider, narrower, and back | `edits`           | `ignores_edits`                |
| a controller that is away             | `absences`        | `skips_started_jobs`           |
| watches that lag one at a time        | `lags`            | `waits_for_no_cache`           |
| node reboots                          | `reboots`         | `resets_rebooted_nodes`        |
| late answers of an old revision       | `old_lists`       | `waits_for_no_cache`           |
| objects near their size limit         | `sizes`           | `fills_first_shard_only`       |

A mutant is a context manager that breaks the code under test in one place, as in `mutants`; the
switches are in `switches`. `DEFECTS` names for each line some schedules that show both: the mutant
is caught with the disturbance, and not without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from types import ModuleType
from typing import Any
from unittest.mock import patch

from daemonset_job.api import daemon_set, node, pod
from daemonset_job.api import job as jobs
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport
from daemonset_job.kube.client.errors import KubeError, TooLarge
from daemonset_job.runtime import worker
from daemonset_job.runtime.expectations import VersionExpectations
from daemonset_job.runtime.worker import Reconcile
from daemonset_job.runtime.workqueue import WorkQueue
from job_controller import main, reconciler
from job_controller.actions import errors
from job_controller.caches import Caches
from job_controller.core import decide as decision
from job_controller.core.state import counting as tally
from job_controller.core.state import desired_count, node_state, run_state
from job_controller.core.state import node_observed as observed
from job_controller.core.state.node_context import NodeInputs, RunContext
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.node_state import NodeAssessment
from job_controller.core.state.snapshot import Snapshot
from terminator import reconciler as terminator
from terminator.ledger import assignment, writer
from tests.simulation import mutants, start_mutants, switches
from tests.simulation.generator import generate_schedule
from tests.simulation.record_mutants import Mutant
from tests.simulation.run import simulate
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.switches import Switch

# --- defects ------------------------------------------------------------------------------


@contextmanager
def _parsed(
    module: ModuleType, name: str, adapt: Callable[[dict[str, Any]], dict[str, Any]]
) -> Iterator[None]:
    """Read objects of a class of `module` with other values for some of their fields."""
    real = getattr(module, name)
    with patch.object(module, name, lambda **fields: real(**{**fields, **adapt(fields)})):
        yield


@contextmanager
def ignores_taints() -> Iterator[None]:
    """Taints of nodes are not read."""
    with patch.object(node, "parse_taints", lambda _: ()):
        yield


@contextmanager
def excludes_cordoned_nodes() -> Iterator[None]:
    """A node that is cordoned is taken for one that no pod may run on."""
    real = tally.count_nodes

    def take(snapshot: Snapshot, now: datetime) -> NodeCounts:
        nodes = {name: node for name, node in snapshot.nodes.items() if not node.is_cordoned}
        return real(replace(snapshot, nodes=nodes), now)

    with patch.object(decision, "count_nodes", take):
        yield


@contextmanager
def ignores_misscheduled() -> Iterator[None]:
    """Nodes that keep a pod which they should not have are not counted."""
    with _parsed(daemon_set, "DaemonSet", lambda _: {"misscheduled": 0}):
        yield


@contextmanager
def completes_at_exit_after_term() -> Iterator[None]:
    """A task that ended with 0 has done its work, even in a pod that was being deleted."""

    def has_succeeded(pod: Pod) -> bool:
        container = pod.container
        return (
            container is not None and container.state == "terminated" and container.exit_code == 0
        )

    with patch.object(terminator, "has_succeeded", has_succeeded):
        yield


@contextmanager
def takes_deleted_pods_for_ended() -> Iterator[None]:
    """A pod has ended at its deletion, and not when its task has."""
    real = pod.Pod.is_terminal.fget  # type: ignore[attr-defined]
    early = property(lambda self: self.is_terminating or real(self))
    with patch.object(pod.Pod, "is_terminal", early):
        yield


@contextmanager
def fails_nodes_by_eviction() -> Iterator[None]:
    """A task whose pod was ended because of its node is judged by its exit code."""
    never = property(lambda _: False)
    with patch.object(pod.Pod, "is_disrupted", never), patch.object(pod.Pod, "is_rejected", never):
        yield


@contextmanager
def uses_node_clocks() -> Iterator[None]:
    """A node's deadline counts from the time that its kubelet wrote."""
    real = observed._active_since

    def active_since(context: RunContext, record: NodeRecord, pod: Pod) -> datetime | None:
        found = real(context, record, pod)
        is_new = found != record.active_since and pod.started_at is not None
        return pod.started_at if is_new else found

    with patch.object(observed, "_active_since", active_since):
        yield


@contextmanager
def uses_api_clocks() -> Iterator[None]:
    """A run's deadline counts from when the API server says that the Job was created."""
    real = run_state.deadline

    def deadline(job: Job, now: datetime) -> datetime | None:
        if job.created_at is None or job.status.start_time is None:
            return real(job, now)
        status = replace(job.status, start_time=job.created_at)
        return real(replace(job, status=status), now)

    with patch.object(run_state, "deadline", deadline):
        yield


@contextmanager
def compares_api_clocks() -> Iterator[None]:
    """A report that is older than its Job is taken for that of an earlier Job of that name."""
    real = Caches.reports_of

    def reports_of(self: Caches, key: JobKey) -> tuple[JobReport, ...]:
        job, found = self.job(key), real(self, key)
        if job is None or job.created_at is None:
            return found
        since = job.created_at
        return tuple(each for each in found if each.created_at is None or each.created_at >= since)

    with patch.object(Caches, "reports_of", reports_of):
        yield


@contextmanager
def hides_refusals() -> Iterator[None]:
    """A write that is refused is tried again and again, and no status shows it."""
    with patch.object(reconciler, "refused_write", lambda _action: None):
        yield


@contextmanager
def repeats_too_large_writes() -> Iterator[None]:
    """A write that is refused as too large is tried again and again."""
    real = errors.is_refusal

    def is_refusal(error: KubeError) -> bool:
        return real(error) and not isinstance(error, TooLarge)

    with patch.object(reconciler, "is_refusal", is_refusal):
        yield


@contextmanager
def ignores_edits() -> Iterator[None]:
    """Any DaemonSet of the Job counts as one for the current spec.nodes."""
    with (
        patch.object(jobs, "nodes_hash", lambda _: ""),
        patch.object(desired_count, "has_same_placement", lambda *_: True),
    ):
        yield


@contextmanager
def skips_started_jobs() -> Iterator[None]:
    """A controller that starts looks at no Job that has been started, until something changes."""
    real_run = worker.run_workers

    async def run(queue: WorkQueue[JobKey], reconcile: Reconcile[JobKey], **more: Any) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        old = {job.uid for job in caches[-1].jobs() if job.status.start_time is not None}

        async def one(key: JobKey) -> float | None:
            # What a restart looks at by itself is due within the time that changes are gathered.
            job = caches[-1].job(key)
            if loop.time() - started < 1.0 and job is not None and job.uid in old:
                return None
            return await reconcile(key)

        await real_run(queue, one, **more)

    real_caches = Caches
    caches: list[Caches] = []

    def remembered(*some: Any, **more: Any) -> Caches:
        caches.append(real_caches(*some, **more))
        return caches[-1]

    with patch.object(main, "run_workers", run), patch.object(main, "Caches", remembered):
        yield


@contextmanager
def resets_rebooted_nodes() -> Iterator[None]:
    """A completed node whose task is at work again has not completed."""
    real = node_state.assess_node

    def reopen(context: RunContext, inputs: NodeInputs) -> NodeAssessment:
        container = inputs.pod.container
        is_exit = context.spec.completion.mode == "Exit"
        if is_exit and container is not None and container.state != "terminated":
            inputs = replace(inputs, evidence=None, record=None)
        return real(context, inputs)

    with patch.object(tally, "assess_node", reopen):
        yield


@contextmanager
def waits_for_no_cache() -> Iterator[None]:
    """A pass waits for no cache, and gates are removed on the ledger that is cached."""

    def is_ready(self: VersionExpectations[JobKey], key: JobKey) -> bool:
        self.forget(key)
        return True

    with (
        patch.object(VersionExpectations, "is_ready", is_ready),
        mutants.removes_gates_by_cached_ledger(),
    ):
        yield


@contextmanager
def fills_first_shard_only() -> Iterator[None]:
    """All evidence goes to the first shard, whatever it holds already."""
    real = assignment.assign_to_shards

    def assign_to_shards(
        pending: Mapping[str, Evidence], shards: Iterable[JobReport], _rule: Any, **how: Any
    ) -> dict[str, Any]:
        first = sorted(shards, key=lambda report: report.shard)[:1]
        return real(pending, first, **how)

    with patch.object(writer, "assign_to_shards", assign_to_shards):
        yield


# --- which disturbance shows which defect -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defect:
    """A mutant, the switch for the disturbance that it needs, and schedules that show that.

    A schedule is a seed, or one of its own where seeds that show it are too rare.
    """

    mutant: Mutant
    switch: Switch
    schedules: tuple[int | Schedule, ...] = ()

    def __str__(self) -> str:
        return self.mutant.__name__

    def shows(self, schedule: Schedule | int) -> bool:
        """Return whether the mutant is caught with the schedule's defect, and not without."""
        if isinstance(schedule, int):
            schedule = generate_schedule(schedule)
        calmer = self.switch(schedule)
        if calmer == schedule:
            return False
        with self.mutant():
            is_caught = bool(simulate(schedule).violations)
            return is_caught and not simulate(calmer).violations


_TWO_NODES = (NodePlan("n1"), NodePlan("n2", (Task("done", 3.0),)))
# The pod of a node goes that has completed since the controller last saw the ledger.
_BUSY_NODES = (NodePlan("n1", (Task("done", 3.0),)), NodePlan("n2", (Task("never"),)))
_LOST_POD = Disturbance(8.0, "delete_pod", what="n1")
LATE_LEDGER, OLD_LEDGER = (
    Schedule(
        0,
        _BUSY_NODES,
        (JobPlan(),),
        (Disturbance(2.0, kind, "controller", "jobreports", seconds=20.0), _LOST_POD),
        calm=True,
    )
    for kind in ("stall", "list_late")
)
# Everything happens while the controller is away.
LONG_ABSENCE = Schedule(
    0, _TWO_NODES, (JobPlan(),), (Disturbance(0.8, "crash", "controller", seconds=60.0),), calm=True
)
# The DaemonSet controller removes the first evicted pod of a node at once. Later ones stay longer.
THREE_EVICTIONS = Schedule(
    0,
    (NodePlan("n1", (Task("done", 40.0),)), NodePlan("n2", (Task("done", 3.0),))),
    (
        JobPlan(
            spec={
                "image": "example/task:1",
                "backoffLimit": 0,
                "completion": {"mode": "Exit"},
                "failureLogLines": 0,  # else the pods are gone before they are judged
            }
        ),
    ),
    tuple(Disturbance(at, "evict", what="n1") for at in (3.0, 4.5, 6.0)),
    calm=True,
)

# The task works on for the grace period of its pod, on a node that is cordoned for it.
USED_GRACE_PERIOD = Schedule(
    0,
    (NodePlan("n1", (Task("done", 60.0, on_term="deaf"),)), NodePlan("n2")),
    (JobPlan(spec={"image": "example/task:1", "cordon": True}),),
    (Disturbance(5.0, "delete_pod", what="n1"),),
    calm=True,
)
# The API server that users talk to is ahead of that of the controller.
FAR_CLOCKS = Schedule(0, _TWO_NODES, (JobPlan(),), calm=True, api_skews=(0.0, 600.0))

DEFECTS = (
    Defect(ignores_taints, switches.taints, (1191,)),
    Defect(excludes_cordoned_nodes, switches.cordons, (12, 70, 79)),
    Defect(ignores_misscheduled, switches.taints, (9, 14, 47)),
    Defect(completes_at_exit_after_term, switches.endings, (48, 54, 199)),
    Defect(takes_deleted_pods_for_ended, switches.grace_periods, (USED_GRACE_PERIOD,)),
    Defect(fails_nodes_by_eviction, switches.evictions, (THREE_EVICTIONS,)),
    Defect(uses_node_clocks, switches.node_clocks, (37, 170, 182)),
    Defect(uses_api_clocks, switches.api_clocks, (152,)),
    Defect(compares_api_clocks, switches.clock_gaps, (FAR_CLOCKS,)),
    Defect(start_mutants.never_fails_unstarted_tasks, switches.volumes, (72, 138, 402)),
    Defect(start_mutants.never_fails_unstarted_tasks, switches.init_containers, (54, 445, 1129)),
    Defect(start_mutants.never_fails_unstarted_tasks, switches.rejections, (426, 690, 775)),
    Defect(hides_refusals, switches.refusals, (188, 340, 436, 503)),
    Defect(repeats_too_large_writes, switches.refusals, (188, 515, 527, 858)),
    Defect(ignores_edits, switches.edits, (947, 1096, 1340)),
    Defect(skips_started_jobs, switches.absences, (LONG_ABSENCE,)),
    Defect(waits_for_no_cache, switches.lags, (LATE_LEDGER,)),
    Defect(waits_for_no_cache, switches.old_lists, (OLD_LEDGER,)),
    Defect(resets_rebooted_nodes, switches.reboots, (566, 1233, 1782)),
    Defect(fills_first_shard_only, switches.sizes, (5, 11, 31)),
)
