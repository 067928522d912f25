"""Whether enough nodes are completed: `successPolicy.minCompleted`."""

from __future__ import annotations

from dataclasses import dataclass

from daemonset_job.api.job import Job
from daemonset_job.api.rollout import share_of
from daemonset_job.api.states import NodeState
from job_controller.core.state.node_counts import NodeCounts


@dataclass(frozen=True, slots=True)
class Sufficiency:
    """Enough nodes are completed. `waits_for` are tasks that have started, "" if none is left."""

    waits_for: str = ""


def find_sufficiency(job: Job, counts: NodeCounts) -> Sufficiency | None:
    """Return what is left to do if enough nodes are completed, None if they are not.

    Tasks that have started end first. Until new pods are gated, another one may start. How many
    nodes the Job asks for is not known while its DaemonSet selects others.
    """
    least = job.spec.success_policy.min_completed
    is_known = counts.desired_is_known and counts.nodes_spec_is_applied
    if least is None or not is_known or counts.nodes_spec_is_refused or counts.is_altered:
        return None
    done = len(counts.names(NodeState.COMPLETED))
    if done < required_completions(least, counts.desired):
        return None
    started = [
        name
        for name, node in counts.nodes.items()
        if node.state in {NodeState.WAITING, NodeState.ACTIVE} and not node.pod.is_gated
    ]
    if not started and counts.new_pods_are_gated:
        return Sufficiency()
    return Sufficiency(
        f"minCompleted is reached: no further node starts, and {len(started)} that have finish"
    )


def required_completions(least: int | str, desired: int) -> int:
    """Return how many nodes have to be completed: a number, or a percentage, rounded up."""
    if isinstance(least, int):
        return max(min(least, desired), 1)
    return max(desired - share_of(f"{100 - int(least.removesuffix('%'))}%", desired), 1)


def may_lack_nodes(job: Job, desired: int) -> bool:
    """Return whether fewer nodes than are desired are enough."""
    least = job.spec.success_policy.min_completed
    return least is not None and required_completions(least, desired) < desired
