"""What a decision is made from: everything known about one Job at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from daemonset_job.api import report
from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.node import Node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod
from daemonset_job.api.report import JobReport
from daemonset_job.api.taints import Tolerations
from job_controller.core.plan import RefusedWrite
from job_controller.core.settings import Settings
from job_controller.core.sources import SourceAnswer, SourceQuery
from job_controller.core.state.due_again import CurrentView, view_current
from job_controller.core.state.ended_pods import NO_ENDED_PODS, EndedPods, without_ended_pods
from job_controller.core.state.evictions import NodeDrain
from job_controller.core.state.exclusive import NO_OTHER_USE, OtherUse
from job_controller.core.state.first_seen import Sightings
from job_controller.core.state.observed_pods import PodObservation
from job_controller.core.state.predecessors import Predecessor


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One Job and what belongs to it, as the caches have it.

    `daemon_set` is the object with the Job's DaemonSet name, of any owner. `pods` are those of
    the Job's own DaemonSet, by owner reference. `failed_create_message` is the newest message of
    the DaemonSet controller about a refused pod, "" without one, None before the events were read.
    `failed_create_reads` counts how often they were read. `failed_mount` is the UID of one pod that
    does not start, and what the kubelet says of its volumes.

    `refusals` has the API server's message for each kind of write that it refused a moment ago,
    never an empty one. Each blocks only the actions that depend on it. The next retry of any of
    them is due in `retry_seconds`.

    `seen` is when the controller first saw the start of each timer. `is_dry_run_done`: in this
    reconcile the API server has accepted the DaemonSet of a Job that has not started.
    `changed_nodes`: when this process changed a node as `spec.onSuccess` says, by the identity of
    its completion. Its record may not have it yet. `drains`: what has yet to leave the nodes that
    are being drained, by their names. `unsettled_cordons`: the nodes of which it is not known
    whether this Job's cordon is still there. `predecessors`: the newest runs of the names in
    `spec.after`, and of those for which these wait. `other_use`: what other Jobs with the same key
    `rollout.exclusive` do. `observed_pods` is the newest answer to what a check of the
    rollout asks, None without one. `source_answers` has those of sources. `owned_jobs` are the Jobs
    that this one created as parts of its own run, by owner reference, with all of their specs.
    `owned_reports` are the reports of their runs. `left_pods` are pods of the Job that are not of
    its present DaemonSet: one that was deleted takes its pods with it later.
    `orphans` are pods with all labels of the Job's that no object controls: its next DaemonSet
    would adopt them. `ended_pods` is what is known of pods that are gone.
    """

    job: Job
    daemon_set: DaemonSet | None = None
    pods: tuple[Pod, ...] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    reports: tuple[JobReport, ...] = ()
    failed_create_message: str | None = None
    failed_create_reads: int = 0
    failed_mount: tuple[str, str] = ("", "")
    refusals: Mapping[RefusedWrite, str] = field(default_factory=dict)
    retry_seconds: float = 15.0
    seen: Sightings = field(default_factory=dict)
    is_dry_run_done: bool = False
    changed_nodes: Mapping[str, datetime] = field(default_factory=dict)
    drains: Mapping[str, NodeDrain] = field(default_factory=dict)
    unsettled_cordons: frozenset[str] = frozenset()
    predecessors: Mapping[str, Predecessor] = field(default_factory=dict)
    other_use: OtherUse = NO_OTHER_USE
    observed_pods: PodObservation | None = None
    source_answers: Mapping[SourceQuery, SourceAnswer] = field(default_factory=dict)
    owned_jobs: tuple[Job, ...] = ()
    owned_reports: tuple[JobReport, ...] = ()
    left_pods: tuple[Pod, ...] = ()
    orphans: tuple[Pod, ...] = ()
    ended_pods: EndedPods = NO_ENDED_PODS
    settings: Settings = field(default_factory=Settings)
    # Computed once: a reconcile asks for it again and again. `replace` begins again.
    _view: CurrentView | None = field(default=None, init=False, repr=False, compare=False)
    _affinity: NodeAffinity | None = field(default=None, init=False, repr=False, compare=False)
    _tolerations: Tolerations | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def all_pods(self) -> tuple[Pod, ...]:
        """The pods of the Job, those that are not of its present DaemonSet included."""
        return (*self.pods, *self.left_pods)

    @property
    def pod_uids(self) -> frozenset[str]:
        """The UIDs of all pods of the Job."""
        return frozenset(pod.uid for pod in self.all_pods)

    @property
    def view(self) -> CurrentView:
        """What of ledger and records counts now, for policy Continuous."""
        if self._view is None:
            ledger, records = (
                report.merge_evidence(self.reports),
                report.merge_records(self.reports),
            )
            found = view_current(self, ledger, records)
            object.__setattr__(self, "_view", found)
            return found
        return self._view

    @property
    def affinity(self) -> NodeAffinity:
        """Which nodes the pods of the DaemonSet may run on, any without one."""
        if self._affinity is None:
            found = NodeAffinity(self._pod_spec)
            object.__setattr__(self, "_affinity", found)
            return found
        return self._affinity

    @property
    def tolerations(self) -> Tolerations:
        """What the pods of the DaemonSet tolerate, nothing but the defaults without one."""
        if self._tolerations is None:
            found = Tolerations(self._pod_spec)
            object.__setattr__(self, "_tolerations", found)
            return found
        return self._tolerations

    @property
    def _pod_spec(self) -> Mapping[str, Any]:
        return self.daemon_set.pod_spec if self.daemon_set is not None else {}

    @property
    def unreachable_seconds(self) -> float:
        """For how long a node may be not Ready before it counts as unreachable."""
        own = self.job.spec.node_unreachable_seconds
        return self.settings.timeouts.unreachable_seconds if own is None else own

    @property
    def first_report(self) -> JobReport | None:
        """The shard of the run's report with its summary, None while there is none."""
        return next((report for report in self.reports if report.shard == 0), None)

    @property
    def owned_daemon_set(self) -> DaemonSet | None:
        """The Job's own DaemonSet, None if it is missing, terminating or of another owner."""
        found = self.daemon_set
        if found is None or found.owner_uid != self.job.uid or found.is_terminating:
            return None
        return found

    def with_refusal(self, write: RefusedWrite, message: str) -> Snapshot:
        """Return the snapshot with this write refused; `message` is not empty."""
        return replace(self, refusals={**self.refusals, write: message})


def merge_evidence(snapshot: Snapshot) -> dict[str, Evidence]:
    """Return the ledger of the Job, all shards as one: node name to evidence that counts."""
    if snapshot.job.spec.is_continuous:
        return dict(snapshot.view.ledger)
    return report.merge_evidence(snapshot.reports)


def merge_records(snapshot: Snapshot) -> dict[str, NodeRecord]:
    """Return the record of each node, all shards as one; of a node that is due again a new one."""
    if snapshot.job.spec.is_continuous:
        return dict(snapshot.view.records)
    records = report.merge_records(snapshot.reports)
    ended = snapshot.ended_pods
    return without_ended_pods(records, ended) if ended.without_start else records


def find_tried(snapshot: Snapshot) -> dict[str, str]:
    """Return the UIDs of nodes that have begun an earlier try, by name, for policy Continuous.

    The ledger has evidence about them, which may no longer count.
    """
    if not snapshot.job.spec.is_continuous:
        return {}
    ledger = report.merge_evidence(snapshot.reports)
    return {name: entry.node_uid for name, entry in ledger.items()}


def find_unrecorded(snapshot: Snapshot) -> frozenset[str]:
    """Return the nodes that are due again, and of which no report says that.

    Until one does, nothing is done for it: a pod that starts would look like the one before it.
    """
    return snapshot.view.unrecorded if snapshot.job.spec.is_continuous else frozenset()


def find_held(snapshot: Snapshot, names: Iterable[str]) -> frozenset[str]:
    """Return those of the nodes whose pods are left alone until a report says what they are for.

    They are due again, or have not begun and an open request names them.
    """
    job = snapshot.job
    if not job.has_open_request:
        return find_unrecorded(snapshot)
    records = report.merge_records(snapshot.reports)
    return find_unrecorded(snapshot) | {
        name
        for name in names
        if job.rerun.names(name)
        and ((record := records.get(name)) is None or record.rerun != job.rerun.id)
    }
