"""Deliberate defects of what the controller records, says and deletes; see `mutants`."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from unittest.mock import patch

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.report_status import ReportStatus
from job_controller import history
from job_controller.core import decide as decision
from job_controller.core import pod_actions
from job_controller.core.render import report_status, run_history
from job_controller.core.state import blockers, placement_blockers
from job_controller.core.state import counting as tally
from job_controller.core.state import node_state as judge
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot
from terminator.scope import NamespaceScope

# A defect, for as long as its block runs.
Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def deletes_running_pods() -> Iterator[None]:
    """The controller deletes the pods of all nodes, as it does with those of failed ones."""
    real = tally.count_nodes

    def take(snapshot: Snapshot, now: datetime) -> NodeCounts:
        found = real(snapshot, now)
        nodes = {name: replace(node, delete_pod=True) for name, node in found.nodes.items()}
        return replace(found, nodes=nodes)

    with patch.object(decision, "count_nodes", take):
        yield


@contextmanager
def keeps_failed_pods() -> Iterator[None]:
    """The pods of failed nodes stay, whatever failurePolicy.pods says."""
    with patch.object(pod_actions, "_why_deleted", lambda *_: ""):
        yield


@contextmanager
def counts_pods_of_former_nodes() -> Iterator[None]:
    """A pod that is older than its node is taken for one of that node."""
    with patch.object(tally, "is_older_than_node", lambda *_: False):
        yield


@contextmanager
def closes_no_reports() -> Iterator[None]:
    """The report of a run whose Job is deleted is not closed."""
    with patch.object(history, "closed_status", lambda _: None):
        yield


@contextmanager
def repeats_last_lines() -> Iterator[None]:
    """Each last line of a failed node's log is added to its message."""
    with patch.object(judge, "_QUOTED_LINE", re.compile("(?!)")):
        yield


@contextmanager
def ends_terminator() -> Iterator[None]:
    """The terminator ends by an error as soon as it leads."""

    async def lead(_scope: NamespaceScope) -> None:
        raise RuntimeError("a defect")

    with patch.object(NamespaceScope, "lead", lead):
        yield


@contextmanager
def reports_no_unreachable_node() -> Iterator[None]:
    """What keeps a run is never that nodes are unreachable, or their pods cannot end."""
    with (
        patch.object(blockers, "_node_blocker", lambda _: None),
        patch.object(placement_blockers, "_nodes_with_stuck_pod", lambda *_: []),
    ):
        yield


@contextmanager
def forgets_failures() -> Iterator[None]:
    """The record of a node that is retried has nothing of what failed."""
    with patch.object(report_status, "keep_failures", lambda _, records: dict(records)):
        yield


@contextmanager
def begins_history_again() -> Iterator[None]:
    """Each write of a report has a history of its own: what has happened since the last one."""
    real = run_history.append_history

    def append(
        status: ReportStatus, before: ReportStatus, entries: list[HistoryEntry]
    ) -> ReportStatus:
        return real(status, replace(before, history=()) if entries else before, entries)

    with patch.object(run_history, "append_history", append):
        yield


RECORD_MUTANTS: tuple[Mutant, ...] = (
    deletes_running_pods,
    keeps_failed_pods,
    counts_pods_of_former_nodes,
    closes_no_reports,
    repeats_last_lines,
    ends_terminator,
    reports_no_unreachable_node,
    forgets_failures,
    begins_history_again,
)
