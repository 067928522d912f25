"""How often the previews of suspended Jobs are made again: those of a namespace take their share.

Layer: beside the reconciler. What it keeps may be lost in a restart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from daemonset_job.api.job import JobKey
from job_controller.core.plan import Plan
from job_controller.read_pace import USUAL_SECONDS, ReadPaces

# A preview is made again after that time at the latest, however many Jobs the namespace has.
LONGEST_SECONDS: Final = 3600.0


class PreviewPaces:
    """The pace of each namespace that has suspended Jobs with a preview."""

    def __init__(self) -> None:
        self._paces = ReadPaces()

    def forget(self, _key: JobKey) -> None:
        """Do nothing: a namespace is forgotten when its pace does not matter any more."""

    def defer(self, key: JobKey, plan: Plan, duration_seconds: float, now: float) -> Plan:
        """Return the plan, with a later preview if others of the namespace come before it.

        `duration_seconds` is how long the decision took. Previews have at most a fifth of the time.
        """
        if not plan.has_preview or plan.requeue_after is None:
            return plan
        pace = self._paces.of(key[0], now)
        pace.took = max(duration_seconds, USUAL_SECONDS)
        pace.slot = min(pace.slot, now + LONGEST_SECONDS)
        return replace(plan, requeue_after=max(plan.requeue_after, pace.next_slot(now) - now))
