"""When a refused write for a Job is tried again: with growing delays.

Layer: beside the reconciler. It is kept in memory only: a restart tries everything once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job, JobKey
from daemonset_job.runtime.backoff import exponential_seconds
from job_controller.core.plan import RefusedWrite
from job_controller.core.state.snapshot import Snapshot

# The end of a refusal (a larger quota, a changed policy) causes no event. Thousands of refused Jobs
# must not keep the API server and its webhooks busy.
RETRY_SECONDS = (15.0, 300.0)
# An existing DaemonSet is about to get its gate. Without it completed work can run again.
GATE_RETRY_SECONDS = (15.0, 15.0)

_Spec = tuple[str, int, str]


@dataclass(frozen=True, slots=True)
class _Refusal:
    spec: _Spec  # the refused spec: a later generation, or a retry, is tried at once
    daemon_set_uid: str  # so is a DaemonSet after one of its name is created, deleted or replaced
    found: DaemonSet | None
    message: str
    failures: int
    until: float


class RefusalBackoff:
    """The current refusals, by Job and by the kind of write."""

    def __init__(self) -> None:
        """Begin without any."""
        self._by_key: dict[JobKey, dict[RefusedWrite, _Refusal]] = {}

    def __len__(self) -> int:
        """Return the number of Jobs with a refused write."""
        return len(self._by_key)

    def forget(self, key: JobKey) -> None:
        """Drop the refusals of a deleted Job."""
        self._by_key.pop(key, None)

    def with_known_refusal(self, key: JobKey, snapshot: Snapshot, now: float) -> Snapshot:
        """Return the snapshot with refusals of the DaemonSet and of nodes that are not due again.

        Other refused writes are tried in every reconcile, because the next one may be about
        another pod. Only the delay of a reconcile without a change grows for them.
        """
        known = self._by_key.get(key, {})
        for write, refusal in list(known.items()):
            if refusal.spec != _spec(snapshot.job):
                del known[write]
        if not known:
            self._by_key.pop(key, None)
        for write in (RefusedWrite.OWNED_JOB, RefusedWrite.OWNED_JOB_NAME):
            owned = known.get(write)
            if owned is not None and now < owned.until:
                snapshot = _with_refusal(snapshot, write, owned, now)
        changes = known.get(RefusedWrite.NODE_CHANGE)
        # Before the start it is asked again at once: the right may have been given meanwhile.
        if changes is not None and now < changes.until and snapshot.job.status.start_time:
            snapshot = _with_refusal(snapshot, RefusedWrite.NODE_CHANGE, changes, now)
        refused = known.get(RefusedWrite.DAEMON_SET)
        if refused is None or now >= refused.until or refused.daemon_set_uid != _uid(snapshot):
            return snapshot
        after = _with_refusal(snapshot, RefusedWrite.DAEMON_SET, refused, now)
        return replace(after, daemon_set=snapshot.daemon_set or refused.found)

    def record(
        self, key: JobKey, write: RefusedWrite, before: Snapshot, after: Snapshot, now: float
    ) -> Snapshot:
        """Record a refused write; return `after` with the delay of its next try.

        `before` is the snapshot without the refusal, `after` with it. A write that is refused
        again before its time does not make the delay grow.
        """
        known = self._by_key.setdefault(key, {})
        last = known.get(write)
        failures, until = (last.failures, last.until) if last is not None else (0, now)
        if now >= until:
            is_there = write is RefusedWrite.DAEMON_SET and before.owned_daemon_set is not None
            bounds = GATE_RETRY_SECONDS if is_there else RETRY_SECONDS
            until = now + exponential_seconds(failures, *bounds)
            failures += 1
        known[write] = _Refusal(
            spec=_spec(before.job),
            daemon_set_uid=_uid(before),
            found=after.daemon_set,
            message=after.refusals[write],
            failures=failures,
            until=until,
        )
        soonest = min(refusal.until for refusal in known.values())
        return replace(after, retry_seconds=max(soonest - now, 0.0))

    def clear_resolved(self, key: JobKey, snapshot: Snapshot) -> None:
        """Drop the refusals that are not in this snapshot, the last one of a reconcile."""
        known = self._by_key.get(key, {})
        for write in list(known):
            if write not in snapshot.refusals:
                del known[write]
        if not known:
            self._by_key.pop(key, None)


def _with_refusal(
    snapshot: Snapshot, write: RefusedWrite, refusal: _Refusal, now: float
) -> Snapshot:
    """Return the snapshot with a refusal that is not due again; the soonest retry counts."""
    waits = refusal.until - now
    soonest = min(snapshot.retry_seconds, waits) if snapshot.refusals else waits
    return replace(snapshot.with_refusal(write, refusal.message), retry_seconds=soonest)


def _spec(job: Job) -> _Spec:
    return job.uid, job.generation, job.retry_request


def _uid(snapshot: Snapshot) -> str:
    return snapshot.daemon_set.uid if snapshot.daemon_set is not None else ""
