"""Which docker is used, and with which arguments a private one starts."""

import ipaddress
from pathlib import Path

import pytest

from hack.devcluster import container_engine, dockerd
from hack.devcluster.container_engine import ContainerEngine
from hack.devcluster.host import Host
from hack.devcluster.settings import Paths

PATHS = Paths(root=Path("/clone"), cache=Path("/cache"))
NETWORK = ipaddress.IPv4Network("172.31.0.0/16")


def machine(*, root=True, debian=True, missing=()) -> Host:
    return Host(
        is_root=root,
        is_debian=debian,
        machine="x86_64",
        cgroup_version=2,
        missing_capabilities=missing,
    )


@pytest.mark.parametrize(
    ("host", "answers", "expected"),
    [
        (machine(), True, ContainerEngine.HOST),
        (machine(), False, ContainerEngine.PRIVATE),
        (machine(root=False), True, ContainerEngine.HOST),
        (machine(root=False), False, None),
        (machine(debian=False), False, None),
        (machine(missing=("SYS_RESOURCE",)), True, ContainerEngine.PRIVATE),
        (machine(missing=("SYS_RESOURCE",), root=False), True, ContainerEngine.HOST),
    ],
)
def test_the_users_docker_is_used_unless_it_cannot_run_nodes(monkeypatch, host, answers, expected):
    monkeypatch.setattr(dockerd, "is_up", lambda _: False)
    assert container_engine.choose(PATHS, host, answers=answers) == expected


def test_a_private_dockerd_that_runs_is_used_again(monkeypatch):
    monkeypatch.setattr(dockerd, "is_up", lambda _: True)
    assert container_engine.choose(PATHS, machine(), answers=True) == ContainerEngine.PRIVATE


def test_the_runtime_wrapper_is_only_for_machines_that_need_it():
    plain = dockerd.arguments(Path("/c"), NETWORK, None)
    assert not [word for word in plain if "runtime" in word]
    wrapped = dockerd.arguments(Path("/c"), NETWORK, Path("/c/runcwrap"))
    assert wrapped[-2:] == ["--add-runtime=wrap=/c/runcwrap", "--default-runtime=wrap"]


def test_a_private_dockerd_leaves_the_hosts_network_alone():
    words = dockerd.arguments(Path("/c"), NETWORK, None)
    assert {"--iptables=false", "--ip6tables=false", "--bridge=none"} <= set(words)


def test_two_caches_have_two_cgroups():
    assert dockerd.cgroup_parent(Path("/a")) != dockerd.cgroup_parent(Path("/b"))


def test_two_clones_have_two_clusters():
    other = Paths(root=Path("/elsewhere"), cache=PATHS.cache)
    assert PATHS.cluster_name != other.cluster_name
    assert PATHS.cluster_name.startswith("dsj-")
    assert len(PATHS.cluster_name) == len("dsj-123456")
