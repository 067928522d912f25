"""Tasks with a known behaviour, and what a test asks of their Jobs and of the nodes."""

import fcntl
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster import SYSTEM, WAIT, RealCluster, eventually

RETRY = "daemonset.darkowlzz.space/retry"
# The work of a task waits here until the test makes the file in the folder of the Job.
GO = "while [ ! -e /basetarget/go ]; do sleep 0.2; done"
STOPS_AT_ONCE = "trap 'exit 0' TERM; " + GO
# How long a Job is watched that must not be over: it ends within a second or two if it is wrong.
LOOK_SECONDS = 6


# --- tasks ---------------------------------------------------------------------------------


def shell(script: str) -> dict[str, Any]:
    """Return spec fields of a task that is this script."""
    return {"command": ["sh", "-c"], "args": [script]}


def on(node: str, script: str, otherwise: str = "echo done; " + WAIT) -> dict[str, Any]:
    """Return a task that does one thing on one node and another on the others."""
    return shell(f'if [ "$NODE_NAME" = {node} ]; then {script}; else {otherwise}; fi')


def working(script: str, *, end: str = "echo done; " + WAIT) -> dict[str, Any]:
    """Return a task that leaves a line in the folder's `runs` at its start and in `finished` at
    the end of its work, `script`, right before the token."""
    return shell(f"echo $$ >> /basetarget/runs; {script}; echo $$ >> /basetarget/finished; {end}")


def only_on(node: str, script: str) -> str:
    """Return a script that does something on one node only."""
    return f'if [ "$NODE_NAME" = {node} ]; then {script}; fi'


# --- refusals ------------------------------------------------------------------------------


def set_quota(cluster: RealCluster, namespace: str, name: str, **hard: str) -> None:
    """Set a ResourceQuota, and wait until the API server keeps to it."""
    body = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": hard},
    }
    cluster.apply(body)
    found = ("resourcequota", name, "-n", namespace)
    eventually(lambda: "hard" in cluster.get(*found).get("status", {}), 30, "the quota is counted")


# --- Jobs ----------------------------------------------------------------------------------


def wait_condition(
    cluster: RealCluster, namespace: str, name: str, type_: str, timeout: int = 90
) -> dict[str, Any]:
    """Wait until a condition of a Job is true, and return it."""
    cluster.kubectl(
        "wait", f"--for=condition={type_}", f"dsj/{name}", "-n", namespace, f"--timeout={timeout}s"
    )
    return cluster.condition(namespace, name, type_)


def state(cluster: RealCluster, namespace: str, name: str, node: str) -> dict[str, Any]:
    """Return what the report of a Job records of a node."""
    return dict(cluster.report(namespace, name)["status"]["nodeStates"][node])


def last_lines(cluster: RealCluster, namespace: str, name: str, node: str) -> list[str]:
    """Return the last lines of the log of a node that has failed.

    The controller waits 5 s for them before the node fails, and later ones are added.
    """
    return list(
        eventually(
            lambda: cluster.report(namespace, name)["evidence"][node]["lastLines"],
            30,
            "the last lines are on record",
        )
    )


def reasons(cluster: RealCluster, namespace: str, name: str) -> set[str]:
    """Return the reasons of all events on a Job."""
    return {event["reason"] for event in cluster.events(namespace, name)}


def patch_spec(cluster: RealCluster, namespace: str, name: str, body: str) -> None:
    """Merge a JSON text into the spec of a Job, as a user does."""
    spec = f'{{"spec":{body}}}'
    cluster.kubectl("patch", "dsj", name, "-n", namespace, "--type=merge", "-p", spec)


def is_unfinished(cluster: RealCluster, namespace: str, name: str, why: str) -> bool:
    """Return True; fails the test when the Job is gone, or is said to be complete anywhere."""
    job = cluster.job(namespace, name)
    assert job is not None, f"the Job is gone: {why}"
    status = job.get("status", {})
    complete = [c for c in status.get("conditions", ()) if c["type"] == "Complete"]
    assert not any(c["status"] == "True" for c in complete), f"{complete}: {why}"
    assert status.get("phase") != "Succeeded", f"the phase is Succeeded: {why}"
    return True


def wait_unfinished(
    cluster: RealCluster,
    namespace: str,
    name: str,
    check: Callable[[], Any],
    what: str,
    timeout: float = 60,
) -> Any:
    """Return the first true result of `check`, before which the Job must not be over."""
    why = f"before {what}"
    return eventually(
        lambda: is_unfinished(cluster, namespace, name, why) and check(), timeout, what
    )


def assert_succeeded(
    cluster: RealCluster, namespace: str, name: str, folder: str, nodes: set[str]
) -> None:
    """Wait until the Job is gone; exactly these nodes did the work, by themselves and on record."""
    cluster.wait_gone(namespace, name)
    finished = {node for node, count in cluster.runs(folder, "finished").items() if count}
    assert finished == nodes
    assert cluster.completed(namespace, name) == nodes
    status = cluster.report(namespace, name)["status"]
    assert status["phase"] == "Succeeded"
    assert status["nodes"]["completed"] == len(nodes)


# --- nodes ---------------------------------------------------------------------------------


@contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Keep tests apart that change the same path of the nodes, also those of other workers."""
    with Path(tempfile.gettempdir(), f"daemonset-job-e2e-{what}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def tainted(cluster: RealCluster, node: str) -> Iterator[None]:
    """Keep pods that are not there yet off a node while the block runs; any Job's pods."""
    key = f"e2e.example.com/{secrets.token_hex(4)}"
    cluster.kubectl("taint", "node", node, f"{key}=:NoSchedule")
    try:
        yield
    finally:
        cluster.kubectl("taint", "node", node, f"{key}-")


@contextmanager
def labelled(cluster: RealCluster, key: str, *nodes: str) -> Iterator[None]:
    """Have nodes carry a label of the value `in` while the block runs."""
    cluster.kubectl("label", "node", *nodes, f"{key}=in")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", *cluster.nodes, f"{key}-")


def in_turn(cluster: RealCluster) -> list[str]:
    """Return the nodes in the order of their turns: that of the controller comes last."""
    found = cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=daemonset-job")
    own = {pod["spec"].get("nodeName") for pod in found["items"]}
    return sorted(cluster.nodes, key=lambda node: (node in own, node))


def pod_on(cluster: RealCluster, namespace: str, name: str, node: str) -> str:
    """Return the name of the Job's pod on a node that is not being deleted."""
    (found,) = [
        pod["metadata"]["name"]
        for pod in cluster.pods(namespace, name)
        if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]
    ]
    return str(found)
