"""The Job that a Job creates as a part of its own run: a rollback for example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.job_spec import SECONDS_LIMIT
from daemonset_job.api.owners import owner_reference

# What decides how things run on a node, and in which order.
_COPIED: Final = (
    "image",
    "template",
    "mounts",
    "mountPath",
    "hostExec",
    "backoffLimit",
    "nodeDeadlineSeconds",
    "nodeUnreachableSeconds",
    "failureLogLines",
    "cordon",
    "drain",
)
# What decides what a Job does to a node. All of it cannot change once the Job has started.
_WHAT_RUNS: Final = (
    "image",
    "script",
    "scriptFrom",
    "command",
    "args",
    "template",
    "mounts",
    "mountPath",
    "hostExec",
    "cordon",
)
# With what the CRD has as their defaults.
_COMPLETION: Final[Mapping[str, str]] = {
    "mode": "Log",
    "match": "Line",
    "token": "",
    "failureToken": "",
}
# More nodes than spec.nodes.include takes (the CRD's limit) are served one batch after the other.
BATCH_NODES: Final = 1000
_COPIED_OF_ROLLOUT: Final = ("maxParallel", "maxParallelPerZone", "order", "exclusive")


def owned_name(parent_name: str, suffix: str) -> str:
    """Return the name of an owned Job: `<parent>-<suffix>`, 253 characters at most."""
    tail = f"-{suffix}"
    return names.shorten(parent_name, names.OBJECT_NAME_LIMIT - len(tail)) + tail


def copied_spec(parent: Job) -> dict[str, Any]:
    """Return the fields of the parent's spec that decide how things run on a node.

    Nothing that would make the owned Job create Jobs itself, wait, or notify anybody is among them:
    no rollback, steps, window, after, onSuccess, results, notify or suspend.
    """
    raw = parent.raw_spec
    spec = {key: raw[key] for key in _COPIED if key in raw}
    rollout = raw.get("rollout") or {}
    if kept := {key: rollout[key] for key in _COPIED_OF_ROLLOUT if key in rollout}:
        spec["rollout"] = kept
    return spec


def build_owned_job(parent: Job, suffix: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the raw Job `<parent>-<suffix>` that the parent owns.

    It stays when it has ended: the parent deletes it, or garbage collection with the parent.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {
            "name": owned_name(parent.name, suffix),
            "namespace": parent.namespace,
            "ownerReferences": [owner_reference(names.JOB_KIND, parent.name, parent.uid)],
        },
        "spec": {**spec, "ttlSecondsAfterFinished": SECONDS_LIMIT},
    }


def without_selection(template: Mapping[str, Any]) -> dict[str, Any]:
    """Return a template that chooses no nodes: a node may have left the selection since it ran."""
    spec = dict(template.get("spec") or {})
    spec.pop("nodeSelector", None)
    affinity = {
        key: part
        for key, part in (spec.pop("affinity", None) or {}).items()
        if key != "nodeAffinity"
    }
    if affinity:
        spec["affinity"] = affinity
    return {**template, "spec": spec}


def runs_as(owned: Job, spec: Mapping[str, Any]) -> bool:
    """Return whether a Job does to its nodes what a Job with this rendered spec does.

    An owner reference proves nothing: any client may have created the Job with it, or changed it
    before its start. How fast and how often it runs is not compared, because people may change it.
    So may they change the fields of `drain`, but not whether nodes are drained.
    """
    raw = owned.raw_spec
    if ("drain" in raw) != ("drain" in spec):
        return False
    completion, expected = raw.get("completion") or {}, spec.get("completion") or {}
    return all((raw.get(key) or None) == (spec.get(key) or None) for key in _WHAT_RUNS) and all(
        (completion.get(key) or default) == (expected.get(key) or default)
        for key, default in _COMPLETION.items()
    )
