"""Nodes that are drained: what a test prepares on them, and whether a cordon is left."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.cluster import (
    CONTROLLER,
    SYSTEM,
    TASK_IMAGE,
    WAIT,
    RealCluster,
    eventually,
    make_job,
)

MARK = "daemonset.darkowlzz.space/cordoned-by"
COMPONENT = "deploy/components/drain"


@contextmanager
def with_component(cluster: RealCluster) -> Iterator[None]:
    """Apply the component while the block runs; no test leaves a cordon."""
    folder = str(cluster.root / COMPONENT)
    cluster.kubectl("apply", "--server-side", "-k", folder)
    eventually(lambda: is_allowed(cluster), 30, "the right to evict")
    try:
        yield
        eventually(lambda: all(is_clean(cluster, node) for node in cluster.nodes), 60, "no cordon")
    finally:
        cluster.kubectl("uncordon", *cluster.nodes)
        cluster.kubectl("annotate", "node", *cluster.nodes, f"{MARK}-")
        cluster.kubectl("delete", "-k", folder, "--ignore-not-found")


def is_allowed(cluster: RealCluster) -> bool:
    account = f"--as=system:serviceaccount:{SYSTEM}:{CONTROLLER}"
    words = ("auth", "can-i", "create", "pods", "--subresource=eviction", "-n", "default")
    return cluster.run(*words, account).stdout.strip() == "yes"


def is_cordoned(cluster: RealCluster, node: str) -> bool:
    return bool(cluster.get("node", node)["spec"].get("unschedulable"))


def is_clean(cluster: RealCluster, node: str) -> bool:
    """Whether a node has no cordon, no mark and no taint of one."""
    found = cluster.get("node", node)
    taints = [taint["key"] for taint in found["spec"].get("taints") or ()]
    return (
        not found["spec"].get("unschedulable")
        and MARK not in (found["metadata"].get("annotations") or {})
        and "node.kubernetes.io/unschedulable" not in taints
    )


def start_web(cluster: RealCluster, namespace: str, *, available: int) -> str:
    """Start a Deployment of two pods with a budget; return a node that one of them is on."""
    labels = {"app": namespace}
    container = {"name": "web", "image": TASK_IMAGE, "command": ["sh", "-c", WAIT]}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
    selector = {"matchLabels": labels}
    cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {
                "replicas": 2,
                "selector": selector,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web-budget", "namespace": namespace},
            "spec": {"minAvailable": available, "selector": selector},
        },
    )
    cluster.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=60s")
    budget = ("pdb", "web-budget", "-n", namespace)
    eventually(
        lambda: cluster.get(*budget)["status"]["currentHealthy"] == 2, 30, "the budget counts"
    )
    return str(web_pods(cluster, namespace)[0]["spec"]["nodeName"])


def web_pods(cluster: RealCluster, namespace: str, node: str = "") -> list[dict[str, Any]]:
    pods = cluster.get("pods", "-n", namespace, "-l", f"app={namespace}")["items"]
    return [pod for pod in pods if node in {"", pod["spec"].get("nodeName")}]


def start_drains(cluster: RealCluster, namespace: str, folder: str) -> tuple[str, str]:
    """Start a privileged Job on two nodes, which the other tests of drains do with one.

    Returns the node whose drain a budget holds up, and the one on which the task is at work.
    """
    held = start_web(cluster, namespace, available=2)
    free = [node for node in cluster.nodes if not web_pods(cluster, namespace, node)]
    working = free[0]
    job = make_job(
        "drains",
        namespace,
        hostExec=True,
        script=f"#!/bin/sh\necho $$ > {folder}/pid\nwhile :; do sleep 1; done\n",
        nodes={"include": [held, working]},
        drain={"podSelector": {"matchLabels": {"app": namespace}}},
        rollout={"maxParallel": 2},
        template={"spec": {"terminationGracePeriodSeconds": 2}},
    )
    del job["spec"]["image"]
    cluster.apply(job)
    eventually(lambda: is_at_work(cluster, folder, working), 60, "the task is at work")
    eventually(lambda: is_cordoned(cluster, held), 30, "the other node is cordoned")
    blocked = ("DrainBlocked", f"{namespace}/web-")

    def is_held() -> bool:
        found = cluster.condition(namespace, "drains", "Progressing")
        return found.get("reason") == blocked[0] and blocked[1] in found["message"]

    eventually(is_held, 30, "the budget holds up the drain")
    assert is_cordoned(cluster, working)
    return held, working


def is_at_work(cluster: RealCluster, folder: str, node: str) -> bool:
    """Return whether the task of `start_drains` runs on a node, by its process."""
    script = f"test -e {folder}/pid && kill -0 $(cat {folder}/pid) && echo yes; true"
    return "yes" in cluster.on_node(node, script)


def assert_nothing_left(cluster: RealCluster, folder: str) -> None:
    """No cordon, mark or taint is left on a node, no pod of a Job, and no process of a task."""
    # The node controller removes the taint of a cordon a moment after the cordon.
    eventually(lambda: all(is_clean(cluster, node) for node in cluster.nodes), 10, "nothing left")
    eventually(
        lambda: not cluster.get("pods", "-A", "-l", "daemonset-job=true")["items"], 60, "no pod"
    )
    assert not [pod for pod in cluster.get("pods", "-A")["items"] if is_privileged(pod)]
    assert not [node for node in cluster.nodes if is_at_work(cluster, folder, node)]


def is_privileged(pod: dict[str, Any]) -> bool:
    """Return whether a pod outside of the cluster's own is privileged."""
    containers = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return pod["metadata"]["namespace"] != "kube-system" and any(
        (container.get("securityContext") or {}).get("privileged") for container in containers
    )
