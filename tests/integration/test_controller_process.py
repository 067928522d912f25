"""The programs as users get them: console scripts with the service account's rights, killed."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from job_controller.kube.resources import JOBS, LEASES
from tests.integration.kube_env import free_ports
from tests.integration.playing import Run
from tests.integration.stage import SYSTEM, Stage, account_kubeconfig, stage

pytestmark = pytest.mark.timeout(120)

SCRIPTS = Path(sys.executable).parent


class Script:
    """One console script with leader election, its output in a file."""

    def __init__(self, play: Stage, name: str, folder: Path) -> None:
        self.name = name
        self.port = free_ports(1)[0]
        self.log = folder / f"{name}-{self.port}.log"
        self._environ = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(account_kubeconfig(play.env)),
            "WATCH_NAMESPACES": ",".join(play.world.namespaces),
            "POD_NAMESPACE": SYSTEM,
            "PROBE_PORT": str(self.port),
            "FLUSH_INTERVAL": "100ms",
        }
        self.process: asyncio.subprocess.Process

    async def start(self) -> None:
        with self.log.open("wb") as output:
            self.process = await asyncio.create_subprocess_exec(
                str(SCRIPTS / self.name), env=self._environ, stdout=output, stderr=output
            )

    async def end(self, number: signal.Signals) -> int:
        """Send the signal and return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(20):
            return await self.process.wait()

    async def ask(self, path: str) -> str:
        """Return what the probe server says, "" while it does not listen or is not ready."""

        def read() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.read().decode()

        try:
            return await asyncio.to_thread(read)
        except OSError:
            return ""

    def text(self) -> str:
        return self.log.read_text()


@contextlib.asynccontextmanager
async def scripts(play: Stage, folder: Path, *names: str) -> AsyncIterator[list[Script]]:
    """Run these console scripts; those that are left at the end are told to stop."""
    made = [Script(play, name, folder) for name in names]
    try:
        for script in made:
            await script.start()
        yield made
    finally:
        for script in made:
            try:
                await script.end(signal.SIGTERM)
            except TimeoutError:
                await script.end(signal.SIGKILL)
                raise


async def ready(play: Stage, script: Script) -> None:
    async def look() -> bool:
        assert script.process.returncode is None, script.text()
        return await script.ask("/readyz") == "ok\n"

    await play.until(look, f"{script.name} ready")


def complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(r"WARNING|ERROR|Forbidden", line)]


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
            return 'job_controller_nodes{state="completed"} 2.0' in text

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
                if "job_controller_is_leader 1.0" in text
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
