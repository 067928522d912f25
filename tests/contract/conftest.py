"""A fake API server and a client of it for each test."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from job_controller.kube.client import KubeClient
from tests.contract.fake_api import FakeApiServer

# See tests/unit/runtime/conftest.py: without it looptime leaves a loop open.
asyncio.set_event_loop(None)


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
