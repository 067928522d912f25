"""From the moment when a task prints the token until its node is in the ledger.

    python -m benchmarks.token_latency --waiting 1000 [--rounds 20] [--out results.json]

It needs the devcluster of this clone with simulated nodes, and the project deployed on it. A Job in
one namespace waits on the simulated nodes for tokens that never come, so as many streams are open
as may be. In another namespace a Job runs on the real nodes, again and again; each task prints its
token at a random moment. The time of the token is the runtime's, in the ledger. The time of the
ledger is when a watch delivers it here. Nodes and benchmark are one machine, with one clock.

Each stream takes an inotify instance of the kernel, which all nodes share. Without one, a kubelet
ends a stream at once, and the logs are read by short reads.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.on_cluster import (
    RUN_SECONDS,
    BenchmarkError,
    Observer,
    connect,
    observing,
    run_benchmark,
    temporary_namespace,
    write_log,
)
from benchmarks.workload import TOLERATIONS, WAIT, fake_log, job
from daemonset_job.api.times import parse_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS
from daemonset_job.kube.client.selection import Selection
from hack.devcluster.inotify import read_limit
from terminator.config import Config

MAX_WAIT_SECONDS = 12
OPEN_SECONDS = 30.0
STREAMS = Config().max_streams
REAL = {"key": "type", "operator": "DoesNotExist"}


def summarize(latencies: Sequence[float]) -> dict[str, float]:
    """Return percentiles of latencies in seconds, as milliseconds."""
    cuts = quantiles(latencies, n=100, method="inclusive")
    return {
        "tokens": len(latencies),
        "median_ms": round(1000 * median(latencies)),
        "p95_ms": round(1000 * cuts[94]),
        "p99_ms": round(1000 * cuts[98]),
        "greatest_ms": round(1000 * max(latencies)),
    }


async def follow_ledger(client: KubeClient, namespace: str, found: dict[str, float]) -> None:
    """Put into `found` how late each pod's token came into a ledger, in seconds, by pod UID."""
    what = Selection(JOB_REPORTS, namespace)
    version = (await client.page(what)).resource_version
    while True:
        async with client.watch(what, resource_version=version) as events:
            async for event in events:
                now, report = datetime.now(UTC), event["object"]
                version = report["metadata"]["resourceVersion"]
                for entry in (report.get("evidence") or {}).values():
                    printed = parse_time(entry.get("completedAt"))
                    if printed is not None:
                        found.setdefault(entry["podUID"], (now - printed).total_seconds())


async def run_rounds(client: KubeClient, namespace: str, rounds: int) -> list[float]:
    """Run a Job on the real nodes that often, and return the latencies of its tokens."""
    found: dict[str, float] = {}
    following = asyncio.create_task(follow_ledger(client, namespace, found))
    generator = random.Random(1)  # noqa: S311 - repeatable, no secret
    try:
        deleted = Observer(client, JOBS, namespace)
        async with observing(deleted):
            for number in range(rounds):
                name, expected = f"token-{number}", len(found)
                manifest = job(name, namespace, "small")
                seconds = generator.uniform(4, MAX_WAIT_SECONDS)
                manifest["spec"] |= {
                    "args": [f"sleep {seconds:.2f}; echo done; {WAIT}"],
                    "nodes": {"selector": {"matchExpressions": [REAL]}},
                }
                made = await client.create(JOBS, manifest, namespace)
                await deleted.wait_removed([made["metadata"]["uid"]])
                if len(found) == expected:
                    raise BenchmarkError(f"{name} ended without an entry in the ledger")
    finally:
        following.cancel()
    return list(found.values())


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything in namespaces of its own, and return the results."""
    if 0 < (limit := read_limit()) < STREAMS:
        raise BenchmarkError(
            f"the kernel allows {limit} inotify instances, and {STREAMS} streams need one each: "
            "sysctl -w fs.inotify.max_user_instances=8192"
        )
    write_log(fake_log("small").replace("done", "not yet"))
    async with (
        await connect("tokens") as client,
        temporary_namespace(client, "waiting") as waiting,
        temporary_namespace(client, "tokens") as tokens,
    ):
        manifest = job("waiting", waiting, "small")
        manifest["spec"]["nodes"] = {"selector": {"matchLabels": {"type": "kwok"}}}
        manifest["spec"]["template"] = {"spec": {"tolerations": TOLERATIONS}}
        await client.create(JOBS, manifest, waiting)
        for _ in range(RUN_SECONDS):
            if await _active(client, waiting) >= options.waiting:
                break
            await asyncio.sleep(1)
        else:
            raise BenchmarkError(f"fewer than {options.waiting} nodes wait")
        await asyncio.sleep(OPEN_SECONDS)
        latencies = await run_rounds(client, tokens, options.rounds)
    return {"waiting_nodes": options.waiting, **summarize(latencies)}


async def _active(client: KubeClient, namespace: str) -> int:
    raw = await client.get(JOBS, "waiting", namespace)
    return int((raw.get("status") or {}).get("nodes", {}).get("active", 0))


def main() -> int:
    """Run the benchmark; 0 when every token was found."""
    parser = argparse.ArgumentParser(prog="benchmarks.token_latency", description=__doc__)
    parser.add_argument("--waiting", type=int, default=1000, help="simulated nodes that wait")
    parser.add_argument("--rounds", type=int, default=20, help="runs on the real nodes")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    return run_benchmark("token_latency", measure(options), options.out)


if __name__ == "__main__":
    sys.exit(main())
