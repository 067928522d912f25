"""Schedules whose rollouts have steps that select their nodes by labels.

There are also steps of a number or a percentage. Some steps select nodes of another step, too, and
some select none. Users set and remove labels before the turn of a step, in it and after it.
They change steps, approve them, or have the run rolled back. Some of the Jobs stay.
"""

import json
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation import holds
from tests.simulation.continuous_jobs import continuous
from tests.simulation.rollout_parts import with_rollout_parts
from tests.simulation.rollouts import rolled_out
from tests.simulation.schedule import Disturbance, JobPlan, NodePlan, Schedule, Task
from tests.simulation.server import Raw
from tests.simulation.undone_changes import obstacle, rerun

FIRST_SEED = 16_000_000_000
SHARE_CONTINUOUS = 0.15
SHARE_OF_PARTS = 0.25
SHARE_ROLLED_BACK = 0.3
SHARE_EDITED = 0.3
SHARE_APPROVED = 0.8
SHARE_PROMOTED = 0.05
CANARY = "example.com/canary"
RING = "example.com/ring"
# Seconds until a label is as it was, 0 for never.
BACK = (0.0, 0.0, 0.0, 0.5, 3.0, 15.0)
_SELECTORS: tuple[Raw, ...] = (
    {"matchLabels": {CANARY: "true"}},
    {"matchLabels": {CANARY: "true"}},
    {"matchLabels": {RING: "1"}},
    {"matchLabels": {RING: "2"}},
    {"matchLabels": {CANARY: "true", RING: "1"}},
    {"matchExpressions": [{"key": CANARY, "operator": "Exists"}]},
    {"matchExpressions": [{"key": RING, "operator": "In", "values": ["1", "2"]}]},
    {"matchExpressions": [{"key": RING, "operator": "NotIn", "values": ["2"]}]},
    {"matchExpressions": [{"key": CANARY, "operator": "DoesNotExist"}]},
    {"matchLabels": {"zone": "a"}},
    {"matchLabels": {CANARY: "nowhere"}},
)
_LABELS = (f"{CANARY}=true", f"{CANARY}=", f"{RING}=1", f"{RING}=2", f"{RING}=")
# What makes other changes of a Job.
_LEFT_OUT = {"edit"}


def with_labelled_steps(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with steps that select by labels, and with what happens to them."""
    schedule = holds.without_what_no_hold_has(schedule)
    is_standing = rng.random() < SHARE_CONTINUOUS
    jobs = [_with_steps(job, rng) for job in schedule.jobs]
    jobs = [continuous(job) if is_standing else job for job in jobs]
    left_out = _LEFT_OUT | ({"select", "zone"} if is_standing else set())
    kept = tuple(d for d in schedule.disturbances if d.kind not in left_out)
    nodes = tuple(_labelled(node, rng) for node in schedule.nodes)
    schedule = replace(schedule, nodes=nodes, jobs=tuple(jobs), disturbances=kept)
    if rng.random() < SHARE_OF_PARTS:
        schedule = with_rollout_parts(schedule, rng)
    if not is_standing and rng.random() < SHARE_ROLLED_BACK:
        schedule = _rolled_back(schedule, rng)
    found = [*schedule.disturbances, *_relabels(schedule, rng), *_answers(schedule, rng)]
    if rng.random() < SHARE_EDITED:
        found += _edits(schedule, rng)
    return replace(schedule, disturbances=tuple(sorted(found, key=lambda d: d.at)))


def _labelled(node: NodePlan, rng: Random) -> NodePlan:
    labels = []
    if rng.random() < 0.35:
        labels.append((CANARY, rng.choice(("true", "true", "false"))))
    if rng.random() < 0.5:
        labels.append((RING, rng.choice("12")))
    return replace(node, labels=tuple(labels))


def _with_steps(job: JobPlan, rng: Random) -> JobPlan:
    job = rolled_out(job, rng)
    steps = [_selecting(rng)] + [_step(rng) for _ in range(rng.choice((0, 1, 1, 2)))]
    rng.shuffle(steps)
    return replace(job, spec={**job.spec, "rollout": {**job.spec["rollout"], "steps": steps}})


def _step(rng: Random) -> dict[str, Any]:
    if rng.random() < 0.5:
        return _selecting(rng)
    return _with_end({"nodes": rng.choice((1, 1, 2, 3, "50%"))}, rng)


def _selecting(rng: Random) -> dict[str, Any]:
    return _with_end({"selector": rng.choice(_SELECTORS)}, rng)


def _with_end(step: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return the step, perhaps with what follows once its nodes have finished."""
    if rng.random() < 0.25:
        step["approval"] = "Required"
    if rng.random() < 0.35:
        step["soakSeconds"] = rng.choice((1, 3, 6))
    if rng.random() < 0.1:
        step["check"] = {"script": {"script": "check"}, "timeoutSeconds": 10}
    return step


def _rolled_back(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with a first Job that is rolled back, on request or by a failure."""
    first, *rest = schedule.jobs
    if rest or first.created_at or first.is_continuous:
        return schedule
    kept = {"image", "completion", "rollout", "results"}
    spec: dict[str, Any] = {key: part for key, part in first.spec.items() if key in kept}
    spec |= {"rollback": {"args": ["undo"]}, "backoffLimit": 0}
    found = [d for d in schedule.disturbances if d.kind not in _OF_USERS]
    tasks = {node.name: Task("done", rng.choice((0.2, 1.0, 3.0))) for node in schedule.nodes}
    if rng.random() < 0.5:
        spec["failurePolicy"] = {"action": "Rollback"}
        tasks[rng.choice(schedule.nodes).name] = Task("fail", rng.choice((0.2, 1.0)), 1, 99)
    else:
        at = round(rng.uniform(1.0, 30.0), 2)
        found.append(Disturbance(at, "roll_back", first.key))
    first = replace(first, spec=spec, tasks=tasks)
    nodes = tuple(replace(node, slot="1") for node in schedule.nodes)
    return replace(schedule, nodes=nodes, jobs=(first,), disturbances=tuple(found))


# What a user does to a run that is judged by its rollback only without that.
_OF_USERS = frozenset(
    {
        *("suspend", "retry", "forge", "select", "delete_job", "again", "delete_daemon_set"),
        *("relabel", "zone", "leave", "renew", "reregister", "drain", "taint", "cordon"),
        *("lose_status", "refuse_write", "no_network", "disrupt", "rerun", "force_delete"),
    }
)


# --- what happens ------------------------------------------------------------------------


def _moment(schedule: Schedule, rng: Random) -> float:
    """Return a time at which nodes may get their turn: they work one after the other."""
    tasks = [task for node in schedule.nodes for task in node.tasks]
    work = 3.0 + sum(min(task.after, 8.0) + 2.0 for task in tasks)
    return round(rng.uniform(0, rng.choice((2.0, 6.0, work, work))), 2)


def _relabels(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return changes of labels, mostly some, with what keeps the controller from seeing them."""
    found = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        at, back = _moment(schedule, rng), rng.choice(BACK)
        node, label = rng.choice(schedule.nodes).name, rng.choice(_LABELS)
        found.append(Disturbance(at, "label", what=node, mode=label, seconds=back))
        if not schedule.calm and rng.random() < 0.4:
            found += _lateness(at, rng)
    return found


def _lateness(at: float, rng: Random) -> list[Disturbance]:
    if rng.random() < 0.5:
        return obstacle(at, rng)
    before, seconds = round(max(at - 0.3, 0.0), 2), float(rng.choice((1, 3, 10)))
    return [Disturbance(before, "stall", "controller", "nodes", seconds=seconds)]


def _answers(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return what people say of the steps: approvals in time, early, late or never."""
    job, found = schedule.jobs[0], []
    for number in (1, 2, 3):
        if rng.random() < SHARE_APPROVED:
            at = _moment(schedule, rng) + rng.choice((0.0, 0.0, 15.0))
            found.append(Disturbance(round(at, 2), "approve", job.key, str(number)))
    if rng.random() < SHARE_PROMOTED:
        found.append(Disturbance(_moment(schedule, rng), "promote", job.key))
    if "rollback" not in job.spec and rng.random() < 0.15:
        found.append(Disturbance(_moment(schedule, rng), "retry", job.key))
    if job.is_continuous and rng.random() < 0.4:
        found.append(rerun(schedule, job.key, _moment(schedule, rng), rng))
    return found


def _edits(schedule: Schedule, rng: Random) -> list[Disturbance]:
    """Return changes of the steps, some of which are undone."""
    job, found = schedule.jobs[0], []
    rollout = job.spec["rollout"]
    for _ in range(rng.choice((1, 1, 2))):
        steps = [dict(step) for step in rollout["steps"]]
        at, back = _moment(schedule, rng), rng.choice(BACK)
        place, kind = rng.randrange(len(steps)), rng.choice(("select", "select", "add", "remove"))
        if kind == "select":
            step = steps[place]
            step.pop("nodes", None)
            step["selector"] = rng.choice(_SELECTORS)
        elif kind == "add":
            steps.insert(place, _step(rng))
        elif len(steps) > 1:
            del steps[place]
        changed = {**rollout, "steps": steps}
        words = json.dumps(changed, sort_keys=True)
        found.append(Disturbance(at, "edit", job.key, words, "rollout", back))
        found += [] if schedule.calm else obstacle(at, rng)
        rollout = rollout if back else changed
    return found
