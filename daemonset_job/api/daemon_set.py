"""A DaemonSet as decisions need it: frozen, parsed once from the raw object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.managed_fields import find_alteration
from daemonset_job.api.owners import controller_uid
from daemonset_job.api.shape import (
    AFFINITY,
    BOOLEAN,
    METADATA,
    NUMBER,
    OBJECT,
    STRING,
    STRINGS,
    fields,
    list_of,
)

# A client may write any count; one of a status has 32 bits.
_COUNT_LIMIT: Final = 2**31 - 1

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


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: its owner, its counters, and its spec as the server keeps it (raw).

    `alteration` says which other clients own fields of its spec, "" for none.

    The counters are numbers of nodes (k8s.io/api apps/v1 DaemonSetStatus). `desired` should run a
    pod. `scheduled` are those of them that have one. `misscheduled` have a pod and should not.
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
    def selection_changed(self) -> bool:
        """Whether it has had another selection than that of the start; for policy Continuous."""
        return names.ANNOTATION_SELECTION_CHANGED in self.annotations

    @property
    def revision(self) -> str:
        """The revision of the Job that it was applied for, "" for policy Once."""
        return self.annotations.get(names.ANNOTATION_REVISION, "")

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """The spec of its pods, as its template has it."""
        return pod_spec_of(self.spec)

    @property
    def is_gated(self) -> bool:
        """Whether new pods wait at the scheduling gate."""
        gates = self.pod_spec.get("schedulingGates") or ()
        return any({"name": gate} in gates for gate in names.START_GATES)


def pod_spec_of(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the spec of the pods that a raw DaemonSet spec is a template for."""
    return (spec.get("template") or {}).get("spec") or {}


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


def _count(value: int | None) -> int:
    """Return a number of nodes as one that a status may have, whatever a client wrote."""
    return min(max(value or 0, 0), _COUNT_LIMIT)


def names_os(pod_spec: Mapping[str, Any]) -> bool:
    """Return whether a raw pod spec says for which operating system it is."""
    return bool(pod_spec.get("os"))
