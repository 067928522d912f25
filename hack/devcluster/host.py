"""What kind of machine this is: pure functions over what the kernel says, and one reader."""

import ipaddress
import os
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""In the order of their numbers (include/uapi/linux/capability.h)."""

DEBIAN_TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}


@dataclass(frozen=True, slots=True)
class Host:
    """The facts that decide how a cluster can be made here."""

    is_root: bool
    is_debian: bool
    machine: str
    cgroup_version: int
    missing_capabilities: tuple[str, ...]

    @property
    def is_restricted(self) -> bool:
        """Whether `--privileged` asks for more than this machine may give."""
        return bool(self.missing_capabilities)


def missing_capabilities(status: str, last: int) -> tuple[str, ...]:
    """Return the capabilities the kernel has and our bounding set (in /proc/…/status) lacks."""
    found = re.search(r"^CapBnd:\s*([0-9a-fA-F]+)", status, re.MULTILINE)
    if not found:
        return ()
    bounding = int(found.group(1), 16)
    names = [*CAPABILITIES, *(f"CAP_{n}" for n in range(len(CAPABILITIES), last + 1))]
    return tuple(names[n] for n in range(last + 1) if not bounding >> n & 1)


def cgroup_version(mounts: str) -> int:
    """Return 2 if /sys/fs/cgroup itself is the unified hierarchy, else 1 (hybrid counts as 1)."""
    for line in mounts.splitlines():
        fields = line.split()
        if fields[1:3] == ["/sys/fs/cgroup", "cgroup2"]:
            return 2
    return 1


def is_debian(os_release: str) -> bool:
    """Say whether /etc/os-release is Debian's own or a direct derivative's."""
    found = re.findall(r'^ID(?:_LIKE)?="?([^"\n]*)"?', os_release, re.MULTILINE)
    return "debian" in " ".join(found).split()


def go_version(text: str) -> tuple[int, int] | None:
    """Return (major, minor) from what `go version` prints."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def used_networks(route_table: str) -> list[ipaddress.IPv4Network]:
    """Return the destinations in /proc/net/route, the default route left out."""
    networks = []
    for line in route_table.splitlines()[1:]:
        fields = line.split()
        address = int.from_bytes(bytes.fromhex(fields[1]), "little")
        mask = int.from_bytes(bytes.fromhex(fields[7]), "little")
        if mask:
            networks.append(ipaddress.IPv4Network((address, mask.bit_count()), strict=False))
    return networks


def free_network(used: Iterable[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return a /16 for docker's networks that overlaps no route of this machine."""
    taken = list(used)
    candidates = [f"172.{n}.0.0/16" for n in range(31, 17, -1)] + [
        f"10.{n}.0.0/16" for n in range(199, 99, -1)
    ]
    for candidate in map(ipaddress.IPv4Network, candidates):
        if not any(candidate.overlaps(network) for network in taken):
            return candidate
    return ipaddress.IPv4Network(candidates[0])


def read_host() -> Host:
    """Look at this machine."""
    return Host(
        is_root=os.geteuid() == 0,
        is_debian=is_debian(_read("/etc/os-release")),
        machine=platform.machine(),
        cgroup_version=cgroup_version(_read("/proc/self/mounts")),
        missing_capabilities=missing_capabilities(
            _read("/proc/self/status"), int(_read("/proc/sys/kernel/cap_last_cap") or 0)
        ),
    )


def read_free_network() -> ipaddress.IPv4Network:
    """Return a network no route of this machine uses now."""
    return free_network(used_networks(_read("/proc/net/route")))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
