"""Leader election on a Lease: at most one of several processes acts.

The rules are those of client-go's tools/leaderelection; the loop is our own, because that of
``kubernetes.aio.leaderelection`` goes on renewing after the leading task has crashed, and does not
wait for it to end when the lease is lost.

Why two never lead at once: a leader stops `renew_seconds` after the *start* of its last successful
write; a candidate takes over no sooner than `lease_seconds` after it *saw* that write, counted on
its own monotonic clock. Clocks of different machines are never compared. What remains for the
leader to stop in is the difference of the two.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from loguru import logger

from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    OperatorError,
)
from daemonset_job.kube.client.resource import LEASES
from daemonset_job.runtime.clock import Clock

# Candidates that started together must not retry at the same moments (client-go: JitterFactor 1.2).
_JITTER = 0.2
# A successor waits for the lease's end if the release fails, so a failed one is soon repeated.
_RELEASE_RETRY_SECONDS = 0.2


class _LeaseLost(OperatorError):  # noqa: N818 - an event of normal life
    """The lease could not be renewed in time, or somebody else has it."""


async def run_as_leader(  # noqa: PLR0913 - independent settings, given by name
    client: KubeClient,
    *,
    namespace: str,
    name: str,
    identity: str,
    lease_seconds: float = 15,
    renew_seconds: float = 10,
    retry_seconds: float = 2,
    clock: Clock,
    lead: Callable[[], Awaitable[None]],
    on_state: Callable[[bool], None],
) -> None:
    """Wait for the lease, then run `lead` once, for as long as the lease can be renewed.

    Returns when `lead` has returned, and also when the lease was lost: then `lead` has been
    cancelled and has ended. What `lead` raises is raised. Cancellation cancels `lead`, waits for
    it while the lease is still being renewed, and is raised again. In every case the lease is
    released last, so that a successor need not wait for its end.

    `identity` must be of this process alone (a pod name and something random): whoever finds its
    own identity in the lease takes it for its own. `on_state` is told True before `lead` starts
    and False after it has ended. ValueError unless lease > renew > retry.
    """
    if not lease_seconds > renew_seconds > retry_seconds > 0:
        raise ValueError(
            "lease_seconds, renew_seconds and retry_seconds must descend: "
            f"{lease_seconds:g}, {renew_seconds:g}, {retry_seconds:g}"
        )
    terms = _Timings(lease_seconds, renew_seconds, retry_seconds)
    candidate = _Candidate(client, namespace, name, identity, terms, clock)
    try:
        await candidate.acquire()
        logger.bind(lease=f"{namespace}/{name}", identity=identity).info("became leader")
        on_state(True)
        try:
            await _lead(candidate, lead)
        finally:
            on_state(False)
            logger.bind(lease=f"{namespace}/{name}", identity=identity).info("stopped leading")
    finally:
        await candidate.release()


async def run_leader_election(  # noqa: PLR0913 - independent settings, given by name
    client: KubeClient,
    *,
    namespace: str,
    name: str,
    process: str,
    clock: Clock,
    lead: Callable[[], Awaitable[None]],
    on_state: Callable[[bool], None],
) -> None:
    """Run `lead` whenever the lease is ours, until cancelled; see `run_as_leader`.

    `process` (a pod or host name) starts the identity; something random follows for each term.
    """
    task = asyncio.current_task()
    assert task is not None
    while not task.cancelling():
        await run_as_leader(
            client,
            namespace=namespace,
            name=name,
            identity=f"{process}_{uuid4().hex[:8]}",
            clock=clock,
            lead=lead,
            on_state=on_state,
        )
    # A lease that is lost in the moment of a cancellation hides it: until Python 3.13 a task
    # group raises the error of its child, and the cancellation is gone (cpython gh-116720).
    raise asyncio.CancelledError


async def _lead(candidate: "_Candidate", lead: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(candidate.renew_until_lost())
            try:
                # In the group's own task: cancelled from outside it may take its time to end, and
                # the lease is renewed meanwhile; a failing renewal cancels it through the group.
                await lead()
            finally:
                renewing.cancel()
    except ExceptionGroup as failures:
        lost, others = failures.split(_LeaseLost)
    else:
        return
    if others is not None:
        # What the lead raised is for the caller as it is, without the group's wrapping.
        raise others.exceptions[0] if len(others.exceptions) == 1 else others
    logger.bind(reason=str(lost and lost.exceptions[0])).warning("lost the lease")


@dataclass(frozen=True, slots=True)
class _Timings:
    lease_seconds: float
    renew_seconds: float
    retry_seconds: float


class _Candidate:
    """One contender for one lease, and what it has seen of it."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        terms: _Timings,
        clock: Clock,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._terms = terms
        self._clock = clock
        self._seen: RawObject | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self._attempted = False

    async def acquire(self) -> None:
        """Return once the lease is ours; errors of the API are logged and tried again."""
        while True:
            try:
                if await self._try_acquire(self._terms.renew_seconds / 2):
                    return
            except KubeError as error:
                logger.bind(lease=self._name, error=str(error)).warning("cannot reach the lease")
            await asyncio.sleep(self._terms.retry_seconds * (1 + _JITTER * random.random()))  # noqa: S311

    async def renew_until_lost(self) -> None:
        """Renew the lease until that fails for too long: raises _LeaseLost, never returns."""
        while True:
            renewed_ago_seconds = self._clock.monotonic() - self._renewed_at
            try:
                # One limit over pauses and requests: it ends neither late nor in a pause.
                async with asyncio.timeout(self._terms.renew_seconds - renewed_ago_seconds):
                    await self._renew()
            except TimeoutError:
                raise _LeaseLost(f"not renewed for {self._terms.renew_seconds:g} s") from None

    async def _renew(self) -> None:
        """Return after the next successful renewal; _LeaseLost if somebody else has the lease."""
        while True:
            await asyncio.sleep(self._terms.retry_seconds)
            try:
                # Half of the time, so that one request that hangs leaves room for another.
                is_ours = await self._try_acquire(self._terms.renew_seconds / 2)
            except KubeError as error:
                logger.bind(lease=self._name, error=str(error)).warning("cannot renew the lease")
                continue
            if not is_ours:
                raise _LeaseLost(f"held by {_holder(self._seen)!r}")
            return

    async def release(self) -> None:
        """Give the lease back if it may be ours; best effort, for half of the renewal's time."""
        if not self._attempted:
            return
        try:
            async with asyncio.timeout(self._terms.renew_seconds / 2):
                while True:
                    if await self._try_release():
                        return
                    await asyncio.sleep(_RELEASE_RETRY_SECONDS)
        except (KubeError, TimeoutError) as error:
            logger.bind(lease=self._name, error=repr(error)).warning("could not release the lease")

    async def _try_release(self) -> bool:
        """Return whether the lease is not ours any more; False if that is worth another try."""
        try:
            current = await self._client.get(LEASES, self._name, self._namespace)
            if _holder(current) == self._identity:
                await self._write(current, self._released(current))
        except KubeError as error:
            # A conflict too: a renewal that was cancelled on its way may be written all the same.
            if not error.is_retryable:
                raise
            return False
        return True

    # --- one attempt -------------------------------------------------------------------

    async def _try_acquire(self, timeout_seconds: float) -> bool:
        """Take or renew the lease; False if it is somebody else's."""
        started = self._clock.monotonic()
        if self._seen is not None and _holder(self._seen) == self._identity:
            # The usual renewal needs no read: the version we wrote last is the precondition.
            try:
                return await self._claim(self._seen, started, timeout_seconds)
            except (Conflict, NotFound):
                self._seen = None
        try:
            current = await self._client.get(
                LEASES, self._name, self._namespace, timeout_seconds=timeout_seconds
            )
        except NotFound:
            return await self._create(started, timeout_seconds)
        self._observe(current)
        if self._is_held_by_another(current):
            return False
        try:
            return await self._claim(current, started, timeout_seconds)
        except Conflict:
            return False

    async def _create(self, started: float, timeout_seconds: float) -> bool:
        self._attempted = True
        body = {"metadata": {"name": self._name}, "spec": self._claimed({})}
        try:
            created = await self._client.create(
                LEASES, body, self._namespace, timeout_seconds=timeout_seconds
            )
        except AlreadyExists:
            return False
        return self._won(created, started)

    async def _claim(self, current: RawObject, started: float, timeout_seconds: float) -> bool:
        self._attempted = True
        written = await self._write(current, self._claimed(_spec(current)), timeout_seconds)
        return self._won(written, started)

    async def _write(
        self, current: RawObject, spec: Mapping[str, Any], timeout_seconds: float = 10
    ) -> RawObject:
        body = {**current, "spec": spec}  # its resourceVersion makes this conditional
        return await self._client.replace(
            LEASES, self._name, body, self._namespace, timeout_seconds=timeout_seconds
        )

    def _won(self, written: RawObject, started: float) -> bool:
        self._observe(written)
        self._renewed_at = started
        return True

    def _observe(self, current: RawObject) -> None:
        if self._seen is None or _spec(self._seen) != _spec(current):
            self._seen_at = self._clock.monotonic()
        self._seen = current

    def _is_held_by_another(self, current: RawObject) -> bool:
        if _holder(current) in ("", self._identity):
            return False
        duration = float(_spec(current).get("leaseDurationSeconds") or self._terms.lease_seconds)
        return self._clock.monotonic() < self._seen_at + duration

    def _claimed(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        now = _micro_time(self._clock)
        claimed = {
            **spec,
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._terms.lease_seconds),
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self._identity:
            claimed["acquireTime"] = now
            claimed["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(spec)
        return claimed

    def _released(self, current: RawObject) -> dict[str, Any]:
        # As client-go does with ReleaseOnCancel: no holder, and a duration of one second for
        # those that look at nothing else. An empty string would be refused as a holder.
        spec = {key: value for key, value in _spec(current).items() if key != "holderIdentity"}
        return {**spec, "leaseDurationSeconds": 1, "renewTime": _micro_time(self._clock)}


def _holder(lease: RawObject | None) -> str:
    return str(_spec(lease or {}).get("holderIdentity") or "")


def _spec(lease: RawObject) -> dict[str, Any]:
    spec: dict[str, Any] = lease.get("spec") or {}
    return spec


def _micro_time(clock: Clock) -> str:
    """Return now as a metav1.MicroTime, which always has six decimals."""
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
