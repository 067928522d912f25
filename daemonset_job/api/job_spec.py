"""The spec of a Job: what runs, where, when a node is done, and what failure means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from daemonset_job.api.choices import (
    CompletionMode,
    CompletionPolicy,
    FailureAction,
    PodPolicy,
    RuleAction,
    parse_choice,
)
from daemonset_job.api.drain import Drain, parse_drain
from daemonset_job.api.node_changes import (
    NO_CHANGES,
    OnSuccess,
    parse_on_success,
)
from daemonset_job.api.notifications import Subscription, parse_notify
from daemonset_job.api.rollout import Rollout, SuccessPolicy, parse_rollout
from daemonset_job.api.script_source import ScriptSource, parse_script_source

# Ten years: the CRD's maximum for each number of seconds.
SECONDS_LIMIT: Final = 315_360_000


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """Which nodes: all that match `selector` (a raw LabelSelector), minus and plus names.

    `include` narrows to the nodes named (empty: no narrowing), `exclude` takes nodes out.
    """

    selector: Mapping[str, Any] | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """When a node counts as completed.

    `mode` is `Log` (the token in the task's log) or `Exit` (the task's exit code 0). `token` None
    means: the word the terminator is configured with (`TERMINATION_WORD`). `match` is `Line`,
    `Contains` or `Regex`, and holds for `failure_token` too; a failure token of None never fails
    a node. `policy` is `Once`, or `Continuous` for a Job that is kept and serves every node that
    joins. `release`: the pod of a completed node is deleted, and the next one waits at its gate.
    """

    mode: CompletionMode = CompletionMode.LOG
    token: str | None = None
    match: str = "Line"
    failure_token: str | None = None
    policy: CompletionPolicy = CompletionPolicy.ONCE
    release: bool = False


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the node, and where the task's container has it."""

    host_path: str
    mount_path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class FailureRule:
    """What one of these exit codes of the task means: `Fail`, `Retry` or `Ignore`."""

    exit_codes: tuple[int, ...]
    action: RuleAction


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """When failed nodes fail the run.

    `action` is `FailFast`, `Continue`, `Pause` or `Rollback`. `max_failed_nodes` is a number or a
    percentage (`"10%"`) of the desired nodes that may fail or be unreachable. With
    `max_unreachable_nodes` the unreachable ones have that limit of their own. `pods`: those of
    failed nodes are deleted (`DeleteFailed`), all of them once the run has failed (`Delete`), or
    none (`Keep`). `unreachable_seconds`: after that time the run no longer waits for an
    unreachable node; None is for as long as it has other nodes to do.
    """

    action: FailureAction = FailureAction.FAIL_FAST
    max_failed_nodes: int | str = 0
    rules: tuple[FailureRule, ...] = ()
    pods: PodPolicy = PodPolicy.DELETE_FAILED
    unreachable_seconds: int | None = None
    max_unreachable_nodes: int | str | None = None

    def rule_action(self, code: int) -> RuleAction:
        """Return the action of the first rule with this exit code, `Retry` without a rule."""
        for rule in self.rules:
            if code in rule.exit_codes:
                return rule.action
        return RuleAction.RETRY


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What runs, where, when a node is done, and what failure means. Defaults as in the CRD.

    Deadlines and the time to live are in seconds. Without a time to live, a completed Job is
    deleted at once and a failed one stays. `backoff_limit` counts restarts of the task on a node.
    `failure_log_lines` of a failed node's log are kept in the report. With a `script`, or a
    `script_from`, that runs and not the image's command; `image` "" is then the task image.
    `host_exec`: it runs in the namespaces of the node. `on_success` has the labels and annotations
    of `results` as well. A node is cordoned, or drained, before its turn. The run starts `after`
    other Jobs of its namespace have succeeded. `rollback`: whether it says what undoes its work.
    """

    image: str
    script: str | None = None
    script_from: ScriptSource | None = None
    host_exec: bool = False
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    mount_path: str | None = None
    mounts: tuple[Mount, ...] = ()
    template: Mapping[str, Any] = field(default_factory=dict)
    nodes: NodeSelection = NodeSelection()
    completion: Completion = Completion()
    backoff_limit: int = 6
    node_deadline_seconds: int | None = None
    node_unreachable_seconds: int | None = None
    active_deadline_seconds: int | None = None
    failure_policy: FailurePolicy = FailurePolicy()
    failure_log_lines: int = 50
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    results: tuple[str, ...] = ()
    on_success: OnSuccess = NO_CHANGES
    cordon: bool = False
    drain: Drain | None = None
    after: tuple[str, ...] = ()
    notify: tuple[Subscription, ...] = ()
    rollout: Rollout | None = None
    success_policy: SuccessPolicy = field(default_factory=SuccessPolicy)
    rollback: bool = False

    @property
    def has_script(self) -> bool:
        """Whether a script runs, and not the command of the image."""
        return self.script is not None or self.script_from is not None

    @property
    def exclusive(self) -> str:
        """The key of Jobs that never run on a node at the same time, "" for none."""
        return self.rollout.exclusive if self.rollout is not None else ""

    @property
    def cordons(self) -> bool:
        """Whether a node is cordoned for its turn, as it is for a drain too."""
        return self.cordon or self.drain is not None

    @property
    def is_continuous(self) -> bool:
        """Whether the Job is kept, and serves every node that joins."""
        return self.completion.policy == CompletionPolicy.CONTINUOUS


def parse_spec(raw: Mapping[str, Any]) -> JobSpec:
    """Return the spec in its raw form, defaults filled in. Never raises: the CRD has checked it.

    An object stored before the CRD's rules can lack what they ask for; the controller reports it
    in the Job's status.
    """
    nodes = raw.get("nodes") or {}
    completion = raw.get("completion") or {}
    return JobSpec(
        image=raw.get("image") or "",
        script=raw.get("script") or None,
        script_from=parse_script_source(raw.get("scriptFrom") or {}),
        host_exec=bool(raw.get("hostExec")),
        command=tuple(raw.get("command") or ()),
        args=tuple(raw.get("args") or ()),
        mount_path=raw.get("mountPath") or None,
        mounts=tuple(
            Mount(
                each.get("hostPath") or "", each.get("mountPath") or "", bool(each.get("readOnly"))
            )
            for each in raw.get("mounts") or ()
        ),
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
            policy=parse_choice(
                completion.get("policy"),
                CompletionPolicy.ONCE,
                unknown=CompletionPolicy.CONTINUOUS,
            ),
            release=bool(completion.get("release")),
        ),
        backoff_limit=_or_default(raw.get("backoffLimit"), 6),
        node_deadline_seconds=_seconds(raw.get("nodeDeadlineSeconds")),
        node_unreachable_seconds=_seconds(raw.get("nodeUnreachableSeconds")),
        active_deadline_seconds=_seconds(raw.get("activeDeadlineSeconds")),
        failure_policy=_parse_failure_policy(raw.get("failurePolicy") or {}),
        failure_log_lines=_or_default(raw.get("failureLogLines"), 50),
        ttl_seconds_after_finished=_seconds(raw.get("ttlSecondsAfterFinished")),
        suspend=bool(raw.get("suspend")),
        results=tuple(entry["name"] for entry in raw.get("results") or () if entry.get("name")),
        on_success=parse_on_success(raw),
        cordon=bool(raw.get("cordon")),
        drain=parse_drain(raw.get("drain")),
        after=tuple(raw.get("after") or ()),
        notify=parse_notify(raw.get("notify")),
        rollout=_parse_rollout(raw),
        success_policy=SuccessPolicy((raw.get("successPolicy") or {}).get("minCompleted")),
        rollback=bool(raw.get("rollback")),
    )


def _parse_rollout(raw: Mapping[str, Any]) -> Rollout | None:
    """Return the rollout of a raw spec. Nodes that are cordoned have their turns one by one."""
    rollout = parse_rollout(raw.get("rollout"))
    if not raw.get("cordon") and raw.get("drain") is None:
        return rollout
    found = rollout or Rollout()
    return found if found.max_parallel is not None else replace(found, max_parallel=1)


def _parse_failure_policy(raw: Mapping[str, Any]) -> FailurePolicy:
    return FailurePolicy(
        action=parse_choice(
            raw.get("action"), FailureAction.FAIL_FAST, unknown=FailureAction.CONTINUE
        ),
        max_failed_nodes=_or_default(raw.get("maxFailedNodes"), 0),
        max_unreachable_nodes=raw.get("maxUnreachableNodes"),
        rules=tuple(
            FailureRule(
                tuple(rule.get("exitCodes") or ()),
                parse_choice(rule.get("action"), RuleAction.FAIL, unknown=RuleAction.RETRY),
            )
            for rule in raw.get("rules") or ()
        ),
        pods=parse_choice(raw.get("pods"), PodPolicy.DELETE_FAILED, unknown=PodPolicy.KEEP),
        unreachable_seconds=_seconds(raw.get("unreachableSeconds")),
    )


def _seconds(value: int | None) -> int | None:
    """Return a number of seconds, at most SECONDS_LIMIT: other moments are none for `datetime`."""
    return None if value is None else max(min(value, SECONDS_LIMIT), -SECONDS_LIMIT)


def _or_default(value: Any, default: Any) -> Any:
    """Return `value` unless it is None: 0 is a value."""
    return default if value is None else value
