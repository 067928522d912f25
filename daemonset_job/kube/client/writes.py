"""The verbs that write objects: create, replace, patch, apply and delete."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from daemonset_job.kube.client.answers import RawObject, send_json
from daemonset_job.kube.client.request import (
    DEFAULT_TIMEOUT_SECONDS,
    JSON_TYPE,
    METADATA_TYPE,
    Request,
    encode_json,
    query_of,
)
from daemonset_job.kube.client.resource import Resource
from daemonset_job.kube.client.transport import Transport

# Unknown fields are refused, and not dropped.
_STRICT = {"fieldValidation": "Strict"}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How an object is deleted, as in metav1.DeleteOptions; None: as its kind has it."""

    propagation_policy: Literal["Orphan", "Background", "Foreground"] = "Background"
    grace_period_seconds: int | None = None


_IN_BACKGROUND = DeleteOptions()


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
        dry_run: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Create an object and return it; AlreadyExists if the name is taken.

        With `dry_run` the API server does all but storing it.
        A subresource such as ``eviction`` is created for the object called `name`. Never repeated
        by the client: after Unavailable the object may or may not be there.
        """
        request = Request(
            "create",
            resource,
            namespace,
            name,
            query={
                **({} if resource.subresource else _STRICT),
                **({"dryRun": "All"} if dry_run else {}),
            },
            body=encode_json(body),
            timeout_seconds=timeout_seconds,
        )
        return await send_json(self._transport, request)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Replace an object and return it; Conflict if `body` carries another resourceVersion."""
        request = Request(
            "update",
            resource,
            namespace,
            name,
            query=_STRICT,
            body=encode_json(body),
            timeout_seconds=timeout_seconds,
        )
        return await send_json(self._transport, request)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        metadata_only: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> RawObject:
        """Apply an RFC 7386 merge patch and return the object: None deletes, lists are replaced.

        A ``metadata.resourceVersion`` or ``metadata.uid`` in `body` is a precondition (Conflict);
        for the status of a custom resource the version alone, the server ignores the rest there.
        With `metadata_only` the answer is a PartialObjectMetadata.
        """
        request = Request(
            "patch",
            resource,
            namespace,
            name,
            query=_STRICT,
            body=encode_json(body),
            content_type="application/merge-patch+json",
            accept=METADATA_TYPE if metadata_only else JSON_TYPE,
            timeout_seconds=timeout_seconds,
        )
        return await send_json(self._transport, request)

    async def check_merge_patch(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
    ) -> None:
        """Raise what `merge_patch` would raise; the API server does all but storing the object."""
        request = Request(
            "patch",
            resource,
            namespace,
            name,
            query={**_STRICT, "dryRun": "All"},
            body=encode_json(body),
            content_type="application/merge-patch+json",
        )
        await send_json(self._transport, request)

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str,
        dry_run: bool = False,
    ) -> RawObject:
        """Server-side apply `body` and return the object, created if it was not there.

        With `dry_run` the API server does all but storing it.

        `body` is everything this manager has an opinion on: fields it applied before and leaves
        out now are removed. A field of another manager becomes this one's. ``apiVersion``,
        ``kind`` and the name are filled in. Unknown fields are refused (BadRequest).
        """
        query = {"fieldManager": field_manager, "force": "true", **_dry_run_query(dry_run)}
        request = _apply_request(resource, name, body, namespace, query)
        return await send_json(self._transport, request)

    async def apply_unless_conflict(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        namespace: str | None = None,
        *,
        field_manager: str,
        dry_run: bool = False,
    ) -> RawObject:
        """Apply as `apply` does, but raise Conflict for a field that another manager changed."""
        query = {"fieldManager": field_manager, **_dry_run_query(dry_run)}
        request = _apply_request(resource, name, body, namespace, query)
        return await send_json(self._transport, request)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        options: DeleteOptions = _IN_BACKGROUND,
    ) -> RawObject:
        """Delete an object; NotFound if it is gone, Conflict if `uid` or version is another one.

        Returns the Status, or the object if it lives on for its grace period or finalizers.
        """
        body: RawObject = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": options.propagation_policy,
        }
        if preconditions := query_of(uid=uid, resourceVersion=resource_version):
            body["preconditions"] = preconditions
        if options.grace_period_seconds is not None:
            body["gracePeriodSeconds"] = options.grace_period_seconds
        request = Request("delete", resource, namespace, name, body=encode_json(body))
        return await send_json(self._transport, request)


def _dry_run_query(dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry_run else {}


def _apply_request(
    resource: Resource,
    name: str,
    body: Mapping[str, Any],
    namespace: str | None,
    query: Mapping[str, str],
) -> Request:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    full = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        **body,
        "metadata": {**body.get("metadata", {}), **metadata},
    }
    return Request(
        "patch",
        resource,
        namespace,
        name,
        query={**query, **_STRICT},
        body=encode_json(full),
        content_type="application/apply-patch+yaml",
    )
