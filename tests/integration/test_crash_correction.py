"""A run whose start is taken back and corrected, whose controller is killed after every write.

Once it is in progress, and once it has failed.
"""

import asyncio
from typing import Any

import pytest

from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES
from tests.integration.crashes import (
    AT_ONCE,
    DEATHS,
    Play,
    Played,
    assert_most_died,
    choose_writes,
    play,
)
from tests.integration.harness import Harness, condition
from tests.integration.simulated_nodes import OWNER_LABEL, TaskRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WRONG, RIGHT = "example/task:typo", "example/task:v1"
TAKEN_BACK = "StartTakenBack"
DAEMON_SET = "sample-daemonset-job"
# With the second one a node fails at once, and the run with it.
MISTAKES = {"run in progress": "ImagePullBackOff", "failed run": "InvalidImageName"}


class Correction:
    """A user who suspends a Job whose image has a typo, and corrects it when the Job allows it."""

    def __init__(self, mistake: str) -> None:
        self.waiting = TaskRun(waiting=mistake, message="no such image")
        self.fails = mistake == "InvalidImageName"
        self.is_right = False
        self.how = ""

    def behaviour(self, _node: str, _start: int) -> TaskRun:
        """Nothing starts before the image is right."""
        return TaskRun() if self.is_right else self.waiting

    async def script(self, found: Harness) -> None:
        own = {"selector": {"matchLabels": {OWNER_LABEL: found.nodes.id}}}
        await found.apply({"image": WRONG, "nodes": own})

        if self.fails:
            await found.wait_job(lambda status: is_true(status, "Failed"), "failed")
        else:
            await found.wait_until(lambda: pods_wait(found), "both pods wait for their image")
        await found.change(JOBS, "sample", {"spec": {"suspend": True}})
        job = await found.wait_job(lambda status: bool(answer(status)), "taken back, or why not")
        self.how = answer(job["status"])
        if self.how == "begun":
            # The last status of a pod was missed. So the run stays as it is.
            assert "a task has begun, or may have, on" in suspended(job["status"])["message"]
            assert "startTime" in job["status"]
            assert not found.nodes.executions
            return
        self.is_right = True
        await found.change(JOBS, "sample", {"spec": {"suspend": None, "image": RIGHT}})
        await found.wait_deleted(JOBS, "sample")
        await found.wait_deleted(DAEMON_SETS, DAEMON_SET)
        assert dict(found.nodes.images) == {RIGHT: 2}
        (report,) = await found.all(JOB_REPORTS)
        assert report["spec"]["image"] == RIGHT
        assert report["status"]["phase"] == "Succeeded"
        assert set(found.nodes.executions.values()) == {1}
        assert [node["attempts"] for node in report["status"]["nodeStates"].values()] == [1, 1]
        failures = [e for e in report["status"].get("history", ()) if e["reason"] == TAKEN_BACK]
        assert ["no such image" in entry["message"] for entry in failures] == [True] * self.fails


async def pods_wait(found: Harness) -> bool:
    pods = [pod for each in (await found.pods()).values() for pod in each]
    return len(pods) == 2 and all(pod["status"].get("containerStatuses") for pod in pods)


def is_true(status: dict[str, Any], type_: str) -> bool:
    return bool(condition(status, type_).get("status") == "True")


def suspended(status: dict[str, Any]) -> dict[str, Any]:
    return condition(status, "Suspended") if is_true(status, "Suspended") else {}


def answer(status: dict[str, Any]) -> str:
    """Return what the status says of the start: "taken back", "begun", "" for nothing yet."""
    found = suspended(status)
    if found.get("reason") == TAKEN_BACK:
        return "taken back"
    return "begun" if "can no longer be changed" in found.get("message", "") else ""


@DEATHS
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
async def test_killed_after_any_write_it_is_corrected_or_says_why_not(
    kube_env, namespace, mistake, deaths
):
    room = asyncio.Semaphore(AT_ONCE)
    users: dict[int | None, Correction] = {}

    async def run(number: int | None) -> Played:
        where = f"{namespace}-{number or 'all'}"
        kube_env.request("POST", NAMESPACES.path(), {"metadata": {"name": where}})
        users[number] = user = Correction(mistake)
        async with room:
            script = Play(("a", "b"), user.behaviour, user.script)
            return await play(kube_env, where, "controller", number, script)

    undisturbed = await run(None)
    assert users[None].how == "taken back"
    numbers = choose_writes(undisturbed.written, deaths)
    async with asyncio.TaskGroup() as group:
        runs = {number: group.create_task(run(number)) for number in numbers}
    played = {number: task.result() for number, task in runs.items()}
    assert_most_died(undisturbed, played)
    # Only a death while pods are about to go leaves it open whether they have started.
    begun = [number for number in numbers if users[number].how == "begun"]
    assert len(begun) <= len(numbers) / 4, [(number, played[number].written) for number in begun]
