"""Adds disturbances to a schedule that the generator does not draw, in groups by their kind.

They are drawn from a random stream of their own, so that a seed keeps its cluster, Jobs and
disturbances when kinds are added here. A fifth of the schedules has none, most others have one
group, some several.
"""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.cordons import with_cordons
from tests.simulation.edits import selection
from tests.simulation.schedule import Disturbance, Schedule, Task
from tests.simulation.server import Raw

NAMES = (
    "taints",
    "edits",
    "clocks",
    "endings",
    "deadlines",
    "lifetimes",
    "starts",
    "absences",
    "refusals",
    "noise",
)


def with_drawn_disturbances(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with more disturbances, and with cordons."""
    if schedule.calm:
        return schedule
    return with_cordons(_with_drawn_disturbances(schedule, rng), Random(f"{schedule.seed}/cordons"))


def _with_drawn_disturbances(schedule: Schedule, rng: Random) -> Schedule:
    if rng.random() < 0.2:
        return schedule
    chosen = {rng.choice(NAMES)} if rng.random() < 0.7 else {n for n in NAMES if rng.random() < 0.5}
    for name in NAMES:
        if name in chosen:
            schedule = _DRAWN[name](schedule, rng)
    found = sorted(schedule.disturbances, key=lambda d: d.at)
    return replace(schedule, disturbances=tuple(found))


def add_drawn(schedule: Schedule, name: str, rng: Random) -> Schedule:
    """Return the schedule with the group of that name, see NAMES."""
    return _DRAWN[name](schedule, rng)


def _when(schedule: Schedule, rng: Random) -> float:
    """Return a time: within two seconds, while the tasks run, or later, equally often."""
    work = 3.0 + max(t.after for node in schedule.nodes for t in node.tasks)
    return round(rng.uniform(0, rng.choice((2.0, work, work, work + 20.0))), 2)


def _node(schedule: Schedule, rng: Random) -> str:
    return rng.choice(schedule.nodes).name


def _with(schedule: Schedule, *disturbances: Disturbance) -> Schedule:
    return replace(schedule, disturbances=(*schedule.disturbances, *disturbances))


# --- taints ------------------------------------------------------------------------------

EFFECTS = ("NoSchedule", "NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")


def _taints(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with taints that come and go, and pods that go meanwhile."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        seconds = float(rng.choice((0, 0, 1, 5, 20, 60)))
        at, node = _when(schedule, rng), _node(schedule, rng)
        taint = Disturbance(at, "taint", what=node, mode=rng.choice(EFFECTS), seconds=seconds)
        schedule = _with(schedule, taint)
        if rng.random() < 0.5:
            later = round(at + rng.uniform(0.0, 3.0), 2)
            schedule = _with(schedule, Disturbance(later, "delete_pod", what=_node(schedule, rng)))
    if rng.random() < 0.25:
        toleration = {"key": "sim/NoSchedule", "operator": "Exists", "effect": "NoSchedule"}
        schedule = _with_template(schedule, {"tolerations": [toleration]})
    return schedule


def _with_template(schedule: Schedule, pod_spec: Raw) -> Schedule:
    first, *rest = schedule.jobs
    template = {"spec": {**first.spec.get("template", {}).get("spec", {}), **pod_spec}}
    return replace(
        schedule, jobs=(replace(first, spec={**first.spec, "template": template}), *rest)
    )


# --- edits -------------------------------------------------------------------------------


def random_selection(schedule: Schedule, rng: Random) -> str:
    """Return a selection of nodes in words, see `edits`."""
    names = [node.name for node in schedule.nodes]
    label = rng.choice(("zone=a", "zone=a", "zone=b", "slot=1", "slot=01", ""))
    some = rng.sample(names, rng.randint(1, len(names)))
    include = rng.choice((" ".join(f"+{name}" for name in some), "", ""))
    exclude = "" if include else rng.choice((f"-{rng.choice(names)}", "", ""))
    return " ".join(part for part in (label, include, exclude) if part)


def _edits(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with changes of `spec.nodes`, some while no program can act on them."""
    job = schedule.jobs[0]
    slots = [replace(node, slot=rng.choice(("1", "01"))) for node in schedule.nodes]
    schedule = replace(schedule, nodes=tuple(slots))
    if rng.random() < 0.7 and (nodes := selection(random_selection(schedule, rng))):
        schedule = replace(
            schedule,
            jobs=(replace(job, spec={**job.spec, "nodes": nodes}), *schedule.jobs[1:]),
        )
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, back = _when(schedule, rng), float(rng.choice((0, 0, 0, 1, 5, 20)))
        words = rng.choice(("", random_selection(schedule, rng)))
        if rng.random() < 0.15:
            limit = Disturbance(at, "edit", job.key, rng.choice("0136"), "backoffLimit", back)
            schedule = _with(schedule, limit)
        schedule = _with(schedule, Disturbance(at, "edit", job.key, words, "nodes", back))
        span = float(rng.choice((1, 3, 5, 20)))
        before = round(max(at - rng.uniform(0.0, 2.0), 0.0), 2)
        kind = rng.choice(("", "", "refuse_daemon_set", "crash", "stall", "slow_daemon_sets"))
        if kind in {"refuse_daemon_set", "slow_daemon_sets"}:
            schedule = _with(schedule, Disturbance(before, kind, seconds=span))
        elif kind == "crash":
            schedule = _with(schedule, Disturbance(before, kind, "controller", seconds=span))
        elif kind == "stall":
            who = rng.choice(("controller", "terminator"))
            what = rng.choice(("jobs", "daemonsets", "daemonsets", "pods"))
            schedule = _with(schedule, Disturbance(before, kind, who, what, seconds=span))
    return schedule


# --- clocks ------------------------------------------------------------------------------

NODE_SKEWS = (0, 0, 2, 7, 40, 400, 3600, 86400)
API_SKEWS = (0, 0, 3, 60, 3600)


def _clocks(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with clocks of nodes and API servers that differ from the programs'."""
    nodes = [
        replace(node, skew=float(rng.choice((-1, 1)) * rng.choice(NODE_SKEWS)))
        for node in schedule.nodes
    ]
    base = float(rng.choice((-1, 1)) * rng.choice(API_SKEWS))
    between = float(rng.choice((0, 0, 0, -1, 1, -2, 2)))
    schedule = replace(schedule, nodes=tuple(nodes), api_skews=(base, base + between))
    for _ in range(rng.choice((0, 0, 1, 2))):
        seconds = float(rng.choice((1, 3, 20)))
        flap = Disturbance(_when(schedule, rng), "not_ready", what=_node(schedule, rng))
        schedule = _with(schedule, replace(flap, seconds=seconds))
    return schedule


# --- how tasks end and start -------------------------------------------------------------


def _with_tasks(
    schedule: Schedule, rng: Random, share: float, adapt: Callable[[Task], Task]
) -> Schedule:
    nodes = [
        replace(node, tasks=tuple(adapt(t) if rng.random() < share else t for t in node.tasks))
        for node in schedule.nodes
    ]
    return replace(schedule, nodes=tuple(nodes))


DISRUPTIONS = ("EvictionByEvictionAPI", "EvictionByEvictionAPI", "PreemptionByScheduler")


def _endings(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with tasks that end on TERM in their own way, and pods that have to."""
    schedule = _with_tasks(
        schedule, rng, 0.7, lambda t: replace(t, on_term=rng.choice(("clean", "clean", "deaf")))
    )
    if rng.random() < 0.3:
        grace = {"terminationGracePeriodSeconds": rng.choice((0, 1, 30))}
        schedule = _with_template(schedule, grace)
    for _ in range(rng.choice((1, 2, 3))):
        at, node = _when(schedule, rng), _node(schedule, rng)
        kind = rng.choice(("disrupt", "disrupt", "drain", "delete_pod"))
        mode = rng.choice(DISRUPTIONS) if kind == "disrupt" else ""
        seconds = float(rng.choice((0, 5, 30))) if kind == "drain" else 0.0
        schedule = _with(schedule, Disturbance(at, kind, what=node, mode=mode, seconds=seconds))
    if rng.random() < 0.5:
        job = schedule.jobs[0]
        completion = {**job.spec.get("completion", {}), "mode": "Exit"}
        job = replace(job, spec={**job.spec, "completion": completion})
        schedule = replace(schedule, jobs=(job, *schedule.jobs[1:]))
    return schedule


def _starts(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with pods whose task does not start."""

    def late(task: Task) -> Task:
        kind = rng.choice(("mount", "init", "reject", "pull"))
        after = 0.0 if kind == "reject" else float(rng.choice((0, 0, 5, 20, 60)))
        return replace(task, kind=kind, after=after, times=rng.choice((1, 3, 99)))

    schedule = _with_tasks(schedule, rng, 0.4, late)
    if rng.random() < 0.5:
        seconds = float(rng.choice((1, 5, 20, 60)))
        full = Disturbance(_when(schedule, rng), "no_room", what=_node(schedule, rng))
        schedule = _with(schedule, replace(full, seconds=seconds))
    if rng.random() < 0.5:
        seconds, key = float(rng.choice((10, 40, 60))), schedule.jobs[0].key
        at = _when(schedule, rng)
        schedule = _with(
            schedule,
            Disturbance(at, "suspend", key, seconds=seconds),
            Disturbance(round(at + seconds, 2), "no_room", what="*", seconds=3.0),
            Disturbance(round(at + 1, 2), "delete_pod", what=_node(schedule, rng)),
        )
    return schedule


# --- times that users give ---------------------------------------------------------------


def _set(schedule: Schedule, **fields: Raw | int) -> Schedule:
    """Return the schedule with fields set in the first Job's spec."""
    first, *rest = schedule.jobs
    return replace(schedule, jobs=(replace(first, spec={**first.spec, **fields}), *rest))


def _deadlines(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with deadlines, and with what gives a run its time again."""
    key = schedule.jobs[0].key
    seconds = rng.choice((10, 20, 40))
    field = rng.choice(("activeDeadlineSeconds", "activeDeadlineSeconds", "nodeDeadlineSeconds"))
    schedule = _set(schedule, **{field: seconds})
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = round(rng.uniform(0, seconds + 30.0), 2)
        kind = rng.choice(("retry", "retry", "suspend", "edit", "edit"))
        if kind == "edit":
            words = rng.choice(("", str(rng.choice((5, 20, 60)))))
            change = Disturbance(at, "edit", key, words, field)
        else:
            span = float(rng.choice((2, 15, 60))) if kind == "suspend" else 0.0
            change = Disturbance(at, kind, key, seconds=span)
        schedule = _with(schedule, change)
    if rng.random() < 0.5:
        schedule = _with_tasks(schedule, rng, 0.3, lambda t: replace(t, kind="never"))
    return schedule


def _lifetimes(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a time to live, changed meanwhile, and nodes that come and go."""
    key = schedule.jobs[0].key
    if rng.random() < 0.7:
        schedule = _set(schedule, ttlSecondsAfterFinished=rng.choice((0, 3, 20)))
    if rng.random() < 0.4:
        policy = {**schedule.jobs[0].spec.get("failurePolicy", {}), "pods": "Delete"}
        schedule = _set(schedule, failurePolicy=policy, backoffLimit=0)
        fail: dict[str, Any] = {"kind": "fail", "code": 1, "times": 99, "after": 1.0}
        schedule = _with_tasks(schedule, rng, 0.3, lambda t: replace(t, **fail))
    for _ in range(rng.choice((0, 1, 1, 2))):
        at = _when(schedule, rng)
        kind = rng.choice(("edit", "edit", "leave", "join", "zone"))
        if kind == "edit":
            words = rng.choice(("", "0", "3", "20"))
            change = Disturbance(at, kind, key, words, "ttlSecondsAfterFinished")
        else:
            change = Disturbance(at, kind, what=_node(schedule, rng))
        schedule = _with(schedule, change)
    if rng.random() < 0.4:
        *others, last = schedule.nodes
        if others:
            schedule = replace(schedule, nodes=(*others, replace(last, is_initial=False)))
            at = _when(schedule, rng)
            schedule = _with(schedule, Disturbance(at, "join", what=last.name))
    return schedule


# --- what is away, late or refused -------------------------------------------------------

RESOURCES = ("jobs", "daemonsets", "pods", "jobreports", "nodes")


def _absences(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with long absences, long lags, lists that are old, and reboots."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, kind = _when(schedule, rng), rng.choice(("crash", "stall", "list_late", "reboot"))
        who = rng.choice(("controller", "controller", "terminator"))
        if kind == "reboot":
            span = float(rng.choice((0.5, 3, 10, 40)))
            found = Disturbance(at, kind, what=_node(schedule, rng), seconds=span)
        elif kind == "crash":
            found = Disturbance(at, kind, who, seconds=float(rng.choice((30, 60, 120))))
        else:
            span = float(rng.choice((2, 10, 30, 60)))
            found = Disturbance(at, kind, who, rng.choice(RESOURCES), seconds=span)
        schedule = _with(schedule, found)
        if rng.random() < 0.4:
            later = round(at + rng.uniform(0.1, 5.0), 2)
            kind = rng.choice(("delete_pod", "leave", "renew", "reregister", "zone", "join"))
            change = Disturbance(later, kind, what=_node(schedule, rng), seconds=2.0)
            schedule = _with(schedule, change)
    return schedule


WRITES = (
    ("controller", "delete pods"),
    ("controller", "patch pods"),
    ("controller", "create jobreports"),
    ("controller", "patch status jobreports"),
    ("controller", "apply daemonsets"),
    ("controller", "patch status jobs"),
    ("controller", "delete daemonsets"),
    ("terminator", "patch jobreports"),
    ("terminator", "delete jobs"),
)


def _refusals(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with writes that are refused for a while, or permanently."""
    for _ in range(rng.choice((1, 1, 2))):
        who, what = rng.choice(WRITES)
        mode, seconds = rng.choice(("403", "422", "413")), float(rng.choice((0, 1, 5, 20, 60)))
        at = 0.0 if rng.random() < 0.4 else _when(schedule, rng)
        schedule = _with(schedule, Disturbance(at, "refuse_write", who, what, mode, seconds))
    if rng.random() < 0.5:
        key, at = schedule.jobs[0].key, _when(schedule, rng)
        schedule = _with(
            schedule, Disturbance(at, rng.choice(("retry", "suspend")), key, "", "", 5)
        )
    return schedule


def _noise(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with tasks that print much, and last lines that never are the same."""
    adapt = _with_tasks(schedule, rng, 0.7, lambda t: replace(t, noise=rng.choice((1, 120, 150))))
    first, *rest = adapt.jobs
    spec = {**first.spec, "results": [{"name": "a"}, {"name": "b"}]}
    if rng.random() < 0.3:
        fail: dict[str, Any] = {"kind": "fail", "code": 1, "times": 99, "after": 0.2}
        adapt = _with_tasks(adapt, rng, 0.3, lambda t: replace(t, **fail))
        spec["failurePolicy"] = {"action": rng.choice(("Continue", "Pause"))}
        spec["backoffLimit"] = 0
    adapt = replace(adapt, jobs=(replace(first, spec=spec), *rest))
    if rng.random() < 0.5:
        # The log cannot be read while much is printed.
        node = rng.choice(adapt.nodes)
        at = round(node.tasks[0].after + rng.uniform(0.0, 2.0), 2)
        seconds = round(rng.uniform(1.0, 4.0), 1)
        adapt = _with(adapt, Disturbance(at, "log_fails", what=node.name, seconds=seconds))
    return adapt


_DRAWN = {
    "absences": _absences,
    "refusals": _refusals,
    "noise": _noise,
    "taints": _taints,
    "edits": _edits,
    "clocks": _clocks,
    "endings": _endings,
    "deadlines": _deadlines,
    "lifetimes": _lifetimes,
    "starts": _starts,
}
