"""The text devcluster writes for others: kind, kubeadm, containerd, systemd, apt."""

import json
import re
from pathlib import Path

import pytest

from hack.devcluster import debian, demo, deploy, fakenodes, kindconfig
from hack.devcluster.nodeimage import components, rootfs
from tests.unit.language import ROOT


def patches(text: str) -> dict[str, dict]:
    found = [json.loads(patch) for patch in json.loads(text)["kubeadmConfigPatches"]]
    return {patch["kind"]: patch for patch in found}


def test_three_nodes_are_a_control_plane_and_two_workers():
    config = json.loads(kindconfig.render(3, scale=False, kubernetes=(1, 34)))
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker", "worker"]


def test_the_control_plane_runs_pods_and_cgroup_1_is_allowed():
    found = patches(kindconfig.render(2, scale=False, kubernetes=(1, 34)))
    assert found["InitConfiguration"]["nodeRegistration"]["taints"] == []
    assert found["KubeletConfiguration"]["failCgroupV1"] is False
    assert "ClusterConfiguration" not in found


def test_a_single_node_keeps_its_taint_for_kind_to_remove():
    found = patches(kindconfig.render(1, scale=False, kubernetes=(1, 34)))
    assert "taints" not in found["InitConfiguration"]["nodeRegistration"]


@pytest.mark.parametrize(("kubernetes", "has_patch"), [((1, 35), True), ((1, 36), False)])
def test_kubelets_keep_the_logs_of_two_ended_containers(kubernetes, has_patch):
    """With v1beta4 the arguments are a list, and a patch would replace those of kind."""
    found = patches(kindconfig.render(1, scale=False, kubernetes=kubernetes))
    for kind in ("InitConfiguration", "JoinConfiguration"):
        registration = found.get(kind, {}).get("nodeRegistration", {})
        assert registration == (
            {"kubeletExtraArgs": kindconfig.KUBELET_ARGUMENTS} if has_patch else {}
        )


@pytest.mark.parametrize(
    ("kubernetes", "expected"),
    [
        ((1, 34), {"kube-api-qps": "300", "kube-api-burst": "600"}),
        (
            (1, 37),
            [
                {"name": "kube-api-qps", "value": "300"},
                {"name": "kube-api-burst", "value": "600"},
            ],
        ),
    ],
    ids=["v1beta3", "v1beta4"],
)
def test_scale_arguments_have_the_shape_of_the_kubeadm_version(kubernetes, expected):
    found = patches(kindconfig.render(3, scale=True, kubernetes=kubernetes))
    assert found["ClusterConfiguration"]["scheduler"]["extraArgs"] == expected
    assert "extraArgs" in found["ClusterConfiguration"]["etcd"]["local"]


def test_the_kubernetes_version_is_read_from_a_tag():
    assert kindconfig.minor_version("v1.34.4") == (1, 34)
    assert kindconfig.minor_version("kindest/node:v1.37.0@sha256:00") == (1, 37)


CONTAINERD = """version = 2

[proxy_plugins]
[proxy_plugins."fuse-overlayfs"]
  type = "snapshot"

[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = false
"""


def test_containerd_lowers_oom_scores_only_where_it_may():
    free = rootfs.containerd_config(CONTAINERD, restricted=False)
    assert "proxy_plugins" not in free
    assert "restrict_oom_score_adj = false" in free
    assert "restrict_oom_score_adj = true" in rootfs.containerd_config(CONTAINERD, restricted=True)


def test_containerds_unit_raises_limits_only_where_it_may():
    unit = "ExecStart=/usr/local/bin/containerd\nLimitNOFILE=infinity\nOOMScoreAdjust=-999\n"
    assert rootfs.containerd_unit(unit, restricted=False) == unit.replace("/local", "")
    assert rootfs.containerd_unit(unit, restricted=True) == "ExecStart=/usr/bin/containerd\n"


def test_the_container_specification_loses_limits_and_has_no_hook():
    spec = rootfs.container_spec({"process": {"rlimits": [1], "args": ["x"]}})
    assert spec == {"process": {"args": ["x"]}}


def test_libraries_are_read_from_ldd():
    listing = (
        "/usr/sbin/nft:\n\tlinux-vdso.so.1 (0x00007ffd)\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n"
    )
    expected = {"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
    assert components.libraries(listing) == expected


@pytest.mark.parametrize(
    ("sources", "mirror"),
    [
        ("Types: deb\nURIs: http://mirror.example/debian\n", "http://mirror.example/debian"),
        ("deb [arch=amd64] https://mirror.example/d bookworm main\n", "https://mirror.example/d"),
        ("deb http://mirror.example/d bookworm main\n", "http://mirror.example/d"),
        ("", debian.PUBLIC_MIRROR),
    ],
)
def test_debootstrap_uses_the_machines_own_mirror(sources, mirror):
    assert debian.find_mirror(sources) == mirror


def test_simulated_nodes_keep_the_clusters_own_daemonsets_off():
    node = fakenodes.node("fake-00001")
    assert node["spec"]["taints"][0]["effect"] == "NoSchedule"
    assert "kubernetes.io/os" not in node["metadata"]["labels"]


def test_manifests_are_split_by_kind():
    text = "apiVersion: v1\nkind: Namespace\n---\n# nothing\n---\nkind: Service\nspec: {}\n"
    assert [deploy.kind(document) for document in deploy.split(text)] == ["Namespace", "Service"]


@pytest.mark.parametrize("module", [deploy, demo], ids=["deploy", "demo"])
def test_what_is_shown_to_try_next_is_a_command_that_works(module):
    """`kubectl apply` takes files; `kubectl get -w` takes one kind."""
    source = Path(module.__file__).read_text(encoding="utf-8")
    shown = source.replace("{FIRST_EXAMPLE}", deploy.FIRST_EXAMPLE).replace("{SAMPLE}", demo.SAMPLE)
    applied = re.findall(r"kubectl apply -f ([\w./-]+)", shown)
    assert applied
    assert [name for name in applied if not (ROOT / name).is_file()] == []
    assert re.findall(r"kubectl get \w+,\S* -w", shown) == []
