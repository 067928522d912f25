"""The node's system: a Debian tree turned into what kind's images/base/Dockerfile makes.

Step by step that Dockerfile at kind v0.33.0, with Debian's containerd and runc.
"""

import json
import re
import shutil
from pathlib import Path

from hack.devcluster import shell

PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "containerd",
    "runc",
    "iptables",
    "nftables",
    "conntrack",
    "ethtool",
    "socat",
    "iproute2",
    "mount",
    "util-linux",
    "kmod",
    "procps",
    "bash",
    "ca-certificates",
    "curl",
    "pigz",
    "e2fsprogs",
    "libseccomp2",
    "containernetworking-plugins",
    "busybox-static",
    "iputils-ping",
)
CNI_PLUGINS = ("host-local", "loopback", "ptp", "portmap", "bridge")
UNITS = ("kubelet.slice", "kubelet.service", "containerd.service", "undo-mount-hacks.service")


def apply(tree: Path, kind_source: Path, *, restricted: bool) -> None:
    """Turn a Debian tree (a copy: it is changed) into a kind node's."""
    _copy_kind_files(tree, kind_source / "images/base/files")
    _write(
        tree / "etc/containerd/config.toml",
        containerd_config((tree / "etc/containerd/config.toml").read_text(), restricted=restricted),
    )
    unit = tree / "etc/systemd/system/containerd.service"
    _write(unit, containerd_unit(unit.read_text(), restricted=restricted))
    _move_plugins(tree)
    _quieten_systemd(tree)
    spec = json.loads(shell.output(["chroot", tree, "ctr", "oci", "spec"]))
    _write(tree / "etc/containerd/cri-base.json", json.dumps(container_spec(spec)))
    # Each node makes its own machine id when it starts.
    for name in ("etc/machine-id", "var/lib/dbus/machine-id"):
        (tree / name).unlink(missing_ok=True)


def containerd_config(text: str, *, restricted: bool) -> str:
    """Return kind's containerd configuration without the rootless snapshotter.

    Without CAP_SYS_RESOURCE no oom score can be lowered, so containerd must not try.
    """
    text = re.sub(r"\[proxy_plugins\].*?(?=\n\[plugins)", "", text, flags=re.DOTALL)
    if restricted:
        text = text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    return text


def containerd_unit(text: str, *, restricted: bool) -> str:
    """Return kind's containerd unit for Debian's containerd; restricted: no raised limits."""
    text = text.replace("/usr/local/bin/containerd", "/usr/bin/containerd")
    if restricted:
        pattern = r"^(OOMScoreAdjust|LimitNPROC|LimitCORE|LimitNOFILE)=.*\n"
        text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return text


def container_spec(spec: dict[str, object]) -> dict[str, object]:
    """Return containerd's default container specification without rlimits.

    Kind adds a hook that runs bash and jq in each new container, so that cloud providers do not
    find the host's product name there. No program asks for it here, and the hook took 3 % of the
    CPU of the tests on nodes.
    """
    process = spec.get("process")
    if isinstance(process, dict):
        process.pop("rlimits", None)
    return spec


def _copy_kind_files(tree: Path, files: Path) -> None:
    for folder in ("kind/bin", "kind/manifests", "opt/cni/bin", "etc/cni/net.d"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "etc/kubernetes/manifests").mkdir(parents=True, exist_ok=True)
    names = ["usr/local/bin/entrypoint", "etc/crictl.yaml", "etc/containerd/config.toml"]
    names += ["etc/default/kubelet", *(f"etc/systemd/system/{unit}" for unit in UNITS)]
    for folder in ("kind/bin", "etc/sysctl.d", "etc/systemd/system/kubelet.service.d"):
        names += [str(file.relative_to(files)) for file in (files / folder).iterdir()]
    for name in names:
        target = tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(files / name, target)
        target.chmod(0o755 if "bin/" in name else 0o644)


def _move_plugins(tree: Path) -> None:
    for plugin in CNI_PLUGINS:
        shutil.copy2(tree / "usr/lib/cni" / plugin, tree / "opt/cni/bin" / plugin)
    shutil.rmtree(tree / "usr/lib/cni")
    for left in ("usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1"):
        (tree / left).unlink(missing_ok=True)
    (tree / "lib/systemd/system/containerd.service").unlink(missing_ok=True)


def _quieten_systemd(tree: Path) -> None:
    """Leave systemd only what a node needs: no udev, no mounts, no logins."""
    units = tree / "lib/systemd/system"
    unwanted = [
        *units.glob("sysinit.target.wants/systemd-tmpfiles-setup.service"),
        *units.glob("multi-user.target.wants/*"),
        *units.glob("local-fs.target.wants/*"),
        *units.glob("sockets.target.wants/*udev*"),
        *units.glob("sockets.target.wants/*initctl*"),
        *units.glob("basic.target.wants/*"),
        *(tree / "etc/systemd/system").glob("*.wants/*"),
    ]
    for link in unwanted:
        link.unlink()
    journal = tree / "etc/systemd/journald.conf"
    if "ReadKMsg=no" not in journal.read_text():
        _write(journal, journal.read_text() + "ReadKMsg=no\n")
    enabled = ("kubelet.service", "containerd.service", "undo-mount-hacks.service")
    shell.output(["chroot", tree, "systemctl", "enable", *enabled])
    shell.output(["chroot", tree, "systemctl", "mask", "systemd-binfmt.service"])


def _write(path: Path, text: str) -> None:
    path.write_text(text)
