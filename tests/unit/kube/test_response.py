"""How the bodies of answers are read, whatever chunks they come in."""

import json
from types import SimpleNamespace

from daemonset_job.kube.client.errors import Invalid
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.resource import JOBS
from daemonset_job.kube.client.response import ERROR_BODY_LIMIT_BYTES, read_error


class Content:
    """A body that comes in chunks: like aiohttp's, one read returns what has come so far."""

    def __init__(self, chunks):
        self.left = list(chunks)

    async def read(self, _most):
        return self.left.pop(0) if self.left else b""


def refused(chunks):
    return SimpleNamespace(status=422, headers={}, content=Content(chunks))


async def test_an_error_that_comes_in_two_chunks_is_read_whole():
    status = {"kind": "Status", "message": "spec.image: Required", "details": {"name": "sweep"}}
    body = json.dumps(status).encode()
    error = await read_error(refused([body[:20], body[20:]]), Request("create", JOBS))
    assert isinstance(error, Invalid)
    assert (error.message, error.details["name"]) == ("spec.image: Required", "sweep")


async def test_an_error_without_end_is_read_up_to_the_limit():
    response = refused([b"x" * 1000] * 1000)
    error = await read_error(response, Request("create", JOBS))
    assert isinstance(error, Invalid)
    assert len(response.content.left) == 1000 - ERROR_BODY_LIMIT_BYTES // 1000 - 1
