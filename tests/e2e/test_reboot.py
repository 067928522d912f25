"""A task that reboots its node: the example 19, on a real node that really starts again."""

import subprocess

import pytest
import yaml

from tests.e2e.cluster import SYSTEM, eventually
from tests.e2e.jobs import labelled, state, wait_condition
from tests.e2e.variants import first_of

pytestmark = pytest.mark.alone
STARTS = "/var/lib/e2e-reboot-starts"
CONF = "/etc/modprobe.d/example-conntrack.conf"


@pytest.fixture
def node(cluster):
    """Return a node that runs neither the API server nor the system; it has no trace afterwards."""
    pods = cluster.get("pods", "-n", SYSTEM)["items"]
    busy = {pod["spec"]["nodeName"] for pod in pods}
    name = next(n for n in cluster.nodes if "control-plane" not in n and n not in busy)
    cluster.on_node(name, f"rm -f {CONF} {STARTS}")
    # Docker starts a container of kind again once, and then leaves it stopped.
    subprocess.run(["docker", "update", "--restart=on-failure:100", name], check=True, timeout=60)
    yield name
    cluster.on_node(name, f"rm -f {CONF} {STARTS}")


def on_nodes(cluster, namespace):
    """Return the Job's pods that are on a node."""
    pods = cluster.pods(namespace, "node-reboot")
    return [pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]]


def started_at(cluster, node):
    """Return when the first process of a node began, in ticks since the machine's start."""
    return cluster.on_node(node, "cut -d ' ' -f 22 /proc/1/stat").strip()


def settings_of(cluster, node):
    """Return the labels of a node, and its taints and cordon."""
    found = cluster.get("node", node)
    return found["metadata"]["labels"], found["spec"]


# As it is in the example; with the exit code; and as a Job that stays and leaves no pod.
@pytest.mark.parametrize(
    "completion",
    first_of([{}, {"mode": "Exit"}, {"mode": "Exit", "policy": "Continuous", "release": True}]),
)
def test_a_task_that_reboots_its_node_completes_it_once(cluster, namespace, node, completion):
    job = yaml.safe_load((cluster.root / "examples/19-node-reboot/job.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    job["spec"]["completion"] = completion
    # A line for each start of the task.
    script = job["spec"]["script"]
    job["spec"]["script"] = script.replace("set -eu\n", f"set -eu\necho start >> {STARTS}\n")
    before, settings = started_at(cluster, node), settings_of(cluster, node)
    with labelled(cluster, "example.com/reboot", node):
        cluster.kubectl("label", "node", node, "example.com/reboot=true", "--overwrite")
        cluster.apply(job)
        if "policy" in completion:
            wait_condition(cluster, namespace, "node-reboot", "Complete", timeout=240)
            eventually(lambda: not on_nodes(cluster, namespace), 60, "no pod is left on the node")
        else:
            cluster.wait_gone(namespace, "node-reboot", timeout=240)

    # One reboot: the first process is another one, and the task was started before and after.
    assert started_at(cluster, node) != before
    assert cluster.on_node(node, f"cat {STARTS}") == "start\nstart\n"
    assert cluster.on_node(node, f"cat {CONF}") == "options nf_conntrack hashsize=262144\n"
    record = state(cluster, namespace, "node-reboot", node)
    assert (record["state"], record["attempts"]) == ("Completed", 2)
    assert cluster.report(namespace, "node-reboot")["status"]["phase"] == "Succeeded"
    assert not cluster.report(namespace, "node-reboot")["status"]["nodes"]["failed"]
    assert cluster.report(namespace, "node-reboot")["evidence"][node]["results"]["boot"]

    def is_ready():
        found = cluster.get("node", node)["status"]["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in found)

    eventually(is_ready, 60, "the node is ready")
    eventually(lambda: settings_of(cluster, node) == settings, 60, "the node is as before")
