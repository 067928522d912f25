"""Deliberate defects of how nodes are changed, and become due again; see `mutants`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.rerun import RerunRequest
from job_controller.core import decide as decision
from job_controller.core.state import (
    absence,
    counting,
    due_again,
    node_observed,
    node_state,
    run_state,
)
from job_controller.core.state.node_changes import PendingChanges
from job_controller.core.state.node_context import RunContext
from terminator import deleter
from tests.simulation.record_mutants import Mutant


@contextmanager
def retries_nodes_at_work() -> Iterator[None]:
    """A retry has every pod replaced that began before it, also one whose task is at work."""
    with patch.object(node_state, "_waits_to_be_tried_again", lambda *_: True):
        yield


@contextmanager
def completes_before_changes() -> Iterator[None]:
    """A run is complete, and its Job is deleted, without a look at the changes of its nodes."""
    with (
        patch.object(run_state, "has_pending_changes", lambda _snapshot: False),
        patch.object(deleter, "unchanged_nodes", lambda _snapshot: []),
        patch.object(decision, "find_pending_changes", lambda *_: PendingChanges()),
    ):
        yield


@contextmanager
def counts_earlier_tries() -> Iterator[None]:
    """Evidence of every revision and try counts."""

    def counts(_job: Job, _entry: Evidence, _record: NodeRecord | None) -> bool:
        return True

    with patch.object(due_again, "counts", counts):
        yield


@contextmanager
def forgets_ends_of_rules() -> Iterator[None]:
    """Only the newest end counts for the rules of failures."""
    with patch.object(node_observed, "is_fatal", lambda *_: False):
        yield


@contextmanager
def starts_earlier_revisions() -> Iterator[None]:
    """The pod of an earlier revision may start, unless its node is listed with it."""

    def is_stale(_job: Job, pod: Pod, evidence: Evidence | None, record: NodeRecord | None) -> bool:
        is_completed = evidence is not None and evidence.is_completed
        return not is_completed and record is not None and pod.uid in record.earlier_pods

    with patch.object(counting, "is_stale", is_stale):
        yield


@contextmanager
def ignores_rerun_requests() -> Iterator[None]:
    """No rerun request names any node."""
    with patch.object(RerunRequest, "names", lambda _self, _node: False):
        yield


@contextmanager
def repeats_reruns() -> Iterator[None]:
    """No record says which request its node has followed: each one stays open."""
    real = due_again.stamp

    def stamp(*args: object, **how: bool) -> NodeRecord:
        return replace(real(*args, **how), rerun="")  # type: ignore[arg-type]

    with (
        patch.object(counting, "stamp", stamp),
        patch.object(Job, "has_open_request", property(lambda job: bool(job.rerun.id))),
    ):
        yield


@contextmanager
def forgets_nodes_that_left() -> Iterator[None]:
    """A node whose labels come back counts as before."""
    with patch.object(due_again._Finder, "find_returned", lambda *_: frozenset()):
        yield


@contextmanager
def forgets_earlier_tries_of_absent_nodes() -> Iterator[None]:
    """A node that is away, and due again, is none that has begun."""
    with patch.object(absence, "find_tried", lambda _: {}):
        yield


@contextmanager
def ignores_time_to_be_away() -> Iterator[None]:
    """A node may be away for as long as the controller's option says, whatever its Job says."""
    configured = property(lambda context: context.timeouts.unreachable_seconds)
    with patch.object(RunContext, "unreachable_seconds", configured):
        yield


NODE_MUTANTS: tuple[Mutant, ...] = (
    retries_nodes_at_work,
    ignores_time_to_be_away,
    completes_before_changes,
    counts_earlier_tries,
    forgets_ends_of_rules,
    starts_earlier_revisions,
)
# Schedules by hand show these, see test_standing_work: drawn ones do so too rarely.
STANDING_MUTANTS: tuple[Mutant, ...] = (
    ignores_rerun_requests,
    repeats_reruns,
    forgets_nodes_that_left,
    forgets_earlier_tries_of_absent_nodes,
)
