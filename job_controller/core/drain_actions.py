"""The requests of a plan that concern cordons and drains, see `job_controller.core.plan`."""

from __future__ import annotations

from dataclasses import dataclass

from daemonset_job.api.drain import CordonMark
from daemonset_job.api.drained_pod import DrainedPod


@dataclass(frozen=True, slots=True)
class NodeCordon:
    """A node, which is still the one with this UID, and the mark of the Job that cordons it."""

    node: str
    uid: str
    mark: CordonMark


@dataclass(frozen=True, slots=True)
class DryRunCordon:
    """Ask the API server whether a node may be cordoned; nothing is changed."""

    cordon: NodeCordon


@dataclass(frozen=True, slots=True)
class CordonNodes:
    """Cordon nodes and mark them, except those that are cordoned or marked by now."""

    cordons: tuple[NodeCordon, ...]


@dataclass(frozen=True, slots=True)
class UncordonNodes:
    """Lift cordons of which the mark is still there, and remove the mark."""

    cordons: tuple[NodeCordon, ...]


@dataclass(frozen=True, slots=True)
class EvictPods:
    """Request the eviction of these pods of a node; the API server may refuse each of them."""

    node: str
    pods: tuple[DrainedPod, ...]
    grace_period_seconds: int | None = None


DrainAction = DryRunCordon | CordonNodes | UncordonNodes | EvictPods
