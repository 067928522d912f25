"""The verbs that read objects: get, list and watch."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from daemonset_job.kube.client.answers import Found, Page, RawObject, malformed, send_json
from daemonset_job.kube.client.protobuf_events import ProtobufEventStream
from daemonset_job.kube.client.request import (
    ANSWER_LIMIT_BYTES,
    DEFAULT_TIMEOUT_SECONDS,
    JSON_TYPE,
    METADATA_LIST_TYPE,
    METADATA_TYPE,
    PROTOBUF_TYPE,
    Request,
)
from daemonset_job.kube.client.resource import PODS, Resource
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.streams import EventStream
from daemonset_job.kube.client.transport import Transport
from daemonset_job.kube.client.unreadable import read_list

# The API server sends a bookmark about once a minute; a watch silent for longer is dead
# (apiserver storage/cacher, defaultBookmarkFrequency).
WATCH_IDLE_SECONDS = 70.0
# The second choice is for servers, and proxies before them, that have no other.
_PROTOBUF_OR_JSON = f"{PROTOBUF_TYPE},{JSON_TYPE}"


class Reads:
    """The reading part of KubeClient, over its transport."""

    _transport: Transport

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Return one object; NotFound if it is not there."""
        request = Request("get", resource, namespace, name, timeout_seconds=timeout_seconds)
        return await send_json(self._transport, request)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Return one list object with all objects; `page` returns them in parts.

        With `metadata_only` the items are PartialObjectMetadata.
        """
        what = Selection(resource, namespace, label_selector, field_selector, metadata_only)
        request = _list_request(what, what.query(), timeout_seconds=timeout_seconds)
        return await send_json(self._transport, request)

    async def find(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Found:
        """Return the object of that name, or that there is none, by a list of this one name.

        Unlike `get` it needs the right to list only, and says of which time the answer is.
        """
        selector = f"metadata.name={name}"
        found = await self.list(
            resource, namespace, field_selector=selector, timeout_seconds=timeout_seconds
        )
        return Found(
            next(iter(found.get("items") or ()), None),
            str((found.get("metadata") or {}).get("resourceVersion") or ""),
        )

    async def page(
        self,
        what: Selection,
        *,
        limit: int | None = None,
        continue_: str | None = None,
        resource_version: str | None = None,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Page:
        """Return one page of a list, in which an object that cannot be parsed is Unreadable.

        It has at most `limit` objects, from the token `continue_` on; Gone if that has expired.
        With `resource_version` "0" it may be of a moment ago, and costs the API server little.
        Unavailable with reason ANSWER_TOO_LARGE beyond `limit_bytes`, and with MALFORMED_ANSWER if
        it is no list at all.
        """
        request = _list_request(
            what,
            what.query(limit=limit, resourceVersion=resource_version, **{"continue": continue_}),
            timeout_seconds=timeout_seconds,
            limit_bytes=limit_bytes,
        )
        body = await self._transport.send(request)
        try:
            metadata, items = await read_list(body)
        except ValueError as error:
            raise malformed(request, str(error)) from error
        return Page(
            items=items,
            resource_version=str(metadata.get("resourceVersion") or ""),
            continue_=str(metadata.get("continue") or ""),
            size_bytes=len(body),
        )

    @asynccontextmanager
    async def watch(
        self,
        what: Selection,
        *,
        resource_version: str,
        server_timeout_seconds: int | None = None,
        idle_timeout_seconds: float | None = WATCH_IDLE_SECONDS,
    ) -> AsyncIterator[EventStream | ProtobufEventStream]:
        """Open a watch and yield its events as raw dicts, bookmarks and ERROR events included.

        The object of an event is Unreadable if it cannot be parsed. A pod has only the fields that
        `protobuf` declares. The watch ends normally when the server ends it.
        `idle_timeout_seconds` bounds every silence, DEFAULT_TIMEOUT_SECONDS the opening. Raises
        Gone for an expired `resource_version` if the server says so at once; it may also say it in
        an ERROR event.
        """
        request = Request(
            "watch",
            what.resource,
            what.namespace,
            query=what.query(
                watch="true",
                allowWatchBookmarks="true",
                resourceVersion=resource_version,
                timeoutSeconds=server_timeout_seconds,
            ),
            accept=_watch_type(what),
        )
        async with self._transport.stream(
            request, idle_timeout_seconds=idle_timeout_seconds
        ) as chunks:
            is_protobuf = chunks.media_type == PROTOBUF_TYPE
            stream = ProtobufEventStream if is_protobuf else EventStream
            yield stream(chunks, request=request.description)


def _watch_type(what: Selection) -> str:
    """Return the formats in which the objects of a watch are requested, the best one first."""
    if what.metadata_only:
        return METADATA_TYPE
    return _PROTOBUF_OR_JSON if what.resource == PODS else JSON_TYPE


def _list_request(
    what: Selection,
    query: Mapping[str, str],
    *,
    timeout_seconds: float,
    limit_bytes: int = ANSWER_LIMIT_BYTES,
) -> Request:
    return Request(
        "list",
        what.resource,
        what.namespace,
        query=query,
        accept=METADATA_LIST_TYPE if what.metadata_only else JSON_TYPE,
        timeout_seconds=timeout_seconds,
        limit_bytes=limit_bytes,
    )
