"""Container logs of the fake API server, with the kubelet's habits."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime

from aiohttp import web

from daemonset_job.kube.client import resource as resources
from daemonset_job.runtime.clock import Clock
from tests.contract.fake_answers import cut
from tests.contract.fake_objects import StoredObjects
from tests.fakekube.refusals import Refused

DEFAULT_CONTAINER = "job-container"


@dataclass
class FakeLog:
    """The log of one container: lines with the time the runtime gave them."""

    clock: Clock
    entries: list[tuple[datetime, bytes]] = field(default_factory=list)
    ended: bool = False
    # Raised whenever a follower should drop its connection without a proper end.
    breaks: int = 0
    # How many further requests get an error of the kubelet in place of the log, with status 200.
    unavailable: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, *lines: str | bytes, at: datetime | None = None) -> None:
        """Append lines; each gets its newline."""
        for line in lines:
            raw = line.encode() if isinstance(line, str) else line
            self.entries.append((at or self.clock.now(), raw + b"\n"))
        self._wake()

    def write_raw(self, raw: bytes, at: datetime | None = None) -> None:
        """Append one entry exactly as given: without newline it is an unfinished line."""
        self.entries.append((at or self.clock.now(), raw))
        self._wake()

    def end(self) -> None:
        """End the container: followers see the end of the stream."""
        self.ended = True
        self._wake()

    def break_followers(self) -> None:
        """Drop the connections of all followers while the container runs on."""
        self.breaks += 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        await self._changed.wait()


def format_entry(moment: datetime, line: bytes, *, timestamps: bool) -> bytes:
    """Return the entry as the kubelet sends it: RFC3339Nano, one blank, the line."""
    if not timestamps:
        return line
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"
    return stamp.encode() + b" " + line


class ServedLogs:
    """The logs of the containers that have started."""

    def __init__(self, objects: StoredObjects, clock: Clock) -> None:
        self._pods = objects
        self._log_clock = clock
        self.logs: dict[tuple[str, str, str, bool], FakeLog] = {}

    def log(
        self,
        pod: str,
        namespace: str = "default",
        container: str = DEFAULT_CONTAINER,
        *,
        previous: bool = False,
    ) -> FakeLog:
        """Return the log of a container, created empty if need be: the container has started."""
        key = (namespace, pod, container, previous)
        if key not in self.logs:
            self.logs[key] = FakeLog(self._log_clock)
        return self.logs[key]

    async def serve_log(self, http: web.Request, namespace: str, pod: str) -> web.StreamResponse:
        """Answer a request for a log; Refused as the kubelet does if there is none."""
        query = http.query
        container = query.get("container", DEFAULT_CONTAINER)
        log = self.logs.get((namespace, pod, container, query.get("previous") == "true"))
        if log is None:
            if not self._pods.exists(resources.PODS, pod, namespace):
                raise Refused(404, "NotFound", f'pods "{pod}" not found')
            if query.get("previous") == "true":
                message = f'previous terminated container "{container}" in pod "{pod}" not found'
            else:
                message = (
                    f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
                )
            raise Refused(400, "BadRequest", message)
        if log.unavailable:
            log.unavailable -= 1
            return web.Response(text="unable to retrieve container logs for containerd://c1c5")
        start = _log_start(log, query.get("sinceTime"), query.get("tailLines"))
        return await _send_entries(http, log, start)


async def _send_entries(http: web.Request, log: FakeLog, start: int) -> web.StreamResponse:
    """Send entries; like the kubelet, no header before the first of them."""
    query = http.query
    follow = query.get("follow") == "true"
    left = int(query.get("limitBytes") or 2**62)
    breaks = log.breaks
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    position = start
    with contextlib.suppress(ConnectionError):
        while left > 0:
            while position < len(log.entries) and left > 0:
                entry = format_entry(
                    *log.entries[position], timestamps=query.get("timestamps") == "true"
                )[:left]
                position += 1
                left -= len(entry)
                if not response.prepared:
                    await response.prepare(http)
                await response.write(entry)
            if not follow or log.ended or left <= 0:
                break
            if log.breaks != breaks:
                cut(http)
                break
            if position == len(log.entries):
                await log.changed()
        if not response.prepared:
            await response.prepare(http)
        await response.write_eof()
    return response


def _log_start(log: FakeLog, since: str | None, tail: str | None) -> int:
    start = 0
    if since is not None:
        moment = datetime.fromisoformat(since)
        start = next((i for i, (at, _) in enumerate(log.entries) if at >= moment), len(log.entries))
    return max(start, len(log.entries) - int(tail)) if tail is not None else start
