"""Leader election on a Lease: at most one of several processes acts.

The rules are those of client-go's tools/leaderelection. The loop is our own. That of
``kubernetes.aio.leaderelection`` goes on renewing after the leading task has crashed, and does not
wait for it to end when the Lease is lost.

Two processes never lead at once. A leader stops `renew_deadline_seconds` after the *start* of its
last successful write. A candidate takes over no sooner than `lease_duration_seconds` after it *saw*
that write, counted on its own monotonic clock. Clocks of different machines are never compared. The
leader has the difference of the two to stop in.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loguru import logger

from daemonset_job.kube.client.errors import KubeError, OperatorError
from daemonset_job.kube.leaderelection.lease_lock import LeaseLock

# Candidates that started together must not retry at the same moments (client-go: JitterFactor 1.2).
_JITTER = 0.2
# A successor waits for the Lease's end if the release fails, so a failed one is soon repeated.
_RELEASE_RETRY_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """How long a Lease lasts, and how often it is renewed; the names and values of client-go.

    ValueError unless lease duration > renew deadline > retry period > 0.
    """

    lease_duration_seconds: float = 15
    renew_deadline_seconds: float = 10
    retry_period_seconds: float = 2

    def __post_init__(self) -> None:
        """Check the order of the durations."""
        duration, deadline = self.lease_duration_seconds, self.renew_deadline_seconds
        if not duration > deadline > self.retry_period_seconds > 0:
            raise ValueError(
                "lease duration, renew deadline and retry period must descend: "
                f"{duration:g}, {deadline:g}, {self.retry_period_seconds:g}"
            )

    @property
    def attempt_timeout_seconds(self) -> float:
        """Half of the deadline, so that one request that hangs leaves room for another."""
        return self.renew_deadline_seconds / 2


_CONFIG = LeaderElectionConfig()


class _LeaseLost(OperatorError):  # noqa: N818 - an event of normal life
    """The Lease could not be renewed in time, or another process has it."""


async def run_leader_election(
    new_lock: Callable[[], LeaseLock],
    *,
    lead: Callable[[], Awaitable[None]],
    on_state: Callable[[bool], None],
) -> None:
    """Run `lead` whenever the Lease is ours, until cancelled; see `run_as_leader`.

    `new_lock` returns the lock of the next term, which has an identity of its own.
    """
    task = asyncio.current_task()
    assert task is not None
    while not task.cancelling():
        await run_as_leader(new_lock(), lead=lead, on_state=on_state)
    # A Lease that is lost at the same moment hides a cancellation: until Python 3.13 a task group
    # raises only the error of its child (cpython gh-116720).
    raise asyncio.CancelledError


async def run_as_leader(
    lock: LeaseLock,
    *,
    lead: Callable[[], Awaitable[None]],
    on_state: Callable[[bool], None],
    config: LeaderElectionConfig = _CONFIG,
) -> None:
    """Wait for the Lease, then run `lead` once, for as long as the Lease can be renewed.

    Returns when `lead` has returned, and also when the Lease was lost: then `lead` has been
    cancelled and has ended. What `lead` raises is raised. Cancellation cancels `lead`, waits for
    it while the Lease is still being renewed, and is raised again. In every case the Lease is
    released last, so that a successor need not wait for its end.

    `on_state` gets True before `lead` starts and False after it has ended.
    """
    log = logger.bind(lease=str(lock), identity=lock.identity)
    try:
        await _acquire(lock, config)
        log.info("became leader")
        on_state(True)
        try:
            await _lead(lock, config, lead)
        finally:
            on_state(False)
            log.info("stopped leading")
    finally:
        await _release(lock, config)


async def _lead(
    lock: LeaseLock, config: LeaderElectionConfig, lead: Callable[[], Awaitable[None]]
) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            renewing = group.create_task(_renew_until_lost(lock, config))
            try:
                # In the group's own task. Cancelled from outside it may take its time to end, and
                # the Lease is renewed meanwhile. A failing renewal cancels it through the group.
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


async def _acquire(lock: LeaseLock, config: LeaderElectionConfig) -> None:
    """Return once the Lease is ours; errors of the API are logged and tried again."""
    while True:
        try:
            if await _try_acquire(lock, config):
                return
        except KubeError as error:
            logger.bind(lease=str(lock), error=str(error)).warning("cannot reach the lease")
        await asyncio.sleep(config.retry_period_seconds * (1 + _JITTER * random.random()))  # noqa: S311 - no secret


async def _renew_until_lost(lock: LeaseLock, config: LeaderElectionConfig) -> None:
    """Renew the Lease until that fails for too long: raises _LeaseLost, never returns."""
    while True:
        left_seconds = config.renew_deadline_seconds - lock.seconds_since_renewal()
        try:
            # One limit over pauses and requests: it ends neither late nor in a pause.
            async with asyncio.timeout(left_seconds):
                await _renew(lock, config)
        except TimeoutError:
            raise _LeaseLost(f"not renewed for {config.renew_deadline_seconds:g} s") from None


async def _renew(lock: LeaseLock, config: LeaderElectionConfig) -> None:
    """Return after the next successful renewal; _LeaseLost if another process has the Lease."""
    while True:
        await asyncio.sleep(config.retry_period_seconds)
        try:
            is_ours = await _try_acquire(lock, config)
        except KubeError as error:
            logger.bind(lease=str(lock), error=str(error)).warning("cannot renew the lease")
            continue
        if not is_ours:
            raise _LeaseLost(f"held by {lock.holder!r}")
        return


async def _try_acquire(lock: LeaseLock, config: LeaderElectionConfig) -> bool:
    return await lock.try_acquire(
        config.lease_duration_seconds, timeout_seconds=config.attempt_timeout_seconds
    )


async def _release(lock: LeaseLock, config: LeaderElectionConfig) -> None:
    """Give the Lease back if it may be ours; best effort, for half of the renewal's time."""
    if not lock.may_be_held:
        return
    try:
        async with asyncio.timeout(config.attempt_timeout_seconds):
            while True:
                if await lock.try_release():
                    return
                await asyncio.sleep(_RELEASE_RETRY_SECONDS)
    except (KubeError, TimeoutError) as error:
        logger.bind(lease=str(lock), error=repr(error)).warning("could not release the lease")
