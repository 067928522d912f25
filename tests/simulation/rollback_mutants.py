"""Deliberate defects of rollbacks; see `mutants`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from unittest.mock import patch

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.times import add_seconds
from job_controller.core.owned_jobs import rollback, rollback_targets
from job_controller.core.owned_jobs.rollback_targets import Targets
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot, merge_evidence
from terminator import deletion_decision
from tests.simulation.record_mutants import Mutant


@contextmanager
def rolls_back_beside_tasks() -> Iterator[None]:
    """A rollback does not wait for tasks that are at work."""
    real = rollback_targets.find_targets

    def find_targets(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> Targets:
        return replace(real(snapshot, counts, now), at_work=frozenset())

    with patch.object(rollback, "find_targets", find_targets):
        yield


@contextmanager
def rolls_back_every_node() -> Iterator[None]:
    """All nodes are rolled back, those whose task has not started too."""
    real = rollback_targets.find_targets

    def find_targets(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> Targets:
        return replace(real(snapshot, counts, now), started=frozenset(snapshot.nodes))

    with patch.object(rollback, "find_targets", find_targets):
        yield


@contextmanager
def forgets_failed_nodes() -> Iterator[None]:
    """Only nodes whose task has completed are rolled back."""
    real = rollback_targets.find_targets

    def find_targets(snapshot: Snapshot, counts: NodeCounts, now: datetime) -> Targets:
        found, ledger = real(snapshot, counts, now), merge_evidence(snapshot)
        completed = {name for name, evidence in ledger.items() if evidence.completed_at}
        return replace(found, started=found.started & completed)

    with patch.object(rollback, "find_targets", find_targets):
        yield


@contextmanager
def deletes_before_the_rollback() -> Iterator[None]:
    """A Job is deleted when its time to live is over, although its rollback has not ended."""
    with patch.object(deletion_decision, "has_open_rollback", lambda _job: False):
        yield


@contextmanager
def never_looks_for_lost_nodes() -> Iterator[None]:
    """A rollback at work notices only with the next change that a node of it is away."""
    with patch.object(rollback, "_may_lose_nodes", lambda _targets, _found: False):
        yield


@contextmanager
def trusts_the_clocks_of_nodes() -> Iterator[None]:
    """For how long a node is away from a rollback counts from the time that its condition shows."""

    def _is_away(snapshot: Snapshot, _record: NodeRecord | None, name: str, now: datetime) -> bool:
        node = snapshot.nodes.get(name)
        if node is None or node.ready or node.ready_changed_at is None:
            return node is None
        return now >= add_seconds(node.ready_changed_at, snapshot.unreachable_seconds)

    with patch.object(rollback_targets, "_is_away", _is_away):
        yield


ROLLBACK_MUTANTS: tuple[Mutant, ...] = (
    rolls_back_beside_tasks,
    rolls_back_every_node,
    forgets_failed_nodes,
    deletes_before_the_rollback,
    never_looks_for_lost_nodes,
    trusts_the_clocks_of_nodes,
)
