"""Which completed nodes have yet to be changed as `spec.onSuccess` and `results` say, and how.

A node is changed once for each completion, and its record says when. It does not matter whether it
still has a pod or is still selected, nor whether the run has failed or is suspended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node import Node
from daemonset_job.api.node_changes import NodeChange, OnSuccess, is_label_value
from job_controller.core.desired.daemon_set import desired_pod_spec
from job_controller.core.state.first_seen import results_missing
from job_controller.core.state.snapshot import Snapshot, merge_evidence, merge_records
from job_controller.core.text.sanitize import single_line

# In mode Exit a node may be completed before its log was read (terminator.deleter has the same).
RESULTS_GRACE: Final = timedelta(seconds=15)
# Each plan changes so few: other Jobs have their turn in between, and a crash repeats no more.
NODES_PER_PLAN: Final = 100
# Characters of a result that an annotation takes, as in spec.onSuccess.annotations.
ANNOTATION_VALUE_LIMIT: Final = 1024


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """The completed nodes that have not been changed: how many, and those that are due.

    `wake_at` is when a node is due whose results have not been read.
    """

    due: tuple[NodeChange, ...] = ()
    count: int = 0
    wake_at: datetime | None = None


def find_pending_changes(snapshot: Snapshot, now: datetime) -> PendingChanges:
    """Return the nodes that have completed and have not been changed, in order of their names."""
    job, wanted = snapshot.job, snapshot.job.spec.on_success
    due: list[NodeChange] = []
    wakes: list[datetime] = []
    count = 0
    for name, evidence in _unchanged_nodes(snapshot):
        count += 1
        if _lacks_results(job, evidence):
            sighting = snapshot.seen.get(results_missing(evidence.node_uid))
            due_at = (sighting.first if sighting is not None else now) + RESULTS_GRACE
            if now < due_at:
                wakes.append(due_at)
                continue
        if len(due) < NODES_PER_PLAN:
            due.append(_build_change(name, evidence, wanted))
    return PendingChanges(tuple(due), count, min(wakes, default=None))


def has_pending_changes(snapshot: Snapshot) -> bool:
    """Return whether a node has completed and has not been changed."""
    return next(_unchanged_nodes(snapshot), None) is not None


def nodes_without_results(snapshot: Snapshot) -> frozenset[str]:
    """Return the UIDs of completed nodes whose change waits for a result of their task."""
    return frozenset(
        evidence.node_uid
        for _, evidence in _unchanged_nodes(snapshot)
        if _lacks_results(snapshot.job, evidence)
    )


def find_trial_change(snapshot: Snapshot) -> NodeChange | None:
    """Return a change of a selected node by which the API server is asked, None if none is needed.

    The values of results are not known yet: each label and annotation can be empty.
    """
    wanted = snapshot.job.spec.on_success
    node = find_selected_node(snapshot) if wanted.changes_nodes else None
    if node is None:
        return None
    return NodeChange(
        node.name,
        node.uid,
        "",
        {**wanted.labels, **dict.fromkeys(wanted.result_labels.values(), "")},
        {**wanted.annotations, **dict.fromkeys(wanted.result_annotations.values(), "")},
        wanted.remove_taints,
    )


def find_selected_node(snapshot: Snapshot) -> Node | None:
    """Return the first node, by name, that the Job selects, None if none is found."""
    affinity = NodeAffinity(desired_pod_spec(snapshot.job, snapshot.settings))
    nodes = sorted(snapshot.nodes.items())
    return next((node for name, node in nodes if affinity.matches(name, node.labels)), None)


def describe_unset_results(evidence: Evidence, wanted: OnSuccess) -> str:
    """Return which results could not be set on the node, and why, "" for none."""
    omitted = set(evidence.omitted_results)
    unset = [
        f"{name}, which "
        + ("is too long for the report" if name in omitted else "the task did not print")
        for name in sorted(wanted.result_names - evidence.results.keys())
    ]
    for name in sorted(wanted.result_names & evidence.results.keys()):
        value = evidence.results[name]
        if name in wanted.result_labels and not is_label_value(value):
            unset.append(f"{name}, since '{single_line(value, 80)}' is no label value")
        if name in wanted.result_annotations and len(value) > ANNOTATION_VALUE_LIMIT:
            unset.append(f"{name}, which is too long for an annotation")
    return single_line(f"results that are not set on the node: {'; '.join(unset)}") if unset else ""


def _unchanged_nodes(snapshot: Snapshot) -> Iterator[tuple[str, Evidence]]:
    """Yield the completed nodes that neither their record nor this process has as changed."""
    if not snapshot.job.spec.on_success.changes_nodes:
        return
    records = merge_records(snapshot)
    for name, evidence in sorted(merge_evidence(snapshot).items()):
        node, record = snapshot.nodes.get(name), records.get(name)
        if node is None or not evidence.completes(node.uid):
            continue
        if evidence.completion_id in snapshot.changed_nodes:
            continue
        is_recorded = record is not None and record.uid == node.uid
        if not is_recorded or record is None or record.node_changed_at is None:
            yield name, evidence


def _lacks_results(job: Job, evidence: Evidence) -> bool:
    """Return whether results may still arrive: in mode Log they come with the completion."""
    if job.spec.completion.mode != CompletionMode.EXIT:
        return False
    known = {*evidence.results, *evidence.omitted_results}
    return bool(job.spec.on_success.result_names - known)


def _build_change(name: str, evidence: Evidence, wanted: OnSuccess) -> NodeChange:
    results = evidence.results
    labels = {
        key: results[result]
        for result, key in wanted.result_labels.items()
        if result in results and is_label_value(results[result])
    }
    annotations = {
        key: results[result]
        for result, key in wanted.result_annotations.items()
        if result in results and len(results[result]) <= ANNOTATION_VALUE_LIMIT
    }
    return NodeChange(
        name,
        evidence.node_uid,
        evidence.completion_id,
        {**wanted.labels, **labels},
        {**wanted.annotations, **annotations},
        wanted.remove_taints,
    )
