"""Building the node image: what `kind build node-image` does, without a single pull."""

import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from hack.devcluster import debian, gobuild, shell
from hack.devcluster.archive import Image, write_archive
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.files import digest, locked, scratch, unfinished
from hack.devcluster.host import DEBIAN_TRIPLETS, Host
from hack.devcluster.nodeimage import components, rootfs
from hack.devcluster.progress import step
from hack.devcluster.settings import KIND_VERSION, KUBERNETES_VERSION, SOURCES, Paths

ENTRYPOINT = ("/usr/local/bin/entrypoint", "/sbin/init")
NO_STORAGE = """apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
provisioner: kubernetes.io/no-provisioner
"""
LINK_PROGRAMS = """
set -e
chmod 755 /usr/bin/hyperkube
for name in kubelet kubeadm kubectl crictl; do ln -sf hyperkube /usr/bin/$name; done
"""
IMPORT_IMAGES = """
set -e
containerd >/tmp/containerd.log 2>&1 & containerd=$!
i=0
until ctr version >/dev/null 2>&1; do
  i=$((i+1)); [ $i -lt 100 ] || { cat /tmp/containerd.log; exit 1; }
  sleep 0.2
done
ctr --namespace=k8s.io images import --all-platforms --no-unpack --digests - </images.tar
for image in $(ctr --namespace=k8s.io images ls -q); do
  ctr --namespace=k8s.io images label "$image" io.cri-containerd.pinned=pinned >/dev/null
done
kill $containerd
wait $containerd || true
rm -f /images.tar /tmp/containerd.log
"""


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node image that is, or will be, built here."""

    tag: str
    archive: Path
    restricted: bool


def describe(paths: Paths, host: Host) -> NodeImage:
    """Return the image's name and place: both carry a hash of everything it is built from."""
    own = [SOURCES / name for name in ("rootfs.py", "components.py", "build.py", "components")]
    key = digest(
        [
            KIND_VERSION,
            KUBERNETES_VERSION,
            host.machine,
            f"restricted={host.is_restricted}",
            *own,
            *(SOURCES / name for name in ("coredns", "pause")),
        ]
    )
    return NodeImage(
        f"daemonset-job-node:{key}",
        paths.cache / "node-image" / f"{key}.tar.gz",
        host.is_restricted,
    )


def ensure(paths: Paths, host: Host) -> NodeImage:
    """See to it that docker has the node image: loaded from the cache, or else built."""
    image = describe(paths, host)
    if _is_loaded(image):
        return image
    with locked(paths.cache, "node-image"):
        if image.archive.exists():
            with step("loading the node image from the cache"):
                shell.output(["docker", "load", "-q", "-i", image.archive], timeout_seconds=600)
        if not _is_loaded(image):
            _build(paths, host, image)
    return image


def archived(paths: Paths, host: Host) -> bool:
    """Say whether the cache holds the finished image."""
    return describe(paths, host).archive.exists()


def is_cached(paths: Paths, host: Host) -> bool:
    """Say whether no build is needed."""
    return archived(paths, host) or _is_loaded(describe(paths, host))


def _is_loaded(image: NodeImage) -> bool:
    return shell.succeeds(["docker", "image", "inspect", image.tag])


def _build(paths: Paths, host: Host, image: NodeImage) -> None:
    why = "building a node image, because the published one cannot be pulled"
    debian.require_root(why)
    if host.machine not in DEBIAN_TRIPLETS:
        raise MissingError("an x86_64 or aarch64 machine", why=why, fix="use another machine")
    gobuild.require_go(why)
    binaries = components.Binaries(
        hyperkube=gobuild.ensure(paths, gobuild.HYPERKUBE),
        coredns=gobuild.ensure(paths, gobuild.COREDNS),
        pause=gobuild.ensure(paths, gobuild.PAUSE),
    )
    tree = debian.tree(paths, "node", rootfs.PACKAGES)
    kind_source = gobuild.module_folder(f"sigs.k8s.io/kind@{KIND_VERSION}")
    with step("assembling the node image"), scratch(paths.cache, "node") as work:
        shell.output(["cp", "-a", tree, work / "tree"], timeout_seconds=600)
        rootfs.apply(work / "tree", kind_source, restricted=image.restricted)
        network_image, manifest = components.read_network(kind_source)
        components.write_images(
            work / "images.tar",
            work / "images",
            binaries,
            tree=work / "tree",
            network_image=network_image,
            machine=host.machine,
        )
        _finish_tree(work / "tree", binaries, manifest)
        _load_base(work, image, host)
        _import_images(paths, work, image)
    _save(image)


def _finish_tree(tree: Path, binaries: components.Binaries, manifest: str) -> None:
    shutil.copy2(binaries.hyperkube, tree / "usr/bin/hyperkube")
    shell.output(["chroot", tree, "sh", "-c", LINK_PROGRAMS])
    (tree / "kind/version").write_text(KUBERNETES_VERSION)
    (tree / "kind/manifests/default-cni.yaml").write_text(manifest)
    (tree / "kind/manifests/default-storage.yaml").write_text(NO_STORAGE)


def _load_base(work: Path, image: NodeImage, host: Host) -> None:
    layer = work / "layer.tar"
    names = ["--numeric-owner", "--sort=name", "--xattrs"]
    shell.output(["tar", "-C", work / "tree", "-cf", layer, *names, "."], timeout_seconds=600)
    base = Image(
        (_base_tag(image),),
        (layer,),
        entrypoint=ENTRYPOINT,
        environment=(
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "container=docker",
        ),
        stop_signal="SIGRTMIN+3",
    )
    write_archive(work / "base.tar", [base], machine=host.machine)
    shell.output(["docker", "load", "-q", "-i", work / "base.tar"], timeout_seconds=600)


def _import_images(paths: Paths, work: Path, image: NodeImage) -> None:
    """Put the cluster's images into the node's containerd and keep the result as the image."""
    log = paths.logs / "node-image.log"
    log.unlink(missing_ok=True)
    name = f"dsj-build-{time.monotonic_ns()}"
    run = ["docker", "run", "-d", "--name", name, "--privileged", "--network=none"]
    shell.output([*run, "--entrypoint=sleep", _base_tag(image), "infinity"])
    try:
        shell.output(["docker", "cp", work / "images.tar", f"{name}:/images.tar"])
        shell.logged(["docker", "exec", name, "bash", "-c", IMPORT_IMAGES], log)
        change = f'ENTRYPOINT ["{ENTRYPOINT[0]}","{ENTRYPOINT[1]}"]'
        commit = ["docker", "commit", "--change", change, name, image.tag]
        shell.output(commit, timeout_seconds=300)
    finally:
        shell.output(["docker", "rm", "-f", "-v", name])
        shell.output(["docker", "rmi", _base_tag(image)])


def _save(image: NodeImage) -> None:
    with step("saving the node image for the next time"), unfinished(image.archive) as target:
        with target.open("wb") as sink:
            save = subprocess.Popen(
                ["docker", "save", image.tag],
                stdout=subprocess.PIPE,
            )
            pack = subprocess.run(
                ["gzip", "-1"],
                stdin=save.stdout,
                stdout=sink,
                check=False,
            )
        if save.wait() or pack.returncode:
            raise StepFailedError("saving the node image failed (is the disk full?)")
    for old in image.archive.parent.glob("*.tar.gz"):
        if old != image.archive:
            old.unlink()
    tags = ["docker", "images", "--format={{.Repository}}:{{.Tag}}", "daemonset-job-node"]
    for old_tag in shell.output(tags).split():
        if old_tag != image.tag:  # refused, rightly, while another clone's cluster uses it
            shell.succeeds(["docker", "rmi", old_tag])


def _base_tag(image: NodeImage) -> str:
    return image.tag.replace("daemonset-job-node:", "daemonset-job-node-base:")
