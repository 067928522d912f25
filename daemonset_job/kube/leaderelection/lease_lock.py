"""One process's attempts to take, renew and release one Lease, and what it has seen of it."""

from collections.abc import Mapping
from typing import Any

from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, Conflict, KubeError, NotFound
from daemonset_job.kube.client.resource import LEASES
from daemonset_job.kube.leaderelection.lease_record import claimed, holder_of, released, spec_of
from daemonset_job.runtime.clock import Clock

_WRITE_TIMEOUT_SECONDS = 10.0
# A Lease that was edited may say that it lasts for years. No version of this program says more.
_LONGEST_DURATIONS = 4


class LeaseLock:
    """One Lease, as one process sees it.

    `identity` must be of this process alone (a pod name and something random): a process takes a
    Lease with its own identity for its own.
    """

    def __init__(
        self, client: KubeClient, namespace: str, name: str, *, identity: str, clock: Clock
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self._clock = clock
        self._seen: RawObject | None = None
        self._seen_at = 0.0
        self._has_written = False
        self._was_ours = False
        self._renewed_at = 0.0

    def __str__(self) -> str:
        """Return "namespace/name"."""
        return f"{self._namespace}/{self._name}"

    @property
    def holder(self) -> str:
        """Return the identity that held the Lease when it was last seen, empty for none."""
        return holder_of(self._seen)

    @property
    def may_be_held(self) -> bool:
        """Return whether a write was sent that may have given the Lease to this process."""
        return self._has_written

    def seconds_since_renewal(self) -> float:
        """Return how long ago the last successful write began."""
        return self._clock.monotonic() - self._renewed_at

    async def try_acquire(self, lease_duration_seconds: float, *, timeout_seconds: float) -> bool:
        """Take or renew the Lease; False if another process holds it. Raises KubeError.

        A Lease that was ours is lost also if no process holds it now. Another one may have led
        while this one was paused.
        """
        began = self._clock.monotonic()
        if self._seen is not None and self.holder == self.identity:
            # The usual renewal needs no read: the version we wrote last is the precondition.
            try:
                return await self._claim(self._seen, began, lease_duration_seconds, timeout_seconds)
            except (Conflict, NotFound):
                self._seen = None
        try:
            current = await self._client.get(
                LEASES, self._name, self._namespace, timeout_seconds=timeout_seconds
            )
        except NotFound:
            # Who deletes a Lease does not end the process that leads: it may not know that yet.
            if self._is_held_by_another(self._seen, lease_duration_seconds):
                return False
            return await self._create(began, lease_duration_seconds, timeout_seconds)
        self._observe(current)
        is_lost = self._was_ours and self.holder != self.identity
        if is_lost or self._is_held_by_another(current, lease_duration_seconds):
            return False
        try:
            return await self._claim(current, began, lease_duration_seconds, timeout_seconds)
        except Conflict:
            return False

    async def try_release(self) -> bool:
        """Return whether the Lease is not ours any more; False if that is worth another try."""
        try:
            current = await self._client.get(LEASES, self._name, self._namespace)
            if holder_of(current) == self.identity:
                await self._write(current, released(spec_of(current), self._clock.now()))
        except KubeError as error:
            # A conflict too: a renewal that was cancelled on its way may be written all the same.
            if not error.is_retryable:
                raise
            return False
        return True

    async def _create(
        self, began: float, lease_duration_seconds: float, timeout_seconds: float
    ) -> bool:
        self._has_written = True
        spec = claimed({}, self.identity, lease_duration_seconds, self._clock.now())
        body = {"metadata": {"name": self._name}, "spec": spec}
        try:
            created = await self._client.create(
                LEASES, body, self._namespace, timeout_seconds=timeout_seconds
            )
        except AlreadyExists:
            return False
        return self._won(created, began)

    async def _claim(
        self,
        current: RawObject,
        began: float,
        lease_duration_seconds: float,
        timeout_seconds: float,
    ) -> bool:
        self._has_written = True
        spec = claimed(spec_of(current), self.identity, lease_duration_seconds, self._clock.now())
        return self._won(await self._write(current, spec, timeout_seconds), began)

    async def _write(
        self,
        current: RawObject,
        spec: Mapping[str, Any],
        timeout_seconds: float = _WRITE_TIMEOUT_SECONDS,
    ) -> RawObject:
        body = {**current, "spec": spec}  # its resourceVersion makes this conditional
        return await self._client.replace(
            LEASES, self._name, body, self._namespace, timeout_seconds=timeout_seconds
        )

    def _won(self, written: RawObject, began: float) -> bool:
        self._observe(written)
        self._was_ours = True
        self._renewed_at = began
        return True

    def _observe(self, current: RawObject) -> None:
        if self._seen is None or spec_of(self._seen) != spec_of(current):
            self._seen_at = self._clock.monotonic()
        self._seen = current

    def _is_held_by_another(self, lease: RawObject | None, lease_duration_seconds: float) -> bool:
        """Return whether another process may still lead, by the Lease as it was last seen.

        With the duration of an edited Lease two processes could lead, or none for years.
        """
        if holder_of(lease) in ("", self.identity):
            return False
        recorded = float(spec_of(lease or {}).get("leaseDurationSeconds") or 0)
        longest = _LONGEST_DURATIONS * lease_duration_seconds
        duration = min(max(recorded, lease_duration_seconds), longest)
        return self._clock.monotonic() < self._seen_at + duration
