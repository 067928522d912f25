"""The notifications that wait for one receiver, sent one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import orjson
from loguru import logger

from daemonset_job.api.notifications import DELIVERY_LIMIT_SECONDS, Delivery, Occurrence
from daemonset_job.api.report import JobReport
from daemonset_job.kube.client.errors import KubeError
from daemonset_job.runtime.backoff import Backoff
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue, namespace_of
from job_controller.core.notifications import (
    Notification,
    SendResult,
    after_giving_up,
    after_sending,
    next_notification,
)
from job_controller.core.receivers import Receiver
from job_controller.core.render.notification_text import render_notification
from job_controller.dependencies import Dependencies
from job_controller.notify.deliveries import Deliveries
from job_controller.notify.report_events import emit_not_sent
from job_controller.outbound import Answer, Outbound, OutboundError, OutboundRequest

Place = tuple[str, str]
"""The namespace and the name of a report."""

# At most ten a second to one receiver.
INTERVAL_SECONDS: Final = 0.1
# One notification is sent at a time. What was sent is recorded meanwhile, for one report of a
# namespace at a time: a webhook may let that hang.
REPORTS_AT_ONCE: Final = 4
# After a failure no notification is sent to the receiver for a while. One that failed although the
# receiver had taken another one right before it waits for longer, and holds up no others.
RECEIVER_BACKOFF_SECONDS: Final = (1.0, 30.0)
_KEY_BACKOFF_SECONDS: Final = (1.0, 30.0)
# A receiver that has taken nothing for this time is away. One try may fail for another reason: the
# network of a controller that has just started is not there yet.
AWAY_SECONDS: Final = 60.0
# They concern the message: the same one would be refused again.
_REFUSALS: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
_REDIRECTS: Final = range(300, 400)


class NotSentError(Exception):
    """A try failed, and is repeated; `is_away`: the try before it had failed, too."""

    def __init__(self, words: str, *, is_away: bool) -> None:
        self.is_away = is_away
        super().__init__(words)


class Line:
    """Reports of which one receiver is yet to be notified; namespaces have their turns.

    It holds nothing but the names of reports that exist. A receiver that is slow, or away, delays
    nothing but its own notifications.
    """

    def __init__(
        self,
        name: str,
        receiver: Callable[[str], Receiver | None],
        dependencies: Dependencies,
        deliveries: Deliveries,
        outbound: Outbound,
    ) -> None:
        self._name = name
        self._receiver = receiver
        self._dependencies = dependencies
        self._deliveries = deliveries
        self._outbound = outbound
        initial, longest = _KEY_BACKOFF_SECONDS
        self._queue: WorkQueue[Place] = WorkQueue(
            base_seconds=initial, max_seconds=longest, group_of=namespace_of, group_limit=1
        )
        self._sending = asyncio.Lock()
        self._backoff = Backoff(*RECEIVER_BACKOFF_SECONDS)
        # By the monotonic clock: when the next notification may be sent.
        self._free_at = 0.0
        self._last_problem = ""
        # By the monotonic clock: since when each try has failed, None if the last one did not.
        self._failing_since: float | None = None

    @property
    def waiting(self) -> int:
        """How many reports wait."""
        queue = self._queue
        return len(queue) + queue.delayed + queue.processing

    def add(self, place: Place) -> None:
        """Have the notifications of a report sent, unless it waits already."""
        if not self._queue.failures(place):
            self._queue.add(place)

    async def run(self) -> None:
        """Send what is due, one after the other, until cancelled."""
        await run_workers(
            self._queue, self._process, count=REPORTS_AT_ONCE, on_error=self._on_error
        )

    async def _process(self, place: Place) -> float | None:
        """Send the next notification of a report; return 0 if there may be another one."""
        # What was not recorded before is recorded first, while others are sent.
        await self._find_next(place)
        async with self._sending:
            await self._wait_for_turn()
            if (found := await self._find_next(place)) is None:
                return None
            report, delivery, due = found
            result, why = await self._try(report, due, was_tried=self._was_tried(place))
        if result == SendResult.SENT:
            self._dependencies.metrics.notifications.count(self._name, result)
            after = after_sending(delivery, due.occurrence)
            await self._deliveries.record(report, self._name, after)
        else:
            await self._give_up(report, delivery, due.occurrence, result, why)
        return 0.0

    async def _find_next(self, place: Place) -> tuple[JobReport, Delivery, Notification] | None:
        """Return what is to be sent next of a report, None for nothing; raises KubeError."""
        report = self._deliveries.find_report(place)
        receiver = self._receiver(self._name)
        if report is None or receiver is None:
            return None
        delivery = await self._deliveries.current(report, self._name)
        if delivery is None:
            return None
        due = next_notification(report, delivery, receiver, self._dependencies.clock.now())
        return None if due is None else (report, delivery, due)

    def _was_tried(self, place: Place) -> bool:
        """Return whether a try of this report has failed, or all tries have for a while.

        Not so if no controller was there for longer than a notification is tried.
        """
        if self._queue.failures(place):
            return True
        now, since = self._dependencies.clock.monotonic(), self._failing_since
        return since is not None and now - since >= AWAY_SECONDS

    async def _try(
        self, report: JobReport, due: Notification, *, was_tried: bool
    ) -> tuple[SendResult, str]:
        """Send a notification; return what became of it, and why if it is given up.

        Raises NotSentError if it is to be sent again.
        """
        if due.is_expired and was_tried:
            hour = f"it was not delivered within {DELIVERY_LIMIT_SECONDS / 60:.0f} minutes"
            why = f"{hour}; {self._last_problem}" if self._last_problem else hour
            return SendResult.EXPIRED, why
        try:
            answer = await self._send(report, due)
        except OutboundError as error:
            raise self._failed(error.words, error.detail) from None
        if answer.status in _REFUSALS:
            why = f"the receiver refused it with HTTP {answer.status}"
            self._log(why, answer.excerpt)
            return SendResult.REFUSED, why
        if not 200 <= answer.status < 300:
            self._hold(answer.retry_after_seconds)
            raise self._failed(_status_words(answer), answer.excerpt)
        self._backoff.reset()
        self._last_problem = ""
        self._failing_since = None
        return SendResult.SENT, ""

    async def _send(self, report: JobReport, due: Notification) -> Answer:
        cluster = self._dependencies.settings().cluster_name
        receiver = due.receiver
        message = render_notification(report, due.occurrence, receiver.message_format, cluster)
        request = OutboundRequest("POST", body=orjson.dumps(message))
        try:
            return await self._outbound.send(receiver.endpoint, request)
        finally:
            self._hold(INTERVAL_SECONDS)

    async def _give_up(
        self,
        report: JobReport,
        delivery: Delivery,
        occurrence: Occurrence,
        result: SendResult,
        why: str,
    ) -> None:
        self._dependencies.metrics.notifications.count(self._name, result)
        after = after_giving_up(delivery, occurrence, why)
        await self._deliveries.record(report, self._name, after)
        emit_not_sent(self._dependencies.events, report, self._name, after.message)

    async def _wait_for_turn(self) -> None:
        seconds = self._free_at - self._dependencies.clock.monotonic()
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _hold(self, seconds: float | None) -> None:
        now = self._dependencies.clock.monotonic()
        self._free_at = max(self._free_at, now + (seconds or 0.0))

    def _failed(self, words: str, detail: str) -> NotSentError:
        """Return the error of a try that failed, and hold back what else waits."""
        is_away = self._backoff.failures > 0
        self._hold(self._backoff.next_seconds())
        self._last_problem = words
        if self._failing_since is None:
            self._failing_since = self._dependencies.clock.monotonic()
        self._dependencies.metrics.notifications.count_error(self._name)
        self._log(words, detail)
        return NotSentError(words, is_away=is_away)

    def _log(self, words: str, detail: str) -> None:
        logger.warning(
            "cannot send a notification", receiver=self._name, problem=words, detail=detail
        )

    def _on_error(self, place: Place, error: BaseException) -> float | None:
        """Have the report tried again after its backoff; log what the log does not have yet.

        While the receiver is away, that is no fault of the report. It waits for the next try only,
        so that all are sent as soon as one is taken.
        """
        if isinstance(error, NotSentError):
            return 0.0 if error.is_away else None
        log_retry("cannot record a notification, retrying", place, error)
        return None


def _status_words(answer: Answer) -> str:
    if answer.status in _REDIRECTS:
        return f"it answered with a redirect (HTTP {answer.status}), which is not followed"
    return f"it answered with HTTP {answer.status}"


def log_retry(words: str, place: Place, error: BaseException) -> None:
    """Log that the work on a report is repeated; a defect of this program with its traceback."""
    if isinstance(error, KubeError):
        logger.warning(words, namespace=place[0], report=place[1], error=str(error))
    else:
        logger.opt(exception=error).error(words, namespace=place[0], report=place[1])
