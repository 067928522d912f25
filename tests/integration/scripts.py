"""The programs as users get them: console scripts with the rights of a service account."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

from daemonset_job.kube.client.resource import LEASES
from tests.integration.harness import ACCOUNT, SYSTEM, Harness, account_kubeconfig
from tests.integration.kube_env import ROOT, free_ports

SCRIPTS = Path(sys.executable).parent
CONTROLLER, TERMINATOR = "job-controller", "terminator"
LEASE_NAMES = {CONTROLLER: "daemonset-job-controller", TERMINATOR: "daemonset-job-terminator"}


class Script:
    """One console script with leader election, its output in a file.

    It follows the namespaces of the harness or, as deployed, all namespaces.
    """

    def __init__(
        self,
        harness: Harness,
        name: str,
        folder: Path,
        *,
        account: str = ACCOUNT,
        everywhere: bool = False,
    ) -> None:
        self.name = name
        self.port = free_ports(1)[0]
        self.log = folder / f"{name}-{self.port}.log"
        namespaces = "" if everywhere else ",".join(harness.nodes.namespaces)
        self._environ = {
            "PATH": os.environ["PATH"],
            # Those of this checkout, wherever the scripts were installed from.
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(account_kubeconfig(harness.env, account)),
            # Each program reads its own one.
            "WATCH_NAMESPACES": namespaces,
            "NAMESPACE": namespaces,
            "POD_NAMESPACE": SYSTEM,
            "POD_NAME": f"{name}-{self.port}",
            "PROBE_PORT": str(self.port),
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
                return str(answer.read(), "utf-8")

        try:
            return await asyncio.to_thread(read)
        except OSError:
            return ""

    async def metric(self, name: str) -> float | None:
        """Return the sample of that name and labels, None without it."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", await self.ask("/metrics"), re.MULTILINE)
        return float(found[1]) if found else None

    def peak_mib(self) -> float:
        """Return the peak of the process's resident memory."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
        return int(kib) / 1024

    def text(self) -> str:
        return self.log.read_text()


@contextlib.asynccontextmanager
async def run_scripts(*made: Script) -> AsyncIterator[None]:
    """Run these console scripts; those that are left at the end get SIGTERM."""
    try:
        for script in made:
            await script.start()
        yield
    finally:
        for script in made:
            try:
                await script.end(signal.SIGTERM)
            except TimeoutError:
                await script.end(signal.SIGKILL)
                raise


@contextlib.asynccontextmanager
async def scripts(harness: Harness, folder: Path, *names: str) -> AsyncIterator[list[Script]]:
    """Run the console scripts of these names."""
    made = [Script(harness, name, folder) for name in names]
    async with run_scripts(*made):
        yield made


async def ready(harness: Harness, script: Script) -> None:
    """Return once the script is ready."""

    async def look() -> bool:
        assert script.process.returncode is None, script.text()
        return await script.ask("/readyz") == "ok\n"

    await harness.wait_until(look, f"{script.name} ready")


async def leadership(harness: Harness, name: str) -> tuple[str, int]:
    """Return the holder of the Lease of a program, "" for none, and how often that changed."""
    lease = await harness.find(LEASES, LEASE_NAMES[name], SYSTEM)
    spec = (lease or {}).get("spec") or {}
    return spec.get("holderIdentity") or "", int(spec.get("leaseTransitions") or 0)


def complaints(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.search(r"WARNING|ERROR|Forbidden", line)]
