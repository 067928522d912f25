"""Whether the kernel lets the nodes watch their files: `fs.inotify.max_user_instances`.

All nodes of all clusters on a machine are of one user to the kernel. Beyond its limit kube-proxy
ends with "too many open files", so that a node has no network and is never Ready.
"""

from pathlib import Path

LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
# Counted in nodes with Kubernetes 1.34: systemd, containerd, the kubelet, and the control plane.
OF_CONTROL_PLANE = 28
OF_WORKER = 14
FIX = "sysctl -w fs.inotify.max_user_instances=512"


def needed(nodes: int) -> int:
    """Return how many instances a cluster with this number of nodes uses."""
    return OF_CONTROL_PLANE + OF_WORKER * (nodes - 1)


def problem(nodes: int, *, limit: int, used: int) -> str:
    """Return what to do if there may be too few instances, "" for nothing; `limit` 0 is unknown."""
    wanted, free = needed(nodes), max(limit - used, 0)
    if not limit or wanted <= free:
        return ""
    return (
        f"{nodes} nodes use about {wanted} inotify instances, and about {free} of {limit} are "
        f"free; if nodes do not become Ready: {FIX}"
    )


def read_limit() -> int:
    """Return this machine's limit, 0 if it is unknown."""
    try:
        return int(LIMIT.read_text())
    except (OSError, ValueError):
        return 0


def read_problem(nodes: int) -> str:
    """Return the problem of this machine; what other users' processes use is not visible to all."""
    limit = read_limit()
    return problem(nodes, limit=limit, used=_count()) if limit else ""


def _count() -> int:
    found = 0
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            found += sum("inotify" in str(each.readlink()) for each in folder.iterdir())
        except OSError:
            continue  # it has ended, or is another user's
    return found
