"""Returns schedules without one kind of disturbance, and otherwise unchanged; see `defects`."""

from collections.abc import Callable
from dataclasses import replace

from daemonset_job.api.shard_room import NODES_PER_SHARD
from tests.simulation.schedule import Schedule, Task

Switch = Callable[[Schedule], Schedule]


def _without(*kinds: str, who: str | None = None) -> Switch:
    """Return a switch that takes these kinds of disturbances away, of one process or of all."""

    def switch(schedule: Schedule) -> Schedule:
        kept = tuple(
            d for d in schedule.disturbances if d.kind not in kinds or who not in {None, d.who}
        )
        return replace(schedule, disturbances=kept)

    return switch


def _with_tasks(schedule: Schedule, adapt: Callable[[Task], Task]) -> Schedule:
    nodes = [replace(node, tasks=tuple(map(adapt, node.tasks))) for node in schedule.nodes]
    jobs_ = [
        replace(job, tasks={node: adapt(task) for node, task in job.tasks.items()})
        for job in schedule.jobs
    ]
    return replace(schedule, nodes=tuple(nodes), jobs=tuple(jobs_))


def endings(schedule: Schedule) -> Schedule:
    """Return the schedule with tasks that end at once on TERM."""
    return _with_tasks(schedule, lambda task: replace(task, on_term=""))


def _starting(*kinds: str) -> Switch:
    """Return a switch that has tasks start which something of these kinds would keep from it."""

    def switch(schedule: Schedule) -> Schedule:
        return _with_tasks(
            schedule, lambda task: replace(task, kind="done") if task.kind in kinds else task
        )

    return switch


def node_clocks(schedule: Schedule) -> Schedule:
    """Return the schedule with nodes whose clocks are right."""
    return replace(schedule, nodes=tuple(replace(node, skew=0.0) for node in schedule.nodes))


def api_clocks(schedule: Schedule) -> Schedule:
    """Return the schedule with API servers whose clocks are right."""
    return replace(schedule, api_skews=(0.0, 0.0))


def clock_gaps(schedule: Schedule) -> Schedule:
    """Return the schedule with API servers whose clocks do not differ from each other."""
    return replace(schedule, api_skews=(schedule.api_skews[0],) * 2)


def grace_periods(schedule: Schedule) -> Schedule:
    """Return the schedule with tasks that use no grace period: they end at once on TERM."""
    return _with_tasks(
        schedule, lambda task: replace(task, on_term="") if task.on_term == "deaf" else task
    )


def sizes(schedule: Schedule) -> Schedule:
    """Return the schedule with reports that have room for every node."""
    return replace(schedule, shard_nodes=NODES_PER_SHARD)


taints = _without("taint", "drain")
cordons = _without("cordon")
evictions = _without("evict", "disrupt", "drain")
refusals = _without("refuse_write")
edits = _without("edit", "select")
absences = _without("crash", "stop", "crash_on", who="controller")
lags = _without("stall", "relist", "repeat")
reboots = _without("reboot")
volumes, init_containers, rejections = map(_starting, ("mount", "init", "reject"))
old_lists = _without("list_late")
