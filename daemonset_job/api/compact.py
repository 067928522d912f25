"""The compact form in which caches keep Jobs and DaemonSets: without specs as Python objects.

The controller needs whole specs only while it reconciles a Job: they are kept as bytes. The
terminator needs only the fields that select nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.affinity import indexed_labels
from daemonset_job.api.daemon_set import DaemonSet, pod_spec_of
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import NodeSelection, parse_spec
from daemonset_job.api.label_selector import selector_keys
from daemonset_job.api.packed_json import PackedJson, pack_json
from daemonset_job.api.rollout import Rollout

# The fields of a pod's spec that decide on which nodes the pods of a DaemonSet run, and the gates,
# which decide when they start.
_PLACEMENT_FIELDS: Final = (
    "affinity",
    "nodeName",
    "nodeSelector",
    "tolerations",
    "schedulingGates",
)
_ANNOTATIONS: Final = (
    names.ANNOTATION_SPEC_HASH,
    names.ANNOTATION_NODES_HASH,
    names.ANNOTATION_SELECTION_CHANGED,
    names.ANNOTATION_REVISION,
    names.ANNOTATION_CREATE_AGAIN,
)
# Of an annotation of a DaemonSet. Those that this project writes are short.
_MARK_LIMIT: Final = 256
_LABELS: Final = (
    names.LABEL_DAEMON_SET,
    names.LABEL_JOB,
    names.LABEL_MANAGED,
    names.LABEL_JOB_UID,
)


def compact_job(job: Job) -> Job:
    """Return the Job with its spec as bytes, see `expand_job`; long fields are only there."""
    return replace(
        job,
        spec=replace(
            job.spec,
            script=None,
            command=(),
            args=(),
            template={},
            nodes=NodeSelection(),
            # Jobs are found by the key, and a Job with a rollout also by the pods of an earlier
            # DaemonSet.
            rollout=Rollout(exclusive=job.spec.exclusive) if job.spec.rollout else None,
        ),
        step_labels=_step_labels(job.spec.rollout),
        annotations=_job_annotations(job),
        raw_spec=pack_json(job.raw_spec),
    )


def _step_labels(rollout: Rollout | None) -> frozenset[str]:
    """Return by which node labels Jobs of that rollout are found when a label changes."""
    steps = rollout.steps if rollout is not None else ()
    return indexed_labels(frozenset[str]().union(*(selector_keys(each.selector) for each in steps)))


def expand_job(job: Job) -> Job:
    """Return the Job with all of its spec; the caller is not to keep it."""
    if not isinstance(job.raw_spec, PackedJson):
        return job
    raw = job.raw_spec.read()
    return replace(job, spec=parse_spec(raw), raw_spec=raw)


def compact_oversized_job(job: Job, size_bytes: int) -> Job:
    """Return the Job without a spec that is too large for it to be started."""
    kept = compact_job(job)
    return replace(kept, step_labels=frozenset(), raw_spec={}, excess_bytes=size_bytes)


def compact_job_placement(job: Job) -> Job:
    """Return the Job with no more than the terminator asks for: nodes, and when one is done.

    What chooses nodes is there as bytes, see `expand_job_placement`.
    """
    raw: dict[str, Any] = {}
    if nodes := job.raw_spec.get("nodes"):
        raw["nodes"] = nodes
    if placement := _placement(job.spec.template):
        raw["template"] = {"spec": placement}
    return replace(compact_job(job), step_labels=frozenset(), raw_spec=_pack_unless_empty(raw))


def expand_job_placement(job: Job) -> Job:
    """Return the Job with the fields that select its nodes; the caller is not to keep it."""
    if not isinstance(job.raw_spec, PackedJson):
        return job
    raw = job.raw_spec.read()
    parsed = parse_spec(raw)
    spec = replace(job.spec, nodes=parsed.nodes, template=parsed.template)
    return replace(job, spec=spec, raw_spec=raw)


def compact_daemon_set(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with its spec as bytes, see `expand_daemon_set`."""
    return replace(
        found,
        labels=_only(found.labels, _LABELS),
        annotations=_marks(found),
        spec=pack_json(found.spec),
    )


def expand_daemon_set(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with all of its spec; the caller is not to keep it."""
    return replace(found, spec=found.spec.read()) if isinstance(found.spec, PackedJson) else found


def compact_daemon_set_placement(found: DaemonSet) -> DaemonSet:
    """Return the DaemonSet with no more than the terminator asks for: where its pods run."""
    return replace(
        found,
        labels={},
        annotations=_marks(found),
        spec=_pack_unless_empty(
            {"template": {"spec": _placement(found.spec.get("template") or {})}}
        ),
    )


def _job_annotations(job: Job) -> dict[str, str]:
    """Return the annotations of a Job that are read. That of a purpose is for owned Jobs."""
    kept = [names.ANNOTATION_RETRY, names.ANNOTATION_RERUN]
    purpose = job.annotations.get(names.ANNOTATION_PURPOSE) or ""
    if job.owner_uid and len(purpose) <= names.PURPOSE_LIMIT:
        kept.append(names.ANNOTATION_PURPOSE)
    found = _only(job.annotations, tuple(kept))
    if retry := found.get(names.ANNOTATION_RETRY):
        found[names.ANNOTATION_RETRY] = names.shorten(retry, names.RETRY_LIMIT)
    return found


def _marks(found: DaemonSet) -> dict[str, str]:
    marks = _only(found.annotations, _ANNOTATIONS)
    return {key: value[:_MARK_LIMIT] for key, value in marks.items()}


def _placement(template: Mapping[str, Any]) -> dict[str, Any]:
    spec = pod_spec_of({"template": template})
    return {key: spec[key] for key in _PLACEMENT_FIELDS if key in spec}


def _pack_unless_empty(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return pack_json(raw) if raw else {}


def _only(found: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    return {key: found[key] for key in keys if key in found}
