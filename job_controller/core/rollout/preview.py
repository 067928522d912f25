"""The preview of a rollout: which nodes would have their turn in which step, without running it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from daemonset_job.api.affinity import NodeAffinity
from daemonset_job.api.label_selector import parse_label_selector
from daemonset_job.api.node import Node
from daemonset_job.api.rollout import Step, share_of
from daemonset_job.api.rollout_progress import PlannedBatch, RolloutProgress
from daemonset_job.api.taints import Tolerations
from job_controller.core.desired.daemon_set import desired_pod_spec
from job_controller.core.desired.limits import has_too_many_terms
from job_controller.core.rollout.node_order import sort_nodes
from job_controller.core.state.snapshot import Snapshot

# Names that a batch lists.
NAMES_LIMIT: Final = 50
# How often a preview is made again: labels of nodes may have changed.
PREVIEW_SECONDS: Final = 30.0


def plan_batches(snapshot: Snapshot) -> RolloutProgress | None:
    """Return the batches of a Job that has not started; None without a rollout."""
    job = snapshot.job
    rollout = job.spec.rollout
    if rollout is None or has_too_many_terms(job):
        return None
    left = sort_nodes(
        _selected(snapshot),
        rollout.order,
        run=job.uid,
        controller_node=snapshot.settings.node_name,
    )
    total, had_turn = len(left), 0
    batches: list[PlannedBatch] = []
    for number, step in enumerate(rollout.steps, 1):
        chosen = _choose(step, left, total, had_turn)
        names = {node.name for node in chosen}
        left = [node for node in left if node.name not in names]
        had_turn += len(chosen)
        batches.append(_batch(number, chosen))
    batches.append(_batch(len(rollout.steps) + 1, left))
    return RolloutProgress(steps=len(rollout.steps), plan=tuple(batches))


def _selected(snapshot: Snapshot) -> list[Node]:
    """Return the nodes on which the pods could run now."""
    spec = desired_pod_spec(snapshot.job, snapshot.settings)
    affinity, tolerations = NodeAffinity(spec), Tolerations(spec)
    return [
        node
        for node in snapshot.nodes.values()
        if not tolerations.untolerated(node.taints) and affinity.matches(node.name, node.labels)
    ]


def _choose(step: Step, left: Sequence[Node], total: int, had_turn: int) -> list[Node]:
    if step.selector is None:
        target = min(max(share_of(step.nodes, total), 1), total)
        return list(left[: max(target - had_turn, 0)])
    selected = parse_label_selector(step.selector)
    return [node for node in left if selected.matches(node.name, node.labels)]


def _batch(step: int, nodes: Sequence[Node]) -> PlannedBatch:
    return PlannedBatch(step, len(nodes), tuple(node.name for node in nodes[:NAMES_LIMIT]))
