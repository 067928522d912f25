"""Shows users what happened, where ``kubectl describe`` and ``kubectl events`` show it.

core/v1 Events: describe looks for them by ``involvedObject``, and their count and timestamps are
what it prints as "x5 over 10m". Nothing depends on an event: they are sent by a task of their own,
from a bounded queue, and what cannot be sent is dropped and counted. Namespaces are served in turn,
and the one with the most events in line loses one if there are too many. One whose writes take
longer than a second, because of a webhook for example, then delays only others like it.
"""

import asyncio
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from loguru import logger

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import AlreadyExists, KubeError, NotFound
from daemonset_job.kube.client.messages import clean_text
from daemonset_job.kube.client.resource import EVENTS
from daemonset_job.runtime.backoff import exponential_seconds
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue

EventType = Literal["Normal", "Warning"]

# The API's own limits (apimachinery/api core validation: message 1 kB, reason 128, names 253).
MESSAGE_LIMIT = 1024
REASON_LIMIT = 128
_NAME_LIMIT = 253
# Per object, as client-go's spam filter: 25 at once, then one every five minutes.
BURST = 25
REFILL_SECONDS = 300.0
QUEUE_LIMIT = 1000
# Objects and events remembered for limiting and counting; the least recently used goes first.
MEMORY_LIMIT = 4096
SEND_TIMEOUT_SECONDS = 10.0
# A namespace with a write that takes longer is a slow one until a write is quicker. A write of
# another one is broken off then, and made again as that of a slow namespace.
QUICK_SECONDS = 1.0
# How many namespaces are written to at a time: of the slow ones, and of the others.
NAMESPACES_AT_ONCE = 4
_ATTEMPTS = 4
_BACKOFF_SECONDS = (0.5, 10.0)


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """What an event is about; `namespace` is empty for cluster-scoped objects."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = ""


@dataclass(slots=True)
class _Pending:
    """An event not yet sent, with the repetitions that came meanwhile."""

    about: ObjectReference
    type: EventType
    reason: str
    message: str
    action: str
    first: datetime
    last: datetime
    times: int = 1
    failures: int = 0
    due_at: float = 0.0  # by the monotonic clock: no write is made earlier


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class EventRecorder:
    """Takes events at any rate and sends them at a bearable one; `run` does the sending.

    The name of an event is made of what it says, so a repetition raises the count of the one that
    is there, over restarts too. `dropped` counts what was too much or could not be sent.
    """

    def __init__(
        self, client: KubeClient, *, component: str, clock: Clock, instance: str = ""
    ) -> None:
        """Make a recorder; `component` names the program and `instance` its pod."""
        self._client = client
        self._component = component
        self._instance = instance or component
        self._clock = clock
        # By namespace and by name; none of them is empty.
        self._lines: dict[str, OrderedDict[str, _Pending]] = {}
        self._waiting = 0
        # By namespace: the event that was taken from the line, with its name.
        self._taken: dict[str, tuple[str, _Pending]] = {}
        self._quick: WorkQueue[str] = WorkQueue()
        self._slow: WorkQueue[str] = WorkQueue()
        self._slow_namespaces: OrderedDict[str, None] = OrderedDict()
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._counts: OrderedDict[str, int] = OrderedDict()
        self.dropped = 0

    def emit(
        self,
        about: ObjectReference,
        type_: EventType,
        reason: str,
        message: str,
        action: str = "",
    ) -> None:
        """Put an event in line; never blocks and never fails. Call it after the write succeeded.

        `message` is put on one line, without control characters, at most 1024 characters long.
        """
        message = clean_text(message, MESSAGE_LIMIT)
        reason = clean_text(reason, REASON_LIMIT)
        name = _event_name(about, type_, reason, message)
        now = self._clock.now()
        line = self._lines.get(about.namespace)
        pending = line.get(name) if line is not None else None
        if not self._take_token(about):
            self.dropped += 1
        elif pending is not None:
            pending.times += 1
            pending.last = now
        elif self._waiting >= QUEUE_LIMIT and not self._make_room(about.namespace):
            self.dropped += 1
        else:
            self._lines.setdefault(about.namespace, OrderedDict())[name] = _Pending(
                about, type_, reason, message, clean_text(action, REASON_LIMIT), now, now
            )
            self._waiting += 1
            self._queue_of(about.namespace).add(about.namespace)

    def _make_room(self, namespace: str) -> bool:
        """Drop the newest event of the namespace with most; False if that would be this one."""
        fullest = max(self._lines, key=lambda each: len(self._lines[each]))
        if len(self._lines[fullest]) <= len(self._lines.get(namespace, ())) + 1:
            return False
        _, dropped = self._pop(fullest, last=True)
        self.dropped += dropped.times
        return True

    def _pop(self, namespace: str, *, last: bool) -> tuple[str, _Pending]:
        line = self._lines[namespace]
        found = line.popitem(last=last)
        if not line:
            del self._lines[namespace]
        self._waiting -= 1
        return found

    async def run(self) -> None:
        """Send what is in line, of each namespace one by one, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for queue, send in ((self._quick, self._send_quickly), (self._slow, self._send_slowly)):
                group.create_task(
                    run_workers(queue, send, count=NAMESPACES_AT_ONCE, on_error=_raise)
                )

    # --- sending -----------------------------------------------------------------------

    def _queue_of(self, namespace: str) -> WorkQueue[str]:
        return self._slow if namespace in self._slow_namespaces else self._quick

    async def _send_quickly(self, namespace: str) -> float | None:
        """Send the next event, unless that takes long; return the seconds until the one after."""
        if namespace not in self._slow_namespaces:
            try:
                async with asyncio.timeout(QUICK_SECONDS):
                    return await self._send_next(namespace)
            except TimeoutError:
                self._slow_namespaces[namespace] = None
                if len(self._slow_namespaces) > MEMORY_LIMIT:
                    self._slow_namespaces.popitem(last=False)
        self._queue_of(namespace).add(namespace)
        return None

    async def _send_slowly(self, namespace: str) -> float | None:
        """Send the next event of a slow namespace, which is no longer one if that was quick."""
        if namespace in self._slow_namespaces:
            started = self._clock.monotonic()
            wait = await self._send_next(namespace)
            is_sent = namespace not in self._taken
            if not is_sent or self._clock.monotonic() - started >= QUICK_SECONDS:
                return wait
            self._slow_namespaces.pop(namespace, None)
        self._queue_of(namespace).add(namespace)
        return None

    async def _send_next(self, namespace: str) -> float | None:
        """Send the event that comes next; return the seconds until the one after, None for none."""
        if namespace not in self._taken:
            if namespace not in self._lines:
                return None
            self._taken[namespace] = self._pop(namespace, last=False)
        name, pending = self._taken[namespace]
        if (wait := pending.due_at - self._clock.monotonic()) > 0:
            return wait
        try:
            await self._write(name, pending)
        except KubeError as error:
            pending.failures += 1
            if error.is_retryable and pending.failures < _ATTEMPTS:
                wait = exponential_seconds(pending.failures - 1, *_BACKOFF_SECONDS)
                pending.due_at = self._clock.monotonic() + wait
                return wait
            self.dropped += pending.times
            # A namespace that is being deleted refuses events; that is no error.
            logger.bind(reason=pending.reason, error=str(error)).debug("dropped an event")
        del self._taken[namespace]
        return 0.0 if namespace in self._lines else None

    async def _write(self, name: str, pending: _Pending) -> None:
        """Raise the count of the event if it is there, else create it."""
        namespace = pending.about.namespace or "default"
        count = self._counts.get(name)
        if count is None:
            try:
                await self._create(name, namespace, pending)
            except AlreadyExists:
                # Of an earlier life of this process; events live for an hour by default.
                found = await self._client.get(
                    EVENTS, name, namespace, timeout_seconds=SEND_TIMEOUT_SECONDS
                )
                count = int(found.get("count") or 1)
            else:
                self._remember(name, pending.times)
                return
        total = count + pending.times
        body = {"count": total, "lastTimestamp": _time(pending.last)}
        try:
            await self._client.merge_patch(
                EVENTS, name, body, namespace, timeout_seconds=SEND_TIMEOUT_SECONDS
            )
        except NotFound:
            # Expired in the meantime: its count is lost, this one starts at one.
            self._counts.pop(name, None)
            await self._create(name, namespace, pending)
            total = pending.times
        self._remember(name, total)

    async def _create(self, name: str, namespace: str, pending: _Pending) -> None:
        about = pending.about
        body: dict[str, Any] = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
                "apiVersion": about.api_version,
                "resourceVersion": about.resource_version,
            },
            "type": pending.type,
            "reason": pending.reason,
            "message": pending.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": _time(pending.first),
            "lastTimestamp": _time(pending.last),
            "count": pending.times,
        }
        if pending.action:
            body["action"] = pending.action
        await self._client.create(EVENTS, body, namespace, timeout_seconds=SEND_TIMEOUT_SECONDS)

    # --- memory ------------------------------------------------------------------------

    def _remember(self, name: str, count: int) -> None:
        self._counts[name] = count
        self._counts.move_to_end(name)
        if len(self._counts) > MEMORY_LIMIT:
            self._counts.popitem(last=False)

    def _take_token(self, about: ObjectReference) -> bool:
        now = self._clock.monotonic()
        key = about.uid or f"{about.kind}/{about.namespace}/{about.name}"
        bucket = self._buckets.setdefault(key, _Bucket(BURST, now))
        self._buckets.move_to_end(key)
        if len(self._buckets) > MEMORY_LIMIT:
            self._buckets.popitem(last=False)
        gained = (now - bucket.filled_at) / REFILL_SECONDS
        bucket.tokens = min(float(BURST), bucket.tokens + gained)
        bucket.filled_at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _event_name(about: ObjectReference, type_: str, reason: str, message: str) -> str:
    """Return the name of the event that says this: the object's name and a hash."""
    content = f"{about.kind}\0{about.uid}\0{type_}\0{reason}\0{message}"
    suffix = "." + hashlib.sha256(content.encode()).hexdigest()[:16]
    return about.name[: _NAME_LIMIT - len(suffix)].rstrip("-.") + suffix


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _raise(_namespace: str, error: BaseException) -> float | None:
    raise error
