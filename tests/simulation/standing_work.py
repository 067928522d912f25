"""Has the Jobs of some schedules stay, and their users ask for more: by a random stream of its own.

Users change what runs, also back within seconds; they request reruns on one node, several or all,
also again; and they take labels away and set them back. Some of it happens while the controller is
away, one of its watches is late, its writes are refused, or the run is suspended.
"""

from dataclasses import replace
from random import Random

from tests.simulation.continuous_jobs import continuous
from tests.simulation.schedule import Disturbance, JobPlan, Schedule

SHARE = 0.1
# What changes the nodes of a Job in another way than `relabel`.
_OF_LABELS = {"zone", "select"}
_IMAGE = "example/task:"
_REFUSED = (
    "patch status jobreports",
    "patch status jobreports",
    "patch status jobs",
    "apply daemonsets",
    "delete pods",
    "patch pods",
)


def with_standing_work(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule, in some cases with Jobs that stay and are asked for more."""
    return asked_for_more(schedule, rng) if rng.random() < SHARE else schedule


def asked_for_more(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with Jobs that stay and are asked for more."""
    jobs = tuple(map(continuous, schedule.jobs))
    kept = tuple(d for d in schedule.disturbances if d.kind not in _OF_LABELS | {"edit"})
    schedule = replace(schedule, jobs=jobs, disturbances=kept)
    found = list(kept)
    chosen = rng.choice(("revisions", "reruns", "labels", "all"))
    if chosen == "labels" or (chosen == "all" and rng.random() < 0.5):
        schedule = replace(schedule, jobs=tuple(map(_selecting, schedule.jobs)))
        found += _relabels(schedule, rng)
    if chosen in {"revisions", "all"}:
        found += _revisions(schedule, rng)
    if chosen in {"reruns", "all"}:
        found += _reruns(schedule, rng)
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _selecting(job: JobPlan) -> JobPlan:
    nodes = {"selector": {"matchLabels": {"zone": "a"}}}
    return replace(job, spec={**job.spec, "nodes": nodes})


def _when(schedule: Schedule, rng: Random) -> float:
    """Return a time: at the beginning, while the tasks run, or when they are done."""
    work = 3.0 + max(t.after for node in schedule.nodes for t in node.tasks)
    low, high = rng.choice(((0.0, 2.0), (0.0, work), (0.0, work), (work, work + 30.0)))
    return round(rng.uniform(low, high), 2)


def _obstacles(schedule: Schedule, rng: Random, at: float) -> list[Disturbance]:
    """Return what is in the controller's way about then, mostly nothing."""
    if schedule.calm or rng.random() < 0.5:
        return []
    before, span = round(max(at - rng.uniform(0.0, 3.0), 0.0), 2), float(rng.choice((1, 5, 20)))
    kind = rng.choice(("crash", "crash_on", "stall", "stall", "refuse_write", "suspend"))
    node = rng.choice(schedule.nodes).name
    if kind == "suspend":
        return [Disturbance(before, kind, schedule.jobs[0].key, seconds=span)]
    if kind == "crash":
        return [Disturbance(before, kind, "controller", seconds=span)]
    if kind == "crash_on":
        what = rng.choice(("jobs", "daemonsets", "pods", "jobreports"))
        later, mode = round(at + 0.01, 2), rng.choice(("before", "after"))
        return [Disturbance(later, kind, "controller", what, mode, span)]
    if kind == "refuse_write":
        what = rng.choice(_REFUSED)
        return [Disturbance(before, kind, "controller", what, "403", span)]
    who = rng.choice(("controller", "controller", "terminator"))
    what = rng.choice(("jobs", "daemonsets", "pods", "jobreports"))
    found = [Disturbance(before, kind, who, what, seconds=span)]
    if rng.random() < 0.3:
        found.append(Disturbance(round(at + rng.uniform(0, 4), 2), "delete_pod", what=node))
    return found


def _revisions(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return changes of what runs: some far apart, some within seconds, some back."""
    found, key, number = [], rng.choice(schedule.jobs).key, 1
    for _ in range(rng.choice((1, 1, 2))):
        at = _when(schedule, rng)
        found += _obstacles(schedule, rng, at)
        number += 1
        image = f"{_IMAGE}{number}"
        back = float(rng.choice((0, 0, 0.3, 2, 10, 40)))
        found.append(Disturbance(at, "edit", key, image, "image", back))
        if rng.random() < 0.25:
            number += 1
            later = round(at + rng.choice((0.2, 1.0, 5.0)), 2)
            found.append(Disturbance(later, "edit", key, f"{_IMAGE}{number}", "image"))
    return found


def _reruns(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return rerun requests: of one node, several or all; again, and the one before again."""
    names, key = [node.name for node in schedule.nodes], rng.choice(schedule.jobs).key
    found: list[Disturbance] = []

    def request() -> str:
        some = rng.choice(("*", rng.choice(names), ",".join(names[: rng.randint(1, len(names))])))
        return f"{some}@{rng.randrange(1000)}"

    at = _when(schedule, rng)
    first, second = request(), request()
    pattern = rng.choice(
        ((first,), (first,), (first, second), (first, first), (first, second, first))
    )
    for words in pattern:
        found += _obstacles(schedule, rng, at)
        found.append(Disturbance(at, "rerun", key, words))
        at = round(at + rng.choice((0.1, 1.0, 4.0, 15.0, 40.0)), 2)
    return found


def _relabels(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return labels that are taken away and set back after a while, or not."""
    found = []
    for _ in range(rng.choice((1, 1, 2))):
        at, node = _when(schedule, rng), rng.choice(schedule.nodes).name
        found += _obstacles(schedule, rng, at)
        seconds = float(rng.choice((0, 0.5, 3, 15, 30)))
        found.append(Disturbance(at, "relabel", what=node, seconds=seconds))
    return found
