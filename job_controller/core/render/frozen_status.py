"""The status of a run that has ended, while its nodes cannot be counted exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import JobStatus
from daemonset_job.api.states import ConditionType
from job_controller.core.render.job_status import set_conditions
from job_controller.core.render.rollback import copy_rollback
from job_controller.core.state.node_counts import NodeCounts
from job_controller.core.state.snapshot import Snapshot


def frozen_status(job: Job, status: JobStatus, generation: int, now: datetime) -> JobStatus:
    """Return the status of the Job with what of a new one does not come from a count of nodes.

    Among that is whether it is suspended, and what keeps such a run from being corrected. The
    result is about this generation of the Job.
    """
    suspended = [each for each in status.conditions if each.type == ConditionType.SUSPENDED]
    kept = replace(job, status=copy_rollback(job.status, status))
    return replace(
        kept.status,
        conditions=set_conditions(kept, suspended, now),
        observed_generation=generation,
        revision=status.revision,
        completion_token=status.completion_token,
        observed_rerun=status.observed_rerun,
    )


def counted_generation(snapshot: Snapshot, counts: NodeCounts) -> int:
    """Return the generation of the Job to which the recorded end belongs.

    Until the DaemonSet controller has seen the newest `spec.nodes`, a node may be missing from that
    end. `observedGeneration` must not say meanwhile that it is the end of the new spec.
    """
    job, ours = snapshot.job, snapshot.owned_daemon_set
    is_seen = ours is None or ours.is_observed or counts.nodes_spec_is_refused
    is_counted = counts.nodes_spec_is_applied and is_seen
    return job.generation if is_counted else job.status.observed_generation
