"""A small cluster for each test, with everything that runs on it ended afterwards."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daemonset_job.kube.client.client import KubeClient
from tests.contract.fake_api import FakeApiServer
from tests.contract.terminator.cluster import TerminatorCluster


@pytest.fixture
async def cluster(server: FakeApiServer, client: KubeClient) -> AsyncIterator[TerminatorCluster]:
    cluster = TerminatorCluster(server, client)
    yield cluster
    for task in cluster.tasks:
        task.cancel()
    await asyncio.gather(*cluster.tasks, return_exceptions=True)
