"""What the disturbances of a soak run do, on a cluster that only notes the commands."""

import asyncio
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from benchmarks import soak_disturbances
from benchmarks.soak_cluster import CommandError
from benchmarks.soak_disturbances import Disturber
from benchmarks.soak_nodes import NodeHistory
from benchmarks.soak_schedule import KINDS, Disturbance

REAL = ["soak-control-plane", "soak-worker", "soak-worker2"]
SYSTEM_POD = {"spec": {"nodeName": "soak-worker"}, "metadata": {"name": "system"}}


class Cluster:
    """Two workers, of which the first has the pod of the system."""

    def __init__(self):
        self.client = AsyncMock()
        self.client.list.return_value = {"items": [SYSTEM_POD]}
        self.history = NodeHistory()
        self.touches = deque()
        self.commands = []
        self.error = None
        self.lines = []

    def real_nodes(self):
        return REAL

    def simulated_nodes(self):
        return ["fake-0"]

    async def on_node(self, node, script):
        self.commands.append((node, script))
        if self.error is not None:
            raise self.error
        return ""

    async def docker(self, *arguments):
        self.commands.append(arguments)

    def disturb(self, kind, seconds=3.0, pick=0.0):
        asyncio.run(
            Disturber(self, self.lines.append).disturb(Disturbance(0.0, kind, seconds, pick))
        )
        (line,) = self.lines
        return line["words"]


@pytest.fixture
def cluster():
    return Cluster()


def test_each_kind_can_be_done(cluster):
    assert Disturber(cluster, print).kinds.keys() == KINDS.keys()


@pytest.mark.parametrize(
    ("kind", "node", "process", "blind"),
    [
        ("api-server-pause", REAL[0], "*kube-apiserver' '*", 1),
        ("controller-manager-pause", REAL[0], "*kube-controller-manager' '*", 1),
        ("scheduler-pause", REAL[0], "*kube-scheduler' '*", 0),
        ("controller-pause", REAL[1], "*/bin/job-controller' '*", 0),
        ("terminator-pause", REAL[1], "*/bin/terminator' '*", 0),
        ("kubelet-pause", REAL[0], "*/kubelet' '*", 0),
    ],
)
def test_a_pause_is_one_command_that_also_ends_it(cluster, kind, node, process, blind):
    assert "3.0 s" in cluster.disturb(kind)
    ((where, script),) = cluster.commands
    assert where == node
    assert f"{process}) kill -STOP $i; sleep 3.0; kill -CONT $i ;;" in script
    # While nothing can be seen, no node has to be served.
    assert len(cluster.history.blind) == blind
    assert not cluster.touches


def test_no_pause_is_longer_than_a_command_or_the_lease_of_a_leader():
    longest = {name: kind.longest for name, kind in KINDS.items() if name.endswith("-pause")}
    assert max(longest.values()) < 10


def test_a_restarted_kubelet_may_refuse_the_pods_of_its_node(cluster):
    assert cluster.disturb("kubelet-restart", pick=0.9) == "soak-worker2"
    ((where, script),) = cluster.commands
    assert where == "soak-worker2"
    assert script.startswith("systemctl restart kubelet; ")
    assert [(touch.what, touch.node) for touch in cluster.touches] == [
        ("kubelet-restart", "soak-worker2")
    ] * 2


def test_a_kubelet_that_is_not_well_again_is_noted(cluster):
    cluster.error = CommandError("the kubelet is not well")
    assert cluster.disturb("kubelet-restart") == "not done: the kubelet is not well"
    assert len(cluster.touches) == 2


@pytest.mark.parametrize("kind", ["node-stop", "node-reboot"])
def test_a_node_that_is_stopped_is_started_again(cluster, kind, monkeypatch):
    pauses = AsyncMock()
    monkeypatch.setattr(
        soak_disturbances, "asyncio", SimpleNamespace(Lock=asyncio.Lock, sleep=pauses)
    )
    assert cluster.disturb(kind, seconds=KINDS[kind].longest) == "soak-worker2"
    pauses.assert_awaited_once_with(KINDS[kind].longest)
    assert cluster.commands == [
        ("stop", "-t", "1", "soak-worker2"),
        ("start", "soak-worker2"),
    ]
    assert [touch.what for touch in cluster.touches] == [kind, kind]


def state(process):
    stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    return stat.rpartition(") ")[2][0]


def test_a_paused_process_is_stopped_and_goes_on():
    """The script itself, on a process of this machine that no other one is called like."""
    name = f"/soak/bin/{uuid4()}"
    sleeper = subprocess.Popen([name, "60"], executable=shutil.which("sleep"))
    try:
        script = soak_disturbances._for_each(
            f"*{name}' '*", "kill -STOP $i; sleep 0.3; kill -CONT $i"
        )
        pause = subprocess.Popen(["sh", "-c", script])
        states = set()
        while pause.poll() is None:
            states.add(state(sleeper))
            time.sleep(0.02)
        assert pause.returncode == 0
        assert "T" in states
        assert state(sleeper) == "S"
    finally:
        sleeper.kill()
        sleeper.wait()


def test_the_script_that_restarts_a_kubelet_waits_until_it_is_well(tmp_path):
    """With programs of its own: the kubelet is well at the third look."""
    programs = {
        "systemctl": f'echo "$@" >> {tmp_path}/did',
        "curl": f"echo look >> {tmp_path}/did; [ $(grep -c look {tmp_path}/did) -lt 3 ] || echo ok",
        "sleep": "",
        "seq": "echo 1 2 3 4 5",
        "wget": "exit 1",
    }
    for name, script in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    command = ["sh", "-c", soak_disturbances._RESTART_KUBELET]
    done = subprocess.run(command, env=env, check=False, timeout=20)
    assert done.returncode == 0
    assert (tmp_path / "did").read_text(encoding="utf-8").splitlines() == [
        "restart kubelet",
        "look",
        "look",
        "look",
    ]
