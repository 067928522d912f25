"""Watches of the fake API server: what they are sent, and how they break."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web

from daemonset_job.kube.client.request import JSON_TYPE, PROTOBUF_TYPE
from daemonset_job.kube.client.resource import Resource
from tests.contract.fake_answers import event_line, partial, status_body
from tests.contract.fake_protobuf import event_frame
from tests.contract.fake_storage import Event, Raw, Storage, rules_of
from tests.fakekube.refusals import Refused
from tests.fakekube.selectors import Selector, parse_selector


@dataclass(eq=False)
class Watch:
    """One open watch; whatever is put into `outbox` is sent, None ends it."""

    resource: Resource
    namespace: str
    selector: Selector
    partial: bool
    protobuf: bool = False
    outbox: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    silent: bool = False

    def offer(self, event: Event) -> None:
        if event.kind != (self.resource.group, self.resource.plural):
            return
        if self.namespace and event.new["metadata"].get("namespace") != self.namespace:
            return
        is_in = event.type != "DELETED" and self.selector.selects(event.new)
        was_in = event.old is not None and self.selector.selects(event.old)
        if is_in:
            self.send("MODIFIED" if was_in else "ADDED", event.new)
        elif was_in:
            self.send("DELETED", event.new)

    def send(self, type_: str, raw: Raw) -> None:
        if not self.silent:
            encode = event_frame if self.protobuf else event_line
            self.outbox.put_nowait(encode(type_, partial(raw) if self.partial else raw))


class OpenWatches:
    """The watches of one server that are open, in the order in which they were opened."""

    def __init__(self, storage: Storage) -> None:
        self._watched = storage
        storage.listeners.append(self._on_event)
        self.watches: list[Watch] = []
        self.bookmark_seconds: float | None = 60.0
        self.bookmarks = True
        self.expired_as_event = False
        # Whether pods are sent in this format to those who ask for it.
        self.protobuf = True

    def open_watches(self, resource: Resource | None = None) -> Sequence[Watch]:
        """Return the open watches, of one type if given."""
        return [watch for watch in self.watches if resource in (None, watch.resource)]

    def drop_watches(self, resource: Resource | None = None) -> None:
        """End the open watches."""
        for watch in self.open_watches(resource):
            watch.outbox.put_nowait(None)

    def silence_watches(self, resource: Resource | None = None) -> None:
        """Leave the open watches open and never send anything on them again."""
        for watch in self.open_watches(resource):
            watch.silent = True

    def expire(self, *, as_event: bool = False) -> None:
        """Forget the history: a watch from any version known so far gets 410.

        The answer is an HTTP status. With `as_event` it is an ERROR event, as a real API server
        sends when the version becomes too old after the watch was accepted.
        """
        self._watched.tick()
        self._watched.oldest = self._watched.version
        self.expired_as_event = as_event

    def send_bookmarks(self) -> None:
        """Send a bookmark with the current version on all open watches."""
        for watch in self.watches:
            self._bookmark(watch)

    def send_raw(self, resource: Resource, raw: bytes) -> None:
        """Send bytes as they are on the open watches of a type: late, doubled or broken events."""
        for watch in self.open_watches(resource):
            watch.outbox.put_nowait(raw)

    async def serve_watch(
        self, http: web.Request, resource: Resource, namespace: str
    ) -> web.StreamResponse:
        """Send what a watch selects until it ends; Refused 410 for a version that has expired."""
        query = http.query
        watch = Watch(
            resource,
            namespace,
            selector_of(http, resource),
            "PartialObjectMetadata" in http.headers.get("Accept", ""),
            self.protobuf and http.headers.get("Accept", "").startswith(PROTOBUF_TYPE),
        )
        since = int(query.get("resourceVersion") or 0)
        if since and since < self._watched.oldest:
            gone = Refused(410, "Expired", f"too old resource version: {since}")
            if not self.expired_as_event:
                raise gone
            watch.send("ERROR", status_body(gone))
            watch.outbox.put_nowait(None)
        elif since:
            for event in self._watched.history:
                if event.version > since:
                    watch.offer(event)
        else:
            for _, raw in sorted(self._watched.all((resource.group, resource.plural)).items()):
                watch.offer(
                    Event(
                        self._watched.version, (resource.group, resource.plural), "ADDED", raw, None
                    )
                )
        self.watches.append(watch)
        try:
            return await self._send_events(http, watch)
        finally:
            self.watches.remove(watch)

    async def _send_events(self, http: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _content_type(watch)})
        await response.prepare(http)
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(float(http.query.get("timeoutSeconds") or 1800)):
                while True:
                    try:
                        async with asyncio.timeout(self.bookmark_seconds):
                            line = await watch.outbox.get()
                    except TimeoutError:
                        self._bookmark(watch)
                        continue
                    if line is None:
                        break
                    await response.write(line)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    def _on_event(self, event: Event) -> None:
        for watch in list(self.watches):
            watch.offer(event)

    def _bookmark(self, watch: Watch) -> None:
        if self.bookmarks:
            watch.send(
                "BOOKMARK",
                {
                    "kind": watch.resource.kind,
                    "apiVersion": watch.resource.api_version,
                    "metadata": {"resourceVersion": str(self._watched.version)},
                },
            )


def _content_type(watch: Watch) -> str:
    return f"{PROTOBUF_TYPE};stream=watch" if watch.protobuf else JSON_TYPE


def selector_of(http: web.Request, resource: Resource) -> Selector:
    """Return the selector in the query of a request."""
    query = http.query
    return parse_selector(
        rules_of(resource), query.get("labelSelector"), query.get("fieldSelector")
    )
