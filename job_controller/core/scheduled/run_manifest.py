"""The Job that a ScheduledJob creates for a start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.owners import owner_reference
from daemonset_job.api.scheduled_job import ScheduledJob
from daemonset_job.api.times import format_time
from job_controller.core.scheduled.snapshot import StartRun


def build_run(scheduled: ScheduledJob, start: StartRun) -> dict[str, Any]:
    """Return the raw Job of a start. The ScheduledJob owns it, so that it is deleted with it."""
    metadata, spec = _parts(scheduled.spec.template)
    labels, annotations = _maps(metadata)
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": {
            "name": start.name,
            "namespace": scheduled.namespace,
            "labels": {**labels, names.LABEL_SCHEDULED_JOB: scheduled.name},
            "annotations": {
                **annotations,
                names.ANNOTATION_SCHEDULED_AT: format_time(start.moment),
            },
            "ownerReferences": [
                owner_reference(names.SCHEDULED_KIND, scheduled.name, scheduled.uid)
            ],
        },
        "spec": dict(spec),
    }


def _parts(template: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    parts = dict(template)
    return parts.pop("metadata", None) or {}, parts.pop("spec", None) or {}


def _maps(metadata: Mapping[str, Any]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    parts = dict(metadata)
    return parts.pop("labels", None) or {}, parts.pop("annotations", None) or {}
