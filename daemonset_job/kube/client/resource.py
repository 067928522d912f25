"""The resource types this project talks to, and how their paths are spelled."""

from dataclasses import dataclass, replace
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource type of the API, or a `subresource` of it; `group` is empty for the core group.

    A subresource is a resource of its own for RBAC and for metrics. Only its path begins with the
    name of an object.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    subresource: str = ""

    @property
    def api_version(self) -> str:
        """Return the value of ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """Return what RBAC calls it, such as "jobs" or "jobs/status"."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def with_subresource(self, subresource: str) -> "Resource":
        """Return a subresource of this type, such as "status"."""
        return replace(self, subresource=subresource)

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the percent-encoded URL path; without `namespace`, that of all namespaces.

        ValueError for what no API server would understand, an empty name above all: a DELETE on
        the path of a collection deletes everything in it.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, but {namespace!r} was given")
        if name is not None and self.namespaced and namespace is None:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        if self.subresource and name is None:
            raise ValueError(f"{self.name} needs the name of an object")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace is not None:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        if self.subresource:
            parts.append(_segment(self.subresource))
        return "/" + "/".join(parts)


def _segment(text: str) -> str:
    # Not only encoding: "." and ".." survive quote() and would climb out of the collection
    # (apimachinery pkg/api/validation/path, IsValidPathSegmentName).
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise ValueError(f"not a path segment: {text!r}")
    return quote(text, safe="")


GROUP = "daemonset.darkowlzz.space"
JOBS = Resource(GROUP, "v1beta1", "jobs", "Job", namespaced=True)
JOB_STATUS = JOBS.with_subresource("status")
JOB_REPORTS = Resource(GROUP, "v1beta1", "jobreports", "JobReport", namespaced=True)
JOB_REPORT_STATUS = JOB_REPORTS.with_subresource("status")
SCHEDULED_JOBS = Resource(GROUP, "v1beta1", "scheduledjobs", "ScheduledJob", namespaced=True)
SCHEDULED_JOB_STATUS = SCHEDULED_JOBS.with_subresource("status")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True)
EVICTIONS = PODS.with_subresource("eviction")
POD_LOGS = PODS.with_subresource("log")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
EVENTS = Resource("", "v1", "events", "Event", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
ADMISSION_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
