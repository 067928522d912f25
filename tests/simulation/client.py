"""The client of the real programs: same methods and errors as `KubeClient`, no HTTP.

Request and answer each have a delay. A request can fail before or after it has an effect (the
answer is lost), cause a conflict, or be throttled or slow. A request in flight arrives even if its
process dies meanwhile. A dead process sends no more requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from daemonset_job.api import names
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import parse_job
from daemonset_job.api.report import parse_report
from daemonset_job.kube.client.answers import Found, Page, RawObject
from daemonset_job.kube.client.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    Throttled,
    TooLarge,
    Unavailable,
)
from daemonset_job.kube.client.pod_logs import PodLogOptions
from daemonset_job.kube.client.resource import EVICTIONS, Resource
from daemonset_job.kube.client.selection import Selection
from tests.fakekube.selectors import carries
from tests.simulation.oracle.idle_writes import judge_idle_write
from tests.simulation.server import DAEMON_SETS, EVENTS, JOBS, PODS, REPORTS, Raw

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

Answer = TypeVar("Answer")


class Call(NamedTuple):
    """What a request asks for: a verb, and the object or the selection that it names."""

    verb: str
    plural: str
    name: str
    namespace: str


class Fault(NamedTuple):
    """What happens to a request: the kind of the fault, its seconds, and when it was sent."""

    kind: str
    seconds: float
    sent_at: float


class Client:
    """One process's connection to the model; `faults` wait in the world for the next request."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process
        self._name = process.name
        self.is_dead = False
        # When the ledger was last read afresh, by UID of the Job: gates are removed on it.
        self.ledger_read_at: dict[str, float] = {}
        # Evidence that this process has written and got an answer for, by name of the report.
        self._entered: dict[str, dict[str, Evidence]] = {}

    # --- what the shells call ------------------------------------------------------------

    async def create(self, resource: Resource, body: Raw, namespace: str, **_: object) -> Raw:
        name = body["metadata"]["name"]

        def effect() -> tuple[Raw, bool]:
            if resource.subresource == EVICTIONS.subresource:
                self._world.workloads.evict(name, namespace, body["deleteOptions"])
                return {}, True
            return self._world.server.create(self._name, resource.plural, body, namespace), True

        verb = f"create {resource.subresource}".strip()
        return await self._call(Call(verb, resource.plural, name, namespace), effect)

    async def merge_patch(
        self, resource: Resource, name: str, body: Raw, namespace: str = "", **_: object
    ) -> Raw:
        read_at = dict(self.ledger_read_at)
        decided_on = dict(self._world.decided_on) if resource.plural == PODS else {}
        decisions = dict(self._world.oracle.holds.decisions)
        entries = self._entries_seen(name, namespace) if resource.plural == REPORTS else {}

        def effect() -> tuple[Raw, bool]:
            self._world.oracle.ledger_read_at = read_at
            self._world.oracle.evidence.seen = entries
            self._world.gates_decided = decided_on
            self._world.oracle.holds.gates_decided = decisions
            return self._world.server.patch(
                self._name,
                resource.plural,
                name,
                body,
                status=resource.subresource == "status",
                namespace=namespace,
            )

        verb = f"patch {resource.subresource}".strip()
        answer = await self._call(Call(verb, resource.plural, name, namespace), effect)
        if resource.plural == REPORTS:
            self._entered[name] = dict(parse_report(answer).evidence)
        return answer

    async def check_merge_patch(
        self, resource: Resource, name: str, _body: Raw, namespace: str = ""
    ) -> None:
        def effect() -> tuple[Raw, bool]:
            return self._world.server.find(resource.plural, name, namespace), True

        await self._call(Call("patch", resource.plural, name, namespace), effect)

    def _entries_seen(self, name: str, namespace: str) -> dict[str, Evidence]:
        """Return what this process knows of a report's evidence: its cache, and its own writes."""
        report = self._process.cached(REPORTS, name, namespace)
        return {**(report.evidence if report is not None else {}), **self._entered.get(name, {})}

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Raw,
        namespace: str,
        *,
        dry_run: bool = False,
        **_: object,
    ) -> Raw:
        def effect() -> tuple[Raw, bool]:
            if self._world.is_refused(resource.plural):
                raise Forbidden("admission webhook says no")
            if dry_run:
                self._world.server.check_apply(name, body, namespace)
                return {}, True
            return self._world.server.apply(self._name, name, body, namespace)

        return await self._call(Call("apply", DAEMON_SETS, name, namespace), effect)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        **_: object,
    ) -> Raw:
        view = None
        if resource.plural == JOBS:
            view = self._world.oracle.completion.deletion_view(self._process, name, namespace)

        def effect() -> tuple[Raw, bool]:
            server, plural = self._world.server, resource.plural
            server.check(plural, name, namespace=namespace, uid=uid, version=resource_version)
            found = server.get(plural, name, namespace)
            assert found is not None
            self._world.oracle.before_delete(self._process, plural, found, view)
            server.delete(self._name, plural, name, namespace=namespace)
            return {}, True

        return await self._call(Call("delete", resource.plural, name, namespace), effect)

    async def get(self, resource: Resource, name: str, namespace: str, **_: object) -> Raw:
        def effect() -> tuple[Raw, bool]:
            return self._world.server.find(resource.plural, name, namespace), True

        return await self._call(Call("get", resource.plural, name, namespace), effect)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        **_other: object,
    ) -> Raw:
        key, _, value = (label_selector or "").partition("=")

        def effect() -> tuple[Raw, bool]:
            if resource.plural == REPORTS:
                self.ledger_read_at[value] = self._world.loop.moment
            labels = {key: value} if key else None
            items = self._world.server.select(resource.plural, labels, namespace)
            return {"items": items}, True

        return await self._call(Call("list", resource.plural, label_selector or "", ""), effect)

    async def find(
        self, resource: Resource, name: str, namespace: str | None = None, **_: object
    ) -> Found:
        def effect() -> tuple[Found, bool]:
            server = self._world.server
            items = server.select(resource.plural, None, namespace, name)
            found = cast("RawObject", items[0]) if items else None
            return Found(found, str(server.version)), True

        return await self._call(Call("list", resource.plural, name, ""), effect)

    async def page(self, what: Selection, **options: object) -> Page:
        """Answer a list of the events about one object of one reason or type, in one page."""
        if what.resource.plural == PODS and what.field_selector:
            is_late = options.get("resource_version") == "0"
            return await self._page_of_node(what.field_selector, is_late=is_late)
        if what.resource.plural == PODS:
            return await self._page_of_pods(what)
        if what.resource.plural in {JOBS, REPORTS}:
            return await self._page_of_labels(what)
        assert what.resource.plural == EVENTS
        expected = dict(part.split("=", 1) for part in (what.field_selector or "").split(","))

        def effect() -> tuple[Page, bool]:
            items = [
                cast("RawObject", raw)
                for raw in self._world.server.select(EVENTS, None, what.namespace)
                if raw["involvedObject"]["uid"] == expected["involvedObject.uid"]
                and all(
                    raw[part] == expected[part] for part in ("reason", "type") if part in expected
                )
            ]
            return Page(items, str(self._world.server.version), "", 0), True

        return await self._call(Call("list", EVENTS, expected["involvedObject.uid"], ""), effect)

    async def _page_of_pods(self, what: Selection) -> Page:
        """Answer a list of the pods of one Job, by its UID, or with a label, in one page."""
        key, _, value = (what.label_selector or "").partition("=")
        world = self._world

        def effect() -> tuple[Page, bool]:
            items = [
                cast("RawObject", raw)
                for raw in world.server.select(PODS, None, what.namespace)
                if (
                    world.oracle.job_of.get(raw["metadata"]["uid"]) == value
                    if key == names.LABEL_JOB_UID
                    else carries(raw, {key: value})
                )
            ]
            return Page(items, str(world.server.version), "", 0), True

        return await self._call(Call("list", PODS, what.label_selector or "", ""), effect)

    async def _page_of_labels(self, what: Selection) -> Page:
        """Answer a list of the objects of a namespace that have these labels, in one page."""
        plural, server = what.resource.plural, self._world.server
        labels = dict(part.split("=", 1) for part in (what.label_selector or "").split(","))

        def effect() -> tuple[Page, bool]:
            found = server.select(plural, labels, what.namespace)
            items = [cast("RawObject", raw) for raw in found]
            return Page(items, str(server.version), "", 0), True

        return await self._call(Call("list", plural, what.label_selector or "", ""), effect)

    async def _page_of_node(self, selector: str, *, is_late: bool) -> Page:
        """Answer a list of the pods on a node that have not ended; a late one is a moment old."""
        world, node = self._world, selector.partition(",")[0].partition("=")[2]

        def effect() -> tuple[Page, bool]:
            age = world.lag("pods-cache", 0.0, 1.0) if is_late else 0.0
            items = [cast("RawObject", raw) for raw in world.workloads.listed(node, age)]
            return Page(items, str(world.server.version), "", 0), True

        return await self._call(Call("list", PODS, node, ""), effect)

    async def read_pod_log(
        self, namespace: str, pod: str, options: PodLogOptions, **_: object
    ) -> bytes:
        def effect() -> tuple[bytes, bool]:
            key = (namespace, pod)
            found = self._world.logs.read(
                key, options.previous, options.since_time, options.tail_lines
            )
            return found, True

        return await self._call(Call("log", "pods/log", pod, ""), effect)

    def stream_pod_log(
        self, namespace: str, pod: str, options: PodLogOptions, **_: object
    ) -> _Once:
        return _Once(lambda: self.read_pod_log(namespace, pod, options))

    def follow_pod_log(
        self, namespace: str, pod: str, options: PodLogOptions, **_: object
    ) -> _Follow:
        return _Follow(self._world, self, (namespace, pod), options.since_time)

    # --- on the way ----------------------------------------------------------------------

    async def _call(self, call: Call, effect: Callable[[], tuple[Answer, bool]]) -> Answer:
        if self.is_dead:
            raise asyncio.CancelledError
        world = self._world
        fault, seconds = world.take_fault(self._name, call.verb, call.plural)
        if fault == "conflict" and call.verb == "delete":
            fault = "before"  # a conflict would mean that the object was changed
        there = world.lag(self._name, 0.002, 0.03)
        if fault == "slow":
            there += seconds
        answer: asyncio.Future[Answer] = world.loop.create_future()
        how = Fault(fault, seconds, world.loop.moment)
        if fault == "crash before":
            world.note(self._name, "dies before", *call[:3])
            self._process.crash(seconds)
        else:
            world.loop.call_later(there, self._arrive, call, effect, how, answer)
        return await answer

    def _job_of(self, plural: str, name: str, namespace: str) -> str:
        """Return the UID of the Job that a write is about, "" for one that is not there."""
        world = self._world
        if raw := world.server.get(plural, name, namespace):
            return world.oracle.job_about(plural, raw)
        jobs = [parse_job(raw) for raw in world.server.all(JOBS)]
        jobs = [job for job in jobs if job.namespace == namespace]
        if plural == DAEMON_SETS:
            found = (job.uid for job in jobs if name == job.daemon_set_name)
        elif plural == REPORTS:
            found = (job.uid for job in jobs if name.startswith(job.report_name))
        else:
            return ""
        return next(found, "")

    def _arrive(
        self,
        call: Call,
        effect: Callable[[], tuple[Answer, bool]],
        how: Fault,
        answer: asyncio.Future[Answer],
    ) -> None:
        world = self._world
        fault, seconds, sent_at = how
        error, changed = _fault(fault), True
        result: Answer | None = None
        if status := world.refused_write(self._name, call.verb, call.plural):
            error = _refusal(status)
            job_uid = self._job_of(*call[1:])
            what = f"{call.verb} {call.plural}"
            world.refused_last[self._name, what, job_uid] = world.loop.moment
        if error is None:
            world.writer_is_dead, world.sent_at = self.is_dead, sent_at
            try:
                result, changed = effect()
            except KubeError as raised:
                error = raised
            finally:
                world.writer_is_dead, world.sent_at = False, None
        if call.verb != "log" or error is not None:
            word = str(error) if error is not None else ("done" if changed else "no change")
            world.note(self._name, *call[:3], word)
        if fault in {"after", "crash after"} or self.is_dead:
            world.unconfirmed_writers.add(self._name)
        if not changed:
            judge_idle_write(world, self._process, call, sent_at)
        if fault == "after":
            error = Unavailable("the answer was lost", status=0)
            world.note(self._name, "loses the answer")
        if fault == "crash after":
            world.note(self._name, "dies after it")
            self._process.crash(seconds)
            return
        back = world.lag(self._name, 0.001, 0.02) + (seconds if fault == "slow" else 0.0)
        world.loop.call_later(back, _resolve, answer, result, error)


def _fault(kind: str) -> KubeError | None:
    """Return the error of a fault that strikes before the request has an effect, None for others.

    A new one each time: an error that was raised holds all that was there.
    """
    if kind == "before":
        return Unavailable("the server is not there", status=503)
    if kind == "conflict":
        return Conflict("another client was first")
    if kind == "throttle":
        return Throttled("too many requests", retry_after_seconds=1.0)
    return None


def _refusal(status: str) -> KubeError:
    """Return the error of a write that the API server refuses for what it is."""
    if status == "403":
        return Forbidden('admission webhook "policy.example.com" denied the request')
    if status == "422":
        return Invalid("spec: Invalid value: the policy says no")
    return TooLarge("Request entity too large: limit is 3145728")


def _resolve(
    answer: asyncio.Future[Answer], result: Answer | None, error: KubeError | None
) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(cast("Answer", result))
    else:
        answer.set_exception(error)


class _Once:
    """An answer of the log endpoint that is read as it comes, here in one piece."""

    def __init__(self, read: Callable[[], Awaitable[bytes]]) -> None:
        self._read = read

    async def __aenter__(self) -> AsyncIterator[bytes]:
        answer = await self._read()

        async def chunks() -> AsyncIterator[bytes]:
            yield answer

        return chunks()

    async def __aexit__(self, *_: object) -> None:
        pass


class _Follow:
    """A follow stream of the current instance of a pod's task container."""

    def __init__(
        self, world: World, client: Client, pod: tuple[str, str], since_time: datetime | None
    ) -> None:
        self._world = world
        self._client = client
        self._pod = pod
        self._since = since_time

    async def __aenter__(self) -> AsyncIterator[bytes]:
        if self._client.is_dead:
            raise asyncio.CancelledError
        return self._chunks()

    async def __aexit__(self, *_: object) -> None:
        pass

    async def _chunks(self) -> AsyncIterator[bytes]:
        world = self._world
        await asyncio.sleep(world.lag(self._client._name, 0.002, 0.03))
        async for chunk in world.logs.follow(self._pod, self._since):
            if self._client.is_dead:
                raise asyncio.CancelledError
            yield chunk
