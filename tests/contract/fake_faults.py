"""Faults that a test scripts: the next matching requests fail, wait, or lose their connection."""

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import Any

from aiohttp import web


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    status: int = 0


@dataclass
class Fault:
    method: str
    pattern: re.Pattern[str]
    times: int
    status: int = 0
    retry_after: int | None = None
    reason: str = ""
    message: str = ""
    delay_seconds: float = 0.0
    reset: bool = False
    lose_answer: bool = False
    body: bytes | None = None


class ScriptedFaults:
    """The faults of one server, in the order in which they were scripted."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        # What is sent, again and again, in answer to requests whose path?query this matches.
        self.endless: tuple[re.Pattern[str], bytes, float] | None = None
        self.sent_bytes = 0

    def fail_next(
        self,
        method: str,
        path_regex: str,
        status: int,
        times: int = 1,
        *,
        retry_after: int | None = None,
        reason: str = "",
        message: str = "",
    ) -> None:
        """Answer the next matching requests with a Status; the regex is searched in path?query."""
        self.faults.append(
            Fault(method, re.compile(path_regex), times, status, retry_after, reason, message)
        )

    def delay_next(self, method: str, path_regex: str, seconds: float, times: int = 1) -> None:
        """Let the next matching requests wait before they are carried out."""
        self.faults.append(Fault(method, re.compile(path_regex), times, delay_seconds=seconds))

    def reset_next(self, method: str, path_regex: str, times: int = 1) -> None:
        """Cut the connection of the next matching requests before they are carried out."""
        self.faults.append(Fault(method, re.compile(path_regex), times, reset=True))

    def lose_answer_next(self, method: str, path_regex: str, times: int = 1) -> None:
        """Carry the next matching requests out, then cut the connection instead of answering."""
        self.faults.append(Fault(method, re.compile(path_regex), times, lose_answer=True))

    def answer_next(self, method: str, path_regex: str, body: bytes, times: int = 1) -> None:
        """Answer the next matching requests with 200 and these bytes."""
        self.faults.append(Fault(method, re.compile(path_regex), times, body=body))

    def answer_endlessly(
        self, path_regex: str, chunk: bytes, *, pause_seconds: float = 0.0
    ) -> None:
        """Answer matching requests with 200 and `chunk` again and again, for as long as one reads.

        As a broken server does, or a kubelet that minds no limit. `sent_bytes` counts them.
        """
        self.endless = re.compile(path_regex), chunk, pause_seconds

    def take_fault(self, request: Request) -> Fault | None:
        """Return the first fault for a request, which then applies once less."""
        for fault in self.faults:
            if fault.method == request.method and fault.pattern.search(request.path):
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        return None

    async def serve_endless(
        self, http: web.Request, chunk: bytes, pause_seconds: float
    ) -> web.StreamResponse:
        """Send the chunk until the client closes the connection."""
        response = web.StreamResponse()
        await response.prepare(http)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(chunk)
                self.sent_bytes += len(chunk)
                await asyncio.sleep(pause_seconds)
        return response
