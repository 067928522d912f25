"""What is kept in memory of Jobs and DaemonSets: not their specs as Python has them.

The controller needs whole specs, while it looks at a Job: they are kept as bytes. The terminator
needs what chooses nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job import Job, NodeSelection, parse_spec
from daemonset_job.api.objects import DaemonSet, pod_spec_of
from daemonset_job.api.packed import Packed, pack

# The fields of a pod's spec that decide on which nodes the pods of a DaemonSet run, and the gates,
# which decide when.
_PLACING: Final = ("affinity", "nodeName", "nodeSelector", "tolerations", "schedulingGates")
_ANNOTATIONS: Final = (names.ANNOTATION_SPEC_HASH, names.ANNOTATION_NODES_HASH)
_LABELS: Final = (
    names.LABEL_DAEMON_SET,
    names.LABEL_JOB,
    names.LABEL_MANAGED,
    names.LABEL_JOB_UID,
)


def kept_job(job: Job) -> Job:
    """Return the Job with its spec as bytes, see `whole_job`; what is long is in these alone."""
    return replace(
        job,
        spec=replace(job.spec, command=(), args=(), template={}, nodes=NodeSelection()),
        annotations=_only(job.annotations, (names.ANNOTATION_RETRY,)),
        raw_spec=pack(job.raw_spec),
    )


def whole_job(job: Job) -> Job:
    """Return the Job with all of its spec, for as long as somebody looks at it."""
    if not isinstance(job.raw_spec, Packed):
        return job
    raw = job.raw_spec.read()
    return replace(job, spec=parse_spec(raw), raw_spec=raw)


def unkept_job(job: Job, size_bytes: int) -> Job:
    """Return the Job without a spec that is too large for it to be started."""
    return replace(kept_job(job), raw_spec={}, excess_bytes=size_bytes)


def placing_job(job: Job) -> Job:
    """Return the Job with no more than the terminator asks for: nodes, and when one is done.

    What chooses nodes is there as bytes, see `placed_job`.
    """
    raw: dict[str, Any] = {}
    if nodes := job.raw_spec.get("nodes"):
        raw["nodes"] = nodes
    if placing := _placing(job.spec.template):
        raw["template"] = {"spec": placing}
    return replace(kept_job(job), raw_spec=_packed(raw))


def placed_job(job: Job) -> Job:
    """Return the Job with what chooses its nodes, for as long as somebody looks at it."""
    if not isinstance(job.raw_spec, Packed):
        return job
    raw = job.raw_spec.read()
    parsed = parse_spec(raw)
    spec = replace(job.spec, nodes=parsed.nodes, template=parsed.template)
    return replace(job, spec=spec, raw_spec=raw)


def kept_daemon_set(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with its spec as bytes, see `whole_daemon_set`."""
    return replace(
        found,
        labels=_only(found.labels, _LABELS),
        annotations=_only(found.annotations, _ANNOTATIONS),
        spec=pack(found.spec),
    )


def whole_daemon_set(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with all of its spec, for as long as somebody looks at it."""
    return replace(found, spec=found.spec.read()) if isinstance(found.spec, Packed) else found


def placing_daemon_set(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with no more than the terminator asks for: where its pods run."""
    return replace(
        found,
        labels={},
        annotations=_only(found.annotations, _ANNOTATIONS),
        spec=_packed({"template": {"spec": _placing(found.spec.get("template") or {})}}),
    )


def _placing(template: Mapping[str, Any]) -> dict[str, Any]:
    spec = pod_spec_of({"template": template})
    return {key: spec[key] for key in _PLACING if key in spec}


def _packed(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return pack(raw) if raw else {}


def _only(found: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: found[key] for key in keys if key in found}
