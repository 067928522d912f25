"""A task that reboots its node: the example 19, on a real node that really starts again."""

import pytest
import yaml

from tests.e2e.cluster import SYSTEM, eventually
from tests.e2e.jobs import labelled, state

pytestmark = pytest.mark.alone
CONF = "/etc/modprobe.d/example-conntrack.conf"


@pytest.fixture
def node(cluster):
    """Return a node that runs neither the API server nor the system; it has no trace afterwards."""
    pods = cluster.get("pods", "-n", SYSTEM)["items"]
    busy = {pod["spec"]["nodeName"] for pod in pods}
    name = next(n for n in cluster.nodes if "control-plane" not in n and n not in busy)
    yield name
    cluster.on_node(name, f"rm -f {CONF}")


def started_at(cluster, node):
    """Return when the first process of a node began, in ticks since the machine's start."""
    return cluster.on_node(node, "cut -d ' ' -f 22 /proc/1/stat").strip()


def test_a_task_that_reboots_its_node_completes_it_once(cluster, namespace, node):
    job = yaml.safe_load((cluster.root / "examples/19-node-reboot/job.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    before = started_at(cluster, node)
    with labelled(cluster, "example.com/reboot", node):
        cluster.kubectl("label", "node", node, "example.com/reboot=true", "--overwrite")
        cluster.apply(job)
        cluster.wait_gone(namespace, "node-reboot", timeout=240)

    assert started_at(cluster, node) != before
    assert cluster.on_node(node, f"cat {CONF}") == "options nf_conntrack hashsize=262144\n"
    record = state(cluster, namespace, "node-reboot", node)
    assert (record["state"], record["attempts"]) == ("Completed", 2)
    assert cluster.report(namespace, "node-reboot")["status"]["phase"] == "Succeeded"
    assert cluster.report(namespace, "node-reboot")["evidence"][node]["results"]["boot"]

    def is_ready():
        found = cluster.get("node", node)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in found)

    eventually(is_ready, 60, "the node is as before")
