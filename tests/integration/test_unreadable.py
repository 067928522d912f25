"""A Job that the API server takes and no program can read: nobody else may notice."""

import json

import pytest

from job_controller.kube.resources import DAEMON_SETS, JOBS
from job_controller.kube.transport import Call
from tests.integration.jobs import job
from tests.integration.stage import Stage, stage

pytestmark = pytest.mark.timeout(120)

LEVELS = 1500  # orjson reads 1,024, the API server 10,000


async def send(play: Stage, method: str, name: str = "", body: bytes | None = None) -> bytes:
    """Return the answer as it is: it is too deep to be parsed."""
    path = JOBS.path(play.namespace, name or None)
    return await play.admin._transport.send(Call(method, path, "", "jobs", body=body))


async def create_deep(play: Stage) -> None:
    template = {"spec": {"containers": [{"name": "x", "x": "HERE"}]}}
    body = job(play.namespace, name="deep")
    body["spec"] |= {"suspend": True, "template": template}
    deep = "[" * LEVELS + "]" * LEVELS
    answer = await send(play, "POST", body=json.dumps(body).replace('"HERE"', deep).encode())
    if deep.encode() not in answer:
        pytest.skip("the API server drops what is nested so deep")


async def test_a_job_that_cannot_be_read_is_told_so_and_others_complete(kube_env, namespace):
    async with stage(kube_env, namespace, nodes=["a"]) as play:
        await create_deep(play)

        async def is_told():
            return b'"reason":"Unreadable"' in await send(play, "GET", "deep")

        await play.until(is_told, "Progressing with reason Unreadable")
        told = await send(play, "GET", "deep")
        assert b'"observedGeneration":1' in told
        # The watches go on.
        await play.apply(name="before")
        await play.gone(JOBS, "before")

        # So do processes that begin with a list of it.
        for process in list(play.processes):
            await play.stop(process)
        controller = await play.start_controller()
        terminator = await play.start_terminator()
        await play.apply(name="after")
        await play.gone(JOBS, "after")
        await play.gone(DAEMON_SETS, "after-daemonset-job")
        for caches in (controller.program.caches, terminator.program._watch.caches):
            assert caches.unreadable()["jobs"] == 1
        # Nothing is written of it again: its version is the one that told.
        assert await send(play, "GET", "deep") == told

        await send(play, "DELETE", "deep")

        async def is_forgotten():
            caches = controller.program.caches, terminator.program._watch.caches
            return not any(each.unreadable()["jobs"] for each in caches)

        await play.until(is_forgotten, "the deep Job is gone from the caches")
