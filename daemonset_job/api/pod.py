"""A pod as decisions need it: frozen, parsed once, so that a cache has a few fields of each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.container import CONTAINERS_SHAPE, Container, parse_container, was_created
from daemonset_job.api.owners import controller_uid, controlling_daemon_set, has_controller
from daemonset_job.api.shape import (
    AFFINITY,
    METADATA,
    STRING,
    TIME,
    fields,
    list_of,
)
from daemonset_job.api.times import parse_time

# Reasons that kubelets give a pod which they end because of the state of the node: kubernetes
# pkg/kubelet/eviction/helpers.go, preemption/preemption.go, nodeshutdown/nodeshutdown_manager.go
# (NodeShutdown before v1.23).
DISRUPTED_REASONS: Final = frozenset({"Evicted", "NodeShutdown", "Preempting", "Terminated"})
# What is kept of the words of a kubelet about a container that keeps the task from starting.
INIT_FAILURE_LIMIT: Final = 400
# Of a text of a pod that a cache keeps. A client chooses its length.
_TEXT_LIMIT: Final = 4096
# Systems that hold pods back have one gate each. Who opens a pod has to write all the others again.
GATES_LIMIT: Final = 64
# As many terms of a node selector are read in a watch, see `kube/client/protobuf`.
_TERMS_LIMIT: Final = 20_000

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
        # Not their times, which are not read, and which a watch does not have.
        conditions=list_of(fields(type=STRING, status=STRING, reason=STRING, message=STRING)),
        containerStatuses=CONTAINERS_SHAPE,
        initContainerStatuses=CONTAINERS_SHAPE,
    ),
)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a Job's DaemonSet, or one that only carries the labels (see `owner_uid`).

    `started_at` is when the kubelet accepted the pod. `disruption_reason` is that of a
    DisruptionTarget condition (eviction, preemption, taint). `unschedulable_message` is the
    scheduler's. `init_failure` says which other init container keeps the task from starting, ""
    for none. `has_init_running` is whether an init container other than the task and sidecars runs.
    `hold_started`: a container other than the task and the init containers has started. `has_run`:
    any container was created, so that it has run, or may have. `revision` is that of its Job, ""
    for policy Once. `exclusive` is the key `rollout.exclusive` of its Job. `sandbox_ended`: the
    task has ended, and so has the sandbox of the pod.
    `job_uid` is the UID of that by a label, which proves nothing. `daemon_set` is the name of the
    DaemonSet that controls the pod, "" if none does. `orphan_labels` are its labels `daemonset` and
    `job` if no object controls it: a DaemonSet whose selector they are adopts it.
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
    has_run: bool = False
    sandbox_ended: bool = False
    container: Container | None = None
    revision: str = ""
    exclusive: str = ""
    job_uid: str = ""
    daemon_set: str = ""
    orphan_labels: tuple[str, str] | None = None

    @property
    def is_disrupted(self) -> bool:
        """Whether the cluster ends it for reasons that are not the task's."""
        return bool(self.disruption_reason) or self.reason in DISRUPTED_REASONS

    @property
    def is_rejected(self) -> bool:
        """Whether its kubelet does not admit it: when it came, or when the kubelet was restarted.

        Only then has a Failed pod a reason that is no disruption, if its containers are always
        started again (kubernetes pkg/kubelet/kubelet.go, rejectPod).
        """
        return self.phase == "Failed" and bool(self.reason) and not self.is_disrupted

    @property
    def is_ended_by_cluster(self) -> bool:
        """Whether the cluster ends it, so that how its task ends says nothing of the task."""
        return self.is_disrupted or self.is_rejected

    @property
    def is_terminal(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_gated(self) -> bool:
        """Whether the pod waits at the controller's scheduling gate."""
        return any(gate in self.gates for gate in names.START_GATES)


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Return the pod in a raw object.

    Raises KeyError without metadata, ValueError for odd types and for too many scheduling gates.
    """
    _POD(raw)
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    if len(spec.get("schedulingGates") or ()) > GATES_LIMIT:
        raise ValueError(f"spec.schedulingGates has more than {GATES_LIMIT} gates")
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    disruption = conditions.get("DisruptionTarget") or {}
    sandbox = conditions.get("PodReadyToStartContainers") or {}
    container = _task_container(status)
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
        message=(status.get("message") or "")[:_TEXT_LIMIT],
        unschedulable_message=(
            (scheduled.get("message") or "")[:_TEXT_LIMIT]
            if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
            else ""
        ),
        disruption_reason=(disruption.get("reason") or "")
        if disruption.get("status") == "True"
        else "",
        init_failure=_init_failure(status),
        has_init_running=_has_init_running(spec, status),
        hold_started=_hold_started(status),
        has_run=_has_run(status),
        sandbox_ended=(
            sandbox.get("status") == "False"
            and container is not None
            and container.state == "terminated"
        ),
        container=container,
        revision=((meta.get("annotations") or {}).get(names.ANNOTATION_REVISION) or "")[
            :_TEXT_LIMIT
        ],
        exclusive=(meta.get("labels") or {}).get(names.LABEL_EXCLUSIVE) or "",
        job_uid=(meta.get("labels") or {}).get(names.LABEL_JOB_UID) or "",
        daemon_set=sys.intern(controlling_daemon_set(meta)),
        orphan_labels=_orphan_labels(meta),
    )


def _orphan_labels(meta: Mapping[str, Any]) -> tuple[str, str] | None:
    if has_controller(meta):
        return None
    labels = meta.get("labels") or {}
    return labels.get(names.LABEL_DAEMON_SET) or "", labels.get(names.LABEL_JOB) or ""


def affinity_node(spec: Mapping[str, Any]) -> str:
    """Return the node that the DaemonSet controller meant an unbound pod for, "" if none.

    It is in the pod's required node affinity as `matchFields metadata.name`
    (kubernetes pkg/controller/daemon/util ReplaceDaemonSetPodNodeNameNodeAffinity).
    """
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in (required.get("nodeSelectorTerms") or ())[:_TERMS_LIMIT]:
        for field_ in term.get("matchFields") or ():
            values = field_.get("values") or []
            if (
                field_.get("key") == "metadata.name"
                and field_.get("operator") == "In"
                and len(values) == 1
            ):
                return str(values[0])
    return ""


def _task_container(status: Mapping[str, Any]) -> Container | None:
    for group in ("containerStatuses", "initContainerStatuses"):
        for raw in status.get(group) or ():
            if raw.get("name") == names.CONTAINER_NAME:
                return parse_container(raw)
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
            return f"init container {raw.get('name') or ''}: {reason}{detail}"[:INIT_FAILURE_LIMIT]
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


def _has_run(status: Mapping[str, Any]) -> bool:
    """Return whether a container of the pod was created, init containers included."""
    return any(
        was_created(raw)
        for group in ("initContainerStatuses", "containerStatuses")
        for raw in status.get(group) or ()
    )
