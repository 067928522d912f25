"""Measures the memory of both programs with the most and largest objects that tenants can create.

    KUBEBUILDER_ASSETS=$(python3 -m hack.devcluster binaries) .venv/bin/python -m benchmarks.memory

It needs no cluster: it starts a kube-apiserver and an etcd of its own, without nodes. There are

- ended runs, each with a report of many completed nodes, so few for each name and
  namespace that the controller deletes none. They are written to etcd directly, because the API
  server would take minutes to validate them;
- Jobs. Most have a spec just below the limit, of text that cannot be compressed. Some exceed it,
  and are as large as the API server accepts. Some choose nodes by the most names that are allowed.
  Each Job that starts has a report and a DaemonSet as well.

Both programs start with half of these objects, receive the others, start all Jobs, and are then
killed and started again with all objects. The result is the peak resident memory of each start.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.states import Phase
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES
from job_controller.core.desired.limits import SPEC_LIMIT_BYTES
from tests.integration.conftest import install
from tests.integration.kube_env import KubeEnv, free_ports, kube_env

Raw = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = "daemonset-job-system"
ACCOUNT = "daemonset-job-controller"
PROGRAMS = ("job-controller", "terminator")
GOAL_MIB = 200
CONNECTIONS = 8
# Fewer than history keeps in each (500).
REPORTS_IN_A_NAMESPACE = 250
# Of this many Jobs, one is beyond the limit of a spec, and one has the longest list of nodes.
ODD = 50
LARGE_BYTES = 1_200_000
LONGEST_NAMES = 1000
WAIT_SECONDS = 1800.0
# Nothing begins any more, and what was begun is written.
SETTLE_SECONDS = 20.0


# --- what there is -----------------------------------------------------------------------


def node_name(number: int) -> str:
    """Return the name of a node, as long as those of clouds are."""
    return f"ip-10-200-{number // 250:03d}-{number % 250:03d}.eu-central-1.compute.internal"


def stored_report(nodes: int) -> Raw:
    """Return the report of an ended run as etcd keeps it, with NAMESPACE, NAME and UIDs to fill.

    The same nodes are in all of them, as in a cluster; whose evidence it is makes no difference.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    uids = {node_name(number): str(uuid.uuid4()) for number in range(nodes)}
    pods = {node: str(uuid.uuid4()) for node in uids}
    return {
        "apiVersion": JOB_REPORTS.api_version,
        "kind": JOB_REPORTS.kind,
        "metadata": {
            "name": "NAME",
            "namespace": "NAMESPACE",
            "uid": "OWN-UID",
            "generation": 1,
            "creationTimestamp": now,
            "labels": {names.LABEL_JOB_UID: "JOB-UID"},
        },
        "spec": {"job": {"name": "NAME", "uid": "JOB-UID"}, "image": "example/task:v1"},
        "evidence": {
            node: {
                "nodeUID": uid,
                "completedAt": now.replace("Z", ".123456789Z"),
                "pod": f"upgrade-daemonset-job-{pods[node][:5]}",
                "podUID": pods[node],
                "results": {"kernel": "6.1.0-28-amd64", "disk-free-gib": "173"},
            }
            for node, uid in uids.items()
        },
        "status": {
            "phase": Phase.SUCCEEDED,
            "startTime": now,
            "completionTime": now,
            "nodes": {"desired": nodes, "completed": nodes},
            "nodeStates": {
                node: {
                    "uid": uid,
                    "state": "Completed",
                    "attempts": 1,
                    "startedAt": now,
                    "finishedAt": now,
                    "durationSeconds": 12,
                    "podUID": pods[node],
                }
                for node, uid in uids.items()
            },
        },
    }


def job(number: int, dice: random.Random) -> Raw:
    """Return one of the Jobs."""
    spec: Raw = {"image": "example/task:v1"}
    size = SPEC_LIMIT_BYTES - 4096
    if number % ODD == 0:
        size = LARGE_BYTES
    elif number % ODD == 1:
        size = 1000
        spec["nodes"] = {"include": [f"{n:03d}.{'n' * 240}" for n in range(LONGEST_NAMES)]}
    parts = [dice.randbytes(2000).hex() for _ in range(max(size // 4003, 1))]
    spec["template"] = {"spec": {"containers": [{"name": "job-container", "args": parts}]}}
    meta = {"name": f"job-{number}", "namespace": f"jobs-{number % 4}"}
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": spec}


def put(env: KubeEnv, template: str, namespace: str, name: str) -> None:
    """Store a report in etcd."""
    words = {
        "NAMESPACE": namespace,
        "NAME": name,
        "OWN-UID": str(uuid.uuid4()),
        "JOB-UID": str(uuid.uuid4()),
    }
    for word, by in words.items():
        template = template.replace(f'"{word}"', f'"{by}"')
    key = f"/registry/{JOB_REPORTS.group}/{JOB_REPORTS.plural}/{namespace}/{name}"
    pair = {"key": base64.b64encode(key.encode()), "value": base64.b64encode(template.encode())}
    body = json.dumps({field: data.decode() for field, data in pair.items()}).encode()
    with urllib.request.urlopen(f"{env.etcd}/v3/kv/put", data=body, timeout=60) as answer:  # noqa: S310 - loopback
        answer.read()


# --- both programs -----------------------------------------------------------------------


@dataclass
class Program:
    """One life of a program."""

    name: str
    process: asyncio.subprocess.Process
    port: int

    @classmethod
    async def start(cls, env: KubeEnv, kubeconfig: Path, name: str) -> "Program":
        """Start the console script with its service account's rights, for all namespaces."""
        (port,) = free_ports(1)
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(kubeconfig),
            "PROBE_PORT": str(port),
            "LOG_LEVEL": "WARNING",
        }
        script = Path(sys.executable).parent / name
        with (env.folder / f"{name}-{port}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                str(script), env=environ, stdout=log, stderr=log
            )
        return cls(name, process, port)

    @property
    def peak_mib(self) -> float:
        """Return the peak of its resident memory so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return int(fields["VmHWM"].split()[0]) / 1024

    def _is_ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.port}/readyz"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def ready(self) -> None:
        """Return once it is ready; RuntimeError if it ends instead."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not await asyncio.to_thread(self._is_ready):
                if self.process.returncode is not None:
                    raise RuntimeError(f"{self.name} ended with {self.process.returncode}")
                await asyncio.sleep(0.2)

    async def kill(self) -> None:
        """End it at once."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


async def start_both(env: KubeEnv, kubeconfig: Path) -> list[Program]:
    """Start both programs and return once they are ready."""
    found = [await Program.start(env, kubeconfig, name) for name in PROGRAMS]
    for program in found:
        await program.ready()
    return found


# --- a run -------------------------------------------------------------------------------


async def create_jobs(client: KubeClient, numbers: Iterable[int]) -> None:
    """Create these Jobs."""
    left = iter(numbers)

    async def some() -> None:
        for number in left:
            body = job(number, random.Random(number))  # noqa: S311 - the same ones each time
            await client.create(JOBS, body, body["metadata"]["namespace"])

    await asyncio.gather(*(some() for _ in range(CONNECTIONS)))


def store_reports(env: KubeEnv, template: str, numbers: Iterable[int]) -> None:
    """Store a report for each number, each of another Job."""
    for number in numbers:
        put(env, template, f"reports-{number // REPORTS_IN_A_NAMESPACE}", f"ended-{number}")


async def begun(client: KubeClient, count: int) -> None:
    """Return once `count` DaemonSets of ours exist."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            page = await client.list(
                DAEMON_SETS, label_selector=names.MANAGED_SELECTOR, metadata_only=True
            )
            if len(page["items"] or ()) >= count:
                return
            await asyncio.sleep(2)


async def measure(env: KubeEnv, options: argparse.Namespace) -> Raw:
    """Return the peaks of both lives of both programs."""
    kubeconfig = env.kubeconfig_for_service_account(SYSTEM, ACCOUNT)
    lives: list[Mapping[str, float]] = []
    async with await KubeClient.connect(
        kubeconfig=str(env.kubeconfig), user_agent="benchmark"
    ) as client:
        shards = -(-options.reports // REPORTS_IN_A_NAMESPACE)
        for name in (*(f"reports-{n}" for n in range(shards)), *(f"jobs-{n}" for n in range(4))):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            await client.create(NAMESPACES, body)
        reports = range(options.reports)
        half = len(reports) // 2
        template = json.dumps(stored_report(options.nodes), separators=(",", ":"))
        await asyncio.to_thread(store_reports, env, template, reports[:half])
        _say(f"{half} reports of {options.nodes} nodes, {len(template)} bytes each")
        programs = await start_both(env, kubeconfig)
        try:
            await asyncio.to_thread(store_reports, env, template, reports[half:])
            _say(f"{len(reports)} reports")
            await create_jobs(client, range(options.jobs))
            _say(f"{options.jobs} Jobs")
            # Those beyond the limit never get one.
            await begun(client, options.jobs - len(range(0, options.jobs, ODD)))
            await asyncio.sleep(SETTLE_SECONDS)
            lives.append({program.name: program.peak_mib for program in programs})
            _say(f"all begun: {_words(lives[-1])}")
            for program in programs:
                await program.kill()
            programs = await start_both(env, kubeconfig)
            await asyncio.sleep(SETTLE_SECONDS)
            lives.append({program.name: program.peak_mib for program in programs})
            _say(f"started again: {_words(lives[-1])}")
        finally:
            for program in programs:
                if program.process.returncode is None:
                    await program.kill()
    return {
        "jobs": options.jobs,
        "reports": options.reports,
        "nodes_of_a_report": options.nodes,
        "report_bytes": len(template),
        "peak_mib": [{name: round(mib, 1) for name, mib in life.items()} for life in lives],
    }


def _words(peaks: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {mib:.0f} MiB" for name, mib in peaks.items())


def _say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def main() -> int:
    """Run it; 0 when the peaks are within the goal."""
    parser = argparse.ArgumentParser(prog="benchmarks.memory", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--reports", type=int, default=1000, help="of ended runs")
    parser.add_argument("--nodes", type=int, default=1000, help="in each of these reports")
    parser.add_argument("--out", type=Path, help="where to write the results as JSON")
    options = parser.parse_args()
    with kube_env() as env:
        install(env, ROOT / "deploy")
        found = asyncio.run(measure(env, options))
    print(json.dumps(found, indent=1))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(mib > GOAL_MIB for life in found["peak_mib"] for mib in life.values()))


if __name__ == "__main__":
    sys.exit(main())
