"""A reflector of pods that runs, and what it says of changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.cache.store_writer import OnChange, OnUnreadable, StoreWriter
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from tests.contract.fake_api import FakeApiServer


@dataclass(frozen=True)
class Item:
    """What is cached of a pod."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: str
    value: str
    kind: str


def parse(raw: Mapping[str, Any]) -> Item:
    """Return the item in a raw object; raises ValueError for one with the value `bad`."""
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get("value") == "bad":
        raise ValueError("bad")
    return Item(
        metadata.get("namespace", ""),
        metadata["name"],
        metadata["uid"],
        metadata["resourceVersion"],
        labels.get("owner", ""),
        labels.get("value", ""),
        raw.get("kind", ""),
    )


ALL_PODS = Selection(PODS)


def make_reflector(
    server: FakeApiServer,
    client: KubeClient,
    namespace: str | None = None,
    store: Store[Item] | None = None,
    on_change: OnChange[Item] = lambda _old, _new: None,
) -> Reflector[Item]:
    """Return a reflector of pods; only `on_change` receives its changes."""
    writer = StoreWriter(
        Selection(PODS, namespace),
        Store() if store is None else store,
        parse=parse,
        on_change=on_change,
    )
    return Reflector(client, writer, clock=server.clock)


class Follower:
    """A running reflector of pods and what it said."""

    def __init__(
        self,
        server: FakeApiServer,
        client: KubeClient,
        what: Selection = ALL_PODS,
        on_unreadable: OnUnreadable | None = None,
        after: asyncio.Event | None = None,
    ) -> None:
        self.changes: list[tuple[str, str, str]] = []
        self.progress: list[tuple[str, str]] = []
        writer: StoreWriter[Item] = StoreWriter(
            what,
            Store({"owner": lambda item: [item.owner]}),
            parse=parse,
            on_change=self.on_change,
            on_progress=lambda namespace, version: self.progress.append((namespace, version)),
            on_unreadable=on_unreadable,
        )
        self.reflector = Reflector(client, writer, clock=server.clock, after=after)
        self.task = asyncio.create_task(self.reflector.run())

    def on_change(self, old: Item | None, new: Item | None) -> None:
        found = new or old
        assert found is not None
        name = found.name
        self.changes.append((name, old.value if old else "-", new.value if new else "-"))

    def take(self) -> list[tuple[str, str, str]]:
        """Return the changes since the last call."""
        taken, self.changes = self.changes, []
        return taken

    def values(self) -> dict[str, str]:
        """Return the values of the cached items, by name."""
        return {item.name: item.value for item in self.reflector.store.values()}


def pod(
    name: str, value: str = "1", namespace: str = "default", owner: str = "o"
) -> dict[str, Any]:
    """Return a pod, which the fake API server completes."""
    labels = {"value": value, "owner": owner}
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}}


Follow = Callable[..., Awaitable[Follower]]


@pytest.fixture
async def follow(server: FakeApiServer, client: KubeClient) -> AsyncIterator[Follow]:
    """Start followers, which end with the test."""
    followers: list[Follower] = []

    async def start(*what: Any) -> Follower:
        followers.append(Follower(server, client, *what))
        await followers[-1].reflector.synced.wait()
        await asyncio.sleep(0.1)
        return followers[-1]

    yield start
    for follower in followers:
        follower.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await follower.task
