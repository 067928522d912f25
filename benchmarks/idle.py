"""What both programs do while nothing happens, beside the reports of runs that have ended.

    python -m benchmarks.idle [--reports 50] [--seconds 120] [--out results.json]

It needs the devcluster of this clone, and the project deployed on it. Jobs run on the real nodes
until they are deleted. Their reports stay, and nothing else happens from then on. CPU is that of
each program in percent of a core. Requests are those that each program sends in this time.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.on_cluster import (
    ROOT,
    Observer,
    connect,
    observing,
    read_metrics,
    run_benchmark,
    temporary_namespace,
)
from benchmarks.processes import OURS, Nodes, parse_requests
from benchmarks.workload import job
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOBS, NODES

# For pods to end, for the last events, and for the pauses after the last writes.
SETTLE_SECONDS = 60.0


async def leave_reports(client: KubeClient, namespace: str, nodes: list[str], count: int) -> None:
    """Run Jobs on these nodes until all are deleted, and wait until nothing follows."""
    deleted = Observer(client, JOBS, namespace)
    async with observing(deleted):
        uids = []
        for number in range(count):
            manifest = job(f"idle-{number:03}", namespace, "small")
            manifest["spec"]["nodes"] = {"include": nodes}
            made = await client.create(JOBS, manifest, namespace)
            uids.append(made["metadata"]["uid"])
        await deleted.wait_removed(uids)
    await asyncio.sleep(SETTLE_SECONDS)


async def _requests(client: KubeClient) -> dict[str, Counter[str]]:
    return {name: parse_requests(text) for name, text in (await read_metrics(client)).items()}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything in a namespace of its own, and return the results."""
    async with (
        await connect("idle") as client,
        temporary_namespace(client, "idle") as namespace,
    ):
        found = (await client.list(NODES, label_selector="type!=kwok"))["items"]
        names = sorted(each["metadata"]["name"] for each in found)
        await leave_reports(client, namespace, names, options.reports)
        hosts = Nodes(names, ROOT)
        sent, began = await _requests(client), time.perf_counter()
        before = await asyncio.to_thread(hosts.sample)
        await asyncio.sleep(options.seconds)
        after = await asyncio.to_thread(hosts.sample)
        seconds, more = time.perf_counter() - began, await _requests(client)
    used = {name: after[name].cpu_seconds - before[name].cpu_seconds for name in OURS}
    return {
        "reports": options.reports,
        "seconds": round(seconds, 1),
        "percent_of_a_core": {name: round(used[name] / seconds * 100, 2) for name in OURS},
        "requests": {name: dict(more[name] - sent[name]) for name in OURS},
    }


def main() -> int:
    """Run the benchmark; 0 when it came to its end."""
    parser = argparse.ArgumentParser(prog="benchmarks.idle", description=__doc__)
    parser.add_argument("--reports", type=int, default=50, help="how many Jobs run before")
    parser.add_argument("--seconds", type=float, default=120.0, help="how long is measured")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    return run_benchmark("idle", measure(options), options.out)


if __name__ == "__main__":
    sys.exit(main())
