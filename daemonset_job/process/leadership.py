"""Whether a process acts: while it holds its Lease, or always if it has none."""

from collections.abc import Awaitable, Callable

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.leaderelection import run_leader_election
from daemonset_job.process.place import Place
from daemonset_job.runtime.clock import Clock


async def lead_when_elected(
    client: KubeClient,
    place: Place,
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
    if not place.lease_namespace:
        on_state(True)
        await lead()
        return
    await run_leader_election(
        client,
        namespace=place.lease_namespace,
        name=place.lease_name,
        process=place.identity,
        clock=clock,
        lead=lead,
        on_state=on_state,
    )
