"""One entry of a ledger: what the terminator found out about a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.pod import Pod
from daemonset_job.api.result_limits import stored_bytes
from daemonset_job.api.shape import NUMBER, STRING, STRINGS, fields, list_of
from daemonset_job.api.task_progress import PROGRESS_SHAPE, TaskProgress, parse_progress
from daemonset_job.api.times import parse_whole_seconds

EVIDENCE_SHAPE: Final = fields(
    nodeUID=STRING,
    completedAt=STRING,
    pod=STRING,
    podUID=STRING,
    failedAt=STRING,
    results=STRINGS,
    omittedResults=list_of(STRING),
    progress=PROGRESS_SHAPE,
    lastLines=list_of(STRING),
    lastReadAttempt=NUMBER,
    revision=STRING,
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The terminator's findings about one node.

    The node is completed, for good, when `completed_at` is set. `failed_at` (the failure token) and
    `last_lines` are about one pod, `pod_uid`. The ledger's key is the node's name. An entry is
    valid only for the node with this `node_uid`: a node that is created again under its old name
    starts again. Times are RFC 3339 as the kubelet wrote them: completions that differ by
    nanoseconds are different ones. Texts are bounded and have no control characters. `attempt` is
    the newest start of the task in that pod, from 1, whose log was read to its end without a token.
    It is 0 when that is not known. `revision` is that of the pod, "" for policy Once.
    `replaces` are pods whose evidence no longer counts since this one; it is not stored.
    `omitted_results` are the names of results that were too long. `results_bytes` is what results
    take in the report. `progress` is that of a task at work, of this pod or of the next one.
    """

    node_uid: str
    completed_at: str = ""
    pod: str = ""
    pod_uid: str = ""
    failed_at: str = ""
    results: Mapping[str, str] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()
    attempt: int = 0
    revision: str = ""
    replaces: tuple[str, ...] = field(default=(), compare=False)
    omitted_results: tuple[str, ...] = ()
    progress: TaskProgress | None = None
    # Computed once: it is asked for in each reconcile, of all nodes.
    results_bytes: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the size of the results."""
        if self.results or self.omitted_results:
            size = stored_bytes(self.results, self.omitted_results)
            object.__setattr__(self, "results_bytes", size)

    @property
    def is_completed(self) -> bool:
        """Whether the node printed the token."""
        return bool(self.completed_at)

    @property
    def is_only_progress(self) -> bool:
        """Whether it says nothing but how far the task has come."""
        return self.progress is not None and not (
            self.completed_at or self.failed_at or self.attempt or self.last_lines or self.results
        )

    @property
    def completion_id(self) -> str:
        """What identifies the completion: node, pod and time. A node may complete again later."""
        return f"{self.node_uid}/{self.pod_uid}/{self.completed_at}"

    def completes(self, node_uid: str) -> bool:
        """Return whether it is the completion of the node with that UID."""
        return self.is_completed and self.node_uid == node_uid

    @property
    def completion_time(self) -> datetime | None:
        """When the node printed the token, in whole seconds; None without a time."""
        return _parse_moment(self.completed_at)

    @property
    def failure_time(self) -> datetime | None:
        """When the node printed the failure token, in whole seconds; None without a time."""
        return _parse_moment(self.failed_at)

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
            "revision": self.revision,
            "omittedResults": list(self.omitted_results),
            "progress": self.progress and self.progress.to_raw(),
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
        revision=str(raw.get("revision") or ""),
        omitted_results=tuple(raw.get("omittedResults") or ()),
        progress=parse_progress(raw.get("progress")),
    )


def _parse_moment(text: str) -> datetime | None:
    try:
        return parse_whole_seconds(text)
    except ValueError:
        return None


def lacks_lines(pod: Pod, entry: Evidence | None) -> bool:
    """Return whether the task in a pod runs, and no line of it is on record."""
    if pod.container is None or pod.container.state != "running":
        return False
    return entry is None or entry.pod_uid != pod.uid or not entry.last_lines
