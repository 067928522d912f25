"""100 Jobs at once, each on 50 nodes: does one of them wait for the others?

    python -m benchmarks.many_jobs --jobs 100 --each 50 [--out results.json]

It needs the devcluster of this clone with simulated nodes, and the project deployed on it. All Jobs
are created within a few seconds, and each is on nodes of its own choice, so every node has pods of
several. The time of a Job goes from its creation until it is deleted. What is compared is the
slowest Job with the median one, in the same run, so that the machine's speed does not matter.
"""

import argparse
import asyncio
import json
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.sweep import NAMESPACES, RUN_SECONDS, STATE, BenchmarkError, write_fake_log
from benchmarks.workload import job
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError, NotFound
from daemonset_job.kube.client.resource import JOBS, NODES
from daemonset_job.kube.client.selection import Selection

CREATED_AT_ONCE = 20
KIND = "small"


def choose_nodes(names: Sequence[str], number: int, each: int) -> list[str]:
    """Return the nodes of the Job with that number: `each` in order, from the end to the start."""
    return [names[(number * each + offset) % len(names)] for offset in range(each)]


def summarize(seconds: Sequence[float]) -> dict[str, float]:
    """Return the median, the 95th percentile and the slowest, and how they compare."""
    middle, slowest = median(seconds), max(seconds)
    return {
        "jobs": len(seconds),
        "median_seconds": round(middle, 2),
        "p95_seconds": round(quantiles(seconds, n=20)[-1], 2),
        "slowest_seconds": round(slowest, 2),
        "slowest_to_median": round(slowest / middle, 2),
    }


async def run_jobs(client: KubeClient, namespace: str, count: int, each: int) -> list[float]:
    """Create the Jobs, and return for each how long it took until it was deleted, in seconds."""
    nodes = await client.list(NODES, label_selector="type=kwok")
    names = sorted(node["metadata"]["name"] for node in nodes["items"])
    if len(names) < each:
        raise BenchmarkError(f"the cluster has {len(names)} simulated nodes, of {each}")
    started: dict[str, float] = {}
    creating = asyncio.Semaphore(CREATED_AT_ONCE)

    async def create(number: int) -> None:
        manifest = job(f"many-{number:03}", namespace, KIND)
        manifest["spec"]["nodes"] = {"include": choose_nodes(names, number, each)}
        async with creating:
            made = await client.create(JOBS, manifest, namespace)
            started[made["metadata"]["uid"]] = time.perf_counter()

    async with following_deletions(client, namespace) as deletions:
        await asyncio.gather(*(create(number) for number in range(count)))
        await deletions.wait(started)
    return [deletions.times[uid] - began for uid, began in started.items()]


class Deletions:
    """When Jobs of one namespace were deleted, by time.perf_counter(), by UID."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.times: dict[str, float] = {}
        self._client = client
        self._what = Selection(JOBS, namespace, metadata_only=True)
        self._changed = asyncio.Event()

    async def follow(self, version: str) -> None:
        """Follow until cancelled."""
        while True:
            async with self._client.watch(self._what, resource_version=version) as events:
                async for event in events:
                    metadata = event["object"]["metadata"]
                    version = metadata["resourceVersion"]
                    if event["type"] == "DELETED":
                        self.times[metadata["uid"]] = time.perf_counter()
                        self._changed.set()

    async def begin(self) -> str:
        """Return the version from which to follow."""
        return (await self._client.page(self._what)).resource_version

    async def wait(self, uids: Iterable[str]) -> None:
        """Wait until all of them are deleted, RUN_SECONDS at most."""
        wanted = set(uids)
        async with asyncio.timeout(RUN_SECONDS):
            while not wanted <= self.times.keys():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def following_deletions(client: KubeClient, namespace: str) -> AsyncIterator[Deletions]:
    """Follow the deletions of Jobs in a namespace from now on."""
    deletions = Deletions(client, namespace)
    following = asyncio.create_task(deletions.follow(await deletions.begin()))
    try:
        yield deletions
    finally:
        following.cancel()


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


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything in a namespace of its own, and return the results."""
    write_fake_log(KIND)
    kubeconfig = str(STATE / "kubeconfig")
    async with (
        await KubeClient.connect(kubeconfig=kubeconfig, user_agent="many-jobs") as client,
        temporary_namespace(client, "many") as namespace,
    ):
        seconds = await run_jobs(client, namespace, options.jobs, options.each)
    return {"nodes_of_each": options.each, **summarize(seconds)}


def main() -> int:
    """Run the benchmark; 0 when every Job ended."""
    parser = argparse.ArgumentParser(prog="benchmarks.many_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="how many Jobs")
    parser.add_argument("--each", type=int, default=50, help="nodes of each Job")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    try:
        found = asyncio.run(measure(options))
    except (BenchmarkError, KubeError, TimeoutError) as error:
        print(f"many_jobs: {error or 'not all Jobs ended in time'}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
