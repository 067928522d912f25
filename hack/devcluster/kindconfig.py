"""The cluster's configuration as kind and kubeadm want it: text in, text out."""

import json
import re

POD_SUBNET = "10.200.0.0/16"
SERVICE_SUBNET = "10.201.0.0/16"
FAKE_POD_SUBNET = "10.250.0.0/16"
# 16,384 ranges of /24. The other subnet has 256, and kube-controller-manager would keep trying to
# give one to each node: 10 writes of events a second beside what is measured.
SCALE_POD_SUBNET = "10.128.0.0/10"
KUBEADM_V1BETA4_FROM = (1, 36)
"""kind v0.33 writes kubeadm v1beta3, whose extraArgs are a map, for anything older."""

# Once a minute a kubelet deletes the log of an ended container whose successor is created just then
# (guarantees.md, "At least once"). Busy nodes take a second for that, and tests wait for such logs.
KUBELET_ARGUMENTS = {"maximum-dead-containers-per-container": "2"}

SCALE_ARGUMENTS: dict[str, dict[str, str]] = {
    # Without these the clients' own limits are what a benchmark measures.
    "apiServer": {"max-requests-inflight": "3000", "max-mutating-requests-inflight": "1000"},
    "controllerManager": {
        "kube-api-qps": "300",
        "kube-api-burst": "600",
        # Goes with KWOK's long leases: 1,000 simulated nodes would spend the time on heartbeats.
        "node-monitor-grace-period": "2000s",
    },
    "scheduler": {"kube-api-qps": "300", "kube-api-burst": "600"},
    "etcd": {"unsafe-no-fsync": "true"},
}


def render(nodes: int, *, scale: bool, kubernetes: tuple[int, int]) -> str:
    """Return kind's configuration (JSON, which is YAML) for one control plane and n-1 workers.

    The control plane has no taint, so that three requested nodes are three that run pods.
    """
    patches: list[dict[str, object]] = [{"kind": "KubeletConfiguration", "failCgroupV1": False}]
    # The arguments of v1beta4 are a list, and a patch would take the place of kind's own.
    is_list = kubernetes >= KUBEADM_V1BETA4_FROM
    kubelet: dict[str, object] = {} if is_list else {"kubeletExtraArgs": KUBELET_ARGUMENTS}
    # From a single node kind removes the taint itself, and fails if there is none.
    taints: dict[str, object] = {"taints": []} if nodes > 1 else {}
    for kind, registration in (
        ("InitConfiguration", {**kubelet, **taints}),
        ("JoinConfiguration", kubelet),
    ):
        if registration:
            patches.append({"kind": kind, "nodeRegistration": registration})
    if scale:
        patches.append({"kind": "ClusterConfiguration", **_scale(kubernetes)})
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "networking": {
            "ipFamily": "ipv4",
            "podSubnet": SCALE_POD_SUBNET if scale else POD_SUBNET,
            "serviceSubnet": SERVICE_SUBNET,
        },
        "kubeadmConfigPatches": [json.dumps(patch) for patch in patches],
        "nodes": [{"role": "control-plane"}, *({"role": "worker"} for _ in range(nodes - 1))],
    }
    return json.dumps(config, indent=2)


def _scale(kubernetes: tuple[int, int]) -> dict[str, object]:
    parts: dict[str, object] = {}
    for component, wanted in SCALE_ARGUMENTS.items():
        arguments: object = wanted
        if kubernetes >= KUBEADM_V1BETA4_FROM:
            arguments = [{"name": name, "value": value} for name, value in wanted.items()]
        extra = {"extraArgs": arguments}
        parts[component] = {"local": extra} if component == "etcd" else extra
    return parts


def minor_version(text: str) -> tuple[int, int]:
    """Return (1, 34) for `v1.34.4` or an image tagged like that; the newest shape if unknown."""
    found = re.search(r"v(\d+)\.(\d+)\.", text)
    return (int(found.group(1)), int(found.group(2))) if found else KUBEADM_V1BETA4_FROM
