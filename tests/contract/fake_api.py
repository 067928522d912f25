"""An API server in this process, for contract tests: real HTTP, small storage, scripted faults.

    server = FakeApiServer()
    await server.start()
    server.put(PODS, {...})                     # as another client would change the cluster
    server.fail_next("PATCH", "/jobs/", 409)    # the next such request fails
    server.drop_watches(); server.silence_watches(); server.expire()

All times are those of the running loop, so looptime moves the server too.
"""

import asyncio
import base64
import contextlib
import copy
import io
import json
import re
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from daemonset_job.kube.client import resource as resources
from daemonset_job.kube.client.resource import Resource
from daemonset_job.runtime.clock import Clock
from tests.clocks import LoopClock
from tests.contract.fake_logs import FakeLog, format_entry
from tests.contract.fake_storage import Event, Raw, Storage, Write, rules_of
from tests.fakekube.apply import Apply
from tests.fakekube.garbage_collector import is_orphan
from tests.fakekube.patches import merge_patch
from tests.fakekube.refusals import Refused
from tests.fakekube.selectors import Selector, parse_selector

START = datetime(2030, 1, 1, tzinfo=UTC)
KNOWN = [value for value in vars(resources).values() if isinstance(value, Resource)]
DEFAULT_CONTAINER = "job-container"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int = 0


@dataclass
class Fault:
    method: str
    pattern: re.Pattern[str]
    times: int
    status: int = 0
    retry_after: int | None = None
    reason: str = ""
    message: str = ""
    delay_seconds: float = 0.0
    reset: bool = False
    lose_answer: bool = False
    body: bytes | None = None


@dataclass(eq=False)
class Watch:
    """One open watch; whatever is put into `outbox` is sent, None ends it."""

    resource: Resource
    namespace: str
    selector: Selector
    partial: bool
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
            self.outbox.put_nowait(event_line(type_, partial(raw) if self.partial else raw))


class FakeApiServer:
    """The server; see the module's docstring."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or LoopClock(START)
        self.storage = Storage(self.clock)
        self.storage.listeners.append(self._on_event)
        self.resources: list[Resource] = list(KNOWN)
        self.requests: list[Request] = []
        self.watches: list[Watch] = []
        self.logs: dict[tuple[str, str, str, bool], FakeLog] = {}
        self.faults: list[Fault] = []
        # What went wrong in the server itself; the fixture checks that there is nothing.
        self.defects: list[Exception] = []
        self.token: str | None = None
        self.bookmark_seconds: float | None = 60.0
        self.bookmarks = True
        self.expired_as_event = False
        self.continue_expired = False
        # What is sent, again and again, in answer to requests whose path?query this matches.
        self.endless: tuple[re.Pattern[str], bytes, float] | None = None
        self.sent_bytes = 0
        self.url = ""
        self._runner: web.AppRunner | None = None

    # --- life --------------------------------------------------------------------------

    async def start(self, tls: ssl.SSLContext | None = None) -> str:
        """Listen on a free port of the loopback interface and return the base URL."""
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"{'https' if tls else 'http'}://{host}:{port}"
        return self.url

    async def stop(self) -> None:
        """End everything that is open."""
        self.drop_watches()
        for log in self.logs.values():
            log.end()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    # --- the cluster, as others change it ----------------------------------------------

    def put(self, resource: Resource, body: Raw) -> Raw:
        """Create or replace an object, status included, as the whole cluster's hand."""
        body = copy.deepcopy(body)
        metadata = body["metadata"]
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        key = (metadata.get("namespace", ""), metadata["name"])
        kind = (resource.group, resource.plural)
        status = body.pop("status", None)
        metadata.pop("resourceVersion", None)
        if key in self.storage.all(kind):
            stored = self.storage.update(resource, key, body)
        else:
            stored = self.storage.create(resource, body, key[0])
        if status is not None:
            changed = {**stored, "status": status}
            if changed != stored:
                stored = self.storage.commit(kind, "MODIFIED", changed, stored)
        return copy.deepcopy(stored)

    def patch(self, resource: Resource, name: str, body: Raw, namespace: str = "default") -> Raw:
        """Merge-patch an object, status included."""
        current = self.get(resource, name, namespace)
        return self.put(resource, merge_patch(current, body))

    def remove(self, resource: Resource, name: str, namespace: str = "default") -> None:
        """Delete an object at once, finalizers or not."""
        key = self._key(resource, namespace, name)
        kind = (resource.group, resource.plural)
        old = self.storage.find(kind, key)
        self.storage.commit(kind, "DELETED", old, old)

    def get(self, resource: Resource, name: str, namespace: str = "default") -> Raw:
        """Return a copy of an object; Refused 404 if it is not there."""
        key = self._key(resource, namespace, name)
        return copy.deepcopy(self.storage.find((resource.group, resource.plural), key))

    def exists(self, resource: Resource, name: str, namespace: str = "default") -> bool:
        """Return whether an object exists."""
        return self._key(resource, namespace, name) in self.storage.all(
            (resource.group, resource.plural)
        )

    def list(self, resource: Resource, label_selector: str | None = None) -> list[Raw]:
        """Return copies of all objects of a type, sorted by key."""
        items = sorted(self.storage.all((resource.group, resource.plural)).items())
        selector = parse_selector(rules_of(resource), label_selector, None)
        return [copy.deepcopy(raw) for _, raw in items if selector.selects(raw)]

    def collect_garbage(self) -> int:
        """Delete what has owners of which none exists any more; returns how many objects went."""
        removed = 0
        while True:
            uids = {
                raw["metadata"]["uid"]
                for each in self.storage.objects.values()
                for raw in each.values()
            }
            orphans = [
                (kind, raw)
                for kind, each in self.storage.objects.items()
                for raw in each.values()
                if is_orphan(raw, uids.__contains__)
            ]
            if not orphans:
                return removed
            for kind, raw in orphans:
                self.storage.commit(kind, "DELETED", raw, raw)
                removed += 1

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
            self.logs[key] = FakeLog(self.clock)
        return self.logs[key]

    # --- faults ------------------------------------------------------------------------

    def fail_next(
        self,
        method: str,
        path_regex: str,
        status: int,
        times: int = 1,
        *,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> None:
        """Answer the next matching requests with a Status; the regex is searched in path?query."""
        self.faults.append(
            Fault(method, re.compile(path_regex), times, status, retry_after, reason, message)
        )

    def delay_next(self, method: str, path_regex: str, seconds: float, times: int = 1) -> None:
        """Let the next matching requests wait before they are carried out."""
        self.faults.append(Fault(method, re.compile(path_regex), times, delay_seconds=seconds))

    def reset_next(self, method: str, path_regex: str, times: int = 1) -> None:
        """Cut the connection of the next matching requests before they are carried out."""
        self.faults.append(Fault(method, re.compile(path_regex), times, reset=True))

    def lose_answer_next(self, method: str, path_regex: str, times: int = 1) -> None:
        """Carry the next matching requests out, then cut the connection instead of answering."""
        self.faults.append(Fault(method, re.compile(path_regex), times, lose_answer=True))

    def answer_next(self, method: str, path_regex: str, body: bytes, times: int = 1) -> None:
        """Answer the next matching requests with 200 and these bytes."""
        self.faults.append(Fault(method, re.compile(path_regex), times, body=body))

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
        self.storage.tick()
        self.storage.oldest = self.storage.version
        self.expired_as_event = as_event

    def send_bookmarks(self) -> None:
        """Send a bookmark with the current version on all open watches."""
        for watch in self.watches:
            self._bookmark(watch)

    def send_raw(self, resource: Resource, raw: bytes) -> None:
        """Send bytes as they are on the open watches of a type: late, doubled or broken events."""
        for watch in self.open_watches(resource):
            watch.outbox.put_nowait(raw)

    # --- looking -----------------------------------------------------------------------

    def open_watches(self, resource: Resource | None = None) -> Sequence[Watch]:
        """Return the open watches, of one type if given."""
        return [watch for watch in self.watches if resource in (None, watch.resource)]

    def count(self, method: str, path_regex: str = "") -> int:
        """Return how many requests with that method and path?query have arrived."""
        pattern = re.compile(path_regex)
        return sum(
            request.method == method and bool(pattern.search(request.path))
            for request in self.requests
        )

    def counts(self) -> Counter[str]:
        """Return the number of requests by method."""
        return Counter(request.method for request in self.requests)

    # --- HTTP --------------------------------------------------------------------------

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        body = await http.read()
        request = Request(
            http.method, http.path_qs, dict(http.query), dict(http.headers), _decode(body)
        )
        self.requests.append(request)
        fault = self._fault(request)
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault is not None and fault.reset:
            return self._cut(http)
        try:
            self._check(request, fault)
            if self.endless and self.endless[0].search(request.path):
                response = await self._serve_endless(http, *self.endless[1:])
            elif fault is not None and fault.body is not None:
                response = web.Response(body=fault.body, content_type="application/json")
            else:
                response = await self._route(http, request)
        except Refused as error:
            response = _status(error, fault.retry_after if fault else None)
        except ConnectionError:
            raise  # the client went away
        except Exception as error:
            self.defects.append(error)
            raise
        request.status = response.status
        if fault is not None and fault.lose_answer:
            return self._cut(http)
        return response

    def _check(self, request: Request, fault: Fault | None) -> None:
        if fault is not None and fault.status:
            raise Refused(fault.status, fault.reason, fault.message or "scripted fault")
        expected = f"Bearer {self.token}"
        if self.token is not None and request.headers.get("Authorization") != expected:
            raise Refused(401, "Unauthorized")

    def _fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.method == request.method and fault.pattern.search(request.path):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    def answer_endlessly(
        self, path_regex: str, chunk: bytes, *, pause_seconds: float = 0.0
    ) -> None:
        """Answer matching requests with 200 and `chunk` again and again, for as long as one reads.

        As a broken server does, or a kubelet that minds no limit. `sent_bytes` counts them.
        """
        self.endless = re.compile(path_regex), chunk, pause_seconds

    async def _serve_endless(
        self, http: web.Request, chunk: bytes, pause_seconds: float
    ) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(http)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(chunk)
                self.sent_bytes += len(chunk)
                await asyncio.sleep(pause_seconds)
        return response

    @staticmethod
    def _cut(http: web.Request) -> web.Response:
        if http.transport is not None:
            http.transport.abort()
        return web.Response(status=599)

    async def _route(self, http: web.Request, request: Request) -> web.StreamResponse:
        resource, namespace, name, subresource = self._parse(http.path)
        if name:
            return await self._route_object(http, request, resource, (namespace, name), subresource)
        if http.method == "GET" and http.query.get("watch") == "true":
            return await self._watch(http, resource, namespace)
        if http.method == "GET":
            return self._list(http, resource, namespace)
        if http.method == "POST":
            write = Write(_manager(http))
            return _answer(
                self.storage.create(resource, _without_uid(request.body), namespace, write.owner),
                201,
            )
        raise Refused(405, "MethodNotAllowed")

    async def _route_object(
        self,
        http: web.Request,
        request: Request,
        resource: Resource,
        key: tuple[str, str],
        subresource: str,
    ) -> web.StreamResponse:
        match (http.method, subresource):
            case ("GET", "log") if resource == resources.PODS:
                return await self._log(http, *key)
            case ("POST", "eviction") if resource == resources.PODS:
                self.storage.delete(resource, key, {})
                answer = _answer({"kind": "Status", "status": "Success"}, 201)
            case ("GET", "" | "status"):
                answer = _answer(self.storage.find((resource.group, resource.plural), key))
            case ("PUT", "" | "status"):
                write = Write(_manager(http), subresource)
                answer = _answer(self.storage.replace(resource, key, request.body, write))
            case ("PATCH", "" | "status"):
                answer = self._patch(http, request, resource, key, subresource)
            case ("DELETE", ""):
                answer = _answer(self.storage.delete(resource, key, request.body or {}))
            case _:
                raise Refused(404, "NotFound", "the server could not find the resource")
        return answer

    def _parse(self, path: str) -> tuple[Resource, str, str, str]:
        parts = path.strip("/").split("/")
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        for resource in self.resources:
            if (resource.group, resource.plural) == (group, rest[0]):
                name, subresource = [*rest[1:], "", ""][:2]
                return resource, namespace, name, subresource
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _patch(
        self,
        http: web.Request,
        request: Request,
        resource: Resource,
        key: tuple[str, str],
        subresource: str,
    ) -> web.Response:
        if http.content_type == "application/apply-patch+yaml":
            existed = key in self.storage.all((resource.group, resource.plural))
            how = Apply(http.query["fieldManager"], http.query.get("force") == "true", subresource)
            is_dry_run = http.query.get("dryRun") == "All"
            result = self.storage.apply(resource, key, request.body, how, is_dry_run=is_dry_run)
            return _answer(result, 200 if existed else 201)
        write = Write(_manager(http), subresource)
        stored = self.storage.patch(resource, key, request.body, http.content_type, write)
        return _answer(partial(stored) if "PartialObject" in http.headers["Accept"] else stored)

    def _list(self, http: web.Request, resource: Resource, namespace: str) -> web.Response:
        query = http.query
        version, after = str(self.storage.version), ("", "")
        selector = _selector(http, resource)
        if token := query.get("continue"):
            if self.continue_expired:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            version, *key = json.loads(base64.b64decode(token))
            after = (key[0], key[1])
        items = [
            (key, raw)
            for key, raw in sorted(self.storage.all((resource.group, resource.plural)).items())
            if (not namespace or key[0] == namespace) and key > after and selector.selects(raw)
        ]
        metadata: Raw = {"resourceVersion": version}
        limit = int(query.get("limit") or 0)
        if limit and len(items) > limit:
            last = items[limit - 1][0]
            metadata["continue"] = base64.b64encode(json.dumps([version, *last]).encode()).decode()
            metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        is_partial = "PartialObjectMetadataList" in http.headers.get("Accept", "")
        kind = "PartialObjectMetadataList" if is_partial else resource.kind + "List"
        return _answer(
            {
                "apiVersion": "meta.k8s.io/v1" if is_partial else resource.api_version,
                "kind": kind,
                "metadata": metadata,
                "items": [partial(raw) if is_partial else raw for _, raw in items],
            }
        )

    # --- watches -----------------------------------------------------------------------

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
                    "metadata": {"resourceVersion": str(self.storage.version)},
                },
            )

    async def _watch(
        self, http: web.Request, resource: Resource, namespace: str
    ) -> web.StreamResponse:
        query = http.query
        watch = Watch(
            resource,
            namespace,
            _selector(http, resource),
            "PartialObjectMetadata" in http.headers.get("Accept", ""),
        )
        since = int(query.get("resourceVersion") or 0)
        if since and since < self.storage.oldest:
            gone = Refused(410, "Expired", f"too old resource version: {since}")
            if not self.expired_as_event:
                raise gone
            watch.outbox.put_nowait(event_line("ERROR", _status_body(gone)))
            watch.outbox.put_nowait(None)
        elif since:
            for event in self.storage.history:
                if event.version > since:
                    watch.offer(event)
        else:
            for _, raw in sorted(self.storage.all((resource.group, resource.plural)).items()):
                watch.offer(
                    Event(
                        self.storage.version, (resource.group, resource.plural), "ADDED", raw, None
                    )
                )
        self.watches.append(watch)
        try:
            return await self._serve_watch(http, watch)
        finally:
            self.watches.remove(watch)

    async def _serve_watch(self, http: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
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

    # --- logs --------------------------------------------------------------------------

    async def _log(self, http: web.Request, namespace: str, pod: str) -> web.StreamResponse:
        query = http.query
        container = query.get("container", DEFAULT_CONTAINER)
        log = self.logs.get((namespace, pod, container, query.get("previous") == "true"))
        if log is None:
            if not self.exists(resources.PODS, pod, namespace):
                raise Refused(404, "NotFound", f'pods "{pod}" not found')
            if query.get("previous") == "true":
                message = f'previous terminated container "{container}" in pod "{pod}" not found'
            else:
                message = (
                    f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'
                )
            raise Refused(400, "BadRequest", message)
        start = _log_start(log, query.get("sinceTime"), query.get("tailLines"))
        return await self._serve_log(http, log, start)

    async def _serve_log(self, http: web.Request, log: FakeLog, start: int) -> web.StreamResponse:
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
                    self._cut(http)
                    break
                if position == len(log.entries):
                    await log.changed()
            if not response.prepared:
                await response.prepare(http)
            await response.write_eof()
        return response

    @staticmethod
    def _key(resource: Resource, namespace: str, name: str) -> tuple[str, str]:
        return (namespace if resource.namespaced else "", name)


def event_line(type_: str, raw: Raw) -> bytes:
    """Return a watch event as it goes over the wire."""
    return on_the_wire({"type": type_, "object": raw}) + b"\n"


# A value of this form is sent as nested lists of that depth, which is too deep for Python.
DEEP = re.compile(rb'"@deep:(\d+)"')
# This value is sent as text that is not JSON.
BROKEN = "@broken"


def on_the_wire(raw: Raw) -> bytes:
    """Return an object as it is sent, what cannot be read in it included."""
    text = json.dumps(raw).encode().replace(f'"{BROKEN}"'.encode(), b'"\xff"')
    return DEEP.sub(lambda found: b"[" * int(found[1]) + b"]" * int(found[1]), text)


def partial(raw: Raw) -> Raw:
    """Return the PartialObjectMetadata of an object; a Status is passed unchanged."""
    if raw.get("kind") == "Status":
        return raw
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": raw["metadata"],
    }


def _log_start(log: FakeLog, since: str | None, tail: str | None) -> int:
    start = 0
    if since is not None:
        moment = datetime.fromisoformat(since)
        start = next((i for i, (at, _) in enumerate(log.entries) if at >= moment), len(log.entries))
    return max(start, len(log.entries) - int(tail)) if tail is not None else start


def _manager(http: web.Request) -> str:
    """Return the name of the field manager of a request: by default how its client calls itself."""
    return http.query.get("fieldManager") or http.headers.get("User-Agent", "").split("/")[0]


def _selector(http: web.Request, resource: Resource) -> Selector:
    query = http.query
    return parse_selector(
        rules_of(resource), query.get("labelSelector"), query.get("fieldSelector")
    )


def _without_uid(body: Raw) -> Raw:
    """Return the body of a create without a UID: the server makes it."""
    meta = {key: value for key, value in (body.get("metadata") or {}).items() if key != "uid"}
    return {**body, "metadata": meta}


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body


def _answer(raw: Raw, status: int = 200) -> web.Response:
    # A file-like body, since aiohttp warns of bytes beyond 1 MiB.
    body = io.BytesIO(on_the_wire(raw))
    return web.Response(body=body, status=status, content_type="application/json")


def _status_body(error: Refused) -> Raw:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": error.status,
        "reason": error.reason,
        "message": error.message,
        "details": {"causes": [{"field": error.field}] if error.field else []},
    }


def _status(error: Refused, retry_after: int | None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.Response(
        body=json.dumps(_status_body(error)),
        status=error.status,
        headers=headers,
        content_type="application/json",
    )
