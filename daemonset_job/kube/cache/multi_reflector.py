"""The reflectors of several namespaces, which fill one store."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import CachedObject, Indexer, Store

T = TypeVar("T", bound=CachedObject)


class MultiReflector(Generic[T]):
    """One reflector per namespace into one store, so that a limited controller works the same.

    An empty list of namespaces means all of them, with a single reflector.
    """

    def __init__(
        self,
        namespaces: Iterable[str],
        make: Callable[[str | None, Store[T]], Reflector[T]],
        *,
        indexers: Mapping[str, Indexer[T]] | None = None,
    ) -> None:
        """Call ``make(namespace, store)`` for each namespace; it passes both to Reflector."""
        self.store: Store[T] = Store(indexers)
        wanted = sorted(set(namespaces))
        self._all = None if wanted else make(None, self.store)
        self._by_namespace = {name: make(name, self.store) for name in wanted}

    @property
    def reflectors(self) -> list[Reflector[T]]:
        """Return the reflectors, one or more."""
        return list(self._by_namespace.values()) if self._all is None else [self._all]

    def reflector_for(self, namespace: str) -> Reflector[T]:
        """Return the reflector that covers a namespace; KeyError if it is not followed."""
        return self._all or self._by_namespace[namespace]

    @property
    def healthy(self) -> bool:
        """Whether one of them is at least.

        If the others are not, the reason is in their namespaces, such as a role that is gone with
        its namespace. That does not make the whole program unready. Their silence is reported.
        """
        return any(reflector.healthy for reflector in self.reflectors)

    @property
    def silence_seconds(self) -> float:
        """The longest silence of all, see Reflector."""
        return max(reflector.silence_seconds for reflector in self.reflectors)

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run())


async def wait_synced(caches: Iterable[MultiReflector[Any]], namespaces: Iterable[str]) -> None:
    """Return once all caches have listed one of the namespaces; none given means all in one.

    One and not every one: a namespace that cannot be listed, since its role is gone with it, must
    not keep the others waiting.
    """

    async def listed(namespace: str) -> None:
        for cache in caches:
            await cache.reflector_for(namespace).synced.wait()

    waiting = [asyncio.create_task(listed(name)) for name in list(namespaces) or [""]]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
