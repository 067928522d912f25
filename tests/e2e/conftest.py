"""Fixtures of the e2e ring: a real cluster with the project deployed (`make deploy`).

Every test works in namespaces of its own and in a folder of its own on the nodes. When a test
fails, what its namespaces hold is printed.
"""

import os
import secrets
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import RealCluster, eventually
from tests.e2e.drains import with_component

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests that wait for minutes start first, so that none of them is the last one alone."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """The cluster of $KUBECONFIG (default: the one that `make cluster` made)."""
    kubeconfig = os.environ.get("KUBECONFIG") or str(ROOT / ".devcluster" / "kubeconfig")
    if not Path(kubeconfig).exists():
        pytest.fail("no cluster: run `make cluster deploy` first, or `make test-e2e`")
    found = RealCluster(kubeconfig, ROOT)
    found.kubectl(
        "-n",
        "daemonset-job-system",
        "rollout",
        "status",
        "deployment/daemonset-job-controller",
        "--timeout=120s",
    )
    yield found
    found.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    setattr(item, f"report_{report.when}", report)
    return report


@pytest.fixture(autouse=True)
def _ready_nodes(request: pytest.FixtureRequest) -> None:
    """Start a test that has the cluster for itself only on nodes that are as they always are.

    The test before may have restarted containerd: the kubelet reports the node as not ready for
    a moment, and Kubernetes taints it until shortly after.
    """
    if request.node.get_closest_marker("alone") is None:
        return
    cluster: RealCluster = request.getfixturevalue("cluster")

    def are_ready() -> bool:
        nodes = cluster.get("nodes")["items"]
        return len(nodes) == len(cluster.nodes) and all(_is_ready(node) for node in nodes)

    eventually(are_ready, 120, "all nodes are ready and have no taint of Kubernetes")


def _is_ready(node: dict[str, Any]) -> bool:
    taints = node["spec"].get("taints") or ()
    conditions = node["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and not any(
        taint["key"].startswith("node.kubernetes.io/") for taint in taints
    )


@pytest.fixture
def namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a fresh namespace; it is removed afterwards, and shown when the test failed."""
    yield from _namespace(cluster, request)


@pytest.fixture
def other_namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a second fresh namespace."""
    yield from _namespace(cluster, request)


@pytest.fixture
def third_namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return a third fresh namespace."""
    yield from _namespace(cluster, request)


def _namespace(cluster: RealCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"e2e-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    yield name
    report = getattr(request.node, "report_call", None)
    if report is not None and report.failed:
        cluster.dump(name)
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def folder(cluster: RealCluster) -> Iterator[str]:
    """Return a folder that is on every node, empty, and gone afterwards."""
    path = f"/var/tmp/e2e-{secrets.token_hex(4)}"
    cluster.on_all_nodes(f"mkdir -p {path}")
    yield path
    cluster.on_all_nodes(f"rm -rf {path}")


@pytest.fixture
def draining(cluster: RealCluster) -> Iterator[RealCluster]:
    """Return the cluster with the component that lets Jobs drain nodes; no cordon is left."""
    with with_component(cluster):
        yield cluster
