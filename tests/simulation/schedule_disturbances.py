"""What people do to ScheduledJobs: apply, edit, suspend and delete them, and delete their Jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from daemonset_job.api import names
from tests.simulation.schedule import Disturbance, ScheduledPlan, cron_of
from tests.simulation.server import JOBS, SCHEDULED_JOBS, Raw, controller_of

if TYPE_CHECKING:
    from tests.simulation.world import World

USER = "user"


def create_scheduled(world: World, plan: ScheduledPlan) -> None:
    """Apply the ScheduledJob of a plan."""
    kind = {"apiVersion": names.API_VERSION, "kind": names.SCHEDULED_KIND}
    body = {**kind, "metadata": {"name": plan.name}, "spec": plan.raw_spec}
    world.server.create(USER, SCHEDULED_JOBS, body, plan.namespace)


def _scheduled(world: World, d: Disturbance) -> Raw | None:
    found = (raw for raw in world.server.all(SCHEDULED_JOBS) if raw["metadata"]["name"] == d.what)
    return next(found, None)


def _set(world: World, d: Disturbance, field: str, value: object) -> object:
    """Set a field of the spec, and return what it was; None is none."""
    if (raw := _scheduled(world, d)) is None:
        return None
    meta, old = raw["metadata"], raw["spec"].get(field)
    # As the API server writes it, by its own clock. The time is only that of changes.
    entry = {
        "manager": USER,
        "time": world.clock.stamp(world.server.skew(USER)),
        "fieldsV1": {"f:spec": {f"f:{field}": {}}},
    }
    body: dict[str, Any] = {"spec": {field: value}}
    if old != value:
        body["metadata"] = {"managedFields": [entry]}
    world.server.patch(USER, SCHEDULED_JOBS, meta["name"], body, namespace=meta["namespace"])
    return old


def _suspend(world: World, d: Disturbance) -> None:
    """Suspend a ScheduledJob, for a while or permanently."""
    _set(world, d, "suspend", value=True)
    if d.seconds:
        world.loop.call_later(d.seconds, _set, world, d, "suspend", False)


def _edit(world: World, d: Disturbance) -> None:
    """Set a field of the spec, for a while or permanently."""
    values = {"schedule": cron_of(d.who), "suspend": d.who == "true"}
    old = _set(world, d, d.mode, values.get(d.mode, d.who))
    if d.seconds:
        world.loop.call_later(d.seconds, _set, world, d, d.mode, old)


def _delete(world: World, d: Disturbance) -> None:
    """Delete a ScheduledJob; its Jobs are garbage then."""
    if (raw := _scheduled(world, d)) is not None:
        world.server.drop(USER, SCHEDULED_JOBS, raw)


def _delete_runs(world: World, d: Disturbance) -> None:
    """Delete the Jobs of a ScheduledJob, which do not start again for that."""
    if (raw := _scheduled(world, d)) is not None:
        for job in world.server.all(JOBS):
            if controller_of(job) == raw["metadata"]["uid"]:
                world.server.drop(USER, JOBS, job)


OF_SCHEDULES: dict[str, Callable[[World, Disturbance], None]] = {
    "suspend_schedule": _suspend,
    "edit_schedule": _edit,
    "delete_schedule": _delete,
    "delete_runs": _delete_runs,
}
