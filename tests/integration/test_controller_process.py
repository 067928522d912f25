"""The programs as users get them: console scripts with the service account's rights, killed."""

import asyncio
import signal
from typing import Any

import pytest

from daemonset_job.kube.client.resource import JOBS, LEASES
from tests.integration.playing import Run
from tests.integration.scripts import Script, complaints, ready, scripts
from tests.integration.stage import SYSTEM, stage

pytestmark = pytest.mark.timeout(120)


async def test_the_scripts_do_it_with_the_rights_they_are_given(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    def behaviour(node: str, _start: int) -> Run:
        return Run(after=go if node == "c" else None)

    async with (
        stage(kube_env, namespace, behaviour=behaviour, controller=False, terminator=False) as play,
        scripts(play, tmp_path, "job-controller", "terminator") as (controller, terminator),
    ):
        await ready(play, controller)
        await ready(play, terminator)
        await play.apply()
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "two done")

        async def counted() -> bool:
            text = await controller.ask("/metrics")
            return 'dsj_nodes{state="completed"} 2.0' in text

        await play.until(counted, "the metrics say so")
        assert await controller.ask("/healthz") == "ok\n"
        lease = await play.admin.get(LEASES, "daemonset-job-controller", SYSTEM)
        assert lease["spec"]["holderIdentity"]

        go.set()
        await play.gone(JOBS, "sample")
        await play.told("Started", "Completed")
        for script in (controller, terminator):
            assert await script.end(signal.SIGTERM) == 0
            assert complaints(script.text()) == []
            assert "stopped" in script.text()
        # Given back at once, so that a successor need not wait for its end.
        lease = await play.admin.get(LEASES, "daemonset-job-controller", SYSTEM)
        assert not lease["spec"].get("holderIdentity")


async def test_killed_scripts_are_followed_by_others_that_go_on(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    def behaviour(node: str, _start: int) -> Run:
        return Run(after=go if node == "c" else None)

    async with (
        stage(kube_env, namespace, behaviour=behaviour, controller=False, terminator=False) as play,
        scripts(play, tmp_path, "job-controller", "terminator") as first,
    ):
        await play.apply()
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "two done")
        for script in first:
            assert await script.end(signal.SIGKILL) == -signal.SIGKILL
        go.set()
        # The dead still hold their leases, for 15 seconds.
        async with scripts(play, tmp_path, "job-controller", "terminator"):
            await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}
        assert (await play.report())["status"]["phase"] == "Succeeded"


async def test_two_controllers_take_turns(kube_env, namespace, tmp_path):
    go = asyncio.Event()

    async with (
        stage(kube_env, namespace, behaviour=lambda *_: Run(after=go), controller=False) as play,
        scripts(play, tmp_path, "job-controller", "job-controller") as pair,
    ):
        for script in pair:
            await ready(play, script)

        async def leaders() -> list[Script]:
            texts = [await script.ask("/metrics") for script in pair]
            return [
                script
                for script, text in zip(pair, texts, strict=True)
                if 'dsj_is_leader{component="controller"} 1.0' in text
            ]

        (leader,) = await play.until(leaders, "one leads")
        await play.apply()
        await play.job_until(lambda s: (s.get("nodes") or {}).get("active") == 3, "active")
        assert await leader.end(signal.SIGTERM) == 0

        async def other() -> Any:
            found = await leaders()
            return found and found != [leader]

        await play.until(other, "the other one leads")
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}
