"""The logs of containers, followed or read in part."""
# ruff: noqa: PLR0913 - the parameters are the API's own options, independent and given by name

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from daemonset_job.kube.client.request import (
    DEFAULT_TIMEOUT_SECONDS,
    Request,
    format_rfc3339,
    query_of,
)
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.streams import ByteStream
from daemonset_job.kube.client.transport import Transport

# Read ahead per followed log. Small, because there may be a thousand of them.
LOG_BUFFER_BYTES = 16 * 1024


class PodLogs:
    """The part of KubeClient that reads logs, over its transport."""

    _transport: Transport

    @asynccontextmanager
    async def pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        follow: bool = False,
        timestamps: bool = True,
        since_time: datetime | None = None,
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
        previous: bool = False,
        idle_timeout_seconds: float | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> AsyncIterator[ByteStream]:
        """Open a container's log and yield its bytes in chunks of at most 64 KiB.

        The chunks know nothing of lines. `since_time` (aware) is sent in whole seconds, rounded
        down, as the API server cuts it there anyway: the caller drops what it knows. With `follow`,
        opening waits for the first line, because the kubelet sends no header before it. Only
        `idle_timeout_seconds` bounds that, and every later silence; None is no bound. The error is
        Unavailable with reason Timeout or IdleTimeout. BadRequest until the container has started.
        """
        request = Request(
            "GET",
            PODS.path(namespace, pod, "log"),
            "get",
            "pods/log",
            query=query_of(
                container=container,
                follow="true" if follow else None,
                timestamps="true" if timestamps else None,
                previous="true" if previous else None,
                sinceTime=None if since_time is None else format_rfc3339(since_time),
                tailLines=tail_lines,
                limitBytes=limit_bytes,
            ),
            accept="*/*",
            timeout_seconds=idle_timeout_seconds if follow else timeout_seconds,
        )
        async with self._transport.stream(
            request,
            idle_timeout_seconds=idle_timeout_seconds if follow else timeout_seconds,
            buffer_bytes=LOG_BUFFER_BYTES,
            limit_bytes=limit_bytes,
        ) as chunks:
            yield chunks

    async def read_pod_log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        max_bytes: int,
        timestamps: bool = True,
        since_time: datetime | None = None,
        tail_lines: int | None = None,
        previous: bool = False,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> bytes:
        """Return the *first* `max_bytes` of what was asked for, in one short request.

        No more is read, whatever is sent: the API server copies what a kubelet answers.
        An answer of exactly `max_bytes` was cut, possibly inside a line: go on with `since_time`
        of its last line. `tail_lines` counts the log's entries, of at most 16 KiB each, so it
        bounds the answer as well.
        """
        return await self._transport.send(
            Request(
                "GET",
                PODS.path(namespace, pod, "log"),
                "get",
                "pods/log",
                query=query_of(
                    container=container,
                    timestamps="true" if timestamps else None,
                    previous="true" if previous else None,
                    sinceTime=None if since_time is None else format_rfc3339(since_time),
                    tailLines=tail_lines,
                    limitBytes=max_bytes,
                ),
                accept="*/*",
                timeout_seconds=timeout_seconds,
                retry_throttled=True,
                limit_bytes=max_bytes,
                may_cut=True,
            )
        )
