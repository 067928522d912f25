"""The logs of containers, followed or read in part."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime

from daemonset_job.kube.client.request import (
    ANSWER_LIMIT_BYTES,
    DEFAULT_TIMEOUT_SECONDS,
    Request,
    format_rfc3339,
    query_of,
)
from daemonset_job.kube.client.resource import POD_LOGS
from daemonset_job.kube.client.streams import ByteStream
from daemonset_job.kube.client.transport import Transport

# Read ahead per followed log. Small, because there may be a thousand of them.
LOG_BUFFER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class PodLogOptions:
    """Which part of which container's log is read, as in v1.PodLogOptions.

    `previous` means the instance before the last restart. `since_time` (aware) is sent in whole
    seconds, rounded down, as the API server cuts it there anyway: the caller drops what it knows.
    `tail_lines` counts the log's entries, of at most 16 KiB each, so it bounds the bytes as well.
    """

    container: str
    previous: bool = False
    since_time: datetime | None = None
    tail_lines: int | None = None
    timestamps: bool = True


class PodLogs:
    """The part of KubeClient that reads logs, over its transport."""

    _transport: Transport

    def follow_pod_log(
        self,
        namespace: str,
        pod: str,
        options: PodLogOptions,
        *,
        idle_timeout_seconds: float | None = None,
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Open a container's log and yield its bytes as they come, in chunks of at most 64 KiB.

        The chunks know nothing of lines. Opening waits for the first line, because the kubelet
        sends no header before it. `idle_timeout_seconds` bounds that, and every later silence; None
        is no bound. The error is Unavailable with reason Timeout or IdleTimeout. BadRequest until
        the container has started.
        """
        return self._transport.stream(
            _request(namespace, pod, _query(options, follow="true"), idle_timeout_seconds),
            idle_timeout_seconds=idle_timeout_seconds,
            buffer_bytes=LOG_BUFFER_BYTES,
        )

    def stream_pod_log(
        self,
        namespace: str,
        pod: str,
        options: PodLogOptions,
        *,
        limit_bytes: int | None = None,
    ) -> AbstractAsyncContextManager[ByteStream]:
        """Open a container's log and yield what is there, in chunks of at most 64 KiB.

        It ends after `limit_bytes`. The errors are those of `follow_pod_log`.
        """
        query = _query(options, limitBytes=limit_bytes)
        return self._transport.stream(
            _request(namespace, pod, query, DEFAULT_TIMEOUT_SECONDS),
            idle_timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
            buffer_bytes=LOG_BUFFER_BYTES,
            limit_bytes=limit_bytes,
        )

    async def read_pod_log(
        self,
        namespace: str,
        pod: str,
        options: PodLogOptions,
        *,
        limit_bytes: int,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> bytes:
        """Return the *first* `limit_bytes` of what was asked for, in one short request.

        No more is read, whatever is sent: the API server copies what a kubelet answers.
        An answer of exactly `limit_bytes` was cut, possibly inside a line: go on with `since_time`
        of its last line.
        """
        query = _query(options, limitBytes=limit_bytes)
        return await self._transport.send(
            _request(namespace, pod, query, timeout_seconds, limit_bytes=limit_bytes)
        )


def _request(
    namespace: str,
    pod: str,
    query: dict[str, str],
    timeout_seconds: float | None,
    *,
    limit_bytes: int = ANSWER_LIMIT_BYTES,
) -> Request:
    return Request(
        "get",
        POD_LOGS,
        namespace,
        pod,
        query=query,
        accept="*/*",
        timeout_seconds=timeout_seconds,
        limit_bytes=limit_bytes,
        may_cut=True,
    )


def _query(options: PodLogOptions, **more: str | int | None) -> dict[str, str]:
    since_time = options.since_time
    return query_of(
        container=options.container,
        timestamps="true" if options.timestamps else None,
        previous="true" if options.previous else None,
        sinceTime=None if since_time is None else format_rfc3339(since_time),
        tailLines=options.tail_lines,
        **more,
    )
