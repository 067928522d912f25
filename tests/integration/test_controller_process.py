"""The programs as users get them: console scripts with the service account's rights, killed."""

import asyncio
import signal
from typing import Any

import pytest

from daemonset_job.kube.client.resource import JOBS, LEASES
from tests.integration.harness import SYSTEM, open_harness
from tests.integration.scripts import Script, complaints, ready, scripts
from tests.integration.simulated_nodes import TaskRun

pytestmark = pytest.mark.timeout(120)


async def test_the_scripts_do_it_with_the_rights_they_are_given(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    def behaviour(node: str, _start: int) -> TaskRun:
        return TaskRun(after=go if node == "c" else None)

    async with (
        open_harness(
            kube_env, namespace, behaviour=behaviour, controller=False, terminator=False
        ) as harness,
        scripts(harness, tmp_path, "job-controller", "terminator") as (controller, terminator),
    ):
        await ready(harness, controller)
        await ready(harness, terminator)
        await harness.apply()
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("completed") == 2, "two done")

        async def counted() -> bool:
            text = await controller.ask("/metrics")
            return 'dsj_nodes{state="completed"} 2.0' in text

        await harness.wait_until(counted, "the metrics say so")
        assert await controller.ask("/healthz") == "ok\n"
        lease = await harness.admin.get(LEASES, "daemonset-job-controller", SYSTEM)
        assert lease["spec"]["holderIdentity"]

        go.set()
        await harness.wait_deleted(JOBS, "sample")
        await harness.wait_events("Started", "Completed")
        for script in (controller, terminator):
            assert await script.end(signal.SIGTERM) == 0
            assert complaints(script.text()) == []
            assert "stopped" in script.text()
        # Given back at once, so that a successor need not wait for its end.
        lease = await harness.admin.get(LEASES, "daemonset-job-controller", SYSTEM)
        assert not lease["spec"].get("holderIdentity")


async def test_killed_scripts_are_followed_by_others_that_go_on(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    def behaviour(node: str, _start: int) -> TaskRun:
        return TaskRun(after=go if node == "c" else None)

    async with (
        open_harness(
            kube_env, namespace, behaviour=behaviour, controller=False, terminator=False
        ) as harness,
        scripts(harness, tmp_path, "job-controller", "terminator") as first,
    ):
        await harness.apply()
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("completed") == 2, "two done")
        for script in first:
            assert await script.end(signal.SIGKILL) == -signal.SIGKILL
        go.set()
        # The dead still hold their leases, for 15 seconds.
        async with scripts(harness, tmp_path, "job-controller", "terminator"):
            await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
        assert (await harness.report())["status"]["phase"] == "Succeeded"


async def test_two_controllers_take_turns(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    async with (
        open_harness(
            kube_env, namespace, behaviour=lambda *_: TaskRun(after=go), controller=False
        ) as harness,
        scripts(harness, tmp_path, "job-controller", "job-controller") as pair,
    ):
        for script in pair:
            await ready(harness, script)

        async def leaders() -> list[Script]:
            texts = [await script.ask("/metrics") for script in pair]
            return [
                script
                for script, text in zip(pair, texts, strict=True)
                if 'dsj_is_leader{component="controller"} 1.0' in text
            ]

        (leader,) = await harness.wait_until(leaders, "one leads")
        await harness.apply()
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("active") == 3, "active")
        assert await leader.end(signal.SIGTERM) == 0

        async def other() -> Any:
            found = await leaders()
            return found and found != [leader]

        await harness.wait_until(other, "the other one leads")
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
