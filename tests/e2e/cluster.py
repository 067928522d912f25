"""What a test does with a real cluster: kubectl, commands on nodes, waiting with a limit."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.devcluster import load
from hack.devcluster.cluster import containers
from hack.devcluster.settings import find_paths
from tests.e2e.api_reader import ApiReader
from tests.e2e.node_shells import NodeShells

TASK_IMAGE = "darkowlzz/daemonset-job-task:v0.1.0"
SYSTEM = "daemonset-job-system"
CONTROLLER = "daemonset-job-controller"
_DUMP_LIMIT = 12_000
# Eight tests that ask side by side take the time of two cores from what they wait for.
_LONGEST_PAUSE_SECONDS = 0.5


class RealCluster:
    """A cluster by its kubeconfig; its nodes are containers of the devcluster."""

    def __init__(self, kubeconfig: str, root: Path) -> None:
        self.kubeconfig = kubeconfig
        self.root = root
        self._reader = ApiReader(kubeconfig)
        self._containers: list[str] = []
        self._shells = NodeShells()
        self.nodes: list[str] = sorted(
            node["metadata"]["name"]
            for node in self.get("nodes")["items"]
            if "kwok.x-k8s.io/node" not in node["metadata"].get("annotations", {})
        )

    # --- kubectl -----------------------------------------------------------------------

    def run(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return what came of it, whatever it is."""
        command = ["kubectl", "--kubeconfig", self.kubeconfig, *args]
        return subprocess.run(
            command, input=stdin, text=True, capture_output=True, check=False, timeout=300
        )

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output; fails the test with its words."""
        done = self.run(*args, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}{done.stdout}"
        return done.stdout

    def get(self, *args: str) -> dict[str, Any]:
        """Return an object or a list, as `kubectl get ARGS -o json`; fails the test without it."""
        found = self.find(*args)
        assert found is not None, f"get {' '.join(args)}: not found"
        return found

    def find(self, *args: str) -> dict[str, Any] | None:
        """Return an object, None when it is not there."""
        return self._reader.read(*args)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        body = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    # --- Jobs --------------------------------------------------------------------------

    def job(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the Job, None when it is gone."""
        return self.find("dsj", name, "-n", namespace)

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the status of the Job, empty until the controller has written it."""
        job = self.job(namespace, name)
        assert job is not None, f"{name} is gone"
        return dict(job.get("status") or {})

    def node_totals(self, namespace: str, name: str) -> dict[str, Any]:
        """Return `status.nodes` of the Job, empty until the controller has counted them."""
        return dict(self.status(namespace, name).get("nodes") or {})

    def report(self, namespace: str, job_name: str) -> dict[str, Any]:
        """Return the one JobReport of Jobs of that name."""
        items = self.get("dsjr", "-n", namespace)["items"]
        (found,) = [item for item in items if item["spec"]["job"]["name"] == job_name]
        return dict(found)

    def completed(self, namespace: str, job_name: str) -> set[str]:
        """Return the names of the nodes that the ledger holds as completed."""
        items = self.get("dsjr", "-n", namespace)["items"]
        return {
            node
            for item in items
            if item["spec"]["job"]["name"] == job_name
            for node, evidence in (item.get("evidence") or {}).items()
            if evidence.get("completedAt")
        }

    def condition(self, namespace: str, name: str, type_: str) -> dict[str, Any]:
        """Return a condition of a Job, {} while there is none."""
        job = self.job(namespace, name) or {}
        conditions = job.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == type_), {})

    def events(self, namespace: str, job_name: str) -> list[dict[str, Any]]:
        """Return the events on a Job."""
        items = self.get("events", "-n", namespace)["items"]
        return [
            event
            for event in items
            if event["involvedObject"]["kind"] == "Job"
            and event["involvedObject"]["name"] == job_name
        ]

    def pods(self, namespace: str, job_name: str) -> list[dict[str, Any]]:
        """Return the pods of a Job's DaemonSet."""
        labels = f"daemonset-job=true,job={job_name}"
        return list(self.get("pods", "-n", namespace, "-l", labels)["items"])

    def evict(self, namespace: str, pod: str) -> None:
        """Evict a pod, as `kubectl drain` does."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))

    def wait_only(self, namespace: str, name: str, slow: str, folder: str) -> None:
        """Wait until all nodes but `slow` have completed a Job of `counting`, and that one works.

        And until pods that are made from now on wait at the gate.
        """
        others = set(self.nodes) - {slow}
        eventually(lambda: self.completed(namespace, name) == others, 90, "the others completed")
        eventually(lambda: self.runs(folder)[slow] == 1, 60, f"{slow} at work")
        self.wait_gate(namespace, name)

    def wait_gate(self, namespace: str, name: str) -> None:
        """Wait until the DaemonSet controller has looked at a template that has the gate."""

        def is_shut() -> bool:
            found = self.get("daemonset", f"{name}-daemonset-job", "-n", namespace)
            spec = found["spec"]["template"]["spec"]
            observed = found.get("status", {}).get("observedGeneration", 0)
            return "schedulingGates" in spec and observed >= found["metadata"]["generation"]

        eventually(is_shut, 60, "the gate is up")

    def wait_gone(self, namespace: str, name: str, timeout: float = 90) -> None:
        """Wait until Job, DaemonSet and pods of that name are gone, `timeout` seconds for each."""
        eventually(lambda: self.job(namespace, name) is None, timeout, f"Job {name} gone")
        eventually(
            lambda: (
                not self.pods(namespace, name)
                and self.find("daemonset", f"{name}-daemonset-job", "-n", namespace) is None
            ),
            timeout,
            f"DaemonSet and pods of {name} gone",
        )

    # --- the system --------------------------------------------------------------------

    @contextmanager
    def controller_settings(self, **settings: str) -> Iterator[None]:
        """Run the controller with other settings in its ConfigMap while the block runs."""
        before = self.get("configmap", CONTROLLER, "-n", SYSTEM)["data"]
        self._configure_controller(settings)
        try:
            yield
        finally:
            self._configure_controller({key: before[key] for key in settings})

    def _configure_controller(self, data: dict[str, str]) -> None:
        body = json.dumps({"data": data})
        self.kubectl("patch", "configmap", CONTROLLER, "-n", SYSTEM, "--type=merge", "-p", body)
        self.kubectl("rollout", "restart", f"deployment/{CONTROLLER}", "-n", SYSTEM)
        self.wait_for_system(1)

    def wait_for_system(self, replicas: int) -> None:
        """Wait for the rollout and for the pods it takes away: it is done while they still end."""
        deployment = f"deployment/{CONTROLLER}"
        self.kubectl("rollout", "status", deployment, "-n", SYSTEM, "--timeout=120s")
        eventually(
            lambda: len(self.get("pods", "-n", SYSTEM)["items"]) == replicas, 60, "only its pods"
        )

    # --- nodes -------------------------------------------------------------------------

    def on_node(self, node: str, script: str) -> str:
        """Run a shell script on a node, from outside of Kubernetes; return its output."""
        if not self._containers:  # this names the docker to use, too
            self._containers = containers(load.kind_name(find_paths()))
        assert node in self._containers, f"no node {node}"
        code, output = self._shells.run(node, script, seconds=120)
        assert code == 0, f"on {node}: {script}: {output}"
        return output

    def close(self) -> None:
        """End the shells on the nodes."""
        self._shells.close()

    def on_all_nodes(self, script: str) -> dict[str, str]:
        """Run a shell script on every node; return each one's output."""
        with ThreadPoolExecutor() as pool:
            outputs = pool.map(lambda node: self.on_node(node, script), self.nodes)
            return dict(zip(self.nodes, outputs, strict=True))

    def runs(self, folder: str, file: str = "runs") -> dict[str, int]:
        """Return how often the work of `counting` ran on each node: the lines of that file."""
        outputs = self.on_all_nodes(f"cat {folder}/{file} 2>/dev/null | wc -l")
        return {node: int(text) for node, text in outputs.items()}

    def kill(self, program: str, pod: str = "") -> None:
        """Kill the processes of a program with SIGKILL, from their nodes; of one pod if named."""
        script = (
            "for p in /proc/[0-9]*; do "
            f"tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '/bin/{program} *$' && "
            f"grep -qz '^HOSTNAME={pod or '.*'}$' $p/environ && kill -9 ${{p#/proc/}} "
            "&& echo killed; done; true"
        )
        places = {each["spec"]["nodeName"] for each in self.get("pods", "-n", SYSTEM)["items"]}
        killed = sum(self.on_node(node, script).count("killed") for node in places)
        assert killed, f"no process of {program} found"

    # --- telling -----------------------------------------------------------------------

    def dump(self, namespace: str) -> None:
        """Print what a namespace holds and what the system logged, cut to a readable length."""
        for args in (
            ("get", "dsj,dsjr,daemonsets,pods", "-n", namespace, "-o", "wide"),
            ("get", "dsj,dsjr", "-n", namespace, "-o", "yaml"),
            ("get", "events", "-n", namespace, "--sort-by=.lastTimestamp"),
            (
                "logs",
                "-n",
                SYSTEM,
                "deployment/daemonset-job-controller",
                "--all-containers",
                "--prefix",
                "--tail=60",
            ),
        ):
            done = self.run(*args)
            print(f"--- kubectl {' '.join(args)}\n{(done.stdout + done.stderr)[-_DUMP_LIMIT:]}")  # noqa: T201 - for the log of the failed test


def eventually(check: Callable[[], Any], timeout: float = 60, what: str = "") -> Any:
    """Return the first true result of `check`; fails the test after `timeout` seconds.

    An object or a field that `check` looks for may not be there yet: LookupError, ValueError.
    """
    deadline, pause = time.monotonic() + timeout, 0.1
    while True:
        error: Exception | None = None
        try:
            if result := check():
                return result
        except (LookupError, ValueError) as missing:
            error = missing
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what or check}") from error
        time.sleep(pause)
        pause = min(1.2 * pause, _LONGEST_PAUSE_SECONDS)


def consistently(check: Callable[[], Any], seconds: float, what: str = "") -> None:
    """Fail the test when `check` is false at any time during `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert check(), what or check
        time.sleep(_LONGEST_PAUSE_SECONDS)


def make_job(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a Job manifest; the project's task image unless another is named."""
    return {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": TASK_IMAGE, **spec},
    }


def counting(script: str = "", *, before: str = "") -> dict[str, Any]:
    """Return spec fields of a task that counts each start of its work on the node.

    `before` runs before the token is printed (the work), `script` after it. The folder of the
    test must be the Job's mountPath.
    """
    body = f"echo $$ >> /basetarget/runs; {before or ':'}; echo done; {script or ':'}; " + WAIT
    return {"command": ["sh", "-c"], "args": [body]}


# Waits to be ended, and ends at once: a shell as PID 1 takes no signal that it has no trap for.
WAIT = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"
