"""Reads nodes from the API server before they are called unreachable, or fail.

They are read before a failure for a lost end, for rejected pods, or because their time is over. So
is a node once the ledger has its pod for another node of that name.

Layer: beside the reconciler. After a silently broken watch, or a slow list, the cache may show a
node as not Ready long after it is Ready again. Or it shows a node that is gone, and a new machine
has its name. The run would fail for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from loguru import logger

from daemonset_job.api.job import Job
from daemonset_job.api.node import Node, parse_node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from daemonset_job.kube.cache.resource_version import is_newer
from daemonset_job.kube.client.answers import MALFORMED_ANSWER
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import NODES
from daemonset_job.runtime.clock import Clock
from job_controller.core.state.first_seen import node_left, node_not_ready, nodes_not_ready_for
from job_controller.core.state.left_nodes import find_nearly_given_up, left_limit
from job_controller.core.state.node_exits import find_lost_ends
from job_controller.core.state.node_pods import is_older_than_node
from job_controller.core.state.node_timeouts import find_late, find_rejecting, rejection_limit
from job_controller.core.state.snapshot import Snapshot, merge_records

# If a zone fails, many nodes of many Jobs are due at the same moment. A node that was read within
# FRESH_SECONDS is not read again, and at most AT_ONCE requests run at a time.
FRESH_SECONDS = 1.0
AT_ONCE = 32
# An answer that is newer than the cache counts until the cache has caught up. As the cache receives
# nothing of that node meanwhile, the node is read again after this time.
REREAD_SECONDS = 30.0
# The delay before a failed read is repeated. The other actions for the Job do not wait for that,
# but they do wait for a read, which is why a read has a timeout.
RETRY_SECONDS = 5.0
TIMEOUT_SECONDS = 5.0
# A repeated read that is due already is given this long.
_RETRY_SECONDS_AT_LEAST = 0.1
_FAILED = frozenset({NodeState.FAILED})
_AWAY_OR_FAILED = _FAILED | {NodeState.UNREACHABLE}


@dataclass(frozen=True, slots=True)
class NodeRead:
    """A node as it was cached, and as the API server returned it: None if it is deleted.

    `asked_at` is by the monotonic clock. `version` is the resourceVersion of the answer, "" without
    one. If the read failed, `node` is as it was cached, and `retry_at` is when it is read again, by
    the monotonic clock.
    """

    known: Node
    node: Node | None
    asked_at: float
    version: str = ""
    retry_at: float | None = None


class FreshNodeReader:
    """Single nodes that were read from the API server, until the cache is as new as the answer."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Begin without any."""
        self._client = client
        self._clock = clock
        self._reads: dict[str, NodeRead] = {}
        self._ahead: dict[str, NodeRead] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    def ahead_of(self, nodes: Mapping[str, Node]) -> Mapping[str, NodeRead]:
        """Return the answers that are newer than these cached nodes, by name; forget the others."""
        self._ahead = {
            name: read for name, read in self._ahead.items() if _is_ahead(read, nodes.get(name))
        }
        return self._ahead

    def find_due(self, read: Mapping[str, NodeRead]) -> list[Node]:
        """Return the nodes that are to be read again, except those in `read`."""
        before = self._clock.monotonic() - REREAD_SECONDS
        return [
            each.node or each.known
            for name, each in self._ahead.items()
            if each.asked_at <= before and name not in read
        ]

    def reread_seconds(self) -> float | None:
        """Return in how many seconds the next node is to be read again, None for none."""
        first = min((each.asked_at for each in self._ahead.values()), default=None)
        if first is None:
            return None
        return max(first + REREAD_SECONDS - self._clock.monotonic(), FRESH_SECONDS)

    async def read(self, nodes: Iterable[Node], has_failed: asyncio.Event) -> dict[str, NodeRead]:
        """Return the nodes by name as the API server has them.

        A node whose read is forbidden, or that cannot be parsed, is returned as it was given.
        `has_failed` is of one reconcile: after the first failed read, it begins no other one.
        """
        now = self._clock.monotonic()
        self._reads = {
            name: read
            for name, read in self._reads.items()
            if now < (read.retry_at or read.asked_at + FRESH_SECONDS)
        }
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
                # One failed read after the other would take long. The next reconcile reads these.
                return NodeRead(known, known, asked_at, retry_at=asked_at + FRESH_SECONDS)
            try:
                found = await self._client.find(NODES, known.name, timeout_seconds=TIMEOUT_SECONDS)
            except KubeError as error:
                read = NodeRead(known, known, asked_at)
                if (former := self._ahead.get(known.name)) is not None:
                    self._ahead[known.name] = replace(former, asked_at=asked_at)
                if error.is_retryable and error.reason != MALFORMED_ANSWER:
                    has_failed.set()
                    logger.bind(node=known.name, error=str(error)).warning("cannot read a node")
                    retry_at = self._clock.monotonic() + RETRY_SECONDS
                    read = self._reads[known.name] = replace(read, retry_at=retry_at)
                return read
            node = parse_node(found.item) if found.item is not None else None
            read = NodeRead(known, node, asked_at, found.resource_version)
            self._reads[known.name] = read
            if node != known or known.name in self._ahead:
                former = self._ahead.get(known.name, read)
                self._ahead[known.name] = replace(read, known=former.known)
            return read


def _is_ahead(read: NodeRead, cached: Node | None) -> bool:
    """Return whether the cached node is older than what was read of it."""
    if cached is None:
        return False
    if read.node is None:
        return cached.uid == read.known.uid
    # The answer has the version of a list, which is above that of the node unless it just changed.
    version, than = cached.resource_version, read.node.resource_version
    return version != than and (cached == read.known or not is_newer(version, than))


def with_fresh_nodes(nodes: Mapping[str, Node], reads: Mapping[str, NodeRead]) -> dict[str, Node]:
    """Return the cached nodes with those that were read, except where the cache is newer.

    A cached node that changed since may still be older than the one that was read.
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


def find_nodes_to_confirm(
    snapshot: Snapshot, now: datetime, read: Mapping[str, NodeRead]
) -> list[Node]:
    """Return the nodes that are about to become unreachable or failed, or to free their place.

    Added are nodes whose pod the ledger has for another UID. Those that have been read are left
    out. A place is one of a rollout.
    """
    limit = timedelta(seconds=snapshot.unreachable_seconds)
    nodes = [node for node in snapshot.nodes.values() if node.name not in read]
    away = nodes_not_ready_for(snapshot.seen, nodes, snapshot.job.retry_request, limit, now)
    lost = find_lost_ends(snapshot, nodes, now)
    # A node that is away does not fail for its time.
    late = find_late(snapshot, nodes, now) - {node.name for node in away}
    failing = find_rejecting(snapshot, nodes, now).keys() | late
    ended = [node for node in nodes if node.name in lost or node.name in failing]
    records = merge_records(snapshot) if away or ended else {}
    job = snapshot.job
    away = [node for node in away if not _is_settled(job, node, records, _AWAY_OR_FAILED)]
    # One that is recorded as unreachable can still fail: a new machine may have its name.
    ended = [node for node in ended if not _is_settled(job, node, records, _FAILED)]
    others = _find_disputed(snapshot, read)
    return away + ended + others + find_nearly_given_up(snapshot, nodes, now)


def postpone_failed_reads(
    snapshot: Snapshot, read: Mapping[str, NodeRead], clock: Clock
) -> Snapshot:
    """Return the snapshot in which nodes whose read failed become unreachable after the next.

    Nor do they fail before that for a lost end, or for rejected pods. That is postponed as long as
    they are read for it. One whose time is over fails all the same.
    So all else of the Job goes on, and only what becomes of these nodes waits.
    """
    now, moment = clock.now(), clock.monotonic()
    limit = timedelta(seconds=snapshot.unreachable_seconds)
    seen = dict(snapshot.seen)
    failed = [each for each in read.values() if each.retry_at is not None]
    nodes = [each.known for each in failed]
    lost, rejecting = find_lost_ends(snapshot, nodes, now), find_rejecting(snapshot, nodes, now)
    for each in failed:
        assert each.retry_at is not None
        due_at = now + timedelta(seconds=max(each.retry_at - moment, _RETRY_SECONDS_AT_LEAST))
        not_ready = node_not_ready(each.known, snapshot.job.retry_request)
        times = {not_ready: limit, node_left(each.known): left_limit(snapshot)}
        if (end := lost.get(each.known.name)) is not None:
            times[end.fact] = end.grace
        if (rejected := rejecting.get(each.known.name)) is not None:
            times[rejected] = rejection_limit(snapshot)
        for fact, time in times.items():
            if fact in seen:
                seen[fact] = replace(seen[fact], first=max(seen[fact].first, due_at - time))
    return replace(snapshot, seen=seen)


def _find_disputed(snapshot: Snapshot, read: Collection[str]) -> list[Node]:
    """Return the nodes, except those read, whose pod the ledger has for another one of that name.

    The watch of nodes of one of the two programs is late. If it is this one's, what the terminator
    has read in the log would not count, and the end of the task would look like a failure.
    """
    named = {
        entry.pod_uid: node
        for report in snapshot.reports
        for name, entry in report.evidence.items()
        if entry.pod_uid
        and name not in read
        and (node := snapshot.nodes.get(name)) is not None
        and entry.node_uid != node.uid
    }
    if not named:
        return []
    return [
        node
        for pod in snapshot.pods
        if (node := named.get(pod.uid)) is not None and not is_older_than_node(pod, node)
    ]


def _is_settled(
    job: Job, node: Node, records: Mapping[str, NodeRecord], states: Collection[NodeState]
) -> bool:
    """Return whether the node is recorded as completed, or with one of these states."""
    record = records.get(node.name)
    if record is None or record.uid != node.uid:
        return False
    # Completed is final; the others are until the next retry.
    return record.state == NodeState.COMPLETED or (
        record.retry == job.retry_request and record.state in states
    )
