"""Reads the pods that a check of a rollout asks about, from the API server.

Layer: beside the reconciler. Pods are listed only while a check asks, one page after the other, and
the reads of one namespace take a share of the time. Nothing of them is kept but numbers by node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from loguru import logger

from daemonset_job.api.job import JobKey
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.runtime.clock import Clock
from job_controller.core.plan import Plan, PodQuery
from job_controller.core.state.observed_pods import PodObservation, PodsOnNode
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line
from job_controller.read_pace import ReadPaces

# Between two reads of one Job. A page has 200 pods at most.
PAUSE_SECONDS: Final = 5.0
PAGE_PODS: Final = 200
# A selector that finds more pods than these is no check of a batch of nodes.
PODS_LIMIT: Final = 5000
READ_SECONDS: Final = 20.0


@dataclass(slots=True)
class _Known:
    """The newest answer to the query of a Job, and when the next read is due."""

    query: PodQuery
    answer: PodObservation | None = None
    due_at: float = 0.0


class PodChecks:
    """What the checks of rollouts have found out about pods, by Job."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        """Begin without any."""
        self._client = client
        self._clock = clock
        self._paces = ReadPaces()
        self._known: dict[JobKey, _Known] = {}

    def forget(self, key: JobKey) -> None:
        """Drop what is known of a Job that is gone, or whose check asks no more."""
        self._known.pop(key, None)

    def with_pods(self, key: JobKey, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the newest answer."""
        known = self._known.get(key)
        return snapshot if known is None else replace(snapshot, observed_pods=known.answer)

    async def look(self, key: JobKey, plan: Plan) -> float | None:
        """Read the pods that a plan asks about, if it is time; return the seconds until the next.

        That is 0 if there is a new answer, and None if nothing is asked.
        """
        query = plan.pod_query
        if query is None:
            self.forget(key)
            return None
        known = self._known.get(key)
        if known is None or known.query != query:
            known = self._known[key] = _Known(query)
        now = self._clock.monotonic()
        pace = self._paces.of(key[0], now)
        if now < known.due_at or not pace.is_free(now):
            return max(known.due_at - now, pace.free - now, 0.1)
        pace.start(now)
        before = known.answer
        try:
            async with asyncio.timeout(READ_SECONDS):
                known.answer = await self._read(key[0], query)
        except (KubeError, TimeoutError) as error:
            logger.warning("cannot read the pods of a check", job=key[1], error=repr(error))
            words = str(error) or "the API server did not answer in time"
            known.answer = PodObservation(query, error=single_line(words, REFUSAL_LIMIT))
        finally:
            after = self._clock.monotonic()
            pace.end(after)
            known.due_at = after + PAUSE_SECONDS
        return 0.0 if known.answer != before else PAUSE_SECONDS

    async def _read(self, namespace: str, query: PodQuery) -> PodObservation:
        what = Selection(PODS, namespace, label_selector=query.selector)
        found: dict[str, PodsOnNode] = {}
        count = 0
        async for page in Pager(self._client, what, size=PAGE_PODS).pages():
            for raw in page.items:
                count += 1
                if isinstance(raw, Unreadable):
                    return PodObservation(query, error="one of the pods cannot be read")
                _count_pod(raw, query, found)
            if count > PODS_LIMIT:
                words = f"check.pods selects more than {PODS_LIMIT} pods of the namespace"
                return PodObservation(query, error=words)
        return PodObservation(query, found)


def _count_pod(raw: Mapping[str, Any], query: PodQuery, found: dict[str, PodsOnNode]) -> None:
    """Add a raw pod to those of its node; one that has ended for good does not count."""
    status = _mapping(raw.get("status"))
    node = _mapping(raw.get("spec")).get("nodeName")
    is_over = status.get("phase") in {"Succeeded", "Failed"}
    if not isinstance(node, str) or node not in query.nodes or is_over:
        return
    conditions = status.get("conditions")
    is_ready = isinstance(conditions, list) and any(
        _mapping(each).get("type") == "Ready" and _mapping(each).get("status") == "True"
        for each in conditions
    )
    known = found.get(node, PodsOnNode())
    found[node] = PodsOnNode(known.found + 1, known.ready + is_ready)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
