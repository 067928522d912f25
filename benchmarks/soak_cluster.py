"""The cluster of a soak run: its API, its nodes from outside, and a look at it every second."""

import asyncio
import json
import os
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.soak_nodes import NodeHistory
from benchmarks.soak_oracle import Touch
from benchmarks.soak_wish import FOLDER
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import JOBS, NODES
from hack.devcluster import dockerd, fakenodes
from hack.devcluster.settings import Paths, find_paths

LOOK_SECONDS = 1.0
COLLECT_SECONDS = 5.0
# How long the API server may be away for one request of the harness itself.
WAIT_SECONDS = 90.0
COMMAND_SECONDS = 60.0
# How long the DaemonSet controller may be behind after the API server was stopped. Its leader's
# Lease may have expired meanwhile (15 s), so that its process has ended.
RECOVERY_SECONDS = 30.0


class CommandError(Exception):
    """A command on a node, or of kubectl or docker, did not succeed."""


class PodMetricsError(CommandError):
    """The metrics of a pod could not be read."""


class SoakCluster:
    """The development cluster of a clone, and the folder of this run on its real nodes."""

    def __init__(self, client: KubeClient, kubeconfig: Path, namespaces: Sequence[str]) -> None:
        self.client = client
        self.namespaces = namespaces
        self.history = NodeHistory()
        self.touches: deque[Touch] = deque()
        self.jobs: dict[str, Mapping[str, Any]] = {}
        """The Jobs of this run's namespaces, by UID."""
        self.nodes: dict[str, Mapping[str, Any]] = {}
        self.looked_at = 0.0
        """When the last look began: what was there before that, and is not in it, is gone."""
        self._kubeconfig = kubeconfig
        self._paths = Paths(root=kubeconfig.parent.parent, cache=find_paths().cache)
        self._looked = asyncio.Condition()
        self._wanted: dict[str, asyncio.Future[dict[str, str]]] = {}

    @classmethod
    async def connect(cls, namespaces: Sequence[str]) -> "SoakCluster":
        """Return the cluster of $KUBECONFIG, which the devcluster of some clone made."""
        kubeconfig = find_kubeconfig()
        client = await KubeClient.connect(kubeconfig=str(kubeconfig), user_agent="soak")
        return cls(client, kubeconfig, namespaces)

    @property
    def kwok_log(self) -> Path:
        """The file that simulated pods answer with as their log."""
        return self._paths.state / "kwok" / "task.log"

    # --- seeing ------------------------------------------------------------------------

    async def look(self) -> None:
        """Follow Jobs and nodes until cancelled, with a list a second of each."""
        while True:
            began = time.time()
            try:
                jobs = (await self.client.list(JOBS, timeout_seconds=10))["items"]
                nodes = (await self.client.list(NODES, timeout_seconds=10))["items"]
            except KubeError:
                self.history.blind.append((began, time.time() + RECOVERY_SECONDS))
            else:
                self.jobs = {
                    job["metadata"]["uid"]: job
                    for job in jobs
                    if job["metadata"]["namespace"] in self.namespaces
                }
                self.nodes = {node["metadata"]["name"]: node for node in nodes}
                self.history.observe(time.time(), nodes)
                self.looked_at = began
            async with self._looked:
                self._looked.notify_all()
            await asyncio.sleep(LOOK_SECONDS)

    async def looked(self) -> None:
        """Return after the next look."""
        async with self._looked:
            await self._looked.wait()

    def is_simulated(self, node: str) -> bool:
        """Return whether KWOK plays a node."""
        found = self.nodes.get(node)
        return found is not None and fakenodes.ANNOTATION in (
            found["metadata"].get("annotations") or {}
        )

    def real_nodes(self) -> list[str]:
        """Return the names of the real nodes."""
        return sorted(name for name in self.nodes if not self.is_simulated(name))

    def simulated_nodes(self) -> list[str]:
        """Return the names of the simulated nodes."""
        return sorted(name for name in self.nodes if self.is_simulated(name))

    # --- nodes from outside --------------------------------------------------------------

    async def on_node(self, node: str, script: str) -> str:
        """Run a shell script on a real node and return its output."""
        arguments = [
            sys.executable,
            "-m",
            "hack.devcluster",
            "exec",
            node,
            "--",
            "sh",
            "-c",
            script,
        ]
        return await self._run(arguments)

    async def docker(self, *arguments: str) -> str:
        """Run docker where the nodes are."""
        return await self._run(["docker", *arguments])

    async def pod_metrics(self, namespace: str, pod: str, port: int) -> str:
        """Return a pod's metrics, through the API server."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/metrics"
        kubectl = shutil.which("kubectl") or "kubectl"
        try:
            return await self._run(
                [kubectl, f"--kubeconfig={self._kubeconfig}", "get", "--raw", path]
            )
        except CommandError as error:
            raise PodMetricsError(str(error)) from error

    async def _run(self, arguments: Sequence[str]) -> str:
        env = dict(os.environ)
        if dockerd.is_up(self._paths):
            env["DOCKER_HOST"] = dockerd.socket(self._paths)
        process = await asyncio.create_subprocess_exec(
            *arguments,
            cwd=self._paths.root,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, errors = await process.communicate()
        except BaseException as error:
            with suppress(ProcessLookupError):
                process.kill()
            if isinstance(error, TimeoutError):
                raise CommandError(
                    f"{arguments[:4]}: no answer in {COMMAND_SECONDS:.0f} s"
                ) from error
            raise
        if process.returncode:
            raise CommandError(f"{arguments}: {errors.decode(errors='replace').strip()}")
        return output.decode(errors="replace")

    # --- files of the tasks --------------------------------------------------------------

    async def prepare_files(self) -> None:
        """Make the folder on every real node, empty."""
        script = f"rm -rf {FOLDER} && mkdir -p {FOLDER}"
        await asyncio.gather(*(self.on_node(node, script) for node in self.real_nodes()))

    async def fix_files(self, file: str) -> None:
        """Let a broken task succeed from now on, on every real node."""
        script = f"touch {FOLDER}/{file}.fixed"
        await asyncio.gather(*(self.on_node(node, script) for node in self.real_nodes()))

    async def take_file(self, file: str) -> dict[str, str]:
        """Return what a Job's tasks wrote on each real node, and remove it there."""
        future = self._wanted.setdefault(file, asyncio.get_running_loop().create_future())
        return await future

    async def collect_files(self) -> None:
        """Serve `take_file` until cancelled, for many Jobs at once."""
        read: list[str] = []
        while True:
            await asyncio.sleep(COLLECT_SECONDS)
            wanted = dict(self._wanted)
            if not wanted and not read:
                continue
            # Removed only once they have been read everywhere: a node may be stopped just now.
            script = f"cd {FOLDER}; for f in {' '.join(read)}; do rm -f $f $f.fixed; done; "
            script += f"for f in {' '.join(wanted)}; do [ -e $f ] && echo = $f && cat $f; done; :"
            nodes = self.real_nodes()
            try:
                outputs = await asyncio.gather(*(self.on_node(node, script) for node in nodes))
            except CommandError:
                continue
            read = list(wanted)
            self._wanted = {f: future for f, future in self._wanted.items() if f not in wanted}
            found: dict[str, dict[str, str]] = {file: dict.fromkeys(nodes, "") for file in wanted}
            for node, output in zip(nodes, outputs, strict=True):
                for part in f"\n{output}".split("\n= ")[1:]:
                    file, _, text = part.partition("\n")
                    found[file][node] = text
            for file, future in wanted.items():
                if not future.done():
                    future.set_result(found[file])

    async def left_files(self) -> dict[str, str]:
        """Return what the folder still holds on each real node, and remove the folder."""
        script = f"cd {FOLDER} 2>/dev/null && grep . * ; rm -rf {FOLDER}"
        nodes = self.real_nodes()
        return dict(
            zip(
                nodes,
                await asyncio.gather(*(self.on_node(node, script) for node in nodes)),
                strict=True,
            )
        )


def find_kubeconfig() -> Path:
    """Return $KUBECONFIG, else the kubeconfig of this clone's cluster."""
    return Path(os.environ.get("KUBECONFIG") or find_paths().kubeconfig).resolve()


async def patiently(call: Callable[[], Any]) -> Any:
    """Return what `call()` gives, tried again while the API server is away."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return await call()
        except KubeError as error:
            if not error.is_retryable or time.monotonic() > deadline:
                raise
            await asyncio.sleep(1)


def parse_lines(text: str) -> list[tuple[str, float]]:
    """Return the words and times that a task wrote."""
    return [
        (word, float(at)) for word, _, at in (line.partition(" ") for line in text.splitlines())
    ]


def write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Append lines of JSON."""
    with file.open("a") as sink:
        sink.writelines(json.dumps(line) + "\n" for line in lines)
