"""Which ScheduledJobs there are. A reconcile reads the rest from the API server.

They change seldom, and a start has to be decided from what is there now. So nothing of their specs
is kept, however large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.rollback import has_open_rollback
from daemonset_job.api.shape import METADATA, fields
from daemonset_job.api.states import FINAL_PHASES
from daemonset_job.kube.cache.multi_reflector import MultiReflector
from daemonset_job.kube.cache.reflector import Reflector
from daemonset_job.kube.cache.store import Store
from daemonset_job.kube.cache.store_writer import StoreWriter
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import SCHEDULED_JOBS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.runtime.clock import Clock
from job_controller.core.scheduled.starts import scheduled_name

_METADATA = fields(metadata=METADATA)


@dataclass(frozen=True, slots=True)
class KnownSchedule:
    """A ScheduledJob that exists."""

    namespace: str
    name: str
    uid: str
    resource_version: str


def _parse(raw: Mapping[str, Any]) -> KnownSchedule:
    _METADATA(raw)
    meta = raw.get("metadata") or {}
    return KnownSchedule(
        meta.get("namespace") or "",
        meta.get("name") or "",
        meta.get("uid") or "",
        meta.get("resourceVersion") or "",
    )


class ScheduleCache:
    """Calls `wake(key)` for each ScheduledJob that a change may concern."""

    def __init__(
        self,
        client: KubeClient,
        namespaces: Iterable[str],
        clock: Clock,
        wake: Callable[[JobKey], None],
    ) -> None:
        self._wake = wake

        def one(namespace: str | None, store: Store[KnownSchedule]) -> Reflector[KnownSchedule]:
            writer: StoreWriter[KnownSchedule] = StoreWriter(
                Selection(SCHEDULED_JOBS, namespace),
                store,
                parse=_parse,
                on_change=self._changed,
                on_unreadable=lambda found: wake((found.namespace, found.name)),
            )
            return Reflector(client, writer, clock=clock)

        self._reflector: MultiReflector[KnownSchedule] = MultiReflector(namespaces, one)

    async def run(self) -> None:
        """Follow the ScheduledJobs until cancelled."""
        await self._reflector.run()

    def __len__(self) -> int:
        """Return how many ScheduledJobs there are."""
        return len(self._reflector.store)

    def known_keys(self) -> list[JobKey]:
        """Return the keys of all ScheduledJobs."""
        return [(found.namespace, found.name) for found in self._reflector.store]

    def job_changed(self, old: Job | None, new: Job | None) -> None:
        """Wake the ScheduledJob of a Job that was created or deleted, or whose run has ended."""
        job = new or old
        if job is None or (old is not None and new is not None and _is_same(old, new)):
            return
        key = job.namespace, scheduled_name(job.name)
        if key in self._reflector.store:
            self._wake(key)

    def _changed(self, old: KnownSchedule | None, new: KnownSchedule | None) -> None:
        if (found := new or old) is not None:
            self._wake((found.namespace, found.name))


def _is_same(old: Job, new: Job) -> bool:
    """Return whether a change of a Job says nothing about the end of its run."""
    same = old.uid == new.uid and old.is_terminating == new.is_terminating
    return same and _has_ended(old) == _has_ended(new)


def _has_ended(job: Job) -> bool:
    """Return whether the run has ended; while it is rolled back it has not, as in `read_run`."""
    return job.status.phase in FINAL_PHASES and not has_open_rollback(job)
