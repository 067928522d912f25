"""Shows the main job on real nodes: files on every node, a Job that removes them, the result.

On a kind cluster the demo enters the nodes from outside of Kubernetes, so that what it shows of
them does not come from the project itself. On other clusters (`CONTEXT=`) that is impossible. There
one more Job puts the files on the nodes, and another one checks whether they are removed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.devcluster import cluster, load, shell
from hack.devcluster.errors import DevclusterError
from hack.devcluster.kubectl import Kubectl
from hack.devcluster.progress import say, show
from hack.devcluster.settings import Paths

NAMESPACE = "daemonset-job-demo"
SAMPLE = "examples/01-cleanup/job.yaml"
JOB = "job-sample"
TASK_IMAGE = "darkowlzz/daemonset-job-task:v0.1.0"
LIMIT_SECONDS = 180
LOOK_SECONDS = 0.3

PUT = "mkdir -p /tmp/foo && hostname > /tmp/foo/left-behind && touch /tmp/kept"
LOOK = "ls -d /tmp/foo /tmp/kept 2>/dev/null || true"
CLEAN = "rm -f /tmp/kept"
PROGRAMS = Path(sys.executable).parent
# The logs are kept for as long as the Job is.
TRY = f"kubectl dsjob run hello --exit --ttl 600 --image {TASK_IMAGE} --command -- uname -r"
READ = "kubectl dsjob logs hello"


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of the demo and a way to run a shell script on all of them."""

    names: Sequence[str]
    run: Callable[[str], Mapping[str, str]]


def run(paths: Paths) -> None:
    """Show the main job; raise DevclusterError when anything is not as it should be."""
    kubectl = Kubectl(paths)
    with _namespace(kubectl):
        nodes = _nodes(paths, kubectl)
        say(f"\n1. Files on every node ({len(nodes.names)} nodes)")
        say(f"   $ {PUT}")
        nodes.run(PUT)
        _say_looks(nodes.run(LOOK))

        say(f"\n2. The Job: kubectl apply -f {SAMPLE}")
        show(_indented((paths.root / SAMPLE).read_text()))
        started = time.monotonic()
        kubectl("apply", "-n", NAMESPACE, "-f", paths.root / SAMPLE)
        _plugin(kubectl, "status", JOB, "--watch")
        _wait(kubectl, f"dsj/{JOB}")
        took = time.monotonic() - started

        say("\n3. What is left")
        looks = nodes.run(LOOK)
        _say_looks(looks)
        _check_nodes(looks)
        nodes.run(CLEAN)
        _wait(kubectl, "daemonset,pod", "-l", f"job={JOB}")
        say("   Job, DaemonSet and pods: gone. The record stays:")
        _plugin(kubectl, "report", JOB)
        _check_report(kubectl, nodes.names)
        say(f"\nDone: /tmp/foo is gone from {len(nodes.names)} nodes, {took:.1f} s from apply.")
    _say_next(paths)


def _say_next(paths: Paths) -> None:
    """Say what to try next; with-cluster knows whether the cluster goes on running."""
    if os.environ.get("DEVCLUSTER_STAYS", "1") == "1":
        say(f"\nThe cluster keeps running. Try:\n  export KUBECONFIG={paths.kubeconfig}")
        say(f"  export PATH={PROGRAMS}:$PATH      # has kubectl-dsjob")
        say(f"  {TRY}")
        say(f"  {READ}")
        say("  kubectl apply -f examples/03-selected-nodes/job.yaml && kubectl get dsj -w")
        say("  make cluster-down      # when you have seen enough")
    else:
        say("\nTry `make demo KEEP=1` to keep the cluster, then examples/ and docs/tutorial/.")


def _plugin(kubectl: Kubectl, verb: str, *arguments: str) -> None:
    """Run kubectl dsjob as its user does: on the terminal that the demo has, if it has one."""
    command = (verb, *arguments, "-n", NAMESPACE)
    say(f"   $ kubectl dsjob {' '.join(command)}")
    try:
        done = subprocess.run(
            [PROGRAMS / "kubectl-dsjob", *command, "--kubeconfig", kubectl.config],
            check=False,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        words = kubectl("describe", "dsj", JOB, "-n", NAMESPACE)
        raise DevclusterError(f"no end of the Job within {LIMIT_SECONDS} s:\n{words}") from None
    if done.returncode != 0:
        raise DevclusterError(f"kubectl dsjob {verb} {JOB}: exit code {done.returncode}")


def _reports(kubectl: Kubectl, job: str) -> list[dict[str, Any]]:
    found = kubectl.items("jobreports", "-n", NAMESPACE)
    return [report for report in found if report["spec"]["job"]["name"] == job]


def _wait(kubectl: Kubectl, *what: str) -> None:
    """Wait until objects of the demo are deleted."""
    arguments = ("wait", "--for=delete", *what, "-n", NAMESPACE, "--timeout=60s")
    kubectl(*arguments, timeout_seconds=70)


def _check_nodes(looks: Mapping[str, str]) -> None:
    wrong = sorted(node for node, seen in looks.items() if seen.split() != ["/tmp/kept"])  # noqa: S108 - the demo's own file
    if wrong:
        raise DevclusterError(f"not as it should be on {', '.join(wrong)}")


def _check_report(kubectl: Kubectl, names: Sequence[str]) -> None:
    (report,) = _reports(kubectl, JOB)
    recorded = set(report.get("evidence") or {})
    phase = report.get("status", {}).get("phase")
    if phase != "Succeeded" or not recorded >= set(names):
        raise DevclusterError(f"the report is not whole: {phase}, {sorted(recorded)}")


# --- the nodes ---------------------------------------------------------------------------


def _nodes(paths: Paths, kubectl: Kubectl) -> Nodes:
    try:
        name = load.kind_name(paths)
    except DevclusterError:
        return _nodes_by_jobs(kubectl)
    containers = [n for n in cluster.containers(name) if "load-balancer" not in n]

    def run_in_containers(script: str) -> dict[str, str]:
        return {
            node: shell.output(["docker", "exec", node, "sh", "-c", script]) for node in containers
        }

    return Nodes(containers, run_in_containers)


def _nodes_by_jobs(kubectl: Kubectl) -> Nodes:
    """Return the nodes that a DaemonSet without tolerations reaches, entered by Jobs."""
    names = [
        node["metadata"]["name"]
        for node in kubectl.items("nodes")
        if not any(
            taint["effect"] in {"NoSchedule", "NoExecute"}
            for taint in node["spec"].get("taints", ())
            if taint["key"] != "node.kubernetes.io/unschedulable"
        )
    ]

    def run_by_job(script: str) -> dict[str, str]:
        return _run_job(kubectl, script.replace("/tmp/", "/basetarget/"), names)  # noqa: S108 - a host folder

    return Nodes(names, run_by_job)


def _run_job(kubectl: Kubectl, script: str, names: Sequence[str]) -> dict[str, str]:
    """Run `script` on every node with the project itself; return what each printed."""
    name = f"demo-{time.monotonic_ns() % 10**9}"
    # The token only after a file says so: time to read the output before the Job takes its pods.
    wait = "while [ ! -e /basetarget/.demo-seen ]; do sleep 0.2; done; echo done; sleep 600"
    body = {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "image": TASK_IMAGE,
            "command": ["sh", "-c"],
            "args": [f"rm -f /basetarget/.demo-seen; {script}; echo printed; {wait}"],
            "mountPath": "/tmp",  # noqa: S108 - a host folder
        },
    }
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    printed: dict[str, str] = {}
    deadline = time.monotonic() + LIMIT_SECONDS
    while set(names) - set(printed):
        if time.monotonic() > deadline:
            raise DevclusterError(f"Job {name} did not run on every node")
        for pod in kubectl.items("pods", "-n", NAMESPACE, "-l", f"job={name}"):
            if pod["status"].get("phase") == "Running":
                pod_name = pod["metadata"]["name"]
                log = kubectl("logs", pod_name, "-n", NAMESPACE, "-c", "job-container")
                if "printed\n" in log:
                    text = log.partition("printed\n")[0].replace("/basetarget/", "/tmp/")  # noqa: S108 - a host folder
                    printed[pod["spec"]["nodeName"]] = text
                    command = ("touch", "/basetarget/.demo-seen")
                    kubectl("exec", pod_name, "-n", NAMESPACE, "--", *command)
        time.sleep(LOOK_SECONDS)
    _wait(kubectl, f"dsj/{name}")
    return printed


# --- telling -----------------------------------------------------------------------------


@contextmanager
def _namespace(kubectl: Kubectl) -> Iterator[None]:
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", timeout_seconds=90)
    kubectl("create", "namespace", NAMESPACE)
    try:
        yield
    finally:
        kubectl("delete", "namespace", NAMESPACE, timeout_seconds=90)


def _say_looks(looks: Mapping[str, str]) -> None:
    for node, seen in looks.items():
        say(f"   {node:<28} {' '.join(seen.split()) or '(nothing)'}")


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())
