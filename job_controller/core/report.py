"""The controller's half of a JobReport: the record that outlives the Job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_controller.api import names
from job_controller.api.job import Job
from job_controller.api.report import JobReport, new_report

# A run whose Job was deleted before it ended; only a report can be in this phase.
PHASE_CANCELLED = "Cancelled"
_FINAL = frozenset({names.PHASE_SUCCEEDED, names.PHASE_FAILED, PHASE_CANCELLED})


def build_report(job: Job, shard: int = 0) -> dict[str, Any]:
    """Return the JobReport to create for a Job: what ran, for whoever reads it later."""
    spec = job.spec
    recorded: dict[str, Any] = {"image": spec.image}
    if spec.command:
        recorded["command"] = list(spec.command)
    if spec.args:
        recorded["args"] = list(spec.args)
    if spec.mount_path:
        recorded["mountPath"] = spec.mount_path
    return new_report(
        namespace=job.namespace, job_name=job.name, job_uid=job.uid, shard=shard, spec=recorded
    )


def next_report_status(job_status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report's status that goes with the status of the Job."""
    taken = ("phase", "startTime", "completionTime", "nodes")
    status = {key: job_status[key] for key in taken if key in job_status}
    message = _message(job_status)
    return {**status, "message": message} if message else status


def closed_status(report: JobReport) -> dict[str, Any] | None:
    """Return the last status of a report whose Job is gone, None when it is closed already."""
    if report.status.get("phase") in _FINAL:
        return None
    return {
        **report.status,
        "phase": PHASE_CANCELLED,
        "message": "the Job was deleted before every node had completed",
    }


def _message(job_status: Mapping[str, Any]) -> str:
    wanted = {names.CONDITION_COMPLETE, names.CONDITION_FAILED, names.CONDITION_PROGRESSING}
    by_type = {
        raw["type"]: raw for raw in job_status.get("conditions") or () if raw["type"] in wanted
    }
    for type_ in (names.CONDITION_FAILED, names.CONDITION_COMPLETE):
        if by_type.get(type_, {}).get("status") == "True":
            return str(by_type[type_].get("message") or "")
    return str(by_type.get(names.CONDITION_PROGRESSING, {}).get("message") or "")
