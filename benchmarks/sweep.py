"""Jobs from creation until they are deleted, against a bare DaemonSet until its pods run.

    python -m benchmarks.sweep --nodes 1000 --kinds small,exit [--repeat 5] [--out results.json]

It needs the devcluster of this clone with that number of simulated nodes, and the project deployed
on it. The kinds are in `benchmarks.workload`. In each round every kind runs once, and the floor;
odd rounds go backwards. A run is compared with the floor of its own round (`benchmarks.pairs`):

- a DaemonSet is created; the time until every one of its pods is Running. Then it is deleted, and
  the time until all its pods are deleted is a number of its own;
- a Job is created; the time until it is deleted. By then every node's token was found, recorded
  and counted twice, and the report is complete. Afterwards the report is checked: every node by
  its UID, all shards, `Succeeded`.

CPU time is that of everything on the machine in the same time, and that of each process: user and
system time. That of processes is read up to half a second after the end. Requests are those of
controller and terminator, and memory is the peak in this time.

Not measured: pulling images, tasks that take time, kubelets under load (simulated nodes have
none), the network between machines. In all cases pods are watched by the same observer.
"""

import argparse
import asyncio
import json
import os
import platform
import secrets
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.on_cluster import (
    ROOT,
    RUN_SECONDS,
    BenchmarkError,
    Observer,
    connect,
    observing,
    read_metrics,
    run_benchmark,
    temporary_namespace,
    write_log,
)
from benchmarks.pairs import compare_with_floor, order_of_round, table
from benchmarks.processes import (
    OURS,
    Nodes,
    Sample,
    machine_cpu_seconds,
    parse_log_bytes,
    parse_requests,
)
from benchmarks.speed import SpeedMeter
from benchmarks.workload import (
    DAEMON_SETS_ALONE,
    GATED,
    RESULTS,
    daemon_set,
    fake_log,
    job,
)
from benchmarks.workload import JOBS as JOB_KINDS
from daemonset_job.api import names
from daemonset_job.api.states import Phase
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NODES, PODS

# Between two runs, so that work which the last one left is not measured with the next.
SETTLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """What the machine and its known processes have used until a moment, in seconds of CPU."""

    machine_cpu_seconds: float
    processes: dict[str, Sample]
    at: float  # by time.perf_counter()
    speed_mark: int
    work_milliseconds: float = (
        0.0  # the fixed work of `benchmarks.speed`, since another measurement
    )


@dataclass(slots=True)
class Bench:
    """What every run needs."""

    client: KubeClient
    namespace: str
    hosts: Nodes
    node_uids: dict[str, str]
    running: Observer
    jobs: Observer
    speed: SpeedMeter
    results: list[dict[str, Any]] = field(default_factory=list)

    async def daemon_set(self, kind: str) -> dict[str, Any]:
        """Measure a DaemonSet that belongs to no Job."""
        name = f"floor-{secrets.token_hex(3)}"
        before = await self.measure()
        await self.client.create(
            DAEMON_SETS, daemon_set(name, self.namespace, kind), self.namespace
        )
        running = await self.running.wait(lambda uids: len(uids) >= len(self.node_uids))
        after = await self.measure(running, since=before)
        deleted = time.perf_counter()
        await self.client.delete(DAEMON_SETS, name, self.namespace)
        gone = await self.running.wait(lambda uids: not uids)
        return {**_difference(before, after), "deletion_seconds": gone - deleted}

    async def job(self, kind: str) -> dict[str, Any]:
        """Measure a Job, and check its report."""
        write_log(fake_log(kind))
        name = f"sweep-{secrets.token_hex(3)}"
        manifest = job(name, self.namespace, kind)
        if kind == GATED:
            await self._complete_first_node(manifest)
        counted = await self._counters()
        before = await self.measure(reset_peaks=True)
        if kind == GATED:
            # Null removes the one node and the time to live: the Job is deleted at its end.
            change = {"spec": {"nodes": None, "ttlSecondsAfterFinished": None}}
            started = await self.client.merge_patch(JOBS, name, change, self.namespace)
        else:
            started = await self.client.create(JOBS, manifest, self.namespace)
        uid = started["metadata"]["uid"]
        running_at = asyncio.create_task(
            self.running.wait(lambda uids: len(uids) >= len(self.node_uids))
        )
        await self.jobs.wait(lambda uids: uid in uids)
        deleted = await self.jobs.wait(lambda uids: uid not in uids)
        after, counts = await self.measure(deleted, since=before), await self._counters()
        all_ran = running_at.done()
        running_at.cancel()
        gone = await self.running.wait(lambda uids: not uids)
        shards = await self._check_report(uid, RESULTS if kind == "results" else {})
        nodes = len(self.node_uids)
        return {
            **_difference(before, after),
            "all_running_seconds": running_at.result() - before.at if all_ran else None,
            "pods_gone_seconds": gone - deleted,
            "report_bytes": shards,
            "peak_mib": {name: after.processes[name].peak_mib for name in OURS},
            "requests_per_node": {
                name: (sum(counts[name].values()) - sum(counted[name].values())) / nodes
                for name in OURS
            },
            "requests": {name: dict(counts[name] - counted[name]) for name in OURS},
            "log_bytes": counts["log_bytes"] - counted["log_bytes"],
        }

    async def _complete_first_node(self, manifest: dict[str, Any]) -> None:
        """Create a Job for one node only that stays, and wait until it is completed."""
        spec = manifest["spec"] | {
            "nodes": {"include": [min(self.node_uids)]},
            "ttlSecondsAfterFinished": int(RUN_SECONDS),
        }
        await self.client.create(JOBS, manifest | {"spec": spec}, self.namespace)
        async with asyncio.timeout(RUN_SECONDS):
            while True:
                raw = await self.client.get(JOBS, manifest["metadata"]["name"], self.namespace)
                if (raw.get("status") or {}).get("phase") == Phase.SUCCEEDED:
                    return
                await asyncio.sleep(1)

    async def measure(
        self,
        at: float | None = None,
        *,
        since: "Measurement | None" = None,
        reset_peaks: bool = False,
    ) -> "Measurement":
        """Return what everything has used so far; `at` is the moment of it, if it has passed."""
        # To look at the processes takes half a second and a second of CPU. Neither is part of a
        # run: not before its begin, nor after its end, when the pods of a Job are being deleted.
        ended_at = machine_cpu_seconds()
        found = await self.sample(reset_peaks=reset_peaks)
        return Measurement(
            machine_cpu_seconds() if since is None else ended_at,
            found,
            at or time.perf_counter(),
            self.speed.mark(),
            self.speed.milliseconds_since(since.speed_mark) if since is not None else 0.0,
        )

    async def sample(self, *, reset_peaks: bool = False) -> dict[str, Sample]:
        """Return what the processes have used so far."""
        return await asyncio.to_thread(self.hosts.sample, reset_peaks=reset_peaks)

    async def _counters(self) -> dict[str, Any]:
        texts = await read_metrics(self.client)
        counts: dict[str, Any] = {name: parse_requests(text) for name, text in texts.items()}
        return {**counts, "log_bytes": parse_log_bytes(texts["terminator"])}

    async def _check_report(self, uid: str, results: dict[str, str]) -> list[int]:
        """Return the size of each shard of a complete report, and remove it; raises otherwise."""
        page = await self.client.list(
            JOB_REPORTS, self.namespace, label_selector=f"{names.LABEL_JOB_UID}={uid}"
        )
        shards = page["items"]
        evidence = {
            node: entry["nodeUID"]
            for shard in shards
            for node, entry in (shard.get("evidence") or {}).items()
            if entry.get("completedAt")
        }
        states = {
            node: record["state"]
            for shard in shards
            for node, record in (shard["status"].get("nodeStates") or {}).items()
        }
        summary = next(s["status"] for s in shards if not s["spec"].get("shard"))
        if evidence != self.node_uids:
            raise BenchmarkError(f"{len(evidence)} of {len(self.node_uids)} nodes in the ledger")
        if states != dict.fromkeys(self.node_uids, "Completed"):
            raise BenchmarkError(f"{len(states)} nodes on record, of {len(self.node_uids)}")
        if summary["phase"] != "Succeeded" or summary["nodes"]["completed"] != len(evidence):
            raise BenchmarkError(f"the report says {summary}")
        for shard in shards:
            if any((e.get("results") or {}) != results for e in shard["evidence"].values()):
                raise BenchmarkError(f"not all nodes of {shard['metadata']['name']} gave {results}")
        for shard in shards:
            await self.client.delete(JOB_REPORTS, shard["metadata"]["name"], self.namespace)
        return [len(json.dumps(shard, separators=(",", ":"))) for shard in shards]


async def sweep(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the results."""
    with SpeedMeter() as speed:
        async with await connect("sweep") as client:
            return await _sweep(options, client, speed)


async def _sweep(
    options: argparse.Namespace, client: KubeClient, speed: SpeedMeter
) -> dict[str, Any]:
    nodes = (await client.list(NODES))["items"]
    fake = [n for n in nodes if (n["metadata"].get("labels") or {}).get("type") == "kwok"]
    real = [n["metadata"]["name"] for n in nodes if n not in fake]
    if len(fake) != options.nodes:
        raise BenchmarkError(
            f"the cluster has {len(fake)} simulated nodes: "
            f"run `make cluster FAKE_NODES={options.nodes} deploy`"
        )
    async with temporary_namespace(client, "sweep") as namespace:
        bench = Bench(
            client,
            namespace,
            Nodes(real, ROOT),
            {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes},
            Observer(client, PODS, namespace, "status.phase=Running"),
            Observer(client, JOBS, namespace),
            speed,
        )
        async with observing(bench.running, bench.jobs):
            await _repeat(bench, options)
    return {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "nodes": {"simulated": len(fake), "real": len(real)},
        "machine": {
            "processors": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            "system": platform.system(),
            "kubernetes": nodes[0]["status"]["nodeInfo"]["kubeletVersion"],
        },
        "summary": compare_with_floor(bench.results),
        "runs": bench.results,
    }


async def _repeat(bench: Bench, options: argparse.Namespace) -> None:
    for number in range(options.repeat + options.warm_up):
        for kind in order_of_round(options.kinds, number):
            await asyncio.sleep(SETTLE_SECONDS)
            found = await (bench.job if kind in JOB_KINDS else bench.daemon_set)(kind)
            result = {"kind": kind, "round": number, "warm_up": number < options.warm_up, **found}
            bench.results.append(result)
            print(_line(result), flush=True)


def _difference(before: Measurement, after: Measurement) -> dict[str, Any]:
    for name, sample in after.processes.items():
        if name not in before.processes or before.processes[name].pids != sample.pids:
            raise BenchmarkError(f"{name} was restarted during the run")
    return {
        "seconds": after.at - before.at,
        "cpu_seconds_all": round(after.machine_cpu_seconds - before.machine_cpu_seconds, 2),
        "work_milliseconds": round(after.work_milliseconds, 2),
        "cpu_seconds": {
            name: round(sample.cpu_seconds - before.processes[name].cpu_seconds, 2)
            for name, sample in sorted(after.processes.items())
        },
    }


def _line(result: dict[str, Any]) -> str:
    words = [
        f"{result['kind']:16} {result['seconds']:6.2f} s, {result['cpu_seconds_all']:6.2f} s CPU",
        f"fixed work {result['work_milliseconds']:.2f} ms",
    ]
    if result["kind"] in JOB_KINDS:
        running = result["all_running_seconds"]
        words.append(f"all running {running:.2f}" if running else "")
        words += [
            f"{name}: {result['cpu_seconds'][name]:.2f} s CPU, {result['peak_mib'][name]:.0f} MiB,"
            f" {result['requests_per_node'][name]:.2f} requests/node"
            for name in OURS
        ]
        words.append(f"{result['log_bytes']} bytes of log")
        words.append(f"reports of {', '.join(map(str, result['report_bytes']))} bytes")
    words.append(
        " ".join(
            f"{name.removeprefix('kube-')}={seconds:.1f}"
            for name, seconds in result["cpu_seconds"].items()
            if name not in OURS
        )
    )
    return "; ".join(filter(None, words))


def main() -> int:
    """Run the sweep; 0 when it ran and everything was complete."""
    parser = argparse.ArgumentParser(prog="benchmarks.sweep", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="simulated nodes expected")
    known = [*DAEMON_SETS_ALONE[1:], *JOB_KINDS]
    parser.add_argument("--kinds", default="small", help=f"of {', '.join(known)}, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="rounds that count")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before that do not")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    options.kinds = options.kinds.split(",")
    if unknown := set(options.kinds) - set(known):
        parser.error(f"--kinds {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return run_benchmark(
        "sweep", sweep(options), options.out, lambda results: table(results["summary"])
    )


if __name__ == "__main__":
    sys.exit(main())
