"""Whether a process acts: while it holds its Lease, or always if it has none."""

from collections.abc import Awaitable, Callable
from uuid import uuid4

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.leaderelection.elector import run_leader_election
from daemonset_job.kube.leaderelection.lease_lock import LeaseLock
from daemonset_job.process.process_options import ProcessOptions
from daemonset_job.runtime.clock import Clock


async def lead_when_elected(
    client: KubeClient,
    options: ProcessOptions,
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

    def new_lock() -> LeaseLock:
        identity = f"{options.identity}_{uuid4().hex[:8]}"
        return LeaseLock(
            client, options.lease_namespace, options.lease_name, identity=identity, clock=clock
        )

    await run_leader_election(new_lock, lead=lead, on_state=on_state)
