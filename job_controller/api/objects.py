"""The parts of Kubernetes' own objects that decisions are made of: DaemonSets, pods, nodes.

Each is a small frozen value made from raw JSON at the edge, so that a cache of thousands of
pods holds a few fields of each and the core never sees a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from job_controller.api import names
from job_controller.api.times import parse_time


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: who owns it, what it wants, and its spec as the server keeps it (raw)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    generation: int
    observed_generation: int
    desired: int
    deleting: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_observed(self) -> bool:
        """Whether `desired` speaks of the spec that stands now."""
        return self.observed_generation >= self.generation

    @property
    def is_gated(self) -> bool:
        """Whether pods made from now on wait for their turn."""
        pod_spec = ((self.spec.get("template") or {}).get("spec")) or {}
        return any(g.get("name") == names.TURN_GATE for g in pod_spec.get("schedulingGates") or ())


@dataclass(frozen=True, slots=True)
class Container:
    """The state of the task container: `state` is waiting, running, terminated or unknown."""

    state: str
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restart_count: int = 0
    container_id: str = ""
    # The instance before this one, after a restart.
    last_exit_code: int | None = None
    last_reason: str = ""
    last_finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Job's DaemonSet, or one that only carries the labels (see `owner_uid`).

    `started_at` is when the kubelet took it up. `disrupted` is the reason of a DisruptionTarget
    condition (eviction, preemption, taint), `unschedulable` the scheduler's message.
    `hold_started`: a container besides the task has been started. In mode `Exit` the task is an
    init container, so the kubelet starts another one only after the task succeeded.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    node_name: str
    bound: bool
    phase: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    gates: tuple[str, ...] = ()
    deleting: bool = False
    reason: str = ""
    message: str = ""
    unschedulable: str = ""
    disrupted: str = ""
    container: Container | None = None
    hold_started: bool = False

    @property
    def is_gated(self) -> bool:
        """Whether the pod waits for its node's turn."""
        return names.TURN_GATE in self.gates


@dataclass(frozen=True, slots=True)
class Node:
    """A node: `ready_since` is when its Ready condition last flipped, to whatever it is now."""

    name: str
    uid: str
    resource_version: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    ready: bool = True
    ready_since: datetime | None = None
    deleting: bool = False
    namespace: str = ""


def controller_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def parse_daemon_set(raw: Mapping[str, Any]) -> DaemonSet:
    """Return the DaemonSet in a raw object; raises KeyError without metadata."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return DaemonSet(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        owner_uid=controller_uid(meta),
        generation=int(meta.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        desired=int(status.get("desiredNumberScheduled") or 0),
        deleting=bool(meta.get("deletionTimestamp")),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        spec=raw.get("spec") or {},
    )


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Return the pod in a raw object; raises KeyError without metadata."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    disruption = conditions.get("DisruptionTarget") or {}
    bound = spec.get("nodeName") or ""
    return Pod(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        owner_uid=controller_uid(meta),
        node_name=bound or affinity_node(spec),
        bound=bool(bound),
        phase=status.get("phase") or "Pending",
        created_at=parse_time(meta.get("creationTimestamp")),
        started_at=parse_time(status.get("startTime")),
        gates=tuple(g.get("name") or "" for g in spec.get("schedulingGates") or ()),
        deleting=bool(meta.get("deletionTimestamp")),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        unschedulable=(
            scheduled.get("message") or ""
            if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
            else ""
        ),
        disrupted=(disruption.get("reason") or "") if disruption.get("status") == "True" else "",
        container=_task_container(status),
        hold_started=any(
            _was_started(raw)
            for raw in status.get("containerStatuses") or ()
            if raw.get("name") != names.CONTAINER_NAME
        ),
    )


def affinity_node(spec: Mapping[str, Any]) -> str:
    """Return the node that the DaemonSet controller meant an unbound pod for, "" if none.

    It stands in the pod's required node affinity as `matchFields metadata.name`
    (kubernetes pkg/controller/daemon/util ReplaceDaemonSetPodNodeNameNodeAffinity).
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field_ in term.get("matchFields") or ():
            values = field_.get("values") or []
            if (
                field_.get("key") == "metadata.name"
                and field_.get("operator") == "In"
                and len(values) == 1
            ):
                return str(values[0])
    return ""


def parse_node(raw: Mapping[str, Any]) -> Node:
    """Return the node in a raw object, whole or PartialObjectMetadata; raises KeyError without."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    ready: Mapping[str, Any] = next(
        (c for c in status.get("conditions") or () if c.get("type") == "Ready"), {}
    )
    return Node(
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        created_at=parse_time(meta.get("creationTimestamp")),
        labels=meta.get("labels") or {},
        unschedulable=bool(spec.get("unschedulable")),
        ready=ready.get("status") == "True",
        ready_since=parse_time(ready.get("lastTransitionTime")),
        deleting=bool(meta.get("deletionTimestamp")),
    )


def _task_container(status: Mapping[str, Any]) -> Container | None:
    for group in ("containerStatuses", "initContainerStatuses"):
        for raw in status.get(group) or ():
            if raw.get("name") == names.CONTAINER_NAME:
                return _parse_container(raw)
    return None


def _was_started(raw: Mapping[str, Any]) -> bool:
    """Return whether a container runs or has run, by its status.

    A kubelet that has lost a container calls it terminated (ContainerStatusUnknown), without
    `startedAt`: that proves nothing.
    """
    states, last = raw.get("state") or {}, (raw.get("lastState") or {}).get("terminated") or {}
    ended = states.get("terminated") or {}
    return "running" in states or bool(ended.get("startedAt") or last.get("startedAt"))


def _parse_container(raw: Mapping[str, Any]) -> Container:
    states = raw.get("state") or {}
    kind = next((k for k in ("running", "terminated", "waiting") if k in states), "unknown")
    state = states.get(kind) or {}
    last = (raw.get("lastState") or {}).get("terminated") or {}
    return Container(
        state=kind,
        reason=state.get("reason") or "",
        message=state.get("message") or "",
        exit_code=state.get("exitCode"),
        started_at=parse_time(state.get("startedAt")),
        finished_at=parse_time(state.get("finishedAt")),
        restart_count=int(raw.get("restartCount") or 0),
        container_id=raw.get("containerID") or "",
        last_exit_code=last.get("exitCode"),
        last_reason=last.get("reason") or "",
        last_finished_at=parse_time(last.get("finishedAt")),
    )
