"""The cluster's own images (control plane, proxy, network, DNS, pause), from static binaries."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from hack.devcluster import shell
from hack.devcluster.archive import Image, write_archive, write_layer
from hack.devcluster.host import DEBIAN_TRIPLETS
from hack.devcluster.settings import KUBERNETES_VERSION

ETCD_TAG = "3.6.5-0"
COREDNS_TAG = "v1.12.1"
PAUSE_TAGS = ("3.10", "3.10.1")
"""The tags kubeadm 1.34 and kind's containerd configuration ask for."""

COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "etcd",
    "kindnetd",
    "kubectl",
)
TOOLS = ("xtables-nft-multi", "xtables-legacy-multi", "nft", "conntrack")
IPTABLES = [f"ip{v}tables{verb}" for v in ("", "6") for verb in ("", "-save", "-restore")]


@dataclass(frozen=True, slots=True)
class Binaries:
    """The static programs the images are made of."""

    hyperkube: Path
    coredns: Path
    pause: Path


def write_images(
    target: Path, work: Path, binaries: Binaries, *, tree: Path, network_image: str, machine: str
) -> None:
    """Write one archive with every image a node must have before a cluster can start."""
    layers = {
        "kubernetes": _kubernetes(work / "kubernetes", binaries.hyperkube, tree, machine),
        "coredns": _single(work / "coredns", binaries.coredns),
        "pause": _single(work / "pause", binaries.pause),
    }
    for name, folder in layers.items():
        write_layer(work / f"{name}.tar", folder)
    registry = "registry.k8s.io"
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")
    control = (*(f"{registry}/{name}:{KUBERNETES_VERSION}" for name in names),)
    kubernetes = (work / "kubernetes.tar",)
    write_archive(
        target,
        [
            Image((*control, f"{registry}/etcd:{ETCD_TAG}"), kubernetes),
            Image((network_image,), kubernetes, entrypoint=("/usr/local/bin/kindnetd",)),
            Image(
                (f"{registry}/coredns/coredns:{COREDNS_TAG}",),
                (work / "coredns.tar",),
                entrypoint=("/coredns",),
            ),
            Image(
                tuple(f"{registry}/pause:{tag}" for tag in PAUSE_TAGS),
                (work / "pause.tar",),
                entrypoint=("/pause",),
            ),
        ],
        machine=machine,
    )


def read_network(kind_source: Path) -> tuple[str, str]:
    """Return kind's network image and the manifest that runs it, from kind's own source."""
    text = (kind_source / "pkg/build/nodeimage/const_cni.go").read_text()
    image = re.search(r'kindnetdImage = "(.*?)"', text)
    manifest = re.search(r"const defaultCNIManifest = `\n(.*)`\s*$", text, re.DOTALL)
    if not image or not manifest:
        message = "kind's const_cni.go has another shape than in the pinned version"
        raise ValueError(message)
    return image.group(1), manifest.group(1).replace("` + kindnetdImage + `", image.group(1))


def libraries(listing: str) -> set[str]:
    """Return the library paths in what ldd printed."""
    return set(re.findall(r"(/\S+\.so\S*) \(0x", listing))


def _single(folder: Path, program: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy2(program, folder / program.name)
    return folder


def _kubernetes(root: Path, hyperkube: Path, tree: Path, machine: str) -> Path:
    """Lay out the image of all Kubernetes programs, with the tools kube-proxy calls.

    The libraries of the xtables modules are needed too: without them Services with two endpoints
    time out although every node is Ready.
    """
    modules = f"usr/lib/{DEBIAN_TRIPLETS[machine]}/xtables"
    for folder in ("usr/local/bin", "usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
        (root / folder).mkdir(parents=True)
    for folder in ("tmp", "run", "etc"):
        (root / folder).mkdir()
    for folder in ("lib", "lib64", "bin", "sbin"):
        (root / folder).symlink_to(f"usr/{folder}")
    shutil.copy2(hyperkube, root / "usr/local/bin/hyperkube")
    for name in COMMANDS:
        (root / "usr/local/bin" / name).symlink_to("hyperkube")
    for tool in TOOLS:
        shutil.copy2(tree / "usr/sbin" / tool, root / "usr/sbin" / tool)
    for name in IPTABLES:
        (root / "usr/sbin" / name).symlink_to("xtables-nft-multi")
    shutil.copytree(tree / modules, root / modules, symlinks=True)
    for library in libraries(_ldd(tree, modules)):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / library.lstrip("/"), target)
    shutil.copy2(tree / "usr/bin/busybox", root / "usr/bin/busybox")
    for name in ("sh", "ls", "cat", "ip", "sleep"):
        (root / "usr/bin" / name).symlink_to("busybox")
    return root


def _ldd(tree: Path, modules: str) -> str:
    tools = [f"/usr/sbin/{tool}" for tool in TOOLS]
    plugins = [f"/{modules}/{file.name}" for file in (tree / modules).glob("*.so")]
    return shell.output(["chroot", tree, "ldd", *tools, *plugins])
