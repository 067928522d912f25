"""A Job from its creation until it is deleted, against a bare DaemonSet until its pods run.

    python -m benchmarks.sweep --nodes 1000 --log small,1MiB [--repeat 3] [--out results.json]

It needs the devcluster of this clone with that number of simulated nodes, and the project deployed
on it. In one run, alternately, `--repeat` times each, on the same nodes:

- the floor: a bare DaemonSet is created; the time until every one of its pods is Running. Then it
  is deleted; the time until all its pods are deleted is a number of its own;
- for each kind of log, a Job is created; the time until it is deleted. By then every node's token
  was found, recorded and counted twice, and the report is complete. CPU time and requests of
  controller and terminator are those from creation until then, memory is the peak in this time.
  Afterwards the report is checked: every node by its UID, all shards, `Succeeded`.

Not measured: pulling images, tasks that take time, kubelets under load (simulated nodes have
none), the network between machines. In both cases pods are watched by the same observer.
"""

import argparse
import asyncio
import json
import os
import platform
import secrets
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import (
    OURS,
    SYSTEM,
    Nodes,
    Sample,
    parse_log_bytes,
    parse_requests,
)
from benchmarks.workload import LOGS, RESULTS, daemon_set, fake_log, job
from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NODES, PODS, Resource
from daemonset_job.kube.client.selection import Selection

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".devcluster"
RUN_SECONDS = 600
# Between two runs, so that work which the last one left is not measured with the next.
SETTLE_SECONDS = 5.0
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)


class BenchmarkError(Exception):
    """The benchmark cannot go on, or found something wrong; the message says what."""


class Observer:
    """Watches the objects of one kind in the benchmark's namespace, metadata only."""

    def __init__(
        self, client: KubeClient, resource: Resource, namespace: str, selector: str | None = None
    ) -> None:
        self.present: set[str] = set()
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


@dataclass(slots=True)
class Bench:
    """What every run needs."""

    client: KubeClient
    namespace: str
    hosts: Nodes
    node_uids: dict[str, str]
    running: Observer
    jobs: Observer
    results: list[dict[str, Any]] = field(default_factory=list)

    async def floor(self) -> dict[str, Any]:
        """Measure the bare DaemonSet."""
        name = f"floor-{secrets.token_hex(3)}"
        before = await self.sample()
        started = time.perf_counter()
        await self.client.create(
            DAEMON_SETS, daemon_set(name, self.namespace, "small"), self.namespace
        )
        running = await self.running.wait(lambda uids: len(uids) >= len(self.node_uids))
        after = await self.sample()
        deleted = time.perf_counter()
        await self.client.delete(DAEMON_SETS, name, self.namespace)
        gone = await self.running.wait(lambda uids: not uids)
        return {
            "kind": "floor",
            "seconds": running - started,
            "deletion_seconds": gone - deleted,
            "cpu_seconds": _cpu(before, after),
        }

    async def job(self, log: str) -> dict[str, Any]:
        """Measure a Job whose tasks print this kind of log, and check its report."""
        write_fake_log(log)
        name = f"sweep-{secrets.token_hex(3)}"
        before, counted = await self.sample(reset_peaks=True), await self._counters()
        started = time.perf_counter()
        created = await self.client.create(JOBS, job(name, self.namespace, log), self.namespace)
        uid = created["metadata"]["uid"]
        running_at = asyncio.create_task(
            self.running.wait(lambda uids: len(uids) >= len(self.node_uids))
        )
        await self.jobs.wait(lambda uids: uid in uids)
        deleted = await self.jobs.wait(lambda uids: uid not in uids)
        after, counts = await self.sample(), await self._counters()
        all_ran = running_at.done()
        running_at.cancel()
        gone = await self.running.wait(lambda uids: not uids)
        shards = await self._check_report(uid, RESULTS if log == "results" else {})
        later = await self.sample()
        nodes = len(self.node_uids)
        return {
            "kind": "job",
            "log": log,
            "seconds": deleted - started,
            "all_running_seconds": running_at.result() - started if all_ran else None,
            "pods_gone_seconds": gone - deleted,
            "report_bytes": shards,
            "cpu_seconds": _cpu(before, after),
            "cpu_seconds_until_pods_gone": _cpu(before, later),
            "peak_mib": {name: after[name].peak_mib for name in OURS},
            "requests_per_node": {
                name: (sum(counts[name].values()) - sum(counted[name].values())) / nodes
                for name in OURS
            },
            "requests": {name: dict(counts[name] - counted[name]) for name in OURS},
            "log_bytes": counts["log_bytes"] - counted["log_bytes"],
        }

    async def sample(self, *, reset_peaks: bool = False) -> dict[str, Sample]:
        """Return what the processes have used so far."""
        return await asyncio.to_thread(self.hosts.sample, reset_peaks=reset_peaks)

    async def _counters(self) -> dict[str, Any]:
        page = await self.client.list(
            PODS, SYSTEM, label_selector="app.kubernetes.io/name=daemonset-job"
        )
        (pod,) = [p["metadata"]["name"] for p in page["items"]]
        texts = {
            name: await self._metrics(pod, port)
            for name, port in zip(OURS, (8080, 8081), strict=True)
        }
        counts: dict[str, Any] = {name: parse_requests(text) for name, text in texts.items()}
        return {**counts, "log_bytes": parse_log_bytes(texts["terminator"])}

    async def _metrics(self, pod: str, port: int) -> str:
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


def write_fake_log(log: str) -> None:
    """Have all simulated pods answer with this log from now on; KWOK opens the file each time."""
    file = STATE / "kwok" / "task.log"
    if file.exists():
        file.write_text(fake_log(log))


async def sweep(options: argparse.Namespace) -> dict[str, Any]:
    """Run everything and return the results."""
    kubeconfig = str(STATE / "kubeconfig")
    namespace = f"sweep-{secrets.token_hex(3)}"
    async with await KubeClient.connect(kubeconfig=kubeconfig, user_agent="sweep") as client:
        nodes = (await client.list(NODES))["items"]
        fake = [n for n in nodes if (n["metadata"].get("labels") or {}).get("type") == "kwok"]
        real = [n["metadata"]["name"] for n in nodes if n not in fake]
        if len(fake) != options.nodes:
            raise BenchmarkError(
                f"the cluster has {len(fake)} simulated nodes: "
                f"run `make cluster FAKE_NODES={options.nodes} deploy`"
            )
        await client.create(
            NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        )
        bench = Bench(
            client,
            namespace,
            Nodes(real, ROOT),
            {n["metadata"]["name"]: n["metadata"]["uid"] for n in nodes},
            Observer(client, PODS, namespace, "status.phase=Running"),
            Observer(client, JOBS, namespace),
        )
        watching = [asyncio.create_task(observer.run()) for observer in (bench.running, bench.jobs)]
        try:
            await asyncio.gather(bench.running.ready.wait(), bench.jobs.ready.wait())
            await _repeat(bench, options)
        finally:
            for task in watching:
                task.cancel()
            with suppress(KubeError, NotFound):
                await client.delete(NAMESPACES, namespace)
    return {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "nodes": {"simulated": len(fake), "real": len(real)},
        "machine": {
            "processors": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
            "system": platform.system(),
            "kubernetes": nodes[0]["status"]["nodeInfo"]["kubeletVersion"],
        },
        "summary": summarise(bench.results),
        "runs": bench.results,
    }


async def _repeat(bench: Bench, options: argparse.Namespace) -> None:
    for number in range(options.repeat + options.warm_up):
        kinds: list[str] = ["floor", *options.log]
        for kind in kinds:
            await asyncio.sleep(SETTLE_SECONDS)
            result = await (bench.floor() if kind == "floor" else bench.job(kind))
            result["warm_up"] = number < options.warm_up
            bench.results.append(result)
            print(_line(result), flush=True)


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians, and the ratio of each kind of Job to the floor; warm-up runs left out."""
    measured = [result for result in results if not result["warm_up"]]
    floor = statistics.median(r["seconds"] for r in measured if r["kind"] == "floor")
    summary: dict[str, Any] = {
        "floor_seconds": floor,
        "floor_deletion_seconds": statistics.median(
            r["deletion_seconds"] for r in measured if r["kind"] == "floor"
        ),
    }
    for log in LOGS:
        runs = [r for r in measured if r.get("log") == log]
        if not runs:
            continue
        seconds = statistics.median(r["seconds"] for r in runs)
        summary[log] = {
            "seconds": seconds,
            "ratio_to_floor": seconds / floor,
            "pods_gone_seconds": statistics.median(r["pods_gone_seconds"] for r in runs),
            "cpu_seconds": {
                name: statistics.median(r["cpu_seconds"][name] for r in runs) for name in OURS
            },
            "peak_mib": {name: max(r["peak_mib"][name] for r in runs) for name in OURS},
            "requests_per_node": {
                name: statistics.median(r["requests_per_node"][name] for r in runs) for name in OURS
            },
        }
    return summary


def _cpu(before: dict[str, Sample], after: dict[str, Sample]) -> dict[str, float]:
    for name, sample in after.items():
        if name not in before or before[name].pid != sample.pid:
            raise BenchmarkError(f"{name} was restarted during the run")
    return {
        name: round(sample.cpu_seconds - before[name].cpu_seconds, 2)
        for name, sample in sorted(after.items())
    }


def _line(result: dict[str, Any]) -> str:
    words = [f"{result['kind']:5} {result.get('log', ''):5} {result['seconds']:6.2f} s"]
    if result["kind"] == "job":
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
    parser.add_argument("--log", default="small", help=f"of {', '.join(LOGS)}, with commas")
    parser.add_argument("--repeat", type=int, default=3, help="rounds that count")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before that do not")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    options.log = options.log.split(",")
    if unknown := set(options.log) - set(LOGS):
        parser.error(f"--log {', '.join(sorted(unknown))}: choose from {', '.join(LOGS)}")
    try:
        results = asyncio.run(sweep(options))
    except (BenchmarkError, KubeError) as error:
        print(f"sweep: {error}", file=sys.stderr)
        return 1
    print(json.dumps(results["summary"], indent=2))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
