"""A fake API server and a client of it for each test."""

from collections.abc import AsyncIterator

import pytest

from daemonset_job.kube.client.client import KubeClient
from tests.contract.fake_api import FakeApiServer


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
