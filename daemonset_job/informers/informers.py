"""The caches of one process: all nodes, and several namespaced resources.

It runs, awaits and measures them together. It does not know what a change of an object means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from daemonset_job.api.drain import parse_mark
from daemonset_job.api.node import Node, parse_node
from daemonset_job.kube.cache.multi_reflector import MultiReflector, wait_synced
from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import CachedObject, Indexer, Store
from daemonset_job.kube.cache.store_writer import OnChange, OnUnreadable, StoreWriter
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import NODES, Resource
from daemonset_job.kube.client.selection import Selection
from daemonset_job.runtime.clock import Clock

T = TypeVar("T", bound=CachedObject)


@dataclass(frozen=True)
class CachedKind(Generic[T]):
    """What is cached of one kind: which objects, what `parse` keeps of each, and the indexes."""

    resource: Resource
    parse: Callable[[Mapping[str, Any]], T]
    indexers: Mapping[str, Indexer[T]]
    label_selector: str | None = None


def _cordoning_job(node: Node) -> tuple[str, ...]:
    """Return the namespace and name of the Job that has cordoned a node, nothing if none has."""
    mark = parse_mark(node.cordoned_by) if node.cordoned_by else None
    return (f"{mark.namespace}/{mark.job_name}",) if mark is not None else ()


class SharedInformers:
    """A reflector of all nodes, and one reflector for each resource that `_watch` was called with.

    `namespaces` are those of which objects are cached, none for all. `on_node(old, new)` gets every
    change of a node. `on_progress(resource, namespace, version)` gets how far each cache has come;
    the namespace is empty if one watch covers all of them.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        namespaces: Iterable[str],
        *,
        on_node: OnChange[Node],
        metadata_of_nodes_only: bool = False,
        on_progress: Callable[[str, str, str], None] = lambda *_: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespaces = tuple(namespaces)
        self._on_progress = on_progress
        self._namespaced: dict[str, MultiReflector[Any]] = {}
        nodes: StoreWriter[Node] = StoreWriter(
            Selection(NODES, metadata_only=metadata_of_nodes_only),
            Store({"cordoned_by": _cordoning_job}),
            parse=parse_node,
            on_change=on_node,
            on_progress=lambda namespace, version: on_progress(NODES.plural, namespace, version),
        )
        self._nodes = Reflector(client, nodes, clock=clock)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for cache in self._by_resource().values():
                group.create_task(cache.run())

    async def wait_synced(self) -> None:
        """Return once the nodes, and all caches of one namespace, have held a complete list."""
        await self._nodes.synced.wait()
        await wait_synced(self._namespaced.values(), self._namespaces)

    def has_synced(self, namespace: str) -> bool:
        """Return whether the nodes, and all resources of a namespace, have been listed."""
        return self._nodes.has_synced and all(
            cache.reflector_for(namespace).has_synced for cache in self._namespaced.values()
        )

    @property
    def healthy(self) -> bool:
        """Whether every cache follows the cluster, in one of the namespaces at least."""
        return all(cache.healthy for cache in self._by_resource().values())

    def sizes(self) -> dict[str, int]:
        """Return how many objects each cache holds, by the plural of its resource."""
        return {name: len(cache.store) for name, cache in self._by_resource().items()}

    def unreadable(self) -> dict[str, int]:
        """Return how many objects each cache lacks because they cannot be read."""
        return {name: len(cache.store.unreadable) for name, cache in self._by_resource().items()}

    def silence(self) -> dict[str, float]:
        """Return for how many seconds each cache has had no answer of the API server."""
        return {name: cache.silence_seconds for name, cache in self._by_resource().items()}

    def reflectors(self) -> dict[str, list[Reflector[Any]]]:
        """Return the reflectors of each resource, by its plural: one, or one for each namespace."""
        found: dict[str, list[Reflector[Any]]] = {NODES.plural: [self._nodes]}
        for name, cache in self._namespaced.items():
            found[name] = cache.reflectors
        return found

    def watch_namespace(self, namespace: str) -> str:
        """Return the namespace of the watch that covers `namespace`: itself, or "" for all."""
        return namespace if self._namespaces else ""

    def covers(self, namespace: str) -> bool:
        """Return whether objects of that namespace are cached."""
        return not self._namespaces or namespace in self._namespaces

    def nodes(self) -> Mapping[str, Node]:
        """Return all nodes by name."""
        return {node.name: node for node in self._nodes.store}

    def _by_resource(self) -> dict[str, MultiReflector[Any] | Reflector[Any]]:
        # In place of a variadic generic: what differs between them does not matter here.
        return {NODES.plural: self._nodes, **self._namespaced}

    def _watch(
        self,
        kind: CachedKind[T],
        on_change: OnChange[T],
        *,
        on_unreadable: OnUnreadable | None = None,
        after: MultiReflector[Any] | None = None,
    ) -> MultiReflector[T]:
        """Add and return the cache of a kind; it lists nothing before `after` has listed."""
        plural = kind.resource.plural

        def one(namespace: str | None, store: Store[T]) -> Reflector[T]:
            writer = StoreWriter(
                Selection(kind.resource, namespace, kind.label_selector),
                store,
                parse=kind.parse,
                on_change=on_change,
                on_progress=lambda where, version: self._on_progress(plural, where, version),
                on_unreadable=on_unreadable,
            )
            synced = None if after is None else after.reflector_for(namespace or "").synced
            return Reflector(self._client, writer, clock=self._clock, after=synced)

        cache = MultiReflector(self._namespaces, one, indexers=kind.indexers)
        self._namespaced[plural] = cache
        return cache
