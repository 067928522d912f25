"""The pages of a list, as large as they may be, and without what cannot be read."""

from collections.abc import AsyncIterator
from dataclasses import replace

from daemonset_job.kube.client.answers import MALFORMED_ANSWER, Page
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.request import ANSWER_LIMIT_BYTES
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from daemonset_job.kube.client.response import ANSWER_TOO_LARGE
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable

# client-go's page size (tools/pager, defaultPageSize).
PAGE_LIMIT = 500
# Where a page is longer than this, smaller pages are asked for. 500 nodes take some 10 MiB, 500
# reports of large runs take 240 MiB. What is parsed takes several times that.
PAGE_LIMIT_BYTES = 16 * 1024 * 1024
LIST_TIMEOUT_SECONDS = 60.0
# What is parsed takes at least five times the page. Its writer can make that 27 times, by
# metadata.managedFields of nothing but short names. So pages of what users of single namespaces
# write are smaller. So are those of reports, which hold much of what users write.
SMALL_PAGES_BYTES = {
    JOBS: 2 * 1024 * 1024,
    PODS: 2 * 1024 * 1024,
    DAEMON_SETS: 2 * 1024 * 1024,
    JOB_REPORTS: 4 * 1024 * 1024,
}
# Jobs and reports are large without ill will. Their pages begin small: the server makes all of a
# page of which the client reads a part only.
LARGE_OBJECTS = frozenset({JOBS, JOB_REPORTS})
LARGE_OBJECTS_PAGE_LIMIT = 16


class Pager:
    """Asks for pages; remembers how many objects fit into one.

    `size` and `limit_bytes` bound each page more than the resource would.
    """

    def __init__(
        self,
        client: KubeClient,
        what: Selection,
        *,
        size: int = PAGE_LIMIT,
        limit_bytes: int = PAGE_LIMIT_BYTES,
    ) -> None:
        self._client = client
        self._what = what
        is_large = what.resource in LARGE_OBJECTS
        self._largest = size
        self._size = min(LARGE_OBJECTS_PAGE_LIMIT, size) if is_large else size
        self._limit_bytes = min(limit_bytes, SMALL_PAGES_BYTES.get(what.resource, limit_bytes))
        # A single object has room for all that the server may make of it.
        self._single_limit_bytes = limit_bytes
        has_small_pages = what.resource in SMALL_PAGES_BYTES
        self._whole_limit_bytes = PAGE_LIMIT_BYTES if has_small_pages else ANSWER_LIMIT_BYTES

    async def list_all(self) -> Page:
        """Return everything in one answer; raises Unavailable if that is too much."""
        return await self._request_page(None, "", limit_bytes=self._whole_limit_bytes)

    async def pages(self) -> AsyncIterator[Page]:
        """Yield all pages, one after the other."""
        continue_ = ""
        while True:
            page = await self.page(continue_)
            yield page
            if not (continue_ := page.continue_):
                return

    async def page(self, continue_: str) -> Page:
        """Return the page that begins at `continue_`, "" for the first.

        A page that cannot be read is asked for in smaller ones, down to a single object, which is
        skipped. That takes ten requests for it, and ten until the pages have their size again.
        """
        while True:
            try:
                room = self._limit_bytes if self._size > 1 else self._single_limit_bytes
                page = await self._request_page(self._size, continue_, limit_bytes=room)
            except Unavailable as error:
                if error.reason not in {ANSWER_TOO_LARGE, MALFORMED_ANSWER}:
                    raise
                if self._size == 1:
                    return await self._page_without(continue_, error)
                self._size //= 2
                continue
            if page.size_bytes * 4 <= self._limit_bytes:
                self._size = min(self._size * 2, self._largest)
            return page

    async def _page_without(self, continue_: str, error: KubeError) -> Page:
        """Return a page whose one object is unreadable, with where the list goes on after it."""
        page = await self._request_page(1, continue_, metadata_only=True)
        self._size = 2
        items = [
            raw if isinstance(raw, Unreadable) else Unreadable.of(raw, error.message)
            for raw in page.items
        ]
        return replace(page, items=items)

    async def _request_page(
        self,
        limit: int | None,
        continue_: str,
        *,
        metadata_only: bool = False,
        limit_bytes: int = PAGE_LIMIT_BYTES,
    ) -> Page:
        return await self._client.page(
            replace(self._what, metadata_only=True) if metadata_only else self._what,
            limit=limit,
            continue_=continue_ or None,
            limit_bytes=limit_bytes,
            timeout_seconds=LIST_TIMEOUT_SECONDS,
        )
