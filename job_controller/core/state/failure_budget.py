"""How many nodes of a run may fail or be unreachable: `failurePolicy.maxFailedNodes`."""

from __future__ import annotations

from daemonset_job.api.job import Job
from daemonset_job.api.rollout import share_of
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import NodeCounts


def count_failures(job: Job, counts: NodeCounts) -> tuple[int, bool]:
    """Return how many nodes may fail, and whether more have failed or are unreachable."""
    failed, unreachable = counts.names(NodeState.FAILED), counts.names(NodeState.UNREACHABLE)
    # The DaemonSet may be newer than the caches of nodes and pods. A node that failed and was then
    # deleted is still a failure among the earlier number of nodes.
    desired = max(counts.desired, len(counts.nodes) + len(counts.absent))
    allowed = allowed_failures(job.spec.failure_policy.max_failed_nodes, desired)
    return allowed, len(failed) + len(unreachable) > allowed


def is_within_budget(job: Job, counts: NodeCounts) -> bool:
    """Return whether no more nodes have failed or are unreachable than may."""
    return not count_failures(job, counts)[1]


def allowed_failures(limit: int | str, desired: int) -> int:
    """Return how many nodes may fail: a number, or a percentage of the desired nodes.

    Rounded down as maxUnavailable is: 10% of 5 nodes is none.
    """
    return share_of(limit, desired)
