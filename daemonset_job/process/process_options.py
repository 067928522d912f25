"""The options that every program has: its cluster, its Lease and its probes."""

from typing import Protocol

from daemonset_job.process.readers import read_optional_text, read_port, read_text
from daemonset_job.process.settings import Setting


class ProcessOptions(Protocol):
    """Options of a process, which cannot change while it runs."""

    @property
    def kubeconfig(self) -> str | None:
        """Return the path of the kubeconfig; None: the service account's."""
        ...

    @property
    def context(self) -> str | None:
        """Return the context of the kubeconfig; None: its current one."""
        ...

    @property
    def identity(self) -> str:
        """Return the name of the pod or the host."""
        ...

    @property
    def lease_namespace(self) -> str:
        """Return the Lease's namespace; empty: no leader election."""
        ...

    @property
    def lease_name(self) -> str:
        """Return the Lease's name."""
        ...

    @property
    def probe_host(self) -> str | None:
        """Return the address of the probes; None: all addresses."""
        ...

    @property
    def probe_port(self) -> int:
        """Return the port of the probes; 0: any free one."""
        ...


def process_settings(probe_port: int) -> tuple[Setting, ...]:
    """Return these options as settings, the Lease's name aside; `probe_port` is the default."""
    return (
        Setting(
            "kubeconfig",
            read_optional_text,
            "in-cluster",
            flag="--kubeconfig",
            variable="KUBECONFIG",
            help="path of the kubeconfig",
        ),
        Setting(
            "context",
            read_optional_text,
            "the current one",
            flag="--context",
            help="context of the kubeconfig",
        ),
        Setting("identity", read_text, "the host's name", variable="POD_NAME"),
        Setting(
            "lease_namespace",
            read_text,
            "none",
            flag="--lease-namespace",
            variable="POD_NAMESPACE",
            help="namespace of the Lease, none: no leader election",
        ),
        Setting(
            "probe_host",
            read_optional_text,
            "all addresses, IPv4 and IPv6",
            flag="--probe-host",
            help="address of the probes",
        ),
        Setting(
            "probe_port",
            read_port,
            str(probe_port),
            flag="--probe-port",
            variable="PROBE_PORT",
            help="port of the probes, 0: any free one",
        ),
    )
