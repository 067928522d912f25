"""Reads the body of an answer, of which no more than a limit is held."""

import aiohttp

from daemonset_job.kube.client.errors import KubeError, Unavailable
from daemonset_job.kube.client.request import Request
from daemonset_job.kube.client.status_errors import error_from_response
from daemonset_job.kube.client.streams import CHUNK_BYTES

# An error body is a Status object; a proxy's may be a page. This much of it is looked at.
ERROR_BODY_LIMIT_BYTES = 64 * 1024

# The reason of the Unavailable that is raised for an answer beyond its limit.
ANSWER_TOO_LARGE = "AnswerTooLarge"


async def read_body(response: aiohttp.ClientResponse, request: Request) -> bytes:
    """Return the body of a good answer, which is never held beyond its limit and one chunk."""
    body = await _read_up_to(request.limit_bytes, response)
    if len(body) > request.limit_bytes:
        # Not release(): a server that sends more than was asked for may never stop.
        response.close()
        if not request.may_cut:
            raise Unavailable(
                f"the answer is longer than {request.limit_bytes} bytes",
                reason=ANSWER_TOO_LARGE,
                request=request.description,
            )
    return body[: request.limit_bytes]


async def read_error(response: aiohttp.ClientResponse, request: Request) -> KubeError:
    """Return the error that an answer of 400 or above means."""
    body = await _read_up_to(ERROR_BODY_LIMIT_BYTES, response)
    return error_from_response(
        response.status,
        body[:ERROR_BODY_LIMIT_BYTES],
        retry_after=response.headers.get("Retry-After"),
        request=request.description,
    )


async def _read_up_to(limit_bytes: int, response: aiohttp.ClientResponse) -> bytes:
    """Return the body up to the first chunk beyond the limit; one read is one chunk at most."""
    chunks: list[bytes] = []
    held = 0
    while held <= limit_bytes and (chunk := await response.content.read(CHUNK_BYTES)):
        chunks.append(chunk)
        held += len(chunk)
    return b"".join(chunks)
