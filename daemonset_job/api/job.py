"""A Job as this project sees it: frozen, parsed once from the raw object."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.choices import (
    CompletionMode,
    FailureAction,
    PodPolicy,
    RuleAction,
    parse_choice,
)
from daemonset_job.api.job_status import Condition, JobStatus, parse_job_status
from daemonset_job.api.json_text import json_hash
from daemonset_job.api.shape import (
    BOOLEAN,
    LIST,
    METADATA,
    NUMBER,
    OBJECT,
    REQUIREMENTS,
    STRING,
    STRINGS,
    ShapeError,
    fields,
    list_of,
)
from daemonset_job.api.states import ConditionType
from daemonset_job.api.times import parse_time

# Ten years: the CRD's maximum for each number of seconds.
SECONDS_LIMIT: Final = 315_360_000
# A pod's spec has some 15 levels. What is nested a thousand levels deep ends in RecursionError
# wherever it is compared, merged or written as JSON.
DEPTH_LIMIT: Final = 64

_PERCENTAGE: Final = re.compile(r"[0-9]{1,3}%")


def _number_or_percentage(value: Any) -> None:
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, str) and _PERCENTAGE.fullmatch(value))
    ):
        raise ShapeError(value, "a number or a percentage")


# The fields that are read of a Job. The API server checks the inside of its template.
_POD_SPEC: Final = fields(
    containers=LIST,
    initContainers=LIST,
    volumes=LIST,
    schedulingGates=LIST,
    tolerations=LIST,
    imagePullSecrets=LIST,
)
_SPEC: Final = fields(
    image=STRING,
    command=list_of(STRING),
    args=list_of(STRING),
    mountPath=STRING,
    template=fields(metadata=fields(labels=STRINGS, annotations=STRINGS), spec=_POD_SPEC),
    nodes=fields(
        selector=fields(matchLabels=STRINGS, matchExpressions=REQUIREMENTS),
        include=list_of(STRING),
        exclude=list_of(STRING),
    ),
    completion=fields(mode=STRING, token=STRING, match=STRING, failureToken=STRING),
    backoffLimit=NUMBER,
    nodeDeadlineSeconds=NUMBER,
    activeDeadlineSeconds=NUMBER,
    failurePolicy=fields(
        action=STRING,
        maxFailedNodes=_number_or_percentage,
        rules=list_of(fields(exitCodes=list_of(NUMBER), action=STRING)),
        pods=STRING,
    ),
    failureLogLines=NUMBER,
    ttlSecondsAfterFinished=NUMBER,
    suspend=BOOLEAN,
    results=list_of(fields(name=STRING)),
)
_JOB: Final = fields(metadata=METADATA, spec=OBJECT, status=OBJECT)
# Checked after the depth of the spec.
_JOB_SPEC: Final = fields(spec=_SPEC)


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Which nodes: all that match `selector` (a raw LabelSelector), minus and plus names.

    `include` narrows to the nodes named (empty: no narrowing), `exclude` takes nodes out.
    """

    selector: Mapping[str, Any] | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def nodes_hash(raw_spec: Mapping[str, Any]) -> str:
    """Return a hash of `spec.nodes` in a raw Job spec.

    The controller writes it on the DaemonSet that it applies for that selection; the terminator
    computes it for itself and compares.
    """
    return json_hash(raw_spec.get("nodes") or {})


@dataclass(frozen=True, slots=True)
class Completion:
    """When a node counts as completed.

    `mode` is `Log` (the token in the task's log) or `Exit` (the task's exit code 0). `token` None
    means: the word the terminator is configured with (`TERMINATION_WORD`). `match` is `Line`,
    `Contains` or `Regex`, and holds for `failure_token` too; a failure token of None never fails
    a node.
    """

    mode: CompletionMode = CompletionMode.LOG
    token: str | None = None
    match: str = "Line"
    failure_token: str | None = None


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What one of these exit codes of the task means: `Fail`, `Retry` or `Ignore`."""

    exit_codes: tuple[int, ...]
    action: RuleAction


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """When failed nodes fail the run.

    `action` is `FailFast`, `Continue` or `Pause`. `max_failed_nodes` is a number or a percentage
    (`"10%"`) of the desired nodes that may fail or be unreachable. `pods` of a failed run are
    kept (`Keep`) or removed (`Delete`).
    """

    action: FailureAction = FailureAction.FAIL_FAST
    max_failed_nodes: int | str = 0
    rules: tuple[FailureRule, ...] = ()
    pods: PodPolicy = PodPolicy.KEEP


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What runs, where, when a node is done, and what failure means. Defaults as in the CRD.

    Deadlines and the time to live are in seconds; None: no deadline, and for the time to live
    that a completed Job goes at once and a failed one stays. `backoff_limit` counts restarts of
    the task on a node. `failure_log_lines` of a failed node's log are kept in the report.
    """

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    mount_path: str | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeSelection = NodeSelection()
    completion: Completion = Completion()
    backoff_limit: int = 6
    node_deadline_seconds: int | None = None
    active_deadline_seconds: int | None = None
    failure_policy: FailurePolicy = FailurePolicy()
    failure_log_lines: int = 5
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: identity, spec, the spec as the server keeps it, and the status.

    `raw_spec` is what a record of the run can be run again from; `status` is what was last
    written, compared before a write. `excess_bytes` is the size of a spec that is too large for the
    Job to be started, and was not kept.
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
    excess_bytes: int = 0

    @property
    def reported_desired(self) -> int | None:
        """The number of desired nodes in the status; None before it has one."""
        return self.status.nodes.desired if self.status.nodes is not None else None

    @property
    def retry_request(self) -> str:
        """The value of the retry annotation: changing it lets failed nodes try again.

        Removing the annotation asks for nothing: the last value stays in force. A value of more
        than `names.RETRY_LIMIT` characters is shortened to its start and a hash of the whole.
        """
        value = self.annotations.get(names.ANNOTATION_RETRY) or self.status.observed_retry
        return names.shorten(value, names.RETRY_LIMIT)

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
        return nodes_hash(self.raw_spec)

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

    Raises ValueError when it is not one (no name, no UID), when its spec is nested too deep, or
    when something has another type than what is read there.
    """
    _JOB(raw)
    meta = raw.get("metadata") or {}
    if not meta.get("name") or not meta.get("uid"):
        raise ValueError("a Job without metadata.name or metadata.uid")
    if _is_deep(raw.get("spec")):
        raise ValueError(f"its spec is nested more than {DEPTH_LIMIT} levels deep")
    _JOB_SPEC(raw)
    return Job(
        namespace=meta.get("namespace") or "",
        name=meta["name"],
        uid=meta["uid"],
        resource_version=meta.get("resourceVersion") or "",
        generation=int(meta.get("generation") or 0),
        spec=parse_spec(raw.get("spec") or {}),
        created_at=parse_time(meta.get("creationTimestamp")),
        is_terminating=bool(meta.get("deletionTimestamp")),
        annotations=meta.get("annotations") or {},
        status=_parse_status(raw.get("status") or {}),
        raw_spec=raw.get("spec") or {},
    )


def _parse_status(raw: Mapping[str, Any]) -> JobStatus:
    try:
        return parse_job_status(raw)
    except ShapeError as error:
        error.path.append("status")
        raise


def _is_deep(value: object) -> bool:
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


def parse_spec(raw: Mapping[str, Any]) -> JobSpec:
    """Return the spec in its raw form, defaults filled in. Never raises: the CRD has checked it.

    An object stored before the CRD's rules can lack what they ask for; the controller reports it
    in the Job's status.
    """
    nodes = raw.get("nodes") or {}
    completion = raw.get("completion") or {}
    return JobSpec(
        image=raw.get("image") or "",
        command=tuple(raw.get("command") or ()),
        args=tuple(raw.get("args") or ()),
        mount_path=raw.get("mountPath") or None,
        template=raw.get("template") or {},
        nodes=NodeSelection(
            selector=nodes.get("selector"),
            include=tuple(nodes.get("include") or ()),
            exclude=tuple(nodes.get("exclude") or ()),
        ),
        completion=Completion(
            mode=parse_choice(
                completion.get("mode"), CompletionMode.LOG, unknown=CompletionMode.LOG
            ),
            token=completion.get("token") or None,
            match=completion.get("match") or "Line",
            failure_token=completion.get("failureToken") or None,
        ),
        backoff_limit=_or_default(raw.get("backoffLimit"), 6),
        node_deadline_seconds=_seconds(raw.get("nodeDeadlineSeconds")),
        active_deadline_seconds=_seconds(raw.get("activeDeadlineSeconds")),
        failure_policy=_parse_failure_policy(raw.get("failurePolicy") or {}),
        failure_log_lines=_or_default(raw.get("failureLogLines"), 5),
        ttl_seconds_after_finished=_seconds(raw.get("ttlSecondsAfterFinished")),
        suspend=bool(raw.get("suspend")),
        results=tuple(entry["name"] for entry in raw.get("results") or () if entry.get("name")),
    )


def _parse_failure_policy(raw: Mapping[str, Any]) -> FailurePolicy:
    return FailurePolicy(
        action=parse_choice(
            raw.get("action"), FailureAction.FAIL_FAST, unknown=FailureAction.CONTINUE
        ),
        max_failed_nodes=_or_default(raw.get("maxFailedNodes"), 0),
        rules=tuple(
            FailureRule(
                tuple(rule.get("exitCodes") or ()),
                parse_choice(rule.get("action"), RuleAction.FAIL, unknown=RuleAction.RETRY),
            )
            for rule in raw.get("rules") or ()
        ),
        pods=parse_choice(raw.get("pods"), PodPolicy.KEEP, unknown=PodPolicy.KEEP),
    )


def _seconds(value: int | None) -> int | None:
    """Return a number of seconds, at most SECONDS_LIMIT: other moments are none for `datetime`."""
    return None if value is None else max(min(value, SECONDS_LIMIT), -SECONDS_LIMIT)


def _or_default(value: Any, default: Any) -> Any:
    """Return `value` unless it is None: 0 is a value."""
    return default if value is None else value
