"""How large the pages of a list are: those of large objects are small in memory."""

import pytest

from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.answers import Page
from daemonset_job.kube.client.errors import Unavailable
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS
from daemonset_job.kube.client.response import ANSWER_TOO_LARGE
from daemonset_job.kube.client.selection import Selection


class Server:
    """Has objects of one size, and notes how many were asked for and how much was sent."""

    def __init__(self, object_bytes):
        self.object_bytes = object_bytes
        self.asked = []
        self.largest = 0

    async def page(self, _what, *, limit, limit_bytes, **_):
        self.asked.append(limit)
        size = limit * self.object_bytes
        self.largest = max(self.largest, min(size, limit_bytes))
        if size > limit_bytes:
            raise Unavailable("too large", reason=ANSWER_TOO_LARGE)
        return Page([{}] * limit, "1", "more", size)


async def read_pages(resource, object_bytes, count=8):
    server = Server(object_bytes)
    pager = Pager(server, Selection(resource))
    for _ in range(count):
        await pager.page("")
    return server


async def test_all_pages_are_read_one_after_the_other():
    answers = {None: Page([{}], "1", "two", 1), "two": Page([{}, {}], "1", "", 1)}

    class Pages:
        async def page(self, _what, *, continue_, **_):
            return answers[continue_]

    pages = Pager(Pages(), Selection(PODS)).pages()
    assert [len(page.items) async for page in pages] == [1, 2]


async def test_pages_of_reports_grow_to_four_mebibytes():
    assert (await read_pages(JOB_REPORTS, 1024)).asked == [16, 32, 64, 128, 256, 500, 500, 500]
    large = await read_pages(JOB_REPORTS, 480 * 1024)
    assert large.asked[:3] == [16, 8, 8]
    assert large.largest <= 4 * 1024 * 1024


async def test_a_single_report_may_be_larger_than_a_page():
    assert (await read_pages(JOB_REPORTS, 5 * 1024 * 1024, 1)).asked == [16, 8, 4, 2, 1]


async def test_pods_begin_with_whole_pages():
    assert (await read_pages(PODS, 1024, 2)).asked == [500, 500]


@pytest.mark.parametrize("resource", [JOBS, PODS, DAEMON_SETS])
async def test_dense_user_objects_are_listed_in_small_pages(resource):
    assert (await read_pages(resource, 1_300_000)).largest <= 2 * 1024 * 1024
