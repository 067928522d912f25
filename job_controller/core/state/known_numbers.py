"""Which numbers of revisions and requests what belongs to a Job of policy Continuous has.

Its status has the newest of each. If that is lost, because a user changed the status or a backup
had none, they would begin at 1 again. Evidence of a lower revision is never written over that of a
higher one, so no node would be completed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.numbered import newest_numbered
from daemonset_job.api.report import JobReport
from daemonset_job.api.states import NodeState

# What such a node has run is on record in no other way if the task never printed a line.
_BEGUN = frozenset({NodeState.COMPLETED, NodeState.FAILED})


def with_known_numbers(job: Job, reports: Sequence[JobReport], daemon_set: DaemonSet | None) -> Job:
    """Return the Job with the newest revision and rerun request in what belongs to it.

    These are its DaemonSet and the reports of its run. A record of a node that has not begun is
    written before the status, and says nothing about the revision. Pods are not asked: a user who
    may change one pod would run the task on all nodes.
    """
    if not job.spec.is_continuous:
        return job
    applied = daemon_set.revision if daemon_set is not None else ""
    return replace(
        job,
        begun_revision=newest_numbered([applied, *_begun_revisions(reports)]),
        recorded_rerun=newest_numbered(record.rerun for record in _records(reports)),
    )


def _begun_revisions(reports: Iterable[JobReport]) -> Iterator[str]:
    for report in reports:
        yield from (entry.revision for entry in report.evidence.values())
    for record in _records(reports):
        if record.attempts or record.state in _BEGUN:
            yield record.revision


def _records(reports: Iterable[JobReport]) -> Iterator[NodeRecord]:
    for report in reports:
        yield from report.records.values()
