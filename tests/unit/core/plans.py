"""What a plan has and writes, for tests of decisions."""

from typing import Any

from daemonset_job.api.job_status import JobStatus
from job_controller.core.plan import Plan, WriteStatus


def kinds(plan: Plan) -> list[str]:
    """Return the types of a plan's actions, in order."""
    return [type(action).__name__ for action in plan.actions]


def written_status(plan: Plan) -> JobStatus:
    return next(a.status for a in plan.actions if isinstance(a, WriteStatus))


def status_of(plan: Plan) -> dict[str, Any]:
    return written_status(plan).to_raw()


def condition(plan: Plan, type_: str) -> dict[str, Any]:
    return next(c for c in status_of(plan)["conditions"] if c["type"] == type_)
