"""A Job as this project sees it: frozen, parsed once from the raw object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.daemon_set import pod_spec_of
from daemonset_job.api.job_spec import JobSpec, parse_spec
from daemonset_job.api.job_spec_shape import SPEC_SHAPE
from daemonset_job.api.job_status import Condition, JobStatus, parse_job_status
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.managed_fields import find_annotation_manager, find_spec_manager
from daemonset_job.api.numbered import newest_numbered, next_numbered
from daemonset_job.api.owners import controlling_job_uid, controlling_schedule
from daemonset_job.api.reasons import FailedReason
from daemonset_job.api.rerun import LongRequest, RerunRequest, find_long_request, parse_rerun
from daemonset_job.api.revision import find_revision
from daemonset_job.api.rollout_requests import RolloutRequests, parse_requests
from daemonset_job.api.shape import (
    METADATA,
    OBJECT,
    fields,
    parse_at,
)
from daemonset_job.api.states import ConditionType
from daemonset_job.api.times import parse_time

# A pod's spec has some 15 levels. What is nested a thousand levels deep ends in RecursionError
# wherever it is compared, merged or written as JSON.
DEPTH_LIMIT: Final = 64

JobKey = tuple[str, str]
"""Namespace and name of a Job, by which it is reconciled. Only its UID identifies it."""

_JOB: Final = fields(metadata=METADATA, spec=OBJECT, status=OBJECT)
# Checked after the depth of the spec.
_JOB_SPEC: Final = fields(spec=SPEC_SHAPE)


def nodes_hash(raw_spec: Mapping[str, Any]) -> str:
    """Return a hash of `spec.nodes` in a raw Job spec.

    The controller writes it on the DaemonSet that it applies for that selection; the terminator
    computes it for itself and compares.
    """
    return json_hash(raw_spec.get("nodes") or {})


def selection_hash(raw_spec: Mapping[str, Any]) -> str:
    """Return a hash of all that selects nodes by label or name in a raw Job spec.

    That is `spec.nodes`, and the node selector and the affinity of `spec.template`. The order in
    which they are written does not matter, nor does what is empty.
    """
    template = pod_spec_of({"template": raw_spec.get("template") or {}})
    parts = (raw_spec.get("nodes"), template.get("nodeSelector"), template.get("affinity"))
    return json_hash([_normalized(part) or {} for part in parts])


def _normalized(value: Any) -> Any:
    """Return a part of a selection without what is empty, and with its lists in one order.

    All lists in a selection are sets: of names, values, requirements and terms.
    """
    if isinstance(value, Mapping):
        parts = {key: _normalized(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in (None, [], {})}
    if isinstance(value, list | tuple):
        return sorted(map(_normalized, value), key=json_hash)
    return value


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: identity, spec, the spec as the server keeps it, and the status.

    `raw_spec` is what a record of the run can be run again from; `status` is what was last written,
    compared before a write. `step_labels` are the keys of the node labels by which steps of its
    rollout select, if the spec is kept as bytes. `excess_bytes` is the size of a spec that is too
    large for the Job to be started, and was not kept. `spec_manager`, `retry_manager` and
    `rerun_manager` are the clients that last wrote the spec and these requests, "" if they are not
    known. `long_rerun` is what is left of a rerun request that is too long to be kept. `requests`
    is what a person asks of its rollout. `revision_hash` is a hash of what it runs, "" for policy
    Once; see `find_revision`. `owner_uid` is the UID of the Job that created this one as a part of
    its own run, "" for none. `scheduled_by` is the name of the ScheduledJob that this is a run of,
    "" for none. What follows is not part of the object: `stop_message` says that all Jobs of the
    cluster are stopped, and is "" if they are not. `begun_revision` and `recorded_rerun` are the
    newest in its DaemonSet and its reports, "" if the status need not be compared with them.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    generation: int
    spec: JobSpec
    created_at: datetime | None = None
    is_terminating: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: JobStatus = field(default_factory=JobStatus)
    raw_spec: Mapping[str, Any] = field(default_factory=dict)
    step_labels: frozenset[str] = field(default_factory=frozenset, compare=False)
    excess_bytes: int = 0
    spec_manager: str = ""
    retry_manager: str = ""
    rerun_manager: str = ""
    long_rerun: LongRequest | None = None
    requests: RolloutRequests = field(default_factory=RolloutRequests)
    revision_hash: str = ""
    owner_uid: str = ""
    scheduled_by: str = ""
    stop_message: str = ""
    begun_revision: str = ""
    recorded_rerun: str = ""
    # Computed once: a reconcile asks for them for each node. `replace` begins again.
    _rerun: RerunRequest | None = field(default=None, init=False, repr=False, compare=False)
    _nodes_hash: str = field(default="", init=False, repr=False, compare=False)
    _selection_hash: str = field(default="", init=False, repr=False, compare=False)

    @property
    def reported_desired(self) -> int | None:
        """The number of desired nodes in the status; None before it has one."""
        return self.status.nodes.desired if self.status.nodes is not None else None

    @property
    def is_suspended(self) -> bool:
        """Whether no further node may start: by its own spec, or because all Jobs are stopped."""
        return self.spec.suspend or bool(self.stop_message)

    @property
    def retry_request(self) -> str:
        """The value of the retry annotation: changing it lets failed nodes try again.

        Removing the annotation asks for nothing: the last value stays in force. It stays so in an
        aborted run, and in one that is rolled back, too, which no retry revives. A value of more
        than `names.RETRY_LIMIT` characters is shortened to its start and a hash of the whole.
        """
        if self.is_aborted or self.status.rollback is not None:
            return self.status.observed_retry
        value = self.annotations.get(names.ANNOTATION_RETRY) or self.status.observed_retry
        return names.shorten(value, names.RETRY_LIMIT)

    @property
    def is_aborted(self) -> bool:
        """Whether a person ended the run, by its status."""
        failed = self.condition(ConditionType.FAILED)
        if failed is None or not failed.status:
            return False
        return failed.reason in {FailedReason.ABORTED, FailedReason.ROLLBACK_REQUESTED}

    @property
    def rerun(self) -> RerunRequest:
        """The request to run the task again on nodes; none for policy Once."""
        if self._rerun is None:
            found = RerunRequest()
            if self.spec.is_continuous:
                text = self.annotations.get(names.ANNOTATION_RERUN) or ""
                known = newest_numbered((self.status.observed_rerun, self.recorded_rerun))
                long = self.long_rerun
                found = long.numbered(known) if long is not None else parse_rerun(text, known)
            object.__setattr__(self, "_rerun", found)
            return found
        return self._rerun

    @property
    def has_open_request(self) -> bool:
        """Whether not all nodes that the request names are known to have it on record."""
        return self.status.observed_rerun != self.rerun.id

    @property
    def revision(self) -> str:
        """The number and the hash of what it runs, such as "2-89abcdef"; "" for policy Once.

        The status has it before a pod of that revision is created. Its number is above those of
        other revisions that nodes have begun, also if the status has lost it.
        """
        if not self.revision_hash:
            return ""
        known = self.status.revision, self.begun_revision
        return next_numbered(newest_numbered(known), self.revision_hash)

    @property
    def has_new_revision(self) -> bool:
        """Whether the status has yet to be written for its revision, so that it has no pod yet."""
        return self.status.revision != self.revision

    @property
    def ends_all_tasks(self) -> bool:
        """Whether the run has failed, by its status, and no task may continue after that."""
        failed, policy = self.condition(ConditionType.FAILED), self.spec.failure_policy.pods
        if failed is None or not failed.status or self.status.observed_retry != self.retry_request:
            return False
        is_late = failed.reason == FailedReason.DEADLINE_EXCEEDED
        return policy == PodPolicy.DELETE or (policy == PodPolicy.DELETE_FAILED and is_late)

    @property
    def completion_token(self) -> str:
        """The token that its tasks print, "" while that is the configured default.

        The default of the time when the Job started is kept in its status, because its running
        tasks print that one.
        """
        return self.spec.completion.token or self.status.completion_token

    @property
    def nodes_hash(self) -> str:
        """The hash of `spec.nodes`, see `nodes_hash`."""
        if not self._nodes_hash:
            object.__setattr__(self, "_nodes_hash", nodes_hash(self.raw_spec))
        return self._nodes_hash

    @property
    def selection_hash(self) -> str:
        """The hash of what selects nodes by label or name, see `selection_hash`."""
        if not self._selection_hash:
            object.__setattr__(self, "_selection_hash", selection_hash(self.raw_spec))
        return self._selection_hash

    @property
    def report_name(self) -> str:
        """The name of the first JobReport of this Job's run.

        A run that version 0.1.0 started has the name of that version, as its status says. No other
        text in the status is taken for the name: reports of other runs are never written.
        """
        earlier = names.first_version_report_name(self.name, self.uid)
        if self.created_at is None or self.status.report == earlier:
            return earlier
        return names.report_name(self.name, self.uid, self.created_at)

    @property
    def daemon_set_name(self) -> str:
        """The name of this Job's DaemonSet."""
        return names.daemon_set_name(self.name)

    def manifest(self) -> str:
        """Return the Job as JSON that can be applied: what a user wrote, without what was added."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.JOB_KIND,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self.raw_spec,
        }
        return json.dumps(body, separators=(",", ":"), sort_keys=True)

    def condition(self, type_: ConditionType) -> Condition | None:
        """Return the condition of that type, None when it was never written."""
        return self.status.condition(type_)

    def is_true(self, type_: ConditionType) -> bool:
        """Return whether the condition of that type exists and is True."""
        return self.status.is_true(type_)


def parse_job(raw: Mapping[str, Any]) -> Job:
    """Return the Job in a raw object.

    Raises ValueError when it has no name or no UID, when its spec is nested too deep, or when a
    field has another type than the expected one.
    """
    _JOB(raw)
    meta = raw.get("metadata") or {}
    if not meta.get("name") or not meta.get("uid"):
        raise ValueError("a Job without metadata.name or metadata.uid")
    if is_deep(raw.get("spec")):
        raise ValueError(f"its spec is nested more than {DEPTH_LIMIT} levels deep")
    _JOB_SPEC(raw)
    spec = parse_spec(raw.get("spec") or {})
    annotations = meta.get("annotations") or {}
    long_rerun = find_long_request(annotations.get(names.ANNOTATION_RERUN) or "")
    return Job(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta.get("resourceVersion") or "",
        generation=int(meta.get("generation") or 0),
        spec=spec,
        created_at=parse_time(meta.get("creationTimestamp")),
        is_terminating=bool(meta.get("deletionTimestamp")),
        annotations=_without_rerun(annotations) if long_rerun is not None else annotations,
        status=parse_at("status", parse_job_status, raw.get("status") or {}),
        raw_spec=raw.get("spec") or {},
        spec_manager=find_spec_manager(meta),
        retry_manager=find_annotation_manager(meta, names.ANNOTATION_RETRY),
        rerun_manager=find_annotation_manager(meta, names.ANNOTATION_RERUN),
        long_rerun=long_rerun,
        requests=parse_requests(meta),
        revision_hash=find_revision(spec),
        owner_uid=controlling_job_uid(meta),
        scheduled_by=controlling_schedule(meta),
    )


def _without_rerun(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return annotations without the rerun request."""
    return {key: text for key, text in annotations.items() if key != names.ANNOTATION_RERUN}


def is_deep(value: object) -> bool:
    """Return whether `value` has more than DEPTH_LIMIT levels; level by level, not recursively."""
    level = [value]
    for _ in range(DEPTH_LIMIT + 1):
        inner = [
            node.values() if isinstance(node, Mapping) else node
            for node in level
            if isinstance(node, Mapping | list)
        ]
        if not inner:
            return False
        level = [child for children in inner for child in children]
    return True
