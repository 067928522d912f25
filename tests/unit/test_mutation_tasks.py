"""The tasks that mutated Jobs run on simulated nodes."""

import asyncio

import pytest

from tests.mutation.tasks import Task, Tasks

JOB = "m00001-sample"


async def start(tasks):
    """Return what the task of the Job does, started as the life of one of its pods starts it."""

    async def life():
        return tasks("a", 1)

    return await asyncio.create_task(life(), name=f"life/{JOB}-daemonset-job-x")


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
