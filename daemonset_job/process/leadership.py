"""Whether a process acts: while it holds its Lease, or always if it has none."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.leaderelection import run_leader_election
from daemonset_job.runtime.clock import Clock


class LeaseOptions(Protocol):
    """The Lease of a program, and which of its processes this is."""

    @property
    def lease_namespace(self) -> str:
        """Return the Lease's namespace; empty: no leader election."""
        ...

    @property
    def lease_name(self) -> str:
        """Return the Lease's name."""
        ...

    @property
    def identity(self) -> str:
        """Return the name of the pod or the host."""
        ...


async def lead_when_elected(
    client: KubeClient,
    options: LeaseOptions,
    *,
    clock: Clock,
    wait_synced: Callable[[], Awaitable[object]],
    lead: Callable[[], Awaitable[None]],
    on_state: Callable[[bool], None],
) -> None:
    """Run `lead` whenever the Lease is held, until cancelled.

    Without a Lease, `lead` runs once. Either way the caches are complete first. A follower keeps
    its caches up to date, so that it takes over quickly. `on_state` gets True while the
    process leads, for its metric.
    """
    await wait_synced()
    if not options.lease_namespace:
        on_state(True)
        await lead()
        return
    await run_leader_election(
        client,
        namespace=options.lease_namespace,
        name=options.lease_name,
        process=options.identity,
        clock=clock,
        lead=lead,
        on_state=on_state,
    )
