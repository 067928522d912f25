"""A fake API server and a client of it for each test."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from daemonset_job.kube.client.client import KubeClient
from tests.contract.fake_api import FakeApiServer
from tests.contract.fake_receiver import FakeReceiver, listening


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    server = FakeApiServer()
    await server.start()
    yield server
    await server.stop()
    assert server.defects == []


@pytest.fixture
async def client(server: FakeApiServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(server.url) as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[FakeReceiver]:
    async with listening() as found:
        yield found


@pytest.fixture
def kubeconfig(server: FakeApiServer, tmp_path: Path) -> Path:
    """Return a file by which a program finds the server of the test."""
    path = tmp_path / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return path


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the loop's time go on after 8 idle cycles of the loop, 42 by default.

    An answer over loopback is there at the next cycle, and idle cycles take time, too.
    """
    if item.get_closest_marker("looptime"):
        item.add_marker(pytest.mark.looptime(noop_cycles=8))
