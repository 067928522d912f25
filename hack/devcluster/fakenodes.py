"""Simulated nodes: KWOK on this machine plays kubelet for as many nodes as are asked for.

They carry a NoSchedule taint and no kubernetes.io/os label, so the cluster's own DaemonSets stay
off them: a Job for them needs a toleration for `kwok.x-k8s.io/node`.
"""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.devcluster import debian, gobuild, kindconfig, shell
from hack.devcluster.errors import DevclusterError, StepFailedError
from hack.devcluster.files import is_running, read_pid
from hack.devcluster.kubectl import Kubectl, is_ready
from hack.devcluster.progress import step
from hack.devcluster.settings import Paths

SELECTOR = "type=kwok"
ANNOTATION = "kwok.x-k8s.io/node"
DEFAULT_LOG = "2024-01-01T00:00:00.000000000Z stdout F done\n"
SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110"}
LEASE_SECONDS = 40
SCALE_LEASE_SECONDS = 1200
"""One write per node and quarter of it; the scale configuration's grace period goes with it."""
READY_SECONDS = 300
STOP_SECONDS = 10
BATCH = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many simulated nodes, and what their pods' logs hold (a file in CRI format)."""

    count: int = 0
    log: Path | None = None


def apply(paths: Paths, wanted: Wanted, *, scale: bool) -> None:
    """Make the number of simulated nodes what is asked for; start or stop KWOK with it."""
    if wanted.log is not None and not wanted.log.is_file():
        message = f"--fake-log {wanted.log}: no such file"
        raise DevclusterError(message)
    kubectl = Kubectl(paths, paths.kubeconfig)
    present = {n["metadata"]["name"] for n in kubectl.items("nodes", "-l", SELECTOR)}
    names = {f"fake-{number:05d}" for number in range(wanted.count)}
    surplus = sorted(present - names)
    for start in range(0, len(surplus), BATCH):
        kubectl("delete", "node", *surplus[start : start + BATCH], timeout_seconds=300)
    if not wanted.count:
        stop(paths)
        return
    if present == names and _runs(paths) and _log_text(wanted) == _current_log(paths):
        return
    kwok = gobuild.ensure(paths, gobuild.KWOK)
    with step(f"{wanted.count} simulated nodes"):
        stop(paths)
        if present:
            _free_leases(kubectl)
        _start(paths, kwok, wanted, scale=scale)
        absent = sorted(names - present)
        if absent:
            objects = {"apiVersion": "v1", "kind": "List", "items": [node(n) for n in absent]}
            kubectl("create", "-f", "-", stdin=json.dumps(objects), timeout_seconds=600)
        _wait_ready(kubectl, wanted.count)


def stop(paths: Paths) -> None:
    """End this clone's KWOK, by its own pid."""
    pid = read_pid(_pid_file(paths))
    for number in (signal.SIGTERM, signal.SIGKILL):
        if pid is None or not _runs(paths):
            break
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while _runs(paths) and time.monotonic() < deadline:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.1)
    _pid_file(paths).unlink(missing_ok=True)


def _free_leases(kubectl: Kubectl) -> None:
    """Delete the nodes' leases: KWOK simulates only nodes whose lease no other client holds.

    Every KWOK has an identity of its own. Without this, the next one would not simulate these
    nodes, which stay Ready, until the leases of the last one expire. Real kubelets create theirs
    again.
    """
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    kubectl("delete", "--raw", leases)


def node(name: str) -> dict[str, Any]:
    """Return a simulated node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {ANNOTATION: "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name},
        },
        "spec": {"taints": [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": SIZE, "capacity": SIZE},
    }


def _start(paths: Paths, kwok: Path, wanted: Wanted, *, scale: bool) -> None:
    folder = paths.state / "kwok"
    folder.mkdir(parents=True, exist_ok=True)
    log = _log_file(paths)
    log.write_text(_log_text(wanted))
    config = folder / "kwok.yaml"
    source = Path(__file__).parent / "kwok.yaml"
    config.write_text(source.read_text().replace("TASK_LOG", json.dumps(str(log))))
    key, certificate = _certificate(paths, folder)
    address, port = _gateway(), _port(folder)
    command = [
        str(kwok),
        f"--kubeconfig={paths.kubeconfig}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        f"--node-ip={address}",
        f"--node-port={port}",
        # Logs without authentication: for the API server only, which reaches this address.
        f"--server-address={address}:{port}",
        f"--node-lease-duration-seconds={SCALE_LEASE_SECONDS if scale else LEASE_SECONDS}",
        f"--cidr={kindconfig.FAKE_POD_SUBNET}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--config={config}",
    ]
    with (folder / "kwok.log").open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _pid_file(paths).write_text(str(process.pid))


def _port(folder: Path) -> int:
    """Return the port of the last KWOK, which is in its nodes' status, unless it is in use."""
    file = folder / "port"
    wanted = int(file.read_text()) if file.exists() else 0
    try:
        port = _free_port(wanted)
    except OSError:
        port = _free_port()
    file.write_text(str(port))
    return port


def _wait_ready(kubectl: Kubectl, count: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        ready = sum(map(is_ready, kubectl.items("nodes", "-l", SELECTOR)))
        if ready >= count:
            return
        if time.monotonic() > deadline:
            raise StepFailedError(f"only {ready} of {count} simulated nodes became Ready")
        time.sleep(1)


def _gateway() -> str:
    """Return this machine's address in kind's network: where the API server reaches KWOK."""
    pattern = "{{range .IPAM.Config}}{{.Gateway}} {{end}}"
    found = shell.output(["docker", "network", "inspect", "kind", "-f", pattern]).split()
    for address in found:
        if "." in address:
            return address
    raise StepFailedError("kind's docker network has no IPv4 gateway")


def _certificate(paths: Paths, folder: Path) -> tuple[Path, Path]:
    """Return KWOK's own key and certificate; the API server does not verify a kubelet's here."""
    key, certificate = folder / "kwok.key", folder / "kwok.crt"
    if not certificate.exists():
        debian.require(paths, {"openssl": "openssl"}, why="the certificate of simulated kubelets")
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "365"]
        shell.output([*request, "-subj", "/CN=kwok", "-keyout", key, "-out", certificate])
    return key, certificate


def _free_port(wanted: int = 0) -> int:
    """Return `wanted`, or any port for 0; raises OSError when it is taken."""
    with socket.socket() as probe:
        # As KWOK itself does: connections of the last one that wait for their end are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", wanted))
        return int(probe.getsockname()[1])


def _log_text(wanted: Wanted) -> str:
    return wanted.log.read_text() if wanted.log else DEFAULT_LOG


def _current_log(paths: Paths) -> str:
    with suppress(OSError):
        return _log_file(paths).read_text()
    return ""


def _log_file(paths: Paths) -> Path:
    return paths.state / "kwok/task.log"


def _pid_file(paths: Paths) -> Path:
    return paths.state / "kwok.pid"


def _runs(paths: Paths) -> bool:
    return is_running(read_pid(_pid_file(paths)), str(paths.kubeconfig))
