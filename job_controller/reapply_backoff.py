"""When a DaemonSet that differs from its last apply is applied again: with growing delays.

Another client may change it each time, or a mutating webhook may alter what is applied. Neither
may keep the controller and the API server busy without end. It is kept in memory only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from daemonset_job.api import names
from daemonset_job.api.job import JobKey
from daemonset_job.runtime.backoff import exponential_seconds
from job_controller.core.plan import ApplyDaemonSet, Plan

PAUSE_SECONDS = (1.0, 300.0)
# A DaemonSet without changes for this long after its pause starts with the shortest pause again.
RESET_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Applied:
    spec_id: tuple[str, str]  # UID of the DaemonSet and hash of the spec
    repeats: int
    until: float


class ReapplyBackoff:
    """Which spec was applied last to the DaemonSet of each Job, and how often in a row."""

    def __init__(self) -> None:
        """Begin without any."""
        self._applied: dict[JobKey, _Applied] = {}

    def forget(self, key: JobKey) -> None:
        """Drop the record of a deleted Job."""
        self._applied.pop(key, None)

    def defer(self, key: JobKey, plan: Plan, now: float) -> Plan:
        """Return the plan, without an apply of the last spec before its time."""
        last = self._applied.get(key)
        if last is None or now >= last.until:
            return plan
        actions = tuple(
            action
            for action in plan.actions
            if not isinstance(action, ApplyDaemonSet) or _spec_id(action) != last.spec_id
        )
        if len(actions) == len(plan.actions):
            return plan
        wait = last.until - now
        again = wait if plan.requeue_after is None else min(wait, plan.requeue_after)
        return replace(plan, actions=actions, requeue_after=again)

    def record(self, key: JobKey, action: ApplyDaemonSet, now: float) -> None:
        """Record the apply of a DaemonSet that existed before."""
        if not action.uid:
            return
        last = self._applied.get(key)
        repeats = 0
        if (
            last is not None
            and last.spec_id == _spec_id(action)
            and now < last.until + RESET_SECONDS
        ):
            repeats = last.repeats + 1
        pause = exponential_seconds(repeats, *PAUSE_SECONDS)
        self._applied[key] = _Applied(_spec_id(action), repeats, now + pause)


def _spec_id(action: ApplyDaemonSet) -> tuple[str, str]:
    annotations = action.body["metadata"]["annotations"]
    hashes = (annotations[names.ANNOTATION_SPEC_HASH], annotations[names.ANNOTATION_NODES_HASH])
    return action.uid, "".join(hashes)
