"""Servers in the cluster that the controller talks to: receivers of notifications, and sources.

They are named in the controller's configuration, by deploy/components/notifications.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.e2e.cluster import CONTROLLER, SYSTEM, RealCluster
from tests.e2e.manifests import apply, build, rolled_out

SECRET = "daemonset-job-receivers"
PORT = 8000


def start_server(cluster: RealCluster, namespace: str, program: str) -> str:
    """Start a pod that runs a program in Python, and return the address of its port 8000."""
    containers = cluster.get("deployment", CONTROLLER, "-n", SYSTEM)["spec"]["template"]["spec"]
    (image,) = [c["image"] for c in containers["containers"] if c["name"] == "controller"]
    server = {"name": "server", "image": image, "command": ["python3", "-c", program]}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "receiver", "namespace": namespace},
            "spec": {"containers": [server], "terminationGracePeriodSeconds": 0},
        }
    )
    cluster.kubectl("wait", "pod/receiver", "-n", namespace, "--for=condition=Ready")
    return f"http://{cluster.get('pods', 'receiver', '-n', namespace)['status']['podIP']}:{PORT}"


@contextmanager
def endpoints(
    cluster: RealCluster, folder: Path, configuration: str, files: dict[str, str]
) -> Iterator[None]:
    """Run the controller with this configuration, and with files of addresses in the Secret.

    It is put back as it was.
    """
    plain, with_component = build(cluster, folder), build(cluster, folder, "notifications")
    running = cluster.get("deployment", CONTROLLER, "-n", SYSTEM)["spec"]["template"]["spec"]
    images = {each["name"]: each["image"] for each in running["containers"]}
    deployments = {}
    for name, manifests in (("plain", plain), ("changed", with_component)):
        (deployments[name],) = [raw for raw in manifests if raw["kind"] == "Deployment"]
        for container in deployments[name]["spec"]["template"]["spec"]["containers"]:
            container["image"] = images[container["name"]]
    known = {(raw["kind"], raw["metadata"]["name"]) for raw in plain}
    (config,) = [
        raw for raw in with_component if (raw["kind"], raw["metadata"]["name"]) not in known
    ]
    assert yaml.safe_load(config["data"]["config.yaml"]) == {"receivers": []}
    config["data"]["config.yaml"] = configuration
    place = {"name": SECRET, "namespace": SYSTEM}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": place, "stringData": files}
    try:
        apply(cluster, [config, secret, deployments["changed"]])
        rolled_out(cluster, CONTROLLER)
        cluster.wait_for_system(1)
        yield
    finally:
        apply(cluster, [deployments["plain"]])
        rolled_out(cluster, CONTROLLER)
        cluster.wait_for_system(1)
        cluster.kubectl("delete", "secret", SECRET, "-n", SYSTEM, "--ignore-not-found")
        name = config["metadata"]["name"]
        cluster.kubectl("delete", "configmap", name, "-n", SYSTEM, "--ignore-not-found")
