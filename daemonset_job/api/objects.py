"""The parts of Kubernetes' own objects that decisions are made of: DaemonSets, pods, nodes.

Each is a small frozen value made from raw JSON at the edge, so that a cache of thousands of
pods holds a few fields of each and the core never sees a dict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.managed_fields import find_alteration
from daemonset_job.api.shape import (
    AFFINITY,
    BOOLEAN,
    CONDITIONS,
    METADATA,
    NUMBER,
    OBJECT,
    STRING,
    STRINGS,
    TIME,
    fields,
    list_of,
)
from daemonset_job.api.taints import Taint, parse_taints
from daemonset_job.api.times import parse_time

# Reasons that kubelets give a pod which they end for the sake of the node: kubernetes
# pkg/kubelet/eviction/helpers.go, preemption/preemption.go, nodeshutdown/nodeshutdown_manager.go
# (NodeShutdown before v1.23).
DISRUPTED_REASONS: Final = frozenset({"Evicted", "NodeShutdown", "Preempting", "Terminated"})
# The kubelet of a node that somebody took over may count as it likes; what is made of it has to fit
# into a number of 32 bits.
_RESTARTS_LIMIT: Final = 10**9
_COUNT_LIMIT: Final = 2**31 - 1
# What is kept of the words of a kubelet about a container that keeps the task from starting.
INIT_FAILURE_LIMIT: Final = 400

# What is read of each kind.
_TAINTS: Final = list_of(fields(key=STRING, value=STRING, effect=STRING))
_POD_TEMPLATE: Final = fields(
    affinity=AFFINITY,
    nodeSelector=STRINGS,
    tolerations=list_of(fields(key=STRING, operator=STRING, value=STRING, effect=STRING)),
    schedulingGates=list_of(OBJECT),
    hostNetwork=BOOLEAN,
)
_DAEMON_SET: Final = fields(
    metadata=METADATA,
    spec=fields(template=fields(spec=_POD_TEMPLATE)),
    status=fields(
        observedGeneration=NUMBER,
        desiredNumberScheduled=NUMBER,
        currentNumberScheduled=NUMBER,
        numberMisscheduled=NUMBER,
    ),
)
_ENDED: Final = fields(
    exitCode=NUMBER, reason=STRING, message=STRING, startedAt=TIME, finishedAt=TIME
)
_STATE: Final = fields(
    running=fields(startedAt=TIME),
    terminated=_ENDED,
    waiting=fields(reason=STRING, message=STRING),
)
_CONTAINERS: Final = list_of(
    fields(name=STRING, containerID=STRING, restartCount=NUMBER, state=_STATE, lastState=_STATE)
)
_POD: Final = fields(
    metadata=METADATA,
    spec=fields(
        nodeName=STRING,
        affinity=AFFINITY,
        schedulingGates=list_of(fields(name=STRING)),
        initContainers=list_of(fields(name=STRING, restartPolicy=STRING)),
    ),
    status=fields(
        phase=STRING,
        reason=STRING,
        message=STRING,
        startTime=TIME,
        conditions=CONDITIONS,
        containerStatuses=_CONTAINERS,
        initContainerStatuses=_CONTAINERS,
    ),
)
_NODE: Final = fields(
    metadata=METADATA,
    spec=fields(unschedulable=BOOLEAN, taints=_TAINTS),
    status=fields(conditions=CONDITIONS),
)


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: its owner, its counters, and its spec as the server keeps it (raw).

    `alteration` says which other clients own fields of its spec, "" for none.

    The counters are numbers of nodes (k8s.io/api apps/v1 DaemonSetStatus): `desired` should run a
    pod, `scheduled` are those of them that have one, `misscheduled` have a pod and should not.
    A pod that is being deleted counts as long as its containers have not ended.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    generation: int
    observed_generation: int
    desired: int
    scheduled: int = 0
    misscheduled: int = 0
    is_terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    alteration: str = ""

    @property
    def is_observed(self) -> bool:
        """Whether `desired` is the count for the current spec."""
        return self.observed_generation >= self.generation

    @property
    def nodes_hash(self) -> str:
        """The hash of the `spec.nodes` that it was applied for, "" if it says none."""
        return self.annotations.get(names.ANNOTATION_NODES_HASH, "")

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """The spec of its pods, as its template has it."""
        return pod_spec_of(self.spec)

    @property
    def is_gated(self) -> bool:
        """Whether new pods wait at the scheduling gate."""
        return {"name": names.START_GATE} in (self.pod_spec.get("schedulingGates") or ())


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
    # The instance before this one, after a restart.
    last_exit_code: int | None = None
    last_reason: str = ""
    last_finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Job's DaemonSet, or one that only carries the labels (see `owner_uid`).

    `started_at` is when the kubelet accepted the pod. `disruption_reason` is that of a
    DisruptionTarget condition (eviction, preemption, taint). `unschedulable_message` is the
    scheduler's. `init_failure` says which other init container keeps the task from starting, ""
    for none. `has_init_running` is whether an init container other than the task and sidecars runs.
    `hold_started`: a container other than the task and the init containers has started.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str
    node_name: str
    is_scheduled: bool
    phase: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    gates: tuple[str, ...] = ()
    is_terminating: bool = False
    reason: str = ""
    message: str = ""
    unschedulable_message: str = ""
    disruption_reason: str = ""
    init_failure: str = ""
    has_init_running: bool = False
    hold_started: bool = False
    container: Container | None = None

    @property
    def is_disrupted(self) -> bool:
        """Whether the cluster ends it for reasons that are not the task's."""
        return bool(self.disruption_reason) or self.reason in DISRUPTED_REASONS

    @property
    def is_terminal(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_gated(self) -> bool:
        """Whether the pod waits at the controller's scheduling gate."""
        return names.START_GATE in self.gates


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    `ready_changed_at` is the last transition of its Ready condition, in either direction. `taints`
    are those that can keep pods off.
    """

    name: str
    uid: str
    resource_version: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    ready_changed_at: datetime | None = None
    is_terminating: bool = False
    namespace: str = ""


def pod_spec_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the pods that a raw DaemonSet spec is a template for."""
    return (spec.get("template") or {}).get("spec") or {}


def controller_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" when none controls the object."""
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid") or "")
    return ""


def parse_daemon_set(raw: Mapping[str, Any]) -> DaemonSet:
    """Return the DaemonSet in a raw object.

    Raises KeyError without metadata, ValueError for odd types.
    """
    _DAEMON_SET(raw)
    meta, status = raw["metadata"], raw.get("status") or {}
    return DaemonSet(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        owner_uid=controller_uid(meta),
        generation=int(meta.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        desired=_count(status.get("desiredNumberScheduled")),
        scheduled=_count(status.get("currentNumberScheduled")),
        misscheduled=_count(status.get("numberMisscheduled")),
        is_terminating=bool(meta.get("deletionTimestamp")),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        spec=raw.get("spec") or {},
        alteration=find_alteration(meta),
    )


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Return the pod in a raw object.

    Raises KeyError without metadata, ValueError for odd types.
    """
    _POD(raw)
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    disruption = conditions.get("DisruptionTarget") or {}
    assigned = spec.get("nodeName") or ""
    return Pod(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        owner_uid=controller_uid(meta),
        node_name=assigned or affinity_node(spec),
        is_scheduled=bool(assigned),
        phase=status.get("phase") or "Pending",
        created_at=parse_time(meta.get("creationTimestamp")),
        started_at=parse_time(status.get("startTime")),
        gates=tuple(
            str(gate.get("name") or "")
            for gate in spec.get("schedulingGates") or ()
            if isinstance(gate, Mapping)
        ),
        is_terminating=bool(meta.get("deletionTimestamp")),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        unschedulable_message=(
            scheduled.get("message") or ""
            if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
            else ""
        ),
        disruption_reason=(disruption.get("reason") or "")
        if disruption.get("status") == "True"
        else "",
        init_failure=_init_failure(status),
        has_init_running=_has_init_running(spec, status),
        hold_started=_hold_started(status),
        container=_task_container(status),
    )


def affinity_node(spec: Mapping[str, Any]) -> str:
    """Return the node that the DaemonSet controller meant an unbound pod for, "" if none.

    It is in the pod's required node affinity as `matchFields metadata.name`
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
    """Return the node in a raw object, whole or PartialObjectMetadata.

    Raises KeyError without metadata, ValueError for odd types.
    """
    _NODE(raw)
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
        is_cordoned=bool(spec.get("unschedulable")),
        taints=parse_taints(spec.get("taints") or ()),
        ready=ready.get("status") == "True",
        ready_changed_at=parse_time(ready.get("lastTransitionTime")),
        is_terminating=bool(meta.get("deletionTimestamp")),
    )


def _count(value: int | None) -> int:
    """Return a number of nodes as one that a status may have, whatever a client wrote."""
    return min(max(value or 0, 0), _COUNT_LIMIT)


def _task_container(status: Mapping[str, Any]) -> Container | None:
    for group in ("containerStatuses", "initContainerStatuses"):
        for raw in status.get(group) or ():
            if raw.get("name") == names.CONTAINER_NAME:
                return _parse_container(raw)
    return None


def _init_statuses(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the statuses of the init containers that are not the task."""
    found = status.get("initContainerStatuses") or ()
    return [raw for raw in found if raw.get("name") != names.CONTAINER_NAME]


def _init_failure(status: Mapping[str, Any]) -> str:
    """Return which init container fails or cannot start, and why, "" for none."""
    for raw in _init_statuses(status):
        state = raw.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
        reason, message = waiting.get("reason") or "", waiting.get("message") or ""
        if ended.get("exitCode"):
            reason, message = f"exit {ended['exitCode']}", ended.get("message") or ""
        if reason and reason not in {"PodInitializing", "ContainerCreating"}:
            detail = f": {message}" if message else ""
            return f"init container {raw.get('name')}: {reason}{detail}"[:INIT_FAILURE_LIMIT]
    return ""


def _has_init_running(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether an init container other than the task is at work.

    A sidecar (an init container with restartPolicy Always) runs as long as its pod does.
    """
    sidecars = {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }
    return any(
        "running" in (raw.get("state") or {}) and raw.get("name") not in sidecars
        for raw in _init_statuses(status)
    )


def _hold_started(status: Mapping[str, Any]) -> bool:
    """Return whether a main container other than the task has started.

    A kubelet starts main containers only after all init containers have ended with 0, and never
    in a pod that is being deleted (kubernetes pkg/kubelet/pod_workers.go). A container that was
    never started and is reported as terminated (ContainerStatusUnknown) has no startedAt.
    """
    for raw in status.get("containerStatuses") or ():
        state, last = raw.get("state") or {}, raw.get("lastState") or {}
        ends = (state.get("terminated") or {}, last.get("terminated") or {})
        has_started = "running" in state or any(end.get("startedAt") for end in ends)
        if has_started and raw.get("name") != names.CONTAINER_NAME:
            return True
    return False


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
        restart_count=min(max(int(raw.get("restartCount") or 0), 0), _RESTARTS_LIMIT),
        last_exit_code=last.get("exitCode"),
        last_reason=last.get("reason") or "",
        last_finished_at=parse_time(last.get("finishedAt")),
    )
