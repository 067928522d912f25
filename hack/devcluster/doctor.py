"""What is there and what is missing, one line each, with the fix."""

import shutil
from dataclasses import dataclass

from hack.devcluster import binaries, container_engine, debian, dockerd, gobuild, state
from hack.devcluster.host import Host, read_host
from hack.devcluster.nodeimage import build
from hack.devcluster.progress import show
from hack.devcluster.settings import MINIMUM_GO, Paths

NEEDED_BYTES = 8 * 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    subject: str
    fine: bool
    message: str
    required: bool = True
    """Whether `up` fails without it."""


def report(paths: Paths) -> int:
    """Print the findings; return 2 if something required is missing."""
    findings = examine(paths)
    for finding in findings:
        mark = "ok     " if finding.fine else "MISSING" if finding.required else "absent "
        show(f"{mark} {finding.subject}: {finding.message}")
    return 2 if any(f.required and not f.fine for f in findings) else 0


def examine(paths: Paths) -> list[Finding]:
    """Look at this machine and at the cache; change nothing."""
    host = read_host()
    answers = container_engine.host_answers()
    chosen = container_engine.choose(paths, host, answers=answers)
    pulls = container_engine.registry_resolves()
    building = not pulls and not (chosen and build.archived(paths, host))
    return [
        _machine(host),
        _docker(chosen, running=answers or dockerd.is_up(paths)),
        Finding(
            "registry",
            pulls,
            "Docker Hub can be reached"
            if pulls
            else "Docker Hub cannot be reached: node image and base images are built here",
            required=False,
        ),
        _go(required=building),
        Finding(
            "node image",
            not building,
            "can be pulled or is in the cache"
            if not building
            else "will be built by the first `up` (about 8 min, once)",
            required=False,
        ),
        Finding(
            "control plane binaries",
            binaries.find_ready(paths) is not None,
            "built" if binaries.find_ready(paths) else "built on first use (`binaries`)",
            required=False,
        ),
        _images(host, pulls=pulls),
        _disk(paths),
        _cluster(paths),
    ]


def _machine(host: Host) -> Finding:
    message = [
        host.machine,
        f"cgroup v{host.cgroup_version}",
        "root" if host.is_root else "not root",
    ]
    if host.is_restricted:
        message.append(f"without {', '.join(host.missing_capabilities)} (runc gets a wrapper)")
    return Finding("machine", True, ", ".join(message))


def _docker(chosen: container_engine.ContainerEngine | None, *, running: bool) -> Finding:
    if chosen is None:
        return Finding("docker", False, f"none answers; {container_engine.DOCKER_FIX}")
    if chosen is container_engine.ContainerEngine.HOST:
        return Finding("docker", True, "yours answers")
    message = "a private one runs" if running else "a private one is installed and started by `up`"
    return Finding("docker", True, message)


def _go(*, required: bool) -> Finding:
    wanted = ".".join(map(str, MINIMUM_GO))
    if gobuild.has_go():
        return Finding("go", True, f"{wanted} or newer")
    return Finding("go", False, f"Go {wanted} or newer: {gobuild.GO_FIX}", required=required)


def _images(host: Host, *, pulls: bool) -> Finding:
    if pulls:
        return Finding("image builds", True, "docker, with base images pulled")
    if host.is_root and host.is_debian:
        there = "is there" if debian.find_program("buildah") else "is installed on first use"
        return Finding("image builds", True, f"buildah ({there}) on Debian bases made here")
    return Finding("image builds", False, "need a registry, or root on Debian", required=False)


def _disk(paths: Paths) -> Finding:
    place = next(p for p in (paths.cache, *paths.cache.parents) if p.exists())
    free = shutil.disk_usage(place).free
    message = f"{free / 2**30:.0f} GiB free for {paths.cache}"
    if free < NEEDED_BYTES:
        message += "; 8 GiB are needed: free some, or set DAEMONSET_JOB_CACHE"
    return Finding("disk", free >= NEEDED_BYTES, message)


def _cluster(paths: Paths) -> Finding:
    known = state.read(paths)
    if known is None:
        return Finding("cluster", False, "none; `make cluster` makes one", required=False)
    return Finding("cluster", True, f"{known.name}, {known.nodes} nodes, {paths.kubeconfig}")
