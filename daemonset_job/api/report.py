"""A JobReport: the ledger of a run (evidence) and its record (status).

Two writers, two halves: the terminator writes `evidence` on the main resource, the
controller creates the object and writes `status` on the status subresource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.node_totals import TOTALS_SHAPE
from daemonset_job.api.shape import METADATA, NUMBER, STRING, STRINGS, TIME, fields, list_of, map_of
from daemonset_job.api.states import NodeState, parse_node_state
from daemonset_job.api.times import parse_time

# How many nodes a report holds. With about 1 KiB for the evidence and the record of each, it stays
# below etcd's limit of 1.5 MiB per object.
NODES_PER_SHARD: Final = 1000
# Which of two records of one node holds: states not named here come after these.
_RECORD_RANKS: Final = {NodeState.COMPLETED: 0, NodeState.FAILED: 1}
_LAST_RANK: Final = 2
# The CRD's maximum of counts: they are int32.
COUNT_LIMIT: Final = 2**31 - 1
_EVIDENCE: Final = fields(
    nodeUID=STRING,
    completedAt=STRING,
    pod=STRING,
    podUID=STRING,
    failedAt=STRING,
    results=STRINGS,
    lastLines=list_of(STRING),
    lastReadAttempt=NUMBER,
)
_RECORD: Final = fields(
    uid=STRING,
    state=STRING,
    reason=STRING,
    message=STRING,
    attempts=NUMBER,
    attemptsInEarlierPods=NUMBER,
    finishedInPod=NUMBER,
    ignoredFailures=NUMBER,
    exitCode=NUMBER,
    startedAt=TIME,
    finishedAt=TIME,
    activeSince=TIME,
    podUID=STRING,
    observedRetry=STRING,
)
_REPORT: Final = fields(
    metadata=METADATA,
    spec=fields(job=fields(name=STRING, uid=STRING), shard=NUMBER),
    evidence=map_of(_EVIDENCE),
    status=fields(
        phase=STRING,
        observedGeneration=NUMBER,
        startTime=TIME,
        completionTime=TIME,
        nodes=TOTALS_SHAPE,
        durationSeconds=NUMBER,
        message=STRING,
        timeline=list_of(STRING),
        nodeStates=map_of(_RECORD),
    ),
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The terminator's findings about one node.

    The node is completed, for good, when `completed_at` is set. `failed_at` (the failure token) and
    `last_lines` are about one pod, `pod_uid`. The ledger's key is the node's name. An entry is
    valid only for the node with this `node_uid`: a node that is created again under its old name
    starts again. Times are RFC 3339 as the kubelet wrote them. Texts are bounded and have no
    control characters. `attempt` is the newest start of the task in that pod, from 1, whose log
    was read to its end without a token; 0 when that is not known, and in mode `Exit`.
    """

    node_uid: str
    completed_at: str = ""
    pod: str = ""
    pod_uid: str = ""
    failed_at: str = ""
    results: Mapping[str, str] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()
    attempt: int = 0

    @property
    def is_completed(self) -> bool:
        """Whether the node printed the token."""
        return bool(self.completed_at)

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; empty fields are left out."""
        raw = {
            "nodeUID": self.node_uid,
            "completedAt": self.completed_at,
            "pod": self.pod,
            "podUID": self.pod_uid,
            "failedAt": self.failed_at,
            "results": dict(self.results),
            "lastLines": list(self.last_lines),
            "lastReadAttempt": self.attempt,
        }
        return {key: value for key, value in raw.items() if value}


def parse_evidence(raw: Mapping[str, Any]) -> Evidence:
    """Return one entry of the ledger. Never raises; an entry without a UID matches no node."""
    return Evidence(
        node_uid=str(raw.get("nodeUID") or ""),
        completed_at=str(raw.get("completedAt") or ""),
        pod=str(raw.get("pod") or ""),
        pod_uid=str(raw.get("podUID") or ""),
        failed_at=str(raw.get("failedAt") or ""),
        results=raw.get("results") or {},
        last_lines=tuple(raw.get("lastLines") or ()),
        attempt=int(raw.get("lastReadAttempt") or 0),
    )


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What the controller recorded about one node: its state, and how it came to it.

    `attempts` counts starts of the task, `attempts_in_earlier_pods` those in pods before `pod_uid`.
    Of the starts in that pod `finished_in_pod` have finished, and of these `ignored_failures` had
    an exit code that a rule ignores. `active_since` is from when nodeDeadlineSeconds counts, by the
    controller's clock; the other times are the node's. `retry` is the Job's retry request at the
    time: a failure recorded under another one no longer holds. Times are metav1.Time strings.
    """

    uid: str
    state: NodeState
    reason: str = ""
    message: str = ""
    attempts: int = 0
    attempts_in_earlier_pods: int = 0
    finished_in_pod: int = 0
    ignored_failures: int = 0
    exit_code: int | None = None
    started_at: str = ""
    finished_at: str = ""
    active_since: str = ""
    pod_uid: str = ""
    retry: str = ""

    def has_failed(self, retry_request: str) -> bool:
        """Return whether the node has failed, and no other try was asked for since.

        A failure that was recorded under another retry request no longer holds.
        """
        return self.state == NodeState.FAILED and self.retry == retry_request

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw = {
            "uid": self.uid,
            "state": self.state,
            "reason": self.reason,
            "message": self.message,
            "attempts": min(self.attempts, COUNT_LIMIT),
            "attemptsInEarlierPods": min(self.attempts_in_earlier_pods, COUNT_LIMIT),
            "finishedInPod": min(self.finished_in_pod, COUNT_LIMIT),
            "ignoredFailures": min(self.ignored_failures, COUNT_LIMIT),
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "activeSince": self.active_since,
            "durationSeconds": self.duration_seconds,
            "podUID": self.pod_uid,
            "observedRetry": self.retry,
        }
        kept: dict[str, Any] = {key: value for key, value in raw.items() if value}
        if self.exit_code is not None:
            kept["exitCode"] = self.exit_code
        return kept

    @property
    def duration_seconds(self) -> int:
        """Whole seconds from start to finish, 0 when either is unknown."""
        start, end = parse_time(self.started_at), parse_time(self.finished_at)
        return max(int((end - start).total_seconds()), 0) if start and end else 0


def parse_record(raw: Mapping[str, Any]) -> NodeRecord:
    """Return one node's record. Never raises."""
    return NodeRecord(
        uid=raw.get("uid") or "",
        state=parse_node_state(raw.get("state")),
        reason=raw.get("reason") or "",
        message=raw.get("message") or "",
        attempts=int(raw.get("attempts") or 0),
        attempts_in_earlier_pods=int(raw.get("attemptsInEarlierPods") or 0),
        finished_in_pod=int(raw.get("finishedInPod") or 0),
        ignored_failures=int(raw.get("ignoredFailures") or 0),
        exit_code=raw.get("exitCode"),
        started_at=raw.get("startedAt") or "",
        finished_at=raw.get("finishedAt") or "",
        active_since=raw.get("activeSince") or "",
        pod_uid=raw.get("podUID") or "",
        retry=raw.get("observedRetry") or "",
    )


@dataclass(frozen=True, slots=True)
class JobReport:
    """A JobReport, or one shard of it.

    Not `is_whole`: a summary (see `summarize`), without evidence and records.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    job_name: str
    job_uid: str
    shard: int = 0
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    is_whole: bool = True
    _records: Mapping[str, NodeRecord] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def records(self) -> Mapping[str, NodeRecord]:
        """What the controller recorded, by node name; parsed when first asked for."""
        if self._records is None:
            raw = self.status.get("nodeStates") or {}
            parsed = {node: parse_record(entry) for node, entry in raw.items()}
            object.__setattr__(self, "_records", parsed)
            return parsed
        return self._records


def parse_report(raw: Mapping[str, Any]) -> JobReport:
    """Return the JobReport in a raw object.

    Raises ValueError when it names no Job, or something has another type than what is read there.
    """
    _REPORT(raw)
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
        created_at=parse_time(meta.get("creationTimestamp")),
    )


def merge_evidence(reports: Iterable[JobReport]) -> dict[str, Evidence]:
    """Return the ledger of one run, all shards as one: node name to evidence.

    A node may be in two shards if two leaders, one after the other, wrote it to different ones. An
    entry that completes the node then wins, else the one of the lower shard. The order of
    `reports` does not matter. The terminator writes an entry to the lowest shard that has the node,
    so a later completion wins as well. This is the only rule for merging shards.
    """
    shards = _by_shard(reports)
    if len(shards) == 1:
        return dict(shards[0].evidence)
    merged: dict[str, Evidence] = {}
    for report in shards:
        for name, entry in report.evidence.items():
            known = merged.get(name)
            if known is None or (entry.is_completed and not known.is_completed):
                merged[name] = entry
    return merged


def find_evidence(reports: Iterable[JobReport], node: str) -> Evidence | None:
    """Return what `merge_evidence` has of one node, without looking at any other."""
    found = [report.evidence[node] for report in _by_shard(reports) if node in report.evidence]
    return next((entry for entry in found if entry.is_completed), found[0] if found else None)


def merge_records(reports: Iterable[JobReport]) -> dict[str, NodeRecord]:
    """Return what the controller recorded of one run's nodes, all shards as one.

    A node may be in two shards while its record moves. `Completed` then wins, since it is final;
    then `Failed`, which holds until a retry is requested; then the record of the lower shard. The
    order of `reports` does not matter.
    """
    shards = _by_shard(reports)
    if len(shards) == 1:
        return dict(shards[0].records)
    merged: dict[str, NodeRecord] = {}
    for report in shards:
        for name, record in report.records.items():
            known = merged.get(name)
            if known is None or _rank(record) < _rank(known):
                merged[name] = record
    return merged


def _rank(record: NodeRecord) -> int:
    return _RECORD_RANKS.get(record.state, _LAST_RANK)


def _by_shard(reports: Iterable[JobReport]) -> list[JobReport]:
    # The name only makes the order of two reports of one shard, which cannot be, a fixed one.
    return sorted(reports, key=lambda report: (report.shard, report.name))


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


def metadata_without_managed_fields(uid: str) -> dict[str, Any]:
    """Return the metadata of a patch that is meant for the report of this UID alone.

    It also makes the server drop the report's managedFields and keep none from then on. They would
    double the size of the report, and the server would compute them again for each write: measured
    for 1,000 nodes, 0.36 to 0.54 s of its CPU instead of 0.17 to 0.25 s. Nobody applies reports;
    each half has one writer. Neither a creation nor a patch of the status can do it.
    """
    return {"uid": uid, "managedFields": [{}]}
