"""Which nodes of a Job of policy Continuous are due again, although the ledger has them.

A node is due again if it ran another revision than the Job's newest one, or if a request names it.
It is, too, if it left the selection after it was completed, and has come back. Its record starts
again. If the revision is the same, it lists the pods whose evidence no longer counts, and is
written before anything else is done: see `CurrentView.unrecorded`. A crash before that changes
nothing, since the same is found again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.reasons import NodeReason
from daemonset_job.api.states import NodeState
from job_controller.core.state.causes import has_started

if TYPE_CHECKING:
    from job_controller.core.state.snapshot import Snapshot

# The pods of a few tries. Evidence of an earlier one can still come if the terminator has not seen
# the record change since.
_EARLIER_PODS: Final = 8
# As many once the node is completed: a full report has room for so few.
_EARLIER_PODS_OF_COMPLETED: Final = 2
# In a record for the hash of a selection that is not the newest one, and not known.
ANOTHER_SELECTION: Final = "another"
# In the record of a node that has not completed, before the hash of the selection that its labels
# have left. Nothing else shows that a failed node was out when it comes back, or that no change of
# the Job has taken a node out.
_LEFT: Final = "left "
# States in which nothing of the task has run, as long as no attempt is on record.
_NOT_BEGUN: Final = frozenset({NodeState.WAITING, NodeState.REMOVED})


@dataclass(frozen=True, slots=True)
class CurrentView:
    """Ledger and records without what no longer counts, by node name.

    `unrecorded` are the nodes that run the same revision again, and whose new record only this view
    has.
    """

    ledger: dict[str, Evidence]
    records: dict[str, NodeRecord]
    unrecorded: frozenset[str]


def view_current(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], records: Mapping[str, NodeRecord]
) -> CurrentView:
    """Return what of ledger and records counts now; `records` of nodes due again are new."""
    finder = _Finder(snapshot)
    current: dict[str, Evidence] = {}
    new: dict[str, NodeRecord] = {}
    unrecorded: set[str] = set()
    returned = finder.find_returned(records)
    for name in ledger.keys() | records.keys() | finder.requested_nodes():
        entry = ledger.get(name)
        record = finder.unwritten_record(name, records.get(name), entry) or records.get(name)
        if record is not None and finder.is_due_again(name, record, entry, returned):
            record = finder.renewed(name, record, entry)
            if record.earlier_pods:
                unrecorded.add(name)
        elif record is not None and finder.is_back(name, record, returned):
            earlier = (record.pod_uid, *record.earlier_pods)[:_EARLIER_PODS]
            record = replace(record, earlier_pods=earlier)
            unrecorded.add(name)
        elif record is not None and record.turn_at and record.revision != snapshot.job.revision:
            # It has not begun, and the turn was for what the Job ran before.
            record = replace(record, turn_at=None, step=0)
        if record is not None and (name in records or record.earlier_pods):
            new[name] = record
        if entry is not None and counts(snapshot.job, entry, record):
            current[name] = entry
    return CurrentView(current, new, frozenset(unrecorded))


def counts(job: Job, entry: Evidence, record: NodeRecord | None) -> bool:
    """Return whether an entry of the ledger counts, by the record of its node.

    A node that left the selection by itself counts with the revision that it ran. One that is
    recorded as completed stays so, although a late write has brought older evidence back.
    """
    if not job.spec.is_continuous:
        return True
    if record is None:
        return entry.revision == job.revision
    if entry.pod_uid in record.earlier_pods and record.state != NodeState.COMPLETED:
        return False
    return entry.revision == job.revision or has_left(record)


def has_left(record: NodeRecord) -> bool:
    """Return whether the node left the selection after it was completed."""
    return record.state == NodeState.COMPLETED and record.reason == NodeReason.LEFT_SELECTION


def selection_of(record: NodeRecord) -> str:
    """Return the selection that last chose the node, "" if that is not known."""
    return record.selection.removeprefix(_LEFT)


def has_left_by_labels(snapshot: Snapshot, name: str, record: NodeRecord) -> bool:
    """Return whether labels have taken a node out, by the selection that the DaemonSet has.

    The node has no pod, or one that is being deleted. If no reconcile has seen its labels match,
    they may be newer than the cache, and have brought it in.
    """
    daemon_set, node, job = snapshot.owned_daemon_set, snapshot.nodes.get(name), snapshot.job
    if not job.spec.is_continuous or daemon_set is None or node is None:
        return False
    return (
        node.uid == record.uid
        and daemon_set.nodes_hash == job.nodes_hash
        and selection_of(record) == job.selection_hash
        and not snapshot.affinity.matches(name, node.labels)
    )


def mark_undone_left(record: NodeRecord) -> NodeRecord:
    """Return the record of a node that has not completed, and whose labels left the selection."""
    return replace(record, selection=f"{_LEFT}{selection_of(record)}")


def keep_left(job: Job, record: NodeRecord) -> NodeRecord:
    """Return the record of a node that does not match the Job's newest selection.

    If its labels had left the one before, they have yet to come back to the newest one.
    """
    if record.selection.startswith(_LEFT):
        return replace(record, selection=f"{_LEFT}{job.selection_hash}")
    if has_left(record) and record.selection:
        return replace(record, selection=job.selection_hash)
    return record


def is_stale(job: Job, pod: Pod, evidence: Evidence | None, record: NodeRecord | None) -> bool:
    """Return whether the pod of a node is to be replaced: the node is due, and not in this pod.

    The pod of a node that has failed in this revision is not stale, nor that of a completed one.
    """
    if not job.spec.is_continuous or (evidence is not None and evidence.is_completed):
        return False
    if record is not None and record.has_failed(job.retry_request):
        return False
    return is_of_earlier_try(job, pod, record)


def is_of_earlier_try(job: Job, pod: Pod, record: NodeRecord | None) -> bool:
    """Return whether the node of a pod is due again since, so that nothing of the pod counts."""
    if not job.spec.is_continuous:
        return False
    is_earlier = record is not None and pod.uid in record.earlier_pods
    return is_earlier or pod.revision != job.revision


def stamp(
    job: Job, name: str, record: NodeRecord, base: NodeRecord | None, *, chosen_by: str
) -> NodeRecord:
    """Return the new record of the desired node `name`, with what decides whether it is due again.

    `base` is what the view has of the node, None for nothing. `chosen_by` is the selection that
    chooses it, see `find_selections`, "" for none: a node that is left out may still have its pod.
    """
    if not job.spec.is_continuous:
        return record
    known = base if base is not None and base.uid == record.uid else None
    observed = known.rerun if known is not None else ""
    selection = selection_of(known) if known is not None else ""
    if chosen_by == job.selection_hash or not selection:
        selection = chosen_by
    earlier = known.earlier_pods if known is not None else ()
    if record.state == NodeState.COMPLETED:
        earlier = earlier[:_EARLIER_PODS_OF_COMPLETED]
    if chosen_by == job.selection_hash and has_left(record):
        # Taken in by a change of the Job: it is a completed node like any other.
        record = replace(record, reason="")
    return replace(
        record,
        revision=job.revision,
        selection=selection,
        # A node that has not begun before does what the request asks for.
        rerun=job.rerun.id if job.rerun.names(name) else observed,
        # A late write can still bring the evidence of one of them back.
        earlier_pods=earlier,
    )


@dataclass(slots=True)
class _Finder:
    """Finds nodes that are due again; what takes long is looked up once, and only if needed."""

    snapshot: Snapshot
    _scheduled: dict[str, list[Pod]] | None = field(default=None)

    @property
    def _job(self) -> Job:
        return self.snapshot.job

    def requested_nodes(self) -> frozenset[str]:
        """Return the nodes that an open request names, and whose pod shows that they have begun."""
        if not self._job.has_open_request:
            return frozenset()
        return frozenset(filter(self._has_started_pod, filter(self._job.rerun.names, self._pods())))

    def unwritten_record(
        self, name: str, written: NodeRecord | None, entry: Evidence | None
    ) -> NodeRecord | None:
        """Return a record for a node without one that has begun, if a request names it.

        The one of a former node of that name, `written`, is none.
        """
        node = self.snapshot.nodes.get(name)
        if node is None or not self._is_requested(name, ""):
            return None
        if written is not None and written.uid == node.uid:
            return None
        if entry is not None and entry.node_uid == node.uid:
            return NodeRecord(node.uid, NodeState.WAITING, attempts=1, revision=entry.revision)
        if not self._has_started_pod(name):
            return None
        return NodeRecord(node.uid, NodeState.WAITING, attempts=1, revision=self._job.revision)

    def find_returned(self, records: Mapping[str, NodeRecord]) -> frozenset[str]:
        """Return the nodes that had left the selection, and match the present one."""
        daemon_set = self.snapshot.owned_daemon_set
        left = [
            name for name, record in records.items() if has_left(record) or _was_taken_out(record)
        ]
        if daemon_set is None or not left or daemon_set.nodes_hash != self._job.nodes_hash:
            return frozenset()
        affinity = self.snapshot.affinity
        return frozenset(
            name
            for name in sorted(left)
            if (node := self.snapshot.nodes.get(name)) is not None
            and affinity.matches(name, node.labels)
        )

    def is_back(self, name: str, record: NodeRecord, returned: frozenset[str]) -> bool:
        """Return whether the node left before it was known to have completed, and has come back.

        It begins in another pod, since the one that it had is gone, or is being deleted. That lasts
        on a machine that is down. The pod may complete it yet, or the evidence that it did may be
        late. A node that only a taint took out has not left. One that had failed stays failed.
        """
        return (
            name in returned
            and _was_taken_out(record)
            and record.reason != NodeReason.UNTOLERATED_TAINT
            and record.pod_uid not in record.earlier_pods
            and self.snapshot.nodes[name].uid == record.uid
            and record.revision == self._job.revision
            and selection_of(record) in {"", self._job.selection_hash}
            and all(
                pod.is_terminating
                for pod in self._pods().get(name, ())
                if pod.uid == record.pod_uid
            )
        )

    def is_due_again(
        self, name: str, record: NodeRecord, entry: Evidence | None, returned: frozenset[str]
    ) -> bool:
        """Return whether the node has to run the task again, as far as its record shows."""
        node = self.snapshot.nodes.get(name)
        if node is None or node.uid != record.uid:
            return False
        if has_left(record):
            if name not in returned:
                return False
            if selection_of(record) in {"", self._job.selection_hash}:
                return True
            # A change of the Job has taken it in, and not a change of its labels.
        if record.revision != self._job.revision and _has_begun(record):
            return True
        if not self._is_requested(name, record.rerun):
            return False
        # Its record may be late, and its pod be gone.
        is_entered = (
            entry is not None and entry.node_uid == node.uid and counts(self._job, entry, record)
        )
        return _has_begun(record) or is_entered or self._has_started_pod(name)

    def _is_requested(self, name: str, observed: str) -> bool:
        """Return whether a request names the node that was not acted on for it."""
        rerun = self._job.rerun
        return self._job.has_open_request and rerun.names(name) and observed != rerun.id

    def renewed(self, name: str, record: NodeRecord, entry: Evidence | None) -> NodeRecord:
        """Return the first record of the node's next try. One that is away stays unreachable."""
        is_away = record.state == NodeState.UNREACHABLE and record.retry == self._job.retry_request
        return NodeRecord(
            uid=record.uid,
            state=NodeState.UNREACHABLE if is_away else NodeState.WAITING,
            reason=record.reason if is_away else "",
            message=record.message if is_away else "",
            retry=self._job.retry_request,
            failures=record.failures,
            omitted_failures=record.omitted_failures,
            revision=self._job.revision,
            selection=selection_of(record),
            rerun=self._job.rerun.id if self._job.rerun.names(name) else record.rerun,
            earlier_pods=self._earlier_pods(name, record, entry),
            # Its step has had it, whatever it does again: no other node gets a turn in its place.
            step=record.step if record.revision == self._job.revision else 0,
        )

    def _earlier_pods(
        self, name: str, record: NodeRecord, entry: Evidence | None
    ) -> tuple[str, ...]:
        """Return the pods of the newest revision that are of earlier tries, the newest first.

        Those of other revisions count no more anyway. If the revision alone is new, a pod that runs
        it already is the node's next try.
        """
        revision = self._job.revision
        is_requested = self._is_requested(name, record.rerun)
        is_of_revision = record.revision == revision
        found: list[str] = []
        if is_requested:
            found += [pod.uid for pod in self._pods().get(name, ()) if pod.revision == revision]
        if is_of_revision:
            found.append(record.pod_uid)
        if entry is not None and entry.revision == revision and (is_of_revision or is_requested):
            found.append(entry.pod_uid)
        if is_of_revision:
            found += record.earlier_pods
        return tuple(dict.fromkeys(filter(None, found)))[:_EARLIER_PODS]

    def _has_started_pod(self, name: str) -> bool:
        """Return whether a pod that a request is about has started the task on the node."""
        revision = self._job.revision
        return any(
            pod.revision == revision and has_started(pod) for pod in self._pods().get(name, ())
        )

    def _pods(self) -> Mapping[str, list[Pod]]:
        """Return the scheduled pods, by the name of their node."""
        if self._scheduled is None:
            self._scheduled = defaultdict(list)
            for pod in self.snapshot.pods:
                if pod.is_scheduled:
                    self._scheduled[pod.node_name].append(pod)
        return self._scheduled


def _was_taken_out(record: NodeRecord) -> bool:
    """Return whether the node is known to have lost its pod before it was completed."""
    is_out = record.state == NodeState.REMOVED or record.selection.startswith(_LEFT)
    return is_out and bool(record.pod_uid)


def _has_begun(record: NodeRecord) -> bool:
    return record.attempts > 0 or record.state not in _NOT_BEGUN
