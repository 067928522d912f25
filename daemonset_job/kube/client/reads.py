"""The verbs that read objects: get, list and watch."""
# ruff: noqa: PLR0913 - the parameters are the API's own options, independent and given by name

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from daemonset_job.kube.client.answers import MALFORMED_ANSWER, Found, Page, RawObject, send_json
from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.request import (
    ANSWER_LIMIT_BYTES,
    DEFAULT_TIMEOUT_SECONDS,
    JSON_TYPE,
    Request,
    accept_partial,
    query_of,
    resource_name,
)
from daemonset_job.kube.client.resource import Resource
from daemonset_job.kube.client.streams import EventStream
from daemonset_job.kube.client.transport import Transport
from daemonset_job.kube.client.unreadable import read_list

# The API server sends a bookmark about once a minute; a watch silent for longer is dead
# (apiserver storage/cacher, defaultBookmarkFrequency).
WATCH_IDLE_SECONDS = 70.0


class Reads:
    """The reading part of KubeClient, over its transport."""

    _transport: Transport

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Return one object; NotFound if it is not there."""
        return await send_json(
            self._transport,
            Request(
                "GET",
                resource.path(namespace, name, subresource),
                "get",
                resource_name(resource, subresource),
                timeout_seconds=timeout_seconds,
                retry_throttled=True,
            ),
        )

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Return one list object, which is one page if `limit` is given; Gone if `continue_` is.

        With `metadata_only` the items are PartialObjectMetadata.
        """
        request = _list_request(
            resource,
            namespace,
            query_of(
                labelSelector=label_selector,
                fieldSelector=field_selector,
                limit=limit,
                resourceVersion=resource_version,
                **{"continue": continue_},
            ),
            metadata_only=metadata_only,
            timeout_seconds=timeout_seconds,
        )
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
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int | None = None,
        continue_: str | None = None,
        metadata_only: bool = False,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> Page:
        """Return one page of a list, in which an object that cannot be parsed is Unreadable.

        Unavailable with reason ANSWER_TOO_LARGE beyond `limit_bytes`, and with MALFORMED_ANSWER if
        it is no list at all.
        """
        request = _list_request(
            resource,
            namespace,
            query_of(
                labelSelector=label_selector,
                fieldSelector=field_selector,
                limit=limit,
                **{"continue": continue_},
            ),
            metadata_only=metadata_only,
            timeout_seconds=timeout_seconds,
            limit_bytes=limit_bytes,
        )
        body = await self._transport.send(request)
        try:
            metadata, items = await read_list(body)
        except ValueError as error:
            raise Unavailable(
                str(error), reason=MALFORMED_ANSWER, request=request.description
            ) from error
        return Page(
            items=items,
            resource_version=str(metadata.get("resourceVersion") or ""),
            continue_=str(metadata.get("continue") or ""),
            size_bytes=len(body),
        )

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        server_timeout_seconds: int | None = None,
        idle_timeout_seconds: float | None = WATCH_IDLE_SECONDS,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> AsyncIterator[EventStream]:
        """Open a watch and yield its events as raw dicts, bookmarks and ERROR events included.

        The object of an event is Unreadable if it cannot be parsed. It ends normally when the
        server ends it. `timeout_seconds` bounds opening it,
        `idle_timeout_seconds` every silence. Raises Gone for an expired `resource_version` if the
        server says so at once; it may also say it in an ERROR event.
        """
        request = Request(
            "GET",
            resource.path(namespace),
            "watch",
            resource.plural,
            query=query_of(
                watch="true",
                allowWatchBookmarks="true",
                resourceVersion=resource_version,
                labelSelector=label_selector,
                fieldSelector=field_selector,
                timeoutSeconds=server_timeout_seconds,
            ),
            accept=accept_partial("PartialObjectMetadata") if metadata_only else JSON_TYPE,
            timeout_seconds=timeout_seconds,
        )
        async with self._transport.stream(
            request, idle_timeout_seconds=idle_timeout_seconds
        ) as chunks:
            yield EventStream(chunks, request=request.description)


def _list_request(
    resource: Resource,
    namespace: str | None,
    query: Mapping[str, str],
    *,
    metadata_only: bool,
    timeout_seconds: float,
    limit_bytes: int = ANSWER_LIMIT_BYTES,
) -> Request:
    return Request(
        "GET",
        resource.path(namespace),
        "list",
        resource.plural,
        query=query,
        accept=accept_partial("PartialObjectMetadataList") if metadata_only else JSON_TYPE,
        timeout_seconds=timeout_seconds,
        retry_throttled=True,
        limit_bytes=limit_bytes,
    )
