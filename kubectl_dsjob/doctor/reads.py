"""Reads for the doctor: an object, that there is none, or that the user may not read it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden, NotFound
from daemonset_job.kube.client.resource import Resource
from daemonset_job.kube.client.selection import Selection

_PAGE: Final = 500


class Missing(Enum):
    """Why there is no object."""

    ABSENT = "absent"
    FORBIDDEN = "forbidden"


async def read(
    client: KubeClient, resource: Resource, name: str, namespace: str | None = None
) -> dict[str, Any] | Missing:
    """Return the object, or why there is none."""
    try:
        return await client.get(resource, name, namespace)
    except NotFound:
        return Missing.ABSENT
    except Forbidden:
        return Missing.FORBIDDEN


async def read_all(
    client: KubeClient, what: Selection, limit: int
) -> tuple[list[dict[str, Any]], bool] | Missing:
    """Return up to `limit` objects, and whether there are more; or why there are none.

    Objects that cannot be parsed are left out.
    """
    found: list[dict[str, Any]] = []
    token: str | None = None
    try:
        while True:
            page = await client.page(what, limit=min(limit, _PAGE), continue_=token)
            found += [each for each in page.items if isinstance(each, dict)]
            token = page.continue_
            if not token or len(found) >= limit:
                return found[:limit], bool(token) or len(found) > limit
    except NotFound:
        return Missing.ABSENT
    except Forbidden:
        return Missing.FORBIDDEN
