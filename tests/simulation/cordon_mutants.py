"""Deliberate defects of cordons and drains; see `mutants`."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from unittest.mock import patch

from daemonset_job.api.drained_pod import DrainedPod
from daemonset_job.api.names import ANNOTATION_CORDONED_BY
from daemonset_job.api.pod import Pod
from daemonset_job.api.states import NodeState
from job_controller import drains
from job_controller.actions import cordons as actions
from job_controller.core import decide as decision
from job_controller.core import preparation
from job_controller.core.drain_actions import NodeCordon
from job_controller.core.preparation import Preparation
from job_controller.core.state import drain_failures, evictions
from job_controller.core.state.cordons import mark_of
from job_controller.core.state.evictions import NodeDrain
from job_controller.core.state.node_context import RunContext
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.run_state import RunState
from job_controller.core.state.snapshot import Snapshot
from tests.simulation.record_mutants import Mutant
from tests.simulation.server import Raw


@contextmanager
def starts_before_cordon() -> Iterator[None]:
    """A node whose turn has come is not prepared for it."""

    def prepare(
        snapshot: Snapshot, counts: NodeCounts, run: RunState, due: tuple[Pod, ...], now: datetime
    ) -> Preparation:
        return Preparation(due)

    with patch.object(decision, "prepare_nodes", prepare):
        yield


@contextmanager
def uncordons_failed_nodes_at_once() -> Iterator[None]:
    """A node that has failed is uncordoned, whatever its task does."""
    real = preparation._has_turn

    def has_turn(
        snapshot: Snapshot, counts: NodeCounts, run: RunState, due: AbstractSet[str], name: str
    ) -> bool:
        node = counts.nodes.get(name)
        if node is not None and node.state == NodeState.FAILED:
            return False
        return real(snapshot, counts, run, due, name)

    with patch.object(preparation, "_has_turn", has_turn):
        yield


@contextmanager
def leaves_cordons() -> Iterator[None]:
    """No turn of a node is over."""
    with patch.object(preparation, "_find_over", lambda *_: ()):
        yield


@contextmanager
def lifts_all_cordons() -> Iterator[None]:
    """Each cordon is taken for that of the Job."""

    def find(snapshot: Snapshot) -> tuple[NodeCordon, ...]:
        mark, nodes = mark_of(snapshot.job), snapshot.nodes.values()
        return tuple(NodeCordon(node.name, node.uid, mark) for node in nodes if node.is_cordoned)

    def build(raw: Raw, _mark: object) -> Raw:
        if not (raw.get("spec") or {}).get("unschedulable"):
            return {}
        annotations = {ANNOTATION_CORDONED_BY: None}
        return {"metadata": {"annotations": annotations}, "spec": {"unschedulable": None}}

    with (
        patch.object(preparation, "find_own_cordons", find),
        patch.object(actions, "build_uncordon", build),
    ):
        yield


@contextmanager
def starts_undrained_nodes() -> Iterator[None]:
    """Every node is drained as soon as its pods were listed."""
    with patch.object(NodeDrain, "is_done", property(lambda _: True)):
        yield


@contextmanager
def trusts_cached_lists() -> Iterator[None]:
    """The pods of a node are as they were a moment ago."""
    real = drains.Drains._list

    async def listed(self: drains.Drains, name: str, _version: str | None) -> list[DrainedPod]:
        return await real(self, name, "0")

    with patch.object(drains.Drains, "_list", listed):
        yield


@contextmanager
def evicts_all_pods() -> Iterator[None]:
    """No pod stays on a node that is drained."""
    with patch.object(evictions, "_stays", lambda *_: False):
        yield


@contextmanager
def fails_drains_at_once() -> Iterator[None]:
    """A drain has no time."""

    def times_out_at(context: RunContext, *_: Any) -> datetime:
        return context.now

    with patch.object(drain_failures, "_times_out_at", times_out_at):
        yield


CORDON_MUTANTS: tuple[Mutant, ...] = (
    starts_before_cordon,
    uncordons_failed_nodes_at_once,
    leaves_cordons,
    lifts_all_cordons,
    starts_undrained_nodes,
    trusts_cached_lists,
    evicts_all_pods,
    fails_drains_at_once,
)
