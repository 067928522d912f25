"""How many nodes of a run may fail or be unreachable: `spec.failurePolicy`."""

from __future__ import annotations

from daemonset_job.api.job import Job
from daemonset_job.api.rollout import share_of
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import NodeCounts


def count_failures(job: Job, counts: NodeCounts) -> tuple[int, bool]:
    """Return how many nodes may fail, and whether more have failed or are unreachable than may.

    With `maxUnreachableNodes` the two are counted apart.
    """
    failed, unreachable = counts.names(NodeState.FAILED), counts.names(NodeState.UNREACHABLE)
    desired = _count_desired(counts)
    allowed = allowed_failures(job.spec.failure_policy.max_failed_nodes, desired)
    away = allowed_unreachable(job, counts)
    if away is None:
        return allowed, len(failed) + len(unreachable) > allowed
    return allowed, len(failed) > allowed or len(unreachable) > away


def allowed_unreachable(job: Job, counts: NodeCounts) -> int | None:
    """Return how many nodes may be unreachable, None if they count as failed ones do."""
    limit = job.spec.failure_policy.max_unreachable_nodes
    return None if limit is None else share_of(limit, _count_desired(counts))


def has_share(job: Job) -> bool:
    """Return whether how many nodes may fail depends on how many are desired."""
    policy = job.spec.failure_policy
    return isinstance(policy.max_failed_nodes, str) or isinstance(policy.max_unreachable_nodes, str)


def _count_desired(counts: NodeCounts) -> int:
    """Return the number of desired nodes that percentages are of.

    The DaemonSet may be newer than the caches of nodes and pods. A node that failed and was then
    deleted is still a failure among the earlier number of nodes.
    """
    return max(counts.desired, len(counts.nodes) + len(counts.absent))


def is_within_budget(job: Job, counts: NodeCounts) -> bool:
    """Return whether no more nodes have failed or are unreachable than may."""
    return not count_failures(job, counts)[1]


def allowed_failures(limit: int | str, desired: int) -> int:
    """Return how many nodes may fail: a number, or a percentage of the desired nodes.

    Rounded down as maxUnavailable is: 10% of 5 nodes is none.
    """
    return share_of(limit, desired)
