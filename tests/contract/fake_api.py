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
import json
import re
import ssl
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from daemonset_job.kube.client import resource as resources
from daemonset_job.kube.client.resource import Resource
from daemonset_job.runtime.clock import Clock
from tests.clocks import LoopClock
from tests.contract.fake_answers import answer, cut, partial, refusal
from tests.contract.fake_faults import Fault, Request, ScriptedFaults
from tests.contract.fake_logs import ServedLogs
from tests.contract.fake_objects import StoredObjects
from tests.contract.fake_storage import Raw, Write
from tests.contract.fake_watches import OpenWatches, selector_of
from tests.fakekube.apply import Apply
from tests.fakekube.refusals import Refused

START = datetime(2030, 1, 1, tzinfo=UTC)
KNOWN = [value for value in vars(resources).values() if isinstance(value, Resource)]


class FakeApiServer(StoredObjects, ScriptedFaults, OpenWatches, ServedLogs):
    """The server; see the module's docstring."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or LoopClock(START)
        StoredObjects.__init__(self, self.clock)
        ScriptedFaults.__init__(self)
        OpenWatches.__init__(self, self.storage)
        ServedLogs.__init__(self, self, self.clock)
        self.resources: list[Resource] = list(KNOWN)
        self.requests: list[Request] = []
        # What went wrong in the server itself; the fixture checks that there is nothing.
        self.defects: list[Exception] = []
        self.token: str | None = None
        self.continue_expired = False
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

    # --- looking -----------------------------------------------------------------------

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
        fault = self.take_fault(request)
        if fault is not None and fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault is not None and fault.reset:
            return cut(http)
        try:
            self._check(request, fault)
            if self.endless and self.endless[0].search(request.path):
                response = await self.serve_endless(http, *self.endless[1:])
            elif fault is not None and fault.body is not None:
                response = web.Response(body=fault.body, content_type="application/json")
            else:
                response = await self._route(http, request)
        except Refused as error:
            response = refusal(error, fault.retry_after if fault else None)
        except ConnectionError:
            raise  # the client went away
        except Exception as error:
            self.defects.append(error)
            raise
        request.status = response.status
        if fault is not None and fault.lose_answer:
            return cut(http)
        return response

    def _check(self, request: Request, fault: Fault | None) -> None:
        if fault is not None and fault.status:
            raise Refused(fault.status, fault.reason, fault.message or "scripted fault")
        expected = f"Bearer {self.token}"
        if self.token is not None and request.headers.get("Authorization") != expected:
            raise Refused(401, "Unauthorized")

    async def _route(self, http: web.Request, request: Request) -> web.StreamResponse:
        resource, namespace, name, subresource = self._parse(http.path)
        if name:
            return await self._route_object(http, request, resource, (namespace, name), subresource)
        if http.method == "GET" and http.query.get("watch") == "true":
            return await self.serve_watch(http, resource, namespace)
        if http.method == "GET":
            return self._list(http, resource, namespace)
        if http.method == "POST":
            write = Write(_manager(http))
            return answer(
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
                return await self.serve_log(http, *key)
            case ("POST", "eviction") if resource == resources.PODS:
                self.storage.delete(resource, key, {})
                response = answer({"kind": "Status", "status": "Success"}, 201)
            case ("GET", "" | "status"):
                response = answer(self.storage.find((resource.group, resource.plural), key))
            case ("PUT", "" | "status"):
                write = Write(_manager(http), subresource)
                response = answer(self.storage.replace(resource, key, request.body, write))
            case ("PATCH", "" | "status"):
                response = self._patch(http, request, resource, key, subresource)
            case ("DELETE", ""):
                response = answer(self.storage.delete(resource, key, request.body or {}))
            case _:
                raise Refused(404, "NotFound", "the server could not find the resource")
        return response

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
            return answer(result, 200 if existed else 201)
        write = Write(_manager(http), subresource, http.query.get("dryRun") == "All")
        stored = self.storage.patch(resource, key, request.body, http.content_type, write)
        return answer(partial(stored) if "PartialObject" in http.headers["Accept"] else stored)

    def _list(self, http: web.Request, resource: Resource, namespace: str) -> web.Response:
        query = http.query
        version, after = str(self.storage.version), ("", "")
        selector = selector_of(http, resource)
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
        return answer(
            {
                "apiVersion": "meta.k8s.io/v1" if is_partial else resource.api_version,
                "kind": kind,
                "metadata": metadata,
                "items": [partial(raw) if is_partial else raw for _, raw in items],
            }
        )


def _manager(http: web.Request) -> str:
    """Return the name of the field manager of a request: by default how its client calls itself."""
    return http.query.get("fieldManager") or http.headers.get("User-Agent", "").split("/")[0]


def _without_uid(body: Raw) -> Raw:
    """Return the body of a create without a UID: the server makes it."""
    meta = {key: value for key, value in (body.get("metadata") or {}).items() if key != "uid"}
    return {**body, "metadata": meta}


def _decode(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body
