"""100 Jobs at once, each on 50 nodes: does one of them wait for the others?

    python -m benchmarks.many_jobs --jobs 100 --each 50 [--out results.json]

It needs the devcluster of this clone with simulated nodes, and the project deployed on it. All Jobs
are created within a few seconds, and each is on nodes of its own choice, so every node has pods of
several. The time of a Job goes from its creation until it is deleted. What is compared is the
slowest Job with the median one, in the same run, so that the machine's speed does not matter.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.on_cluster import (
    BenchmarkError,
    Observer,
    connect,
    observing,
    run_benchmark,
    temporary_namespace,
    write_log,
)
from benchmarks.workload import fake_log, job
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOBS, NODES

CREATED_AT_ONCE = 20
KIND = "small"


def choose_nodes(names: Sequence[str], number: int, each: int) -> list[str]:
    """Return the nodes of the Job with that number: `each` in order, in a circle."""
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

    deleted = Observer(client, JOBS, namespace)
    async with observing(deleted):
        await asyncio.gather(*(create(number) for number in range(count)))
        await deleted.wait_removed(started)
    return [deleted.removed_at[uid] - began for uid, began in started.items()]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything in a namespace of its own, and return the results."""
    write_log(fake_log(KIND))
    async with (
        await connect("many-jobs") as client,
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
    return run_benchmark("many_jobs", measure(options), options.out)


if __name__ == "__main__":
    sys.exit(main())
