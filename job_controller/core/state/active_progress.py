"""How far the tasks at work have come, by the progress that the ledger has of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.states import NodeState
from daemonset_job.api.task_progress import TaskProgress
from job_controller.core.state.node_counts import DesiredNode, NodeCounts


class ActiveProgress(NamedTuple):
    """The mean in per cent, and the node that has done least; "" for both without progress."""

    percent: str = ""
    lowest: str = ""


NO_PROGRESS: Final = ActiveProgress()


def find_progress(ledger: Mapping[str, Evidence], counts: NodeCounts) -> ActiveProgress:
    """Return the progress of the active nodes that have any; that of an earlier attempt is none."""
    found = {
        name: progress
        for name, node in counts.nodes.items()
        if (progress := _progress_of(ledger.get(name), node)) is not None
    }
    if not found:
        return NO_PROGRESS
    mean = sum(progress.share for progress in found.values()) / len(found)
    lowest = min(found, key=lambda name: (found[name].share, name))
    return ActiveProgress(f"{int(100 * mean)}%", f"{lowest} {found[lowest]}")


def _progress_of(entry: Evidence | None, node: DesiredNode) -> TaskProgress | None:
    if entry is None or entry.progress is None or node.state != NodeState.ACTIVE:
        return None
    record, progress = node.record, entry.progress
    attempt = record.attempts - record.attempts_in_earlier_pods
    is_current = (entry.node_uid, progress.pod_uid, progress.attempt) == (
        node.uid,
        node.pod.uid,
        attempt,
    )
    return progress if is_current else None
