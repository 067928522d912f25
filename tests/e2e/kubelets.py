"""The kubelet of one node, run with other settings for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.cluster import SYSTEM, RealCluster, eventually

KUBELET = "/var/lib/kubelet/config.yaml"


def worker(cluster: RealCluster) -> str:
    """Return a node that does not run the system's own pod, nor the control plane."""
    pods = cluster.get("pods", "-n", SYSTEM)["items"]
    staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    busy = {pod["spec"].get("nodeName") for pod in staying}
    free = [n for n in cluster.nodes if n not in busy and not n.endswith("control-plane")]
    return str(free[0])


@contextmanager
def kubelet_setting(cluster: RealCluster, node: str, **settings: object) -> Iterator[None]:
    """Run a node's kubelet with other settings; its pods go on meanwhile."""
    lines = "\\n".join(f"{key}: {value}" for key, value in settings.items())
    keys = "|".join(settings)
    # Making a folder is atomic, so a second run on the same cluster waits for its turn. Otherwise
    # it would take the first one's settings for the node's own, and leave them behind.
    turn = f"mkdir {KUBELET}.turn 2>/dev/null && echo mine || true"
    eventually(lambda: "mine" in cluster.on_node(node, turn), 300, f"{KUBELET}.turn on {node} free")
    try:
        cluster.on_node(
            node,
            f"set -e; cp -p {KUBELET} {KUBELET}.turn/before; sed -i -E '/^({keys}):/d' {KUBELET};"
            f"printf '\\n{lines}\\n' >> {KUBELET}; systemctl restart kubelet",
        )
        wait_ready(cluster, node)
        yield
    finally:
        cluster.on_node(
            node,
            f"if [ -e {KUBELET}.turn/before ]; then cp -p {KUBELET}.turn/before {KUBELET}; fi;"
            f" rm -r {KUBELET}.turn; systemctl restart kubelet",
        )
        wait_ready(cluster, node)


def wait_ready(cluster: RealCluster, node: str) -> None:
    eventually(
        lambda: cluster.on_node(
            node, "curl -s -m 2 http://127.0.0.1:10248/healthz || wget -qO- 127.0.0.1:10248/healthz"
            " || true"
        )
        == "ok",
        90,
        f"kubelet of {node} well",
    )  # fmt: skip
    cluster.kubectl("wait", "--for=condition=Ready", f"node/{node}", "--timeout=90s")
