"""The examples 20 to 22: Jobs that stay. Each runs as it is in its directory, on real nodes."""

import base64
import hashlib
import re
import secrets
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.cluster import TASK_IMAGE, RealCluster, consistently, eventually
from tests.e2e.jobs import state, wait_condition

# They change nodes, taint them, or restart their container runtime.
pytestmark = pytest.mark.alone

COMPONENT = "deploy/components/node-changes"
CONFIGURED = "example.com/sysctl-configured"
NOT_CONFIGURED = "example.com/not-configured"
KERNEL = "example.com/kernel"
ADDRESS = "example.com/egress-address"
MAP_COUNT = "/proc/sys/vm/max_map_count"
SYSCTL_FILE = "/etc/sysctl.d/90-example.conf"
CA_FILE = "/usr/local/share/ca-certificates/example-ca.crt"


def example(cluster: RealCluster, name: str, namespace: str) -> dict:
    """Return the Job of an example."""
    job = yaml.safe_load((cluster.root / "examples" / name / "job.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    return dict(job)


def settings_of(cluster: RealCluster) -> dict[str, object]:
    """Return what a manifest must not leave behind on a node: labels, taints, cordons."""
    return {
        node["metadata"]["name"]: (node["metadata"]["labels"], node["spec"])
        for node in cluster.get("nodes")["items"]
    }


def is_complete(cluster: RealCluster, namespace: str, name: str, count: int) -> bool:
    """Return whether the newest spec of a Job is complete on `count` nodes."""
    job = cluster.job(namespace, name)
    assert job, f"{name} is gone"
    status = job["status"]
    (complete,) = [c for c in status["conditions"] if c["type"] == "Complete"]
    return (
        status["observedGeneration"] == job["metadata"]["generation"]
        and complete["status"] == "True"
        and status["nodes"]["completed"] == count
    )


def delete(cluster: RealCluster, namespace: str, name: str) -> None:
    cluster.kubectl("delete", "dsj", name, "-n", namespace, "--ignore-not-found")
    cluster.wait_gone(namespace, name)


@pytest.fixture
def changes(cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster with the component; afterwards the component and all changes are gone."""
    folder = str(cluster.root / COMPONENT)
    value = cluster.on_node(cluster.nodes[0], f"cat {MAP_COUNT}").strip()
    cluster.kubectl("apply", "--server-side", "-k", folder)
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "-k", folder, "--ignore-not-found")
        cluster.kubectl("label", "node", *cluster.nodes, f"{CONFIGURED}-", f"{KERNEL}-")
        cluster.kubectl("annotate", "node", *cluster.nodes, f"{ADDRESS}-")
        for node in cluster.nodes:
            cluster.run("taint", "node", node, f"{NOT_CONFIGURED}-")
        cluster.on_all_nodes(f"rm -f {SYSCTL_FILE}")
        cluster.on_node(cluster.nodes[0], f"echo {value} > {MAP_COUNT}")


# --- 20-sysctl-and-taint -----------------------------------------------------------------


def workload(namespace: str, node: str) -> dict:
    """Return a pod for one node that tolerates nothing, and prints the value at its start."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "workload", "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": TASK_IMAGE, "command": ["cat", MAP_COUNT]},
            ],
        },
    }


def test_a_workload_starts_once_the_sysctl_is_set_and_the_taint_is_lifted(changes, namespace):
    cluster, joined = changes, changes.nodes[-1]
    # Nodes of kind share a kernel, so it is one value.
    cluster.on_node(joined, f"echo 65530 > {MAP_COUNT}")
    before = settings_of(cluster)
    cluster.kubectl("taint", "node", joined, f"{NOT_CONFIGURED}=:NoSchedule")
    cluster.apply(workload(namespace, joined))

    def phase() -> str:
        path = "jsonpath={.status.phase}"
        return cluster.kubectl("get", "pod", "workload", "-n", namespace, "-o", path)

    consistently(lambda: phase() == "Pending", 3, "the taint keeps it off")
    cluster.apply(example(cluster, "20-sysctl-and-taint", namespace))
    count = len(cluster.nodes)
    eventually(lambda: is_complete(cluster, namespace, "sysctl", count), 90, "all are done")

    eventually(lambda: phase() == "Succeeded", 60, "the workload has run")
    assert cluster.kubectl("logs", "workload", "-n", namespace).strip() == "262144"
    assert set(cluster.on_all_nodes(f"cat {MAP_COUNT}").values()) == {"262144\n"}
    files = set(cluster.on_all_nodes(f"cat {SYSCTL_FILE}").values())
    assert files == {"vm.max_map_count = 262144\n"}
    # Labels and taints are those of before and those of the manifest, and no pod is left.
    assert settings_of(cluster) == {
        node: (labels | {CONFIGURED: "true"}, spec) for node, (labels, spec) in before.items()
    }
    eventually(lambda: not cluster.pods(namespace, "sysctl"), 60, "no pod is left")
    wait_condition(cluster, namespace, "sysctl", "Complete")
    # A node joins with the taint: the Job is there, and serves it.
    cluster.kubectl("delete", "pod", "workload", "-n", namespace)
    cluster.on_node(joined, f"echo 65530 > {MAP_COUNT}; rm {SYSCTL_FILE}")
    cluster.kubectl("taint", "node", joined, f"{NOT_CONFIGURED}=:NoSchedule")
    cluster.kubectl("label", "node", joined, f"{CONFIGURED}-")
    cluster.apply(workload(namespace, joined))
    eventually(lambda: phase() == "Succeeded", 90, "the workload has run again")
    assert cluster.kubectl("logs", "workload", "-n", namespace).strip() == "262144"
    assert cluster.on_node(joined, f"cat {SYSCTL_FILE}") == "vm.max_map_count = 262144\n"
    eventually(lambda: is_complete(cluster, namespace, "sysctl", count), 60, "all are done")
    eventually(lambda: not cluster.pods(namespace, "sysctl"), 60, "no pod is left")
    delete(cluster, namespace, "sysctl")


# --- 21-node-labels ----------------------------------------------------------------------


def test_facts_are_labels_and_annotations_until_the_label_is_removed(changes, namespace):
    cluster, again = changes, changes.nodes[0]
    before = settings_of(cluster)
    cluster.apply(example(cluster, "21-node-labels", namespace))
    count = len(cluster.nodes)
    eventually(lambda: is_complete(cluster, namespace, "node-labels", count), 90, "all are done")
    kernels = cluster.on_all_nodes("uname -r")
    addresses = cluster.on_all_nodes("ip -4 route get 1.1.1.1 | grep -o 'src [0-9.]*'")

    def are_shown() -> bool:
        nodes = {n["metadata"]["name"]: n["metadata"] for n in cluster.get("nodes")["items"]}
        return all(
            nodes[node]["labels"].get(KERNEL) == kernels[node].strip()
            and nodes[node]["annotations"].get(ADDRESS) == addresses[node].split()[1]
            for node in cluster.nodes
        )

    assert are_shown()
    assert settings_of(cluster) == {
        node: (labels | {KERNEL: kernels[node].strip()}, spec)
        for node, (labels, spec) in before.items()
    }
    eventually(lambda: not cluster.pods(namespace, "node-labels"), 60, "no pod is left")

    first = {n: state(cluster, namespace, "node-labels", n)["nodeChangedAt"] for n in cluster.nodes}
    cluster.kubectl("annotate", "node", again, f"{ADDRESS}=192.0.2.1", "--overwrite")
    cluster.kubectl("label", "node", again, f"{KERNEL}-")

    eventually(are_shown, 60, f"{again} has its facts again")
    eventually(lambda: is_complete(cluster, namespace, "node-labels", count), 60, "all are done")
    eventually(lambda: not cluster.pods(namespace, "node-labels"), 60, "no pod is left")
    last = {n: state(cluster, namespace, "node-labels", n)["nodeChangedAt"] for n in cluster.nodes}
    assert {node for node in cluster.nodes if first[node] != last[node]} == {again}
    delete(cluster, namespace, "node-labels")


# --- 22-ca-certificates ------------------------------------------------------------------


@pytest.fixture
def trust(cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster; afterwards its nodes trust what they trusted before."""
    try:
        yield cluster
    finally:
        cluster.on_all_nodes(f"rm -f {CA_FILE} {CA_FILE}.*; update-ca-certificates --fresh")


def containerds(cluster: RealCluster) -> dict[str, tuple[str, int]]:
    """Return the process of containerd on each node, and how often systemd has started it."""
    script = (
        "systemctl show containerd -p MainPID --value; "
        "journalctl -u containerd -o cat | grep -c '^Started containerd'"
    )
    found = {node: text.split() for node, text in cluster.on_all_nodes(script).items()}
    return {node: (pid, int(starts)) for node, (pid, starts) in found.items()}


def assert_restarted_once(
    before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]
) -> None:
    for node, (pid, starts) in before.items():
        assert after[node][0] != pid, node
        assert after[node][1] == starts + 1, node


def without(found: dict[str, tuple[str, int]], node: str) -> dict[str, tuple[str, int]]:
    return {name: each for name, each in found.items() if name != node}


def trusted(cluster: RealCluster, certificate: str) -> set[str]:
    """Return the nodes whose file and whose bundle, which containerd reads, have a certificate."""
    line = certificate.splitlines()[1]
    script = f"cat {CA_FILE}; grep -cF '{line}' /etc/ssl/certs/ca-certificates.crt; true"
    found = cluster.on_all_nodes(script)
    return {node for node, text in found.items() if text == f"{certificate}1\n"}


def are_held(cluster: RealCluster, namespace: str, count: int = 0) -> bool:
    """Return whether the pods of all nodes, or of `count`, wait at the gate, on no node."""
    pods = cluster.pods(namespace, "ca-certificates")
    return len(pods) == (count or len(cluster.nodes)) and all(
        pod["spec"].get("schedulingGates") and "nodeName" not in pod["spec"] for pod in pods
    )


def test_containerd_restarts_once_for_each_certificate_and_no_pod_stays(trust, namespace):
    cluster, count = trust, len(trust.nodes)
    nodes, settings = set(cluster.nodes), settings_of(cluster)
    job = example(cluster, "22-ca-certificates", namespace)
    script = job["spec"]["script"]
    (first,) = re.findall("-----BEGIN.*END CERTIFICATE-----\n", script, re.DOTALL)
    before = containerds(cluster)

    # The last node joins when the others are done.
    joins = cluster.nodes[-1]
    cluster.apply({**job, "spec": job["spec"] | {"nodes": {"exclude": [joins]}}})
    others = count - 1
    eventually(lambda: is_complete(cluster, namespace, "ca-certificates", others), 180, "complete")
    eventually(lambda: are_held(cluster, namespace, others), 60, "no pod is left on a node")
    assert trusted(cluster, first) == nodes - {joins}
    early = containerds(cluster)
    assert early[joins] == before[joins]
    assert_restarted_once(without(before, joins), early)

    cluster.apply(job)
    eventually(lambda: is_complete(cluster, namespace, "ca-certificates", count), 180, "complete")
    eventually(lambda: are_held(cluster, namespace), 60, "no pod is left on a node")
    assert trusted(cluster, first) == nodes
    once = containerds(cluster)
    assert_restarted_once(before, once)
    assert without(once, joins) == without(early, joins)
    digest = hashlib.sha256(first.encode()).hexdigest()
    evidence = cluster.report(namespace, "ca-certificates")["evidence"]
    assert {entry["results"]["sha256"] for entry in evidence.values()} == {digest}
    pod = cluster.get("daemonset", "ca-certificates-daemonset-job", "-n", namespace)
    assert pod["spec"]["template"]["spec"]["priorityClassName"] == "system-node-critical"

    # The same again, on one node: nothing is changed, so nothing restarts.
    rerun = f"daemonset.darkowlzz.space/rerun={cluster.nodes[0]}@1"
    cluster.kubectl("annotate", "dsj", "ca-certificates", "-n", namespace, rerun)
    done = evidence[cluster.nodes[0]]["completedAt"]

    def has_run_again() -> bool:
        entry = cluster.report(namespace, "ca-certificates")["evidence"][cluster.nodes[0]]
        return bool(entry.get("completedAt", done) != done)

    eventually(has_run_again, 60, "it has run again")
    assert containerds(cluster) == once

    # Another certificate. Its bytes need not be a real one's.
    body = base64.b64encode(secrets.token_bytes(48)).decode()
    second = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    job["spec"]["script"] = script.replace(first, second)
    cluster.apply(job)
    eventually(lambda: trusted(cluster, second) == nodes, 180, "each node has the second one")
    eventually(lambda: is_complete(cluster, namespace, "ca-certificates", count), 180, "complete")
    eventually(lambda: are_held(cluster, namespace), 60, "no pod is left on a node")
    assert_restarted_once(once, containerds(cluster))
    assert settings_of(cluster) == settings
    left = cluster.on_all_nodes(f"ls {CA_FILE}*")
    assert set(left.values()) == {f"{CA_FILE}\n"}
    delete(cluster, namespace, "ca-certificates")
