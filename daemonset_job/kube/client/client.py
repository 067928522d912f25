"""The client of one API server: the verbs of the Kubernetes API over raw JSON.

Raw dicts and not generated models: parsing 5,000 pods takes 0.05 s as JSON and 1.4 s as V1PodList.
What a caller keeps of them, it turns into its own small types at once.
"""

from types import TracebackType
from typing import Self

from daemonset_job.kube.client.connection import Anonymous, Connection, discover
from daemonset_job.kube.client.pod_logs import PodLogs
from daemonset_job.kube.client.reads import Reads
from daemonset_job.kube.client.transport import OnRequest, Transport
from daemonset_job.kube.client.writes import Writes

# More than all workers of a program use at a time: 5 of the controller write 32 objects each. If
# the writes of a few Jobs hang, because of a webhook, the renewal of a Lease would else wait for
# one of them to end.
CONNECTIONS = 1024
# More than any terminator follows at a time; the operating system's limit on open files comes
# first. It exists so that a bug shows as Unavailable and not as an exhausted node.
STREAM_CONNECTIONS = 4096


class KubeClient(Reads, Writes, PodLogs):
    """A connection to one API server; create it inside a running event loop and close it.

    Every method raises a KubeError for every failure and nothing else; `timeout_seconds` bounds
    the whole call.
    """

    def __init__(
        self,
        base_url: str = "",
        *,
        connection: Connection | None = None,
        user_agent: str = "daemonset-job",
        connections: int = CONNECTIONS,
        on_request: OnRequest | None = None,
    ) -> None:
        """Make a client for `connection`, or for a plain URL without credentials."""
        self._transport = Transport(
            connection or Connection(base_url=base_url, credentials=Anonymous()),
            user_agent=user_agent,
            connections=connections,
            stream_connections=STREAM_CONNECTIONS,
            on_request=on_request,
        )

    @classmethod
    async def connect(
        cls,
        *,
        kubeconfig: str | None = None,
        context: str | None = None,
        user_agent: str,
        on_request: OnRequest | None = None,
    ) -> Self:
        """Return a client for the cluster that `connection.discover` finds.

        No request is made; ConfigurationError if there is nothing to connect to.
        """
        return cls(
            connection=await discover(kubeconfig, context),
            user_agent=user_agent,
            on_request=on_request,
        )

    async def close(self) -> None:
        """Close all connections; running calls fail."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
