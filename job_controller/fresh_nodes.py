"""Reads nodes from the API server before they are called unreachable.

Layer: beside the reconciler. A watch that has died in silence, or a slow list, leaves the cache
with a node that is not Ready long after it is back, and the run would fail for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from loguru import logger

from daemonset_job.api.objects import Node, parse_node
from daemonset_job.kube.cache.reflector import is_newer
from daemonset_job.kube.client.client import MALFORMED_ANSWER, KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import NODES
from daemonset_job.runtime.clock import Clock

# When a zone goes, many nodes of many Jobs are due in the same moment: what was read so many
# seconds ago is not read again, and so many requests are under way at a time.
FRESH_SECONDS = 1.0
AT_ONCE = 32
# A read that failed is tried again after so many seconds. All else of the Job goes on meanwhile, so
# none of them may take long, either.
RETRY_SECONDS = 5.0
TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class NodeRead:
    """A node as it was known, and as the API server had it when it was asked for: None if gone.

    `asked_at` is by the monotonic clock. `version` is the resourceVersion of the answer, "" when
    there was none. When the read failed, `node` is as it was known, and `retry_at` is when it is
    read again, by the monotonic clock: until then, nobody knows what became of it.
    """

    known: Node
    node: Node | None
    asked_at: float
    version: str = ""
    retry_at: float | None = None


class FreshNodeReader:
    """What the API server said of single nodes a moment ago."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Begin without any."""
        self._client = client
        self._clock = clock
        self._reads: dict[str, NodeRead] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def read(self, nodes: Iterable[Node]) -> dict[str, NodeRead]:
        """Return by name what the API server says of the nodes.

        One that it does not let be read, or that cannot be parsed, is returned as it was given.
        """
        now = self._clock.monotonic()
        self._reads = {
            name: read
            for name, read in self._reads.items()
            if now < (read.retry_at or read.asked_at + FRESH_SECONDS)
        }
        has_failed = asyncio.Event()
        reading = (self._read(node, has_failed) for node in nodes)
        results = await asyncio.gather(*reading, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return {read.known.name: read for read in results if isinstance(read, NodeRead)}

    async def _read(self, known: Node, has_failed: asyncio.Event) -> NodeRead:
        async with self._room:
            last = self._reads.get(known.name)
            if last is not None and last.retry_at is not None:
                return replace(last, known=known, node=known)
            if last is not None and last.known == known:
                return last
            asked_at = self._clock.monotonic()
            if has_failed.is_set():
                # All of them in turn might take long. The next pass begins with these.
                return NodeRead(known, known, asked_at, retry_at=asked_at + FRESH_SECONDS)
            try:
                found = await self._client.find(NODES, known.name, timeout_seconds=TIMEOUT_SECONDS)
            except KubeError as error:
                read = NodeRead(known, known, asked_at)
                if error.is_retryable and error.reason != MALFORMED_ANSWER:
                    has_failed.set()
                    logger.bind(node=known.name, error=str(error)).warning("cannot read a node")
                    retry_at = self._clock.monotonic() + RETRY_SECONDS
                    read = self._reads[known.name] = replace(read, retry_at=retry_at)
                return read
            node = parse_node(found.item) if found.item is not None else None
            read = NodeRead(known, node, asked_at, found.resource_version)
            self._reads[known.name] = read
            return read


def with_fresh_nodes(nodes: Mapping[str, Node], reads: Mapping[str, NodeRead]) -> dict[str, Node]:
    """Return the nodes of a cache with what was read, but for those of which it knows more by now.

    What it has heard since may be older than what was read: its watch may be late.
    """
    after = dict(nodes)
    for name, read in reads.items():
        found = after.get(name)
        if found is None:
            continue
        if found != read.known and is_newer(found.resource_version, read.version):
            continue
        if read.node is None:
            del after[name]
        else:
            after[name] = read.node
    return after
