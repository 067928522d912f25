"""What the plugin shows of one run: the Job, if it still exists, and its reports as one value.

Pure. All texts of the cluster are cleaned here, once, before anything formats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.numbered import newest_numbered
from daemonset_job.api.reasons import SuspendedReason
from daemonset_job.api.report import JobReport, merge_evidence, merge_records
from daemonset_job.api.report_summary import FINAL_REPORT_PHASES
from daemonset_job.api.rollback import can_roll_back, has_open_rollback
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType, NodeState, Phase
from daemonset_job.api.times import format_time
from daemonset_job.kube.client.messages import clean_text
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.rollback_view import RollbackView, view_rollback

# Characters of one text on a screen: a reason, a message, a result.
TEXT_LIMIT: Final = 1024
NAME_LIMIT: Final = 253
# Nodes that are drawn: ten times those of a large cluster. A status may have any number.
_STATES_LIMIT: Final = 50_000
# A cell or a bar that stands for several nodes shows the worst of their states.
WORST_FIRST: Final = (
    NodeState.FAILED,
    NodeState.UNREACHABLE,
    NodeState.ACTIVE,
    NodeState.WAITING,
    NodeState.REMOVED,
    NodeState.COMPLETED,
)
# What pauses a run, and is in its condition alone.
_SHOWN_PAUSES: Final = frozenset(
    {
        SuspendedReason.MAX_FAILED_NODES_EXCEEDED,
        SuspendedReason.CHECK_FAILED,
        SuspendedReason.CLUSTER_STOPPED,
    }
)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a run; `last_line` is that of its log after a failure.

    `is_set_aside`: it is unreachable, and the run does not wait for it. `rollback` is its state in
    the rollback of the run, "" for none, or if it was not read. `revision` is that of its results,
    "" for policy Once. `is_due_again`: a rerun request came after these results, and the node has
    not completed since. `omitted_results` are names of results that its task printed and that the
    report does not have.
    """

    name: str
    state: NodeState = NodeState.WAITING
    reason: str = ""
    message: str = ""
    attempts: int = 0
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    results: Mapping[str, str] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()
    is_set_aside: bool = False
    rollback: str = ""
    revision: str = ""
    is_due_again: bool = False
    omitted_results: tuple[str, ...] = ()

    @property
    def last_line(self) -> str:
        """The last line of its log, else the message of its record."""
        return self.last_lines[-1] if self.last_lines else self.message


@dataclass(frozen=True, slots=True)
class RunView:
    """One run. `exists` says whether its Job still exists; `report` is the name of its report.

    `batch` says how far a rollout is, and `waits_for` what it asks of a person; "" for none.
    `pause` says why it is paused after a failure, or by a stop of all Jobs, and what lets it go on;
    `pause_reason` is which of these it is. Both are "" for another pause. `trouble` says what keeps
    a run from its work, which is neither paused nor ended; "" for nothing. `paused_at`: when its
    present pause began, None if it is not paused, or the report alone is known.
    `has_undo` says whether its spec has a rollback that a person can request.
    `is_aborted`: a person has ended it, and no retry revives it. `is_going`: its Job is being
    deleted, and no request is acted on any more. `revision` is what its Job runs now, or the newest
    one on record if the Job is gone; "" for policy Once. `is_on_host`: its script runs on the node.
    """

    namespace: str
    name: str
    uid: str
    exists: bool
    phase: Phase | None
    is_ended: bool
    totals: NodeTotals
    report: str = ""
    reason: str = ""
    message: str = ""
    is_suspended: bool = False
    batch: str = ""
    waits_for: str = ""
    pause: str = ""
    pause_reason: str = ""
    trouble: str = ""
    paused_at: datetime | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    nodes: tuple[NodeView, ...] = ()
    timeline: tuple[str, ...] = ()
    rollback: RollbackView | None = None
    has_undo: bool = False
    is_aborted: bool = False
    is_going: bool = False
    revision: str = ""
    is_on_host: bool = False

    @property
    def failed(self) -> tuple[NodeView, ...]:
        """The nodes that have failed."""
        return tuple(node for node in self.nodes if node.state == NodeState.FAILED)

    @property
    def set_aside(self) -> tuple[str, ...]:
        """The names of the nodes that the run does not wait for."""
        return tuple(node.name for node in self.nodes if node.is_set_aside)

    @property
    def states(self) -> tuple[NodeState, ...]:
        """The state of each desired node; one without a record is waiting."""
        known = tuple(node.state for node in self.nodes)
        desired = min(self.totals.desired, _STATES_LIMIT)
        return known + (NodeState.WAITING,) * max(desired - len(known), 0)

    @property
    def is_unseen(self) -> bool:
        """Whether no controller has written a status of its Job yet."""
        return self.exists and self.phase is None

    @property
    def phase_text(self) -> str:
        """The phase, `Unknown` before the first one."""
        return str(self.phase or "Unknown")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code that says how the run ended; nodes that were set aside count as failed."""
        if self.phase != Phase.SUCCEEDED:
            return ExitCode.FAILURE
        is_partial = self.totals.failed or self.totals.unreachable
        return ExitCode.PARTIAL if is_partial else ExitCode.SUCCESS


def view_run(job: Job | None, reports: Sequence[JobReport]) -> RunView:
    """Return one run from its Job, its reports, or both. ValueError if there is neither."""
    first = min(reports, key=lambda report: (report.shard, report.name), default=None)
    if job is None:
        if first is None:
            raise ValueError("a run has a Job, a report, or both")
        return _view_report(first, reports)
    progress = job.status.condition(ConditionType.PROGRESSING)
    ended = job.status.condition(ConditionType.FAILED) if job.status.phase == Phase.FAILED else None
    shown = ended or progress
    pause = find_pause(job)
    shown_pause = pause if pause is not None and pause.reason in _SHOWN_PAUSES else None
    rollback = view_rollback(job.status.rollback, job.status.conditions)
    return RunView(
        namespace=_name(job.namespace),
        name=_name(job.name),
        uid=job.uid,
        exists=True,
        phase=job.status.phase,
        is_ended=job.status.phase in (Phase.SUCCEEDED, Phase.FAILED)
        and not _is_due_again(job)
        and _has_ended_rollback(job, rollback),
        totals=_clean_totals(job.status.nodes),
        report=_name(first.name if first is not None else job.status.report),
        reason=_text(shown.reason) if shown else "",
        message=_text(shown.message) if shown else "",
        is_suspended=job.spec.suspend,
        batch=_batch(job.status.rollout, job.status.phase),
        waits_for=_text(job.status.rollout.waits_for) if job.status.rollout else "",
        pause=_text(shown_pause.message) if shown_pause is not None else "",
        pause_reason=_text(shown_pause.reason) if shown_pause is not None else "",
        trouble=_find_trouble(job.status.phase, progress),
        paused_at=pause.last_transition_time if pause is not None else None,
        created_at=job.created_at,
        started_at=job.status.start_time,
        completed_at=job.status.completion_time,
        nodes=view_nodes(reports),
        timeline=tuple(map(_text, first.status.timeline)) if first else (),
        rollback=rollback,
        has_undo=can_roll_back(job),
        is_aborted=job.is_aborted,
        is_going=job.is_terminating,
        revision=_name(job.status.revision),
        is_on_host=job.spec.host_exec,
    )


def _find_trouble(phase: Phase | None, progress: Condition | None) -> str:
    """Return the message of a run that does not get on, although it is to."""
    is_open = phase in (Phase.PENDING, Phase.RUNNING)
    if not is_open or progress is None or progress.status:
        return ""
    return _text(progress.message)


def find_pause(job: Job) -> Condition | None:
    """Return the condition of a run that is paused, else None."""
    found = job.status.condition(ConditionType.SUSPENDED)
    if found is None or not found.status or job.status.phase != Phase.PAUSED:
        return None
    return found


def _is_due_again(job: Job) -> bool:
    """Return whether a run that has ended goes on: the controller has not seen a request yet."""
    if job.status.observed_retry != job.retry_request:
        return True
    if not job.spec.is_continuous or job.status.phase != Phase.SUCCEEDED:
        return False
    return job.status.observed_generation != job.generation or job.has_open_request


def _has_ended_rollback(job: Job, rollback: RollbackView | None) -> bool:
    """Return whether no rollback is at work, or requested and not seen by the controller yet."""
    if rollback is None or not rollback.is_possible:
        return not has_open_rollback(job)
    return rollback.is_ended


def _view_report(first: JobReport, reports: Sequence[JobReport]) -> RunView:
    status = first.status
    own = [each for each in status.conditions if each.type != ConditionType.ROLLED_BACK]
    true = next((each for each in own if each.status), None)
    return RunView(
        namespace=_name(first.namespace),
        name=_name(first.job_name),
        uid=first.job_uid,
        exists=False,
        phase=status.phase,
        is_ended=status.phase in FINAL_REPORT_PHASES,
        totals=_clean_totals(status.nodes),
        report=_name(first.name),
        reason=_text(true.reason) if true else "",
        message=_text(status.message),
        batch=_batch(status.rollout, status.phase),
        created_at=first.job_created_at,
        started_at=status.start_time,
        completed_at=status.completion_time,
        nodes=view_nodes(reports),
        timeline=tuple(map(_text, status.timeline)),
        rollback=view_rollback(status.rollback, status.conditions),
        revision=_name(_newest_revision(reports)),
    )


def _newest_revision(reports: Iterable[JobReport]) -> str:
    """Return the last revision that nodes were to run, "" for policy Once."""
    found: set[str] = set()
    for report in reports:
        found.update(record.revision for record in report.records.values())
        found.update(entry.revision for entry in report.evidence.values())
    return newest_numbered(found)


def view_nodes(reports: Sequence[JobReport]) -> tuple[NodeView, ...]:
    """Return the nodes of a run in order of their names."""
    records, evidence = merge_records(reports), merge_evidence(reports)
    nodes = []
    for name in sorted({*records, *evidence}):
        record, found = records.get(name), evidence.get(name)
        if record is not None and found is not None and found.node_uid != record.uid:
            found = None  # of a former node of that name
        is_done = found is not None and found.is_completed
        known = NodeState.COMPLETED if is_done else NodeState.WAITING
        nodes.append(
            NodeView(
                name=_name(name),
                state=record.state if record else known,
                reason=_text(record.reason) if record else "",
                message=_text(_node_message(record)) if record else "",
                attempts=record.attempts if record else 0,
                exit_code=record.exit_code if record else None,
                started_at=record.started_at if record else None,
                finished_at=record.finished_at if record else None,
                results=_clean_results(found.results) if found else {},
                last_lines=tuple(map(_text, _find_last_lines(record, found))),
                is_set_aside=record is not None and _is_set_aside(record),
                revision=_name(found.revision) if found else "",
                is_due_again=_is_node_due_again(record, found),
                omitted_results=tuple(map(_name, found.omitted_results)) if found else (),
            )
        )
    return tuple(nodes)


def _find_last_lines(record: NodeRecord | None, found: Evidence | None) -> tuple[str, ...]:
    """Return the last lines of the pod that the record of a node is about.

    A later pod may have failed without a line, as one whose image cannot be pulled.
    """
    if found is None or (record is not None and record.pod_uid != found.pod_uid):
        return ()
    return found.last_lines


def _is_node_due_again(record: NodeRecord | None, found: Evidence | None) -> bool:
    """Return whether evidence no longer counts, because the node is to run the task again."""
    if record is None or found is None or record.state == NodeState.COMPLETED:
        return False
    return found.pod_uid in record.earlier_pods


def _is_set_aside(record: NodeRecord) -> bool:
    return record.set_aside_at is not None and record.state == NodeState.UNREACHABLE


def _node_message(record: NodeRecord) -> str:
    """Return the message of a record, and whether the run waits for its node."""
    since = record.set_aside_at
    if since is None or not _is_set_aside(record):
        return record.message
    aside = f"set aside since {format_time(since)}: the run does not wait for it"
    return f"{record.message}; {aside}" if record.message else aside


def group_runs(reports: Sequence[JobReport]) -> list[tuple[JobReport, ...]]:
    """Return the reports by run, the shards of each in their order, the oldest run first."""
    runs: dict[tuple[str, str], list[JobReport]] = {}
    for report in reports:
        runs.setdefault((report.namespace, report.job_uid), []).append(report)
    shards = [tuple(sorted(run, key=lambda each: (each.shard, each.name))) for run in runs.values()]
    return sorted(shards, key=lambda run: (_moment(run[0]), run[0].namespace, run[0].name))


def _moment(report: JobReport) -> float:
    created = report.job_created_at
    return created.timestamp() if created is not None else 0.0


def _clean_totals(totals: NodeTotals | None) -> NodeTotals:
    if totals is None:
        return NodeTotals()
    return NodeTotals(
        desired=totals.desired,
        waiting=totals.waiting,
        active=totals.active,
        completed=totals.completed,
        failed=totals.failed,
        unreachable=totals.unreachable,
        skipped=totals.skipped,
        completed_names=_text(totals.completed_names),
        failed_names=_text(totals.failed_names),
        unreachable_names=_text(totals.unreachable_names),
        skipped_names=_text(totals.skipped_names),
    )


def _clean_results(results: Mapping[str, str]) -> dict[str, str]:
    return {_name(key): _value(value) for key, value in results.items()}


def _value(text: str) -> str:
    """Return a result with all of its blanks: it is data, and not a sentence."""
    shown = "".join(c if c.isprintable() else " " for c in text[: TEXT_LIMIT + 1])
    return shown if len(shown) <= TEXT_LIMIT else f"{shown[: TEXT_LIMIT - 1]}…"


def _batch(progress: RolloutProgress | None, phase: Phase | None) -> str:
    if progress is None or not progress.steps:
        return ""
    has_ended = phase in FINAL_REPORT_PHASES
    if progress.is_in_rest:
        steps = progress.steps
        done = "the only step is done" if steps == 1 else f"all {steps} steps are done"
        return done if has_ended else f"{done}, the rest of the nodes follows"
    if phase == Phase.SUCCEEDED:
        return f"ended in step {progress.step} of {progress.steps}"
    failure = f": {_text(progress.check_failure)}" if progress.check_failure else ""
    return f"step {progress.step} of {progress.steps}{failure}"


def _text(text: str) -> str:
    return clean_text(text, TEXT_LIMIT)


def _name(text: str) -> str:
    return clean_text(text, NAME_LIMIT)
