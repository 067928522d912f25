"""A JobReport: the ledger of a run (evidence) and its story (status).

Two writers, two halves: the terminator writes `evidence` on the main resource, the
controller creates the object and writes `status` on the status subresource.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from job_controller.api import names


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the logs said about one node: the node is completed when `completed_at` stands.

    Keyed in the ledger by node name, valid only for the node of this `node_uid`: a node made
    anew under the same name starts anew. Times are RFC 3339 as the kubelet wrote them.
    """

    node_uid: str
    completed_at: str = ""
    pod: str = ""

    @property
    def is_completed(self) -> bool:
        """Whether the node printed the token."""
        return bool(self.completed_at)

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; empty fields are left out."""
        raw = {"nodeUID": self.node_uid, "completedAt": self.completed_at, "pod": self.pod}
        return {key: value for key, value in raw.items() if value}


def parse_evidence(raw: Mapping[str, Any]) -> Evidence:
    """Return one entry of the ledger. Never raises; an entry without a UID matches no node."""
    return Evidence(
        node_uid=str(raw.get("nodeUID") or ""),
        completed_at=str(raw.get("completedAt") or ""),
        pod=str(raw.get("pod") or ""),
    )


@dataclass(frozen=True, slots=True)
class JobReport:
    """A JobReport, or one shard of it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    job_name: str
    job_uid: str
    shard: int = 0
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)


def parse_report(raw: Mapping[str, Any]) -> JobReport:
    """Return the JobReport in a raw object. Raises ValueError when it names no Job."""
    meta = raw.get("metadata") or {}
    spec = raw.get("spec") or {}
    job = spec.get("job") or {}
    if not meta.get("name") or not job.get("uid"):
        raise ValueError("a JobReport without metadata.name or spec.job.uid")
    return JobReport(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta.get("uid") or "",
        resource_version=meta.get("resourceVersion") or "",
        job_name=job.get("name") or "",
        job_uid=job["uid"],
        shard=int(spec.get("shard") or 0),
        evidence={
            node: parse_evidence(entry) for node, entry in (raw.get("evidence") or {}).items()
        },
        status=raw.get("status") or {},
    )


def new_report(
    *, namespace: str, job_name: str, job_uid: str, shard: int = 0, spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the raw JobReport to create for a run; `spec` is what of the Job is recorded.

    It has no owner reference on purpose: it outlives its Job.
    """
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.REPORT_KIND,
        "metadata": {
            "name": names.report_name(job_name, job_uid, shard),
            "namespace": namespace,
            "labels": {
                names.LABEL_JOB: names.job_label(job_name),
                names.LABEL_JOB_UID: job_uid,
                names.LABEL_SHARD: str(shard),
            },
        },
        "spec": {
            "job": {"name": job_name, "uid": job_uid},
            "shard": shard,
            **spec,
        },
    }
