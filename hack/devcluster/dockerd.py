"""A dockerd of our own, for a Debian machine where none answers.

Its data root, exec root, socket and pid file lie in the cache. It writes no iptables rule and
makes no default bridge, so the machine's network is left as it was but for kind's own bridge.
"""

import hashlib
import ipaddress
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from hack.devcluster import debian, gobuild, shell
from hack.devcluster.errors import MissingError, StepFailedError
from hack.devcluster.files import is_running, mounts_below, read_pid
from hack.devcluster.host import Host, read_free_network, read_host
from hack.devcluster.progress import step
from hack.devcluster.settings import Paths

CONTAINERD_PID = "exec/containerd/containerd.pid"
LONGEST_FOLDER = 70
"""A unix socket's path has at most 107 bytes; containerd's debug socket needs 35 after this."""
START_SECONDS = 60
STOP_SECONDS = 60
PACKAGES = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "iptables": "iptables",
    "runc": "runc",
}


def socket(paths: Paths) -> str:
    """Return the private dockerd's address, as DOCKER_HOST wants it."""
    return f"unix://{paths.docker}/docker.sock"


def cgroup_parent(folder: Path) -> str:
    """Return the cgroup all our containers are in: one for each cache, so that it is ours."""
    return f"dsj-{hashlib.sha256(str(folder).encode()).hexdigest()[:6]}"


def is_up(paths: Paths) -> bool:
    """Say whether the private dockerd runs and answers."""
    if not is_running(read_pid(_pid_file(paths)), str(paths.docker)):
        return False
    return shell.succeeds(["docker", "-H", socket(paths), "version"], timeout_seconds=20)


def is_left(paths: Paths) -> bool:
    """Say whether containers of an earlier run exist, be the dockerd running or not."""
    containers = paths.docker / "data/containers"
    return containers.is_dir() and any(containers.iterdir())


def can_start(host: Host) -> bool:
    """Say whether this machine lets us start one."""
    return host.is_root and host.is_debian


def arguments(folder: Path, network: ipaddress.IPv4Network, runtime: Path | None) -> list[str]:
    """Return dockerd's arguments; `runtime` is the wrapper where capabilities lack."""
    arguments = [
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--host=unix://{folder}/docker.sock",
        f"--pidfile={folder}/docker.pid",
        "--bridge=none",
        "--iptables=false",
        "--ip6tables=false",
        "--ip-masq=false",
        f"--default-address-pool=base={network},size=24",
        # systemd need not be there; and with systemd the parent would have to be a slice.
        "--exec-opt=native.cgroupdriver=cgroupfs",
        f"--cgroup-parent=/{cgroup_parent(folder)}",
    ]
    if runtime is not None:
        arguments += [f"--add-runtime=wrap={runtime}", "--default-runtime=wrap"]
    return arguments


def start(paths: Paths) -> None:
    """Start the private dockerd unless it runs; what a killed one left is cleaned first."""
    if is_up(paths):
        return
    folder = paths.docker
    if len(str(folder)) > LONGEST_FOLDER:
        raise MissingError(
            f"a shorter path than {folder}",
            why="docker's unix sockets, whose paths have at most 107 bytes",
            fix="set DAEMONSET_JOB_CACHE to a short path, such as /var/cache/dsj",
        )
    debian.require(paths, PACKAGES, why="running kind nodes")
    if not debian.find_program("docker"):  # newer Debian: the client is a package of its own
        debian.require(paths, {"docker": "docker-cli"}, why="running kind nodes")
    host = read_host()
    runtime = gobuild.ensure(paths, gobuild.RUNCWRAP) if host.is_restricted else None
    _forget_dead(paths)
    folder.mkdir(parents=True, exist_ok=True)
    log = paths.logs / "dockerd.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [debian.find_program("dockerd") or "dockerd"]
    command += arguments(folder, read_free_network(), runtime)
    with step("starting a private dockerd"):
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not is_up(paths):
            if process.poll() is not None or time.monotonic() > deadline:
                shell.end_group(process)
                raise StepFailedError("the private dockerd did not start", log=log)
            time.sleep(0.2)


def stop(paths: Paths) -> None:
    """Stop the private dockerd, by its own pid, and remove its mounts and cgroups."""
    folder = paths.docker
    _end(read_pid(_pid_file(paths)), str(folder))
    _clean(paths)


def _forget_dead(paths: Paths) -> None:
    """Remove the pid files and the socket of processes which are gone (killed, or a reboot).

    What still runs stays: the next dockerd finds its containerd again and ends the containers.
    """
    folder = paths.docker
    for file in (_pid_file(paths), folder / CONTAINERD_PID):
        if not is_running(read_pid(file), str(folder)):
            file.unlink(missing_ok=True)
    if not _pid_file(paths).exists():
        (folder / "docker.sock").unlink(missing_ok=True)


def _clean(paths: Paths) -> None:
    """Remove what a dockerd may leave when it ends: containerd, containers, mounts, cgroups."""
    folder = paths.docker
    _end(read_pid(folder / CONTAINERD_PID), str(folder))
    parents = [path / cgroup_parent(folder) for path in _hierarchies()]
    for parent in parents:
        for file in parent.rglob("cgroup.procs"):
            for pid in file.read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    for mount in mounts_below(Path("/proc/self/mounts"), folder):
        with suppress(StepFailedError):
            shell.output(["umount", "-l", mount])
    _forget_dead(paths)
    for parent in parents:
        _remove_cgroups(parent)


def _hierarchies() -> list[Path]:
    """Return where cgroups may be: the one tree of version 2, each controller's of version 1."""
    root = Path("/sys/fs/cgroup")
    return [root] if read_host().cgroup_version == 2 else [p for p in root.iterdir() if p.is_dir()]


def _remove_cgroups(folder: Path) -> None:
    if not folder.is_dir():
        return
    for child in sorted(folder.rglob("*"), key=lambda path: len(path.parts), reverse=True):
        if child.is_dir():
            with suppress(OSError):
                child.rmdir()
    with suppress(OSError):
        folder.rmdir()


def _end(pid: int | None, mark: str) -> None:
    """End a process of ours, recognised by its command line, and wait for it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if pid is None or not is_running(pid, mark):
            return
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(pid, mark) and time.monotonic() < deadline:
            _reap(pid)
            time.sleep(0.1)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _pid_file(paths: Paths) -> Path:
    return paths.docker / "docker.pid"
