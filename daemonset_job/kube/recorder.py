"""Shows users what happened, where ``kubectl describe`` and ``kubectl events`` show it.

core/v1 Events: describe looks for them by ``involvedObject``, and their count and timestamps are
what it prints as "x5 over 10m". Nothing depends on an event: they are sent by a task of their own,
from a bounded queue, and what cannot be sent is dropped and counted. Namespaces are served in turn,
and the one with the most events in line loses one if there are too many.
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
from daemonset_job.runtime.backoff import Backoff
from daemonset_job.runtime.clock import Clock

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
        # By namespace and by name; none of them is empty. The namespace that comes next is first.
        self._lines: OrderedDict[str, OrderedDict[str, _Pending]] = OrderedDict()
        self._waiting = 0
        self._wake = asyncio.Event()
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
            self._wake.set()

    def _make_room(self, namespace: str) -> bool:
        """Drop the newest event of the namespace with most; False if that would be this one."""
        longest = max(self._lines.values(), key=len)
        if len(longest) <= len(self._lines.get(namespace, ())) + 1:
            return False
        _, dropped = longest.popitem()
        self.dropped += dropped.times
        self._waiting -= 1
        return True

    async def run(self) -> None:
        """Send what is in line, one by one, until cancelled."""
        while True:
            while self._lines:
                namespace, line = self._lines.popitem(last=False)
                name, pending = line.popitem(last=False)
                if line:
                    self._lines[namespace] = line
                self._waiting -= 1
                await self._send(name, pending)
            self._wake.clear()
            await self._wake.wait()

    # --- sending -----------------------------------------------------------------------

    async def _send(self, name: str, pending: _Pending) -> None:
        backoff = Backoff(*_BACKOFF_SECONDS)
        while True:
            try:
                await self._write(name, pending)
            except KubeError as error:
                if not error.is_retryable or backoff.failures + 1 >= _ATTEMPTS:
                    self.dropped += pending.times
                    # A namespace that is being deleted refuses events; that is no error.
                    logger.bind(reason=pending.reason, error=str(error)).debug("dropped an event")
                    return
                await asyncio.sleep(backoff.next_seconds())
            else:
                return

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
