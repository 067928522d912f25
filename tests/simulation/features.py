"""Adds features of the API beyond one Job of mode Log to a schedule.

They are drawn from a random stream of their own, so that a seed keeps its cluster and disturbances
when features are added here. A third of the schedules has none, most others have one, some several.
"""

from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.schedule import FAILURE_TOKEN, JobPlan, Schedule, Task
from tests.simulation.server import Raw

# What users do to a Job; with several, each such disturbance is about one of them.
ABOUT_A_JOB = {
    "delete_daemon_set",
    "suspend",
    "retry",
    "forge",
    "select",
    "delete_job",
    "again",
    "edit",
    "rerun",
}
# Another name, another namespace, or both.
OTHERS = (("other", "default"), ("sample", "elsewhere"), ("third", "elsewhere"))
# About when a task starts, after the Job was created, in seconds.
STARTED_AT = 0.4
NAMES = ("exit", "refusal", "results", "shards", "jobs")


def with_features(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with features added."""
    if rng.random() < 0.33:
        return schedule
    chosen = {rng.choice(NAMES)} if rng.random() < 0.6 else {n for n in NAMES if rng.random() < 0.5}
    if "jobs" in chosen:
        schedule = _with_jobs(schedule, rng)
    if "shards" in chosen:
        schedule = replace(schedule, shard_nodes=rng.choice((1, 2, 2, 3)))
    for feature, adapt in (
        ("exit", with_exit),
        ("refusal", with_failure_token),
        ("results", with_results),
    ):
        if feature in chosen:
            # The first Job always, the others as it comes.
            first, *rest = schedule.jobs
            rest = [adapt(job) if rng.random() < 0.5 else job for job in rest]
            schedule = replace(schedule, jobs=(adapt(first), *rest))
    if "refusal" in chosen:
        schedule = with_refusals(schedule, rng)
    return schedule


def _with_jobs(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with one or two Jobs more, and what users do spread over them."""
    jobs = list(schedule.jobs)
    for name, namespace in rng.sample(OTHERS, rng.choice((1, 1, 2))):
        plan = JobPlan(name, namespace, spec=_spec(jobs[0].spec, rng))
        tasks = {node.name: _task(rng) for node in schedule.nodes if rng.random() < 0.7}
        at = round(rng.choice((0.0, rng.uniform(0, 2), rng.uniform(0, 30))), 2)
        jobs.append(replace(plan, tasks=tasks, created_at=at))
    found = tuple(
        replace(d, who=rng.choice(jobs).key) if d.kind in ABOUT_A_JOB else d
        for d in schedule.disturbances
    )
    return replace(schedule, jobs=tuple(jobs), disturbances=found)


def _spec(first: Raw, rng: Random) -> Raw:
    """Return the spec of another Job: as the first one's, or plain."""
    spec: dict[str, Any] = dict(first) if rng.random() < 0.5 else {"image": "example/other:1"}
    if rng.random() < 0.2:
        spec["ttlSecondsAfterFinished"] = rng.choice((0, 3, 20))
    return spec


def _task(rng: Random) -> Task:
    after = rng.choice((0.0, 0.2, 1.0, 3.0, 8.0, 20.0))
    kind = rng.choice(("done", "done", "done", "exit", "once", "never", "fail"))
    if kind == "fail":
        return Task(kind, min(after, 3.0), rng.choice((1, 42)), rng.choice((1, 2)))
    return Task(kind, after)


def with_exit(job: JobPlan) -> JobPlan:
    """Return the Job in mode Exit."""
    completion = {**job.spec.get("completion", {}), "mode": "Exit"}
    return replace(job, spec={**job.spec, "completion": completion})


def with_failure_token(job: JobPlan) -> JobPlan:
    """Return the Job with a failure token."""
    completion = {**job.spec.get("completion", {}), "failureToken": FAILURE_TOKEN}
    return replace(job, spec={**job.spec, "completion": completion})


def with_results(job: JobPlan) -> JobPlan:
    """Return the Job with results, which its tasks print then."""
    return replace(job, spec={**job.spec, "results": [{"name": "a"}, {"name": "b"}]})


def with_answers(job: JobPlan, rng: Random, *, failure_token: float, results: float) -> JobPlan:
    """Return the Job with a failure token, and with results, in these shares of all cases."""
    if rng.random() < failure_token:
        job = with_failure_token(job)
    return with_results(job) if rng.random() < results else job


def with_refusals(schedule: Schedule, rng: Random) -> Schedule:
    """Return the schedule with tasks on some nodes that print the failure token."""
    nodes = [
        replace(node, tasks=tuple(_refusing(rng) if rng.random() < 0.4 else t for t in node.tasks))
        for node in schedule.nodes
    ]
    return replace(schedule, nodes=tuple(nodes))


def _refusing(rng: Random) -> Task:
    after, code = rng.choice((0.0, 0.2, 1.0, 3.0, 8.0)), rng.choice((0, 0, 0, 3))
    return Task("refuse", after, code, rng.choice((1, 1, 2, 99)))
