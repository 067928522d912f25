"""Deliberate defects of how starts that fail or take long are counted; see `mutants`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import patch

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.names import ANNOTATION_NODES_HASH
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from job_controller import sightings as sighting_store
from job_controller import snapshots
from job_controller.actions import pods as pod_actions
from job_controller.core import daemon_set_actions, scheduling_gates
from job_controller.core.desired.comparison import is_up_to_date
from job_controller.core.rollout import holds
from job_controller.core.settings import Timeouts
from job_controller.core.state import first_seen as sightings
from job_controller.core.state import node_observed as observed
from job_controller.core.state import node_state as judge
from job_controller.core.state import node_timeouts as timeouts
from job_controller.core.state.causes import has_started
from job_controller.core.state.first_seen import Fact, ObservedObjects, Sightings
from job_controller.core.state.node_context import NodeInputs, RunContext
from tests.simulation.record_mutants import Mutant

# What fails a node, if anything does, and when to look again.
NodeFailure = tuple[NodeRecord | None, datetime | None]


@contextmanager
def never_fails_unstarted_tasks() -> Iterator[None]:
    """A task that cannot be started is given all the time there is."""
    real = timeouts.timeout_failure

    def late(context: RunContext, record: NodeRecord, pod: NodeInputs) -> NodeFailure:
        return real(
            replace(context, timeouts=Timeouts(1e6, context.timeouts.unreachable_seconds)),
            record,
            pod,
        )

    with patch.object(judge, "timeout_failure", late):
        yield


@contextmanager
def expects_every_restart() -> Iterator[None]:
    """A task that has been started is started again, whatever its container waits for."""

    def is_start_pending(pod: Pod) -> bool:
        return not has_started(pod)

    with (
        patch.object(observed, "is_start_pending", is_start_pending),
        patch.object(sightings, "is_start_pending", is_start_pending),
    ):
        yield


@contextmanager
def counts_time_before_cause() -> Iterator[None]:
    """What keeps a task from starting has done so from when its pod was silent."""
    real = sightings.update_sightings

    def look(before: Sightings, observed_: ObservedObjects, now: datetime) -> Sightings:
        after = real(before, observed_, now)
        for fact in [found for found in after if found.kind == sightings.BLOCKED]:
            silent = before.get(fact._replace(kind=sightings.UNEXPLAINED))
            if silent is not None and silent.first < after[fact].first:
                after[fact] = replace(after[fact], first=silent.first)
        return after

    with patch.object(sighting_store, "update_sightings", look):
        yield


@contextmanager
def _not_starting(adapt: Callable[..., tuple[Any, ...]]) -> Iterator[None]:
    """What keeps a task from starting is found with other arguments."""
    real = sightings.not_starting

    def not_starting(*about: Any) -> Fact | None:
        return real(*adapt(*about))

    with (
        patch.object(timeouts, "not_starting", not_starting),
        patch.object(sightings, "not_starting", not_starting),
    ):
        yield


@contextmanager
def counts_time_not_ready() -> Iterator[None]:
    """The time counts in which a node is not Ready."""
    with _not_starting(lambda node, *rest: (replace(node, ready=True), *rest)):
        yield


@contextmanager
def counts_time_before_retry() -> Iterator[None]:
    """The time before a retry counts."""
    with _not_starting(lambda node, pod, _retry, seen: (node, pod, "", seen)):
        yield


@contextmanager
def forgets_rejections_at_gate() -> Iterator[None]:
    """Rejections are forgotten with each pod that waits at its gate."""
    real = sightings.update_sightings

    def look(before: Sightings, scene: ObservedObjects, now: datetime) -> Sightings:
        gated = {pod.node_name for pod in scene.pods.values() if pod.is_gated}
        uids = {node.uid for name, node in scene.nodes.items() if name in gated}
        kept = {f: s for f, s in before.items() if f.kind != "rejected" or f.uid not in uids}
        return real(kept, scene, now)

    with patch.object(sighting_store, "update_sightings", look):
        yield


@contextmanager
def starts_before_images() -> Iterator[None]:
    """Nodes have their turns while the images are pulled."""
    with patch.object(holds, "find_pull_hold", lambda _snapshot: None):
        yield


@contextmanager
def leaves_orphans() -> Iterator[None]:
    """Pods that a deleted DaemonSet has left are not looked for before a Job starts again."""
    cached = patch.object(snapshots, "is_orphan", lambda _pod, _job: False)
    with cached, patch.object(pod_actions, "is_orphan", lambda _pod, _job: False):
        yield


@contextmanager
def starts_excluded_nodes() -> Iterator[None]:
    """A pod that waits at its gate may start on a node that the newest spec excludes."""
    with patch.object(scheduling_gates, "find_unchosen", lambda *_: frozenset()):
        yield


@contextmanager
def keeps_former_selections() -> Iterator[None]:
    """A change of `spec.nodes` does not change the DaemonSet."""

    def is_current(live: DaemonSet, desired: Mapping[str, Any]) -> bool:
        nodes = desired["metadata"]["annotations"][ANNOTATION_NODES_HASH]
        return live.nodes_hash != nodes or is_up_to_date(live, desired)

    with patch.object(daemon_set_actions, "is_up_to_date", is_current):
        yield


START_MUTANTS: tuple[Mutant, ...] = (
    starts_excluded_nodes,
    keeps_former_selections,
    leaves_orphans,
    starts_before_images,
    never_fails_unstarted_tasks,
    expects_every_restart,
    counts_time_before_cause,
    counts_time_not_ready,
    counts_time_before_retry,
    forgets_rejections_at_gate,
)
