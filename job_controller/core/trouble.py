"""What keeps a run from getting on, in words for the person who has to mend it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from job_controller.core.fold import fold
from job_controller.core.snapshot import Snapshot
from job_controller.core.tally import (
    COMPLETED,
    CRASH_REASON,
    IMAGE_REASONS,
    START_REASONS,
    NodeTally,
    Tally,
)

# Long enough for an image reference and a registry's sentence, short enough for `kubectl get`.
_DETAIL_LIMIT = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason (CamelCase, for machines) and a message (for people)."""

    reason: str
    message: str


def find_trouble(snapshot: Snapshot, tally: Tally) -> Trouble | None:
    """Return the first thing that has to change before the run can get on, None when nothing.

    Ordered by what hides the rest: without a DaemonSet there are no pods, without pods no
    containers.
    """
    return (
        _daemon_set_trouble(snapshot)
        or _placement_trouble(snapshot, tally)
        or _container_trouble(tally)
    )


def _daemon_set_trouble(snapshot: Snapshot) -> Trouble | None:
    if snapshot.refusal:
        return Trouble(
            "DaemonSetRefused",
            f"the API server refuses the DaemonSet: {_brief(snapshot.refusal)}",
        )
    found = snapshot.daemon_set
    if found is None or found.owner_uid == snapshot.job.uid:
        return None
    if found.owner_uid:
        return Trouble(
            "PreviousRunEnding",
            f"DaemonSet {found.name} of an earlier Job of this name is still being removed",
        )
    return Trouble(
        "NameTaken",
        f"a DaemonSet {found.name} exists that is not this Job's: delete or rename it, or give "
        "the Job another name",
    )


def _placement_trouble(snapshot: Snapshot, tally: Tally) -> Trouble | None:
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None or not daemon_set.is_observed:
        return None
    if tally.desired == 0:
        return Trouble(
            "NoMatchingNodes",
            "no node matches (spec.nodes, taints not tolerated by spec.template); the Job waits "
            "for one to join",
        )
    missing = tally.desired - len(tally.nodes)
    if missing > 0 and snapshot.pods_refused:
        return Trouble(
            "PodsRefused",
            f"{missing} of {tally.desired} pods cannot be created: {_brief(snapshot.pods_refused)}",
        )
    return None


def _container_trouble(tally: Tally) -> Trouble | None:
    by_reason: dict[str, list[NodeTally]] = defaultdict(list)
    for node in tally.nodes.values():
        if reason := _pod_reason(node):
            by_reason[reason].append(node)
    for reason, words in (
        ("ImagePullFailed", "cannot get the image"),
        ("ContainerStartFailed", "cannot start the container"),
        ("Unschedulable", "have no room for the pod"),
        ("TaskFailing", "see the task fail and be started again"),
    ):
        nodes = by_reason.get(reason)
        if nodes:
            names = fold((node.name for node in nodes), limit=_DETAIL_LIMIT)
            return Trouble(
                reason,
                f"{len(nodes)} of {tally.desired} nodes {words} ({names}): {_detail(nodes[0])}",
            )
    return None


def _pod_reason(node: NodeTally) -> str:
    pod = node.pod
    if node.state == COMPLETED or pod is None:
        return ""
    container = pod.container
    waiting = container.reason if container is not None and container.state == "waiting" else ""
    if waiting in IMAGE_REASONS:
        return "ImagePullFailed"
    if waiting in START_REASONS:
        return "ContainerStartFailed"
    if waiting == CRASH_REASON:
        return "TaskFailing"
    return "Unschedulable" if pod.unschedulable else ""


def _detail(node: NodeTally) -> str:
    pod = node.pod
    container = pod.container if pod is not None else None
    if container is None:
        return _brief(pod.unschedulable if pod is not None else "")
    if container.reason == CRASH_REASON:
        return f"exit code {container.last_exit_code} after {container.restart_count + 1} attempts"
    return _brief(container.message or container.reason)


def _brief(text: str) -> str:
    """Return `text` on one line, without control characters, cut to a readable length."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _DETAIL_LIMIT else f"{line[: _DETAIL_LIMIT - 1]}…"
