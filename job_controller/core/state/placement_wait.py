"""Whether the DaemonSet controller acts. While it is away, no event says why pods are missing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from job_controller.core.state.first_seen import Fact
from job_controller.core.state.snapshot import Snapshot

# For how long nothing may happen before the status says so.
STALLED_AFTER: Final = timedelta(seconds=60)


def find_waiting(snapshot: Snapshot) -> Fact | None:
    """Return the fact that the DaemonSet controller is to act, None if it has nothing to do.

    It is a new fact with each thing that this controller has done.
    """
    ours = snapshot.owned_daemon_set
    if ours is None or ours.is_terminating:
        return None
    if ours.is_observed and ours.scheduled >= ours.desired:
        return None
    since = f"{ours.observed_generation} {ours.desired}"
    return Fact(ours.uid, "waiting", ours.scheduled, since=since)


def stalled_at(snapshot: Snapshot, now: datetime) -> datetime | None:
    """Return when the DaemonSet controller counts as away, None if it has nothing to do."""
    fact = find_waiting(snapshot)
    if fact is None:
        return None
    sighting = snapshot.seen.get(fact)
    return (sighting.first if sighting is not None else now) + STALLED_AFTER
