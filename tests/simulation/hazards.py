"""What clusters and their users do to a run, drawn from a stream of its own.

So a seed keeps the cluster, the Jobs and the disturbances that it had before there were hazards. A
fifth of the schedules has none, most others have one, and some several at once.
"""

from dataclasses import replace

from tests.simulation.edits import selection
from tests.simulation.schedule import Disturbance

NAMES = ("taints", "edits")


def with_hazards(schedule, rng):
    """Return the schedule with hazards added."""
    if schedule.calm or rng.random() < 0.2:
        return schedule
    chosen = {rng.choice(NAMES)} if rng.random() < 0.7 else {n for n in NAMES if rng.random() < 0.5}
    for name in NAMES:
        if name in chosen:
            schedule = _HAZARDS[name](schedule, rng)
    found = sorted(schedule.disturbances, key=lambda d: d.at)
    return replace(schedule, disturbances=tuple(found))


def _when(schedule, rng):
    """Return a time: within two seconds, while the tasks run, or later, equally often."""
    work = 3.0 + max(t.after for node in schedule.nodes for t in node.tasks)
    return round(rng.uniform(0, rng.choice((2.0, work, work, work + 20.0))), 2)


def _node(schedule, rng):
    return rng.choice(schedule.nodes).name


def _with(schedule, *disturbances):
    return replace(schedule, disturbances=(*schedule.disturbances, *disturbances))


# --- taints ------------------------------------------------------------------------------

EFFECTS = ("NoSchedule", "NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule")


def _taints(schedule, rng):
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


def _with_template(schedule, pod_spec):
    first, *rest = schedule.jobs
    template = {"spec": {**first.spec.get("template", {}).get("spec", {}), **pod_spec}}
    return replace(
        schedule, jobs=(replace(first, spec={**first.spec, "template": template}), *rest)
    )


# --- edits -------------------------------------------------------------------------------


def _selection(schedule, rng):
    """Return a selection of nodes in words, see `edits`."""
    names = [node.name for node in schedule.nodes]
    label = rng.choice(("zone=a", "zone=a", "zone=b", "slot=1", "slot=01", ""))
    some = rng.sample(names, rng.randint(1, len(names)))
    include = rng.choice((" ".join(f"+{name}" for name in some), "", ""))
    exclude = "" if include else rng.choice((f"-{rng.choice(names)}", "", ""))
    return " ".join(part for part in (label, include, exclude) if part)


def _edits(schedule, rng):
    """Return the schedule with changes of `spec.nodes`, at times while nobody can act on them."""
    job = schedule.jobs[0]
    nodes = [replace(node, slot=rng.choice(("1", "01"))) for node in schedule.nodes]
    schedule = replace(schedule, nodes=tuple(nodes))
    if rng.random() < 0.7 and (nodes := selection(_selection(schedule, rng))):
        schedule = replace(
            schedule,
            jobs=(replace(job, spec={**job.spec, "nodes": nodes}), *schedule.jobs[1:]),
        )
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, back = _when(schedule, rng), float(rng.choice((0, 0, 0, 1, 5, 20)))
        words = rng.choice(("", _selection(schedule, rng)))
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


_HAZARDS = {"taints": _taints, "edits": _edits}
