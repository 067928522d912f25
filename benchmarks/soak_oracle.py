"""The judgement of one Job of a soak run: did its user get what was requested?

It uses what the user wrote and when, the nodes, and what the tasks wrote on the real nodes. The
system's own status is judged, so it is no proof here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak_nodes import NodeHistory, matches
from benchmarks.soak_wish import Wish
from benchmarks.workload import RESULTS

# A node is desired for certain after this time, which the DaemonSet controller may need to see it.
# It needs more after the API server was stopped.
SEEN_SECONDS = 30.0
POLL_SECONDS = 3.0
# ttlSecondsAfterFinished: a second of rounding before, and what a deletion may take after.
EARLY_SECONDS = 2.0
LATE_SECONDS = 60.0
# Tasks write whole seconds.
CLOCK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Touch:
    """A disturbance that ends pods; "" is every node, namespace or Job."""

    at: float
    what: str
    namespace: str = ""
    job: str = ""
    node: str = ""


@dataclass(slots=True)
class JobRun:
    """What happened to one Job, times in seconds since the epoch."""

    wish: Wish
    uid: str = ""
    created_at: float = 0
    edits: list[tuple[float, Mapping[str, Any] | None]] = field(default_factory=list)
    """Every `spec.nodes` that the API server took before the Job had ended, and when."""
    ended_at: float | None = None
    """When the Job was first seen Complete, Failed for the last time, or gone."""
    gone_at: float | None = None
    kept_seconds: float | None = None
    """Seconds from its completionTime until it was gone."""
    retries: int = 0
    """How often the user asked for a retry: it ends the pods of failed nodes, at work or not."""
    resumed_at: float | None = None
    deleted: bool = False
    """Whether the user deleted it."""
    problems: list[str] = field(default_factory=list)
    """What was seen on the way: a step that could not be done, no end in time."""
    starts: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    """What its task wrote on each real node."""
    reports: Sequence[Mapping[str, Any]] = ()


def judge(run: JobRun, history: NodeHistory, touches: Sequence[Touch]) -> list[str]:
    """Return what is wrong with a Job that has ended, a sentence each."""
    found = list(run.problems)
    evidence = _merged(run.reports, "evidence")
    states = {
        node: state
        for report in run.reports
        for node, state in ((report.get("status") or {}).get("nodeStates") or {}).items()
    }
    if run.problems:
        return found
    found += _judge_end(run, history)
    if run.wish.phase == "Succeeded":
        found += _judge_desired(run, history, evidence, states)
    found += _judge_proof(run, evidence)
    found += _judge_starts(run, history, touches)
    return found


def _merged(reports: Sequence[Mapping[str, Any]], part: str) -> dict[str, Mapping[str, Any]]:
    return {node: entry for report in reports for node, entry in (report.get(part) or {}).items()}


def _judge_end(run: JobRun, history: NodeHistory) -> list[str]:
    found = []
    wish = run.wish
    phases = {(report.get("status") or {}).get("phase") for report in run.reports} - {None}
    if not run.reports:
        found.append("it left no report")
    elif phases != {wish.phase}:
        ended = run.ended_at or run.created_at
        unreachable = history.was_not_ready(run.created_at, ended)
        if not (unreachable and phases == {"Failed"}):
            found.append(f"its report says {sorted(map(str, phases))}, not {wish.phase}")
    if not wish.leaves_by_itself and not run.deleted:
        found.append("it was deleted, and not by its user")
    ttl = wish.spec.get("ttlSecondsAfterFinished")
    if ttl is not None and run.kept_seconds is not None:
        if run.kept_seconds < ttl - EARLY_SECONDS:
            found.append(f"it was kept {run.kept_seconds:.0f} s, not {ttl}")
        if run.kept_seconds > ttl + LATE_SECONDS:
            found.append(f"it was kept {run.kept_seconds:.0f} s, {ttl} were asked for")
    return found


def desired_nodes(run: JobRun, history: NodeHistory) -> dict[str, str]:
    """Return the nodes that the Job had to serve for certain, and their UIDs."""
    end = run.ended_at or run.gone_at or run.created_at
    _, asked = run.edits[-1]
    since = end - SEEN_SECONDS
    if history.is_blind(since, end):
        # A node that became open meanwhile may not have been seen by the DaemonSet controller.
        since = min(run.created_at, end) - SEEN_SECONDS
    desired = {}
    for name in history.changes:
        # Looked at a little longer: a list shows a change only some time after it.
        state = history.steady(name, since, end + POLL_SECONDS)
        if state is not None and matches(asked, name, state.labels):
            desired[name] = state.uid
    return desired


def _judge_desired(
    run: JobRun,
    history: NodeHistory,
    evidence: Mapping[str, Mapping[str, Any]],
    states: Mapping[str, Mapping[str, Any]],
) -> list[str]:
    missing = []
    for node, uid in sorted(desired_nodes(run, history).items()):
        entry = evidence.get(node, {})
        # A machine that was registered in its place after the end may have replaced its entry.
        uids = {uid} | _later_uids(run, history, node)
        if entry.get("completedAt") and entry.get("nodeUID") in uids:
            continue
        if run.wish.may_fail_on_nodes and states.get(node, {}).get("state") == "Failed":
            continue
        missing.append(node)
    if not missing:
        return []
    words = (
        "1 node was desired and has"
        if len(missing) == 1
        else (f"{len(missing)} nodes were desired and have")
    )
    return [f"{words} not completed: {', '.join(missing)}"]


def _later_uids(run: JobRun, history: NodeHistory, node: str) -> set[str]:
    """Return the UIDs that a node had from the end of the run until its Job was gone."""
    if run.ended_at is None or run.gone_at is None:
        return set()
    states = history.during(node, run.ended_at, run.gone_at + POLL_SECONDS)
    return {state.uid for state in states if state is not None}


def _judge_proof(run: JobRun, evidence: Mapping[str, Mapping[str, Any]]) -> list[str]:
    found = []
    for node, entry in sorted(evidence.items()):
        if not entry.get("completedAt"):
            continue
        words = Counter(word for word, _ in run.starts.get(node, ()))
        if node in run.starts and not words["end"]:
            found.append(f"{node} counts as completed, its task wrote {dict(words)}")
        if run.wish.kind == "results" and entry.get("results") != RESULTS:
            found.append(f"{node} has the results {entry.get('results')}")
    return found


def _judge_starts(run: JobRun, history: NodeHistory, touches: Sequence[Touch]) -> list[str]:
    found = []
    end = (run.gone_at or run.created_at) + SEEN_SECONDS
    for node, lines in sorted(run.starts.items()):
        words = Counter(word for word, _ in lines)
        first = min((at for word, at in lines if word == "start"), default=None)
        if first is None:
            continue
        labels = [s.labels for s in history.during(node, run.created_at, end) if s is not None]
        if not any(matches(asked, node, label) for _, asked in run.edits for label in labels):
            found.append(f"{node} was never asked for, and its task started")
        reasons = [touch for touch in touches if _touches(touch, run, node, end)]
        allowed = words["failed"] + len(reasons) + run.retries + len(run.edits)
        if words["start"] > allowed:
            found.append(f"{node}: {words['start']} starts, {allowed} can be explained: {lines}")
        if run.resumed_at is not None and run.wish.spec.get("suspend"):
            early = run.resumed_at - first
            if early > CLOCK_SECONDS:
                found.append(f"{node} started {early:.0f} s before its Job was resumed")
    return found


def _touches(touch: Touch, run: JobRun, node: str, end: float) -> bool:
    return (
        run.created_at - CLOCK_SECONDS <= touch.at <= end
        and touch.namespace in ("", run.wish.namespace)
        and touch.job in ("", run.wish.name)
        and touch.node in ("", node)
    )
