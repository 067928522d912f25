"""What differs between the kinds of objects, as far as storing them depends on it.

Built-in kinds: pkg/registry of Kubernetes 1.34, the strategy of each resource. Custom resources:
k8s.io/apiextensions-apiserver, customresource_strategy.go. Other versions differ in one point:
before 1.33 pods had no generation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

STATUS = "status"
_COMMON = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Kind:
    """One resource. `immutable` are fields below `spec`, `fields` those that can be selected by.

    `keeps_new_status`: a status in the body of a create is stored. `new_status` is what it gets
    otherwise. `needs_version`: an update without resourceVersion is refused.
    """

    plural: str
    is_custom: bool = False
    has_status: bool = True
    has_generation: bool = True
    is_graceful: bool = False
    needs_version: bool = False
    keeps_new_status: bool = False
    new_status: Mapping[str, Any] | None = None
    immutable: frozenset[str] = frozenset()
    fields: frozenset[str] = field(default=_COMMON)


def kind_of(group: str, plural: str) -> Kind:
    """Return the kind of a resource; one that is not known here is a custom resource."""
    return _BUILT_IN.get((group, plural)) or Kind(plural, is_custom=True, needs_version=True)


def _plain(plural: str, *fields: str, needs_version: bool = False) -> Kind:
    """Return a kind with neither status nor generation."""
    return Kind(
        plural,
        has_status=False,
        has_generation=False,
        needs_version=needs_version,
        fields=_COMMON | set(fields),
    )


_POD_FIELDS = ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase")
_EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "fieldPath")),
    *("involvedObject.apiVersion", "involvedObject.resourceVersion"),
    *("reason", "reportingComponent", "source", "type"),
)
_BUILT_IN = {
    ("", "pods"): Kind(
        "pods",
        is_graceful=True,
        new_status={"phase": "Pending"},
        fields=_COMMON | set(_POD_FIELDS),
    ),
    ("", "nodes"): Kind(
        "nodes",
        has_generation=False,
        keeps_new_status=True,
        fields=_COMMON | {"spec.unschedulable"},
    ),
    ("", "namespaces"): Kind(
        "namespaces",
        has_generation=False,
        new_status={"phase": "Active"},
        fields=_COMMON | {"status.phase"},
    ),
    ("", "events"): _plain("events", *_EVENT_FIELDS),
    ("", "configmaps"): _plain("configmaps"),
    ("", "secrets"): _plain("secrets", "type"),
    ("apps", "daemonsets"): Kind("daemonsets", immutable=frozenset({"selector"})),
    ("coordination.k8s.io", "leases"): _plain("leases", needs_version=True),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): Kind(
        "validatingadmissionpolicies"
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): Kind(
        "validatingadmissionpolicybindings", has_status=False
    ),
}
