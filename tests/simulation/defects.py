"""What clusters do to a run, each with a defect that nothing else makes visible.

| what clusters do                      | switched off by   | the mutant that needs it    |
|---------------------------------------|-------------------|-----------------------------|
| taints that come and go               | `taints`          | `knows_no_taints`           |
| cordons                               | `cordons`         | `minds_cordons`             |
| numberMisscheduled                    | `taints`          | `ignores_misscheduled`      |
| tasks that end with 0 on TERM         | `endings`         | `believes_any_success`      |
| evictions and drains                  | `evictions`       | `blames_evictions`          |
| clocks of nodes                       | `node_clocks`     | `believes_node_clocks`      |
| clocks of two API servers             | `api_clocks`      | `believes_api_clocks`       |
| volumes that cannot be mounted        | `volumes`         | `never_gives_up`            |
| init containers that do not end       | `init_containers` | `never_gives_up`            |
| pods that the kubelet rejects         | `rejections`      | `never_gives_up`            |
| refused writes                        | `refusals`        | `hides_refusals`            |
| writes that are refused as too large  | `refusals`        | `repeats_what_is_too_large` |
| spec edits: wider, narrower, and back | `edits`           | `ignores_edits`             |
| a controller that is away             | `absences`        | `leaves_what_runs`          |
| watches that lag one at a time        | `lags`            | `believes_its_caches`       |
| node reboots                          | `reboots`         | `reopens_rebooted`          |
| late answers of an old revision       | `old_lists`       | `believes_its_caches`       |
| objects near their size limit         | `sizes`           | `overfills_shards`          |

A mutant is a context manager that breaks the code under test in one place, as in `mutants`; the
switches stand in `without`. `DEFECTS` names for
each line some schedules that show both: with the trouble the mutant is caught, without it is not.
"""

import asyncio
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from daemonset_job.api import daemon_set, node, pod
from daemonset_job.api import job as jobs
from daemonset_job.api.report import NODES_PER_SHARD
from daemonset_job.kube.client.errors import TooLarge
from daemonset_job.runtime.expectations import VersionExpectations
from job_controller import main, reconciler
from job_controller.core import decide as decision
from job_controller.core.state import counting as tally
from job_controller.core.state import desired_count
from job_controller.core.state import node_observed as observed
from job_controller.core.state import run_state as verdict
from terminator import reconciler as terminator
from terminator.ledger import writer
from tests.simulation import mutants, without
from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate
from tests.simulation.schedule import (
    Disturbance,
    JobPlan,
    NodePlan,
    Schedule,
    Task,
)

# --- defects ------------------------------------------------------------------------------


@contextmanager
def _parsed(module, name, adapt):
    """Read objects of that class with other values for some of their fields."""
    real = getattr(module, name)
    with patch.object(module, name, lambda **fields: real(**{**fields, **adapt(fields)})):
        yield


@contextmanager
def knows_no_taints():
    """Taints of nodes are not read."""
    with patch.object(node, "parse_taints", lambda _: ()):
        yield


@contextmanager
def minds_cordons():
    """A node that is cordoned is taken for one that no pod may run on."""
    real = decision.count_nodes

    def take(snapshot, now):
        nodes = {name: node for name, node in snapshot.nodes.items() if not node.is_cordoned}
        return real(replace(snapshot, nodes=nodes), now)

    with patch.object(decision, "count_nodes", take):
        yield


@contextmanager
def ignores_misscheduled():
    """Nodes that keep a pod which they should not have are not counted."""
    with _parsed(daemon_set, "DaemonSet", lambda _: {"misscheduled": 0}):
        yield


@contextmanager
def believes_any_success():
    """A task that ended with 0 has done its work, even in a pod that was told to end."""

    def has_succeeded(pod):
        container = pod.container
        is_over = container is not None and container.state == "terminated"
        return is_over and container.exit_code == 0

    with patch.object(terminator, "has_succeeded", has_succeeded):
        yield


@contextmanager
def blames_evictions():
    """A task whose pod was ended for the sake of the node is judged by its exit code."""
    with patch.object(pod.Pod, "is_disrupted", property(lambda _: False)):
        yield


@contextmanager
def believes_node_clocks():
    """A node's deadline counts from the time that its kubelet wrote."""
    real = observed._active_since

    def active_since(context, record, pod):
        found = real(context, record, pod)
        is_new = found != record.active_since and pod.started_at is not None
        return pod.started_at if is_new else found

    with patch.object(observed, "_active_since", active_since):
        yield


@contextmanager
def believes_api_clocks():
    """A run's deadline counts from when the API server says that the Job was created."""
    real = verdict.deadline

    def deadline(job, now):
        if job.created_at is None or job.status.start_time is None:
            return real(job, now)
        status = replace(job.status, start_time=job.created_at)
        return real(replace(job, status=status), now)

    with patch.object(verdict, "deadline", deadline):
        yield


@contextmanager
def hides_refusals():
    """A write that is refused is tried again and again, and nobody is told."""
    with patch.object(reconciler, "REFUSAL_FIELDS", {}):
        yield


@contextmanager
def repeats_what_is_too_large():
    """A write that is refused as too large is tried again and again."""
    real = reconciler.is_refusal

    def is_refusal(error):
        return real(error) and not isinstance(error, TooLarge)

    with patch.object(reconciler, "is_refusal", is_refusal):
        yield


@contextmanager
def ignores_edits():
    """Any DaemonSet of the Job speaks for the spec.nodes of now."""
    with (
        patch.object(jobs, "nodes_hash", lambda _: ""),
        patch.object(desired_count, "has_same_placement", lambda *_: True),
    ):
        yield


@contextmanager
def leaves_what_runs():
    """A controller that starts looks at no Job that has been started, until something changes."""
    real_run = main.run_workers

    async def run(queue, reconcile, **more):
        loop = asyncio.get_running_loop()
        started = loop.time()
        old = {job.uid for job in caches[-1].jobs() if job.status.start_time is not None}

        async def one(key):
            # What a restart looks at by itself is due within the time that changes are gathered.
            job = caches[-1].job(key)
            if loop.time() - started < 1.0 and job is not None and job.uid in old:
                return None
            return await reconcile(key)

        await real_run(queue, one, **more)

    real_caches, caches = main.Caches, []

    def remembered(*some, **more):
        caches.append(real_caches(*some, **more))
        return caches[-1]

    with patch.object(main, "run_workers", run), patch.object(main, "Caches", remembered):
        yield


@contextmanager
def reopens_rebooted():
    """A completed node whose task is at work again has not completed."""
    real = tally.assess_node

    def reopen(context, inputs):
        container = inputs.pod.container
        is_exit = context.spec.completion.mode == "Exit"
        if is_exit and container is not None and container.state != "terminated":
            inputs = replace(inputs, evidence=None, record=None)
        return real(context, inputs)

    with patch.object(tally, "assess_node", reopen):
        yield


@contextmanager
def believes_its_caches():
    """A pass waits for no cache, and gates are opened on the ledger that is cached."""

    def is_ready(self, key):
        self.drop(key)
        return True

    with patch.object(VersionExpectations, "is_ready", is_ready), mutants.trusts_the_cache():
        yield


@contextmanager
def overfills_shards():
    """All evidence goes to the first shard, whatever it holds already."""
    real = writer.assign_to_shards

    def assign_to_shards(pending, shards, _limit, **how):
        first = sorted(shards, key=lambda report: report.shard)[:1]
        return real(pending, first, NODES_PER_SHARD, **how)

    with patch.object(writer, "assign_to_shards", assign_to_shards):
        yield


# --- which trouble shows which defect -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadErrors:
    """A mutant, the switch for the trouble that it needs, and schedules that show that it does.

    A schedule is a seed, or one of its own where seeds that show it are too rare.
    """

    mutant: Callable[[], Any]
    switch: Callable[[Any], Any]
    schedules: tuple[int | Schedule, ...] = ()

    def __str__(self):
        return self.mutant.__name__

    def shows(self, schedule):
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
# The pod of a node goes that has completed since the controller last heard of the ledger.
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

DEFECTS = (
    ReadErrors(knows_no_taints, without.taints, (1191,)),
    ReadErrors(minds_cordons, without.cordons, (12, 70, 79)),
    ReadErrors(ignores_misscheduled, without.taints, (9, 14, 47)),
    ReadErrors(believes_any_success, without.endings, (48, 54, 199)),
    ReadErrors(blames_evictions, without.evictions, (2236,)),
    ReadErrors(believes_node_clocks, without.node_clocks, (37, 170, 182)),
    ReadErrors(believes_api_clocks, without.api_clocks, (152,)),
    ReadErrors(mutants.never_gives_up, without.volumes, (72, 138, 402)),
    ReadErrors(mutants.never_gives_up, without.init_containers, (508, 795, 867)),
    ReadErrors(mutants.never_gives_up, without.rejections, (426, 690, 775)),
    ReadErrors(hides_refusals, without.refusals, (188, 340, 436, 503)),
    ReadErrors(repeats_what_is_too_large, without.refusals, (188, 515, 527, 858)),
    ReadErrors(ignores_edits, without.edits, (947, 1096, 1340)),
    ReadErrors(leaves_what_runs, without.absences, (LONG_ABSENCE,)),
    ReadErrors(believes_its_caches, without.lags, (LATE_LEDGER,)),
    ReadErrors(believes_its_caches, without.old_lists, (OLD_LEDGER,)),
    ReadErrors(reopens_rebooted, without.reboots, (566, 1233, 1782)),
    ReadErrors(overfills_shards, without.sizes, (5, 11, 31)),
)
