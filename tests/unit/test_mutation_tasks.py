"""The tasks that mutated Jobs run on simulated nodes."""

import asyncio
from types import SimpleNamespace

import pytest

from tests.mutation.tasks import Task, Tasks

JOB = "m00001-sample"


async def start(tasks, job=JOB, **spec):
    """Return what the task of the Job does, started as the life of one of its pods starts it."""
    life = SimpleNamespace(pod={"metadata": {"name": f"{job}-daemonset-job-x"}, "spec": spec})
    tasks.nodes = SimpleNamespace(_lives={"uid": life})

    async def live():
        return tasks("a", 1)

    life.tasks = [asyncio.create_task(live())]
    return await life.tasks[0]


@pytest.mark.parametrize(
    ("task", "spec"),
    [
        (Task(holds=True), {}),
        (Task(holds=True), {"completion": {"mode": "Exit"}}),
        (Task(holds=True, failures=1), {}),
        (Task(holds=True, failures=1, says=True), {"completion": {"failureToken": "no"}}),
    ],
    ids=["token", "exit", "failure", "failure token"],
)
async def test_a_task_that_holds_works_until_its_job_is_released(task, spec):
    tasks = Tasks()
    tasks.add(JOB, task, spec)
    run = await start(tasks)
    assert run.after is not None
    assert not run.after.is_set()
    assert run.exit_on_term is None
    tasks.release(JOB)
    assert run.after.is_set()


async def test_the_task_of_an_owned_job_ends_as_its_pod_says():
    tasks = Tasks()
    task = {"name": "job-container", "env": [{"name": "COMPLETION_TOKEN", "value": "all done"}]}
    run = await start(tasks, f"{JOB}-rollback", initContainers=[task])
    assert (run.exit_code, run.lines) == (0, ("working",))
    run = await start(tasks, f"{JOB}-rollback", containers=[task])
    assert (run.exit_code, run.lines) == (None, ("working", "all done"))
