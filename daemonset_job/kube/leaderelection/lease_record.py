"""What a Lease records of its holder, and what is written into it; pure."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from daemonset_job.kube.client.answers import RawObject


def spec_of(lease: RawObject) -> dict[str, Any]:
    """Return the spec of a Lease, possibly empty."""
    spec: dict[str, Any] = lease.get("spec") or {}
    return spec


def holder_of(lease: RawObject | None) -> str:
    """Return the identity that holds a Lease, empty for none."""
    return str(spec_of(lease or {}).get("holderIdentity") or "")


def claimed(
    spec: Mapping[str, Any], identity: str, lease_duration_seconds: float, now: datetime
) -> dict[str, Any]:
    """Return the spec with which `identity` takes the Lease, or renews it, at `now`."""
    record = {
        **spec,
        "holderIdentity": identity,
        "leaseDurationSeconds": math.ceil(lease_duration_seconds),
        "renewTime": _micro_time(now),
    }
    if spec.get("holderIdentity") != identity:
        record["acquireTime"] = _micro_time(now)
        record["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + bool(spec)
    return record


def released(spec: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the spec with which the holder gives the Lease back at `now`.

    As client-go does with ReleaseOnCancel: no holder, and a duration of one second for clients that
    look at nothing else. An empty string would be refused as a holder.
    """
    record = {key: value for key, value in spec.items() if key != "holderIdentity"}
    return {**record, "leaseDurationSeconds": 1, "renewTime": _micro_time(now)}


def _micro_time(now: datetime) -> str:
    """Return a time as a metav1.MicroTime, which always has six decimals."""
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
