"""What benchmarks on the devcluster share: their namespace, what they watch, and how they end."""

import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.processes import OURS, SYSTEM
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError, NotFound
from daemonset_job.kube.client.resource import NAMESPACES, PODS, Resource
from daemonset_job.kube.client.selection import Selection

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".devcluster"
RUN_SECONDS = 600


class BenchmarkError(Exception):
    """The benchmark cannot go on, or found something wrong; the message says what."""


class Observer:
    """Watches the objects of one kind in the benchmark's namespace, metadata only.

    `removed_at` has when each of them was deleted, or no longer selected, by time.perf_counter().
    """

    def __init__(
        self, client: KubeClient, resource: Resource, namespace: str, selector: str | None = None
    ) -> None:
        self.present: set[str] = set()
        self.removed_at: dict[str, float] = {}
        self._client = client
        self._what = Selection(resource, namespace, field_selector=selector, metadata_only=True)
        self._changed = asyncio.Event()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled; the benchmark ends when the watch breaks."""
        version = (await self._client.page(self._what)).resource_version
        while True:
            async with self._client.watch(self._what, resource_version=version) as events:
                self.ready.set()
                async for event in events:
                    metadata = event["object"]["metadata"]
                    version = metadata["resourceVersion"]
                    if event["type"] == "BOOKMARK":
                        continue
                    if event["type"] == "DELETED":
                        self.present.discard(metadata["uid"])
                        self.removed_at[metadata["uid"]] = time.perf_counter()
                    else:
                        self.present.add(metadata["uid"])
                    self._changed.set()

    async def wait(self, check: Callable[[set[str]], bool]) -> float:
        """Return the moment at which what is present passes `check`."""
        async with asyncio.timeout(RUN_SECONDS):
            while not check(self.present):
                self._changed.clear()
                await self._changed.wait()
        return time.perf_counter()

    async def wait_removed(self, uids: Iterable[str]) -> None:
        """Return when all of these have been removed."""
        wanted = set(uids)
        await self.wait(lambda _present: wanted <= self.removed_at.keys())


@asynccontextmanager
async def observing(*observers: Observer) -> AsyncIterator[None]:
    """Have observers follow, from when all of them watch until the context ends."""
    following = [asyncio.create_task(observer.run()) for observer in observers]
    try:
        await asyncio.gather(*(observer.ready.wait() for observer in observers))
        yield
    finally:
        for task in following:
            task.cancel()


async def connect(user_agent: str) -> KubeClient:
    """Return a client of the devcluster of this clone."""
    return await KubeClient.connect(kubeconfig=str(STATE / "kubeconfig"), user_agent=user_agent)


@asynccontextmanager
async def temporary_namespace(client: KubeClient, prefix: str) -> AsyncIterator[str]:
    """Create a namespace, and delete it at the end."""
    name = f"{prefix}-{secrets.token_hex(3)}"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.create(NAMESPACES, made)
    try:
        yield name
    finally:
        with suppress(KubeError, NotFound):
            await client.delete(NAMESPACES, name)


async def read_metrics(client: KubeClient) -> dict[str, str]:
    """Return what both programs say at /metrics, by the name of the program."""
    found = await client.list(PODS, SYSTEM, label_selector="app.kubernetes.io/name=daemonset-job")
    (pod,) = [each["metadata"]["name"] for each in found["items"]]
    ports = zip(OURS, (8080, 8081), strict=True)
    return {name: await _read_metrics(pod, port) for name, port in ports}


async def _read_metrics(pod: str, port: int) -> str:
    path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod}:{port}/proxy/metrics"
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        "--kubeconfig",
        str(STATE / "kubeconfig"),
        "get",
        "--raw",
        path,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return output.decode()


def write_log(text: str) -> None:
    """Have all simulated pods answer with this log from now on; KWOK opens the file each time."""
    file = STATE / "kwok" / "task.log"
    if file.exists():
        file.write_text(text)


def run_benchmark(
    program: str,
    work: Coroutine[Any, Any, dict[str, Any]],
    out: Path | None,
    show: Callable[[dict[str, Any]], str] | None = None,
) -> int:
    """Run a benchmark, show its results, and write them as JSON if asked to; 0 if it came so far.

    JSON is shown, too, unless `show` returns something else.
    """
    try:
        results = asyncio.run(work)
    except (BenchmarkError, KubeError, TimeoutError) as error:
        print(f"{program}: {error or 'not in time'}", file=sys.stderr)
        return 1
    text = json.dumps(results, indent=1)
    print(show(results) if show is not None else text)
    if out is not None:
        out.write_text(text + "\n")
    return 0
