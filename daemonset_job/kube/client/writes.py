"""The verbs that write objects: create, replace, patch, apply and delete."""
# ruff: noqa: PLR0913 - the parameters are the API's own options, independent and given by name

from collections.abc import Mapping
from typing import Any

from daemonset_job.kube.client.answers import RawObject, send_json
from daemonset_job.kube.client.request import (
    DEFAULT_TIMEOUT_SECONDS,
    JSON_TYPE,
    Request,
    accept_partial,
    encode_json,
    query_of,
    resource_name,
)
from daemonset_job.kube.client.resource import Resource
from daemonset_job.kube.client.transport import Transport


class Writes:
    """The writing part of KubeClient, over its transport."""

    _transport: Transport

    async def create(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        name: str | None = None,
        subresource: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Create an object and return it; AlreadyExists if the name is taken.

        With `name` and `subresource`, posts to a subresource such as ``eviction``. Never repeated
        by the client: after Unavailable the object may or may not be there.
        """
        return await send_json(
            self._transport,
            Request(
                "POST",
                resource.path(namespace, name, subresource),
                "create",
                resource_name(resource, subresource),
                query={} if subresource else {"fieldValidation": "Strict"},
                body=encode_json(body),
                timeout_seconds=timeout_seconds,
            ),
        )

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Replace an object and return it; Conflict if `body` carries another resourceVersion."""
        return await send_json(
            self._transport,
            Request(
                "PUT",
                resource.path(namespace, name, subresource),
                "update",
                resource_name(resource, subresource),
                query={"fieldValidation": "Strict"},
                body=encode_json(body),
                timeout_seconds=timeout_seconds,
            ),
        )

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Apply an RFC 7386 merge patch and return the object: None deletes, lists are replaced.

        A ``metadata.resourceVersion`` or ``metadata.uid`` in `body` is a precondition (Conflict);
        for the status of a custom resource the version alone, the server ignores the rest there.
        With `metadata_only` the answer is a PartialObjectMetadata.
        """
        return await self._patch(
            resource.path(namespace, name, subresource),
            resource_name(resource, subresource),
            encode_json(body),
            "application/merge-patch+json",
            {"fieldValidation": "Strict"},
            timeout_seconds,
            accept=accept_partial("PartialObjectMetadata") if metadata_only else JSON_TYPE,
        )

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
        dry_run: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Server-side apply `body` and return the object, created if it was not there.

        With `dry_run` the API server does all but storing it.

        `body` is everything this manager has an opinion on: fields it applied before and leaves
        out now are removed. ``apiVersion``, ``kind`` and the name are filled in. Unknown fields
        are refused (BadRequest), and so is, without `force`, another manager's field (Conflict).
        """
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        full = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **body,
            "metadata": {**body.get("metadata", {}), **metadata},
        }
        return await self._patch(
            resource.path(namespace, name, subresource),
            resource_name(resource, subresource),
            encode_json(full),
            "application/apply-patch+yaml",
            {
                "fieldManager": field_manager,
                "force": "true" if force else "false",
                "fieldValidation": "Strict",
                **({"dryRun": "All"} if dry_run else {}),
            },
            timeout_seconds,
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str = "Background",
        grace_seconds: int | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Delete an object; NotFound if it is gone, Conflict if `uid` or version is another one.

        Returns the Status, or the object if it lives on for its grace period or finalizers.
        """
        preconditions = query_of(uid=uid, resourceVersion=resource_version)
        options: RawObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if preconditions:
            options["preconditions"] = preconditions
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await send_json(
            self._transport,
            Request(
                "DELETE",
                resource.path(namespace, name),
                "delete",
                resource.plural,
                body=encode_json(options),
                timeout_seconds=timeout_seconds,
            ),
        )

    async def _patch(
        self,
        path: str,
        title: str,
        body: bytes,
        content_type: str,
        query: Mapping[str, str],
        timeout_seconds: float,
        *,
        accept: str = JSON_TYPE,
    ) -> RawObject:
        return await send_json(
            self._transport,
            Request(
                "PATCH",
                path,
                "patch",
                title,
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                timeout_seconds=timeout_seconds,
                retry_throttled=True,
            ),
        )
