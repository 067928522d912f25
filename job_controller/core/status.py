"""The status of a Job: phase, counts, conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from job_controller.api import names
from job_controller.api.job import Condition, Job
from job_controller.api.times import format_time
from job_controller.core.fold import fold
from job_controller.core.tally import ACTIVE, COMPLETED, WAITING, Tally
from job_controller.core.trouble import Trouble


def first_status(job: Job, now: datetime) -> dict[str, Any]:
    """Return the status of a Job that starts: from here on what it runs cannot change."""
    starting = Condition(names.CONDITION_PROGRESSING, True, "Starting", "making the DaemonSet")
    return {
        "phase": names.PHASE_PENDING,
        "observedGeneration": job.generation,
        "startTime": format_time(now),
        "report": names.report_name(job.name, job.uid),
        "conditions": set_conditions(job, (starting,), now),
    }


def next_status(job: Job, tally: Tally, trouble: Trouble | None, now: datetime) -> dict[str, Any]:
    """Return the status that follows from the tally; equal to the old one when nothing changed.

    `Complete` is final: what a completed Job's status says no longer changes but for counts.
    """
    completed_before = job.is_true(names.CONDITION_COMPLETE)
    complete = completed_before or tally.is_complete
    nodes = count_nodes(tally)
    status: dict[str, Any] = {
        **job.status,
        "phase": _phase(nodes, complete=complete),
        "observedGeneration": job.generation,
        "report": names.report_name(job.name, job.uid),
        "nodes": nodes,
    }
    summary = f"{nodes['completed']} of {nodes['desired']} nodes completed"
    conditions: list[Condition] = []
    if complete:
        conditions.append(Condition(names.CONDITION_PROGRESSING, False, "Completed", summary))
        if not completed_before:
            conditions.append(
                Condition(names.CONDITION_COMPLETE, True, "AllNodesCompleted", summary)
            )
            status["completionTime"] = completion_time(tally) or format_time(now)
    elif trouble is not None:
        conditions.append(
            Condition(names.CONDITION_PROGRESSING, False, trouble.reason, trouble.message)
        )
    else:
        conditions.append(Condition(names.CONDITION_PROGRESSING, True, "NodesActive", summary))
    status["conditions"] = set_conditions(job, conditions, now)
    return status


def count_nodes(tally: Tally) -> dict[str, Any]:
    """Return `status.nodes`. Nodes whose pod is yet to be made count as waiting."""
    completed = tally.names(COMPLETED)
    active = len(tally.names(ACTIVE))
    waiting = len(tally.names(WAITING)) + max(tally.desired - len(tally.nodes), 0)
    counts: dict[str, Any] = {
        "desired": tally.desired,
        "waiting": waiting,
        "active": active,
        "completed": len(completed),
    }
    if completed:
        counts["completedNames"] = fold(completed)
    return counts


def completion_time(tally: Tally) -> str:
    """Return when the last node completed, as its log has it; "" when nothing is known.

    Taken from the evidence, not from the clock: every pass, before and after a crash, says the
    same.
    """
    times = [node.evidence.completed_at for node in tally.nodes.values() if node.evidence]
    latest = max(times, default="")
    return f"{latest[:19]}Z" if latest else ""


def set_conditions(
    job: Job, changes: Sequence[Condition], now: datetime
) -> list[Mapping[str, Any]]:
    """Return the Job's conditions with `changes` laid over them, in their old order.

    `lastTransitionTime` moves only when the status flips (Kubernetes API conventions).
    """
    merged: dict[str, Mapping[str, Any]] = {
        str(raw.get("type")): raw for raw in job.status.get("conditions") or ()
    }
    for change in changes:
        old = merged.get(change.type)
        status = "True" if change.status else "False"
        flipped = old is None or old.get("status") != status
        merged[change.type] = {
            "type": change.type,
            "status": status,
            "reason": change.reason,
            "message": change.message,
            "observedGeneration": job.generation,
            "lastTransitionTime": (
                format_time(now) if flipped or old is None else old.get("lastTransitionTime")
            ),
        }
    return list(merged.values())


def _phase(nodes: Mapping[str, Any], *, complete: bool) -> str:
    if complete:
        return names.PHASE_SUCCEEDED
    if nodes["active"] or nodes["completed"]:
        return names.PHASE_RUNNING
    return names.PHASE_PENDING
