"""Lists of any length, read page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.selection import Selection

# client-go's page size (tools/pager, defaultPageSize).
_PAGE: Final = 500


async def list_objects(
    client: KubeClient, what: Selection, *, page_size: int = _PAGE
) -> AsyncIterator[dict[str, Any]]:
    """Yield the raw objects; those that cannot be parsed are left out. Raises KubeError."""
    token: str | None = None
    while token is None or token:
        page = await client.page(what, limit=page_size, continue_=token or None)
        for raw in page.items:
            if isinstance(raw, dict):
                yield raw
        token = page.continue_
