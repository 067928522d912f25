"""Nodes that a Job selects and does not run on.

They run Windows, have a taint that the pods do not tolerate, or are named in `spec.nodes.include`
and do not exist. The DaemonSet controller does not count such nodes. Without this, "2 of 2 nodes
completed" would hide a third node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.fold_names import fold
from daemonset_job.api.node import Node
from daemonset_job.api.taints import Taint
from job_controller.core.desired.node_affinity import needs_linux
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import single_line

# Reasons that a message lists; a reason has a name and a value, both of a taint.
_LISTED_CAUSES: Final = 3
_WINDOWS: Final = f"{names.LABEL_OS}={names.OS_WINDOWS}"
_NO_NODE: Final = "there is no such node"


def find_skipped(
    snapshot: Snapshot, ledger: Mapping[str, Evidence], counted: Container[str]
) -> dict[str, str]:
    """Return why each skipped node is skipped, by its name: "taint gpu=yes:NoSchedule".

    `counted` are the nodes that count already. A node that has completed is not skipped, whatever
    taint it got since, or if it was deleted. Nodes without a reason cost next to nothing.
    """
    daemon_set = snapshot.owned_daemon_set
    if daemon_set is None:
        return {}
    affinity, tolerations = snapshot.affinity, snapshot.tolerations
    avoids_windows = needs_linux(snapshot.job.spec)
    skipped = {
        name: _NO_NODE
        for name in snapshot.job.spec.nodes.include
        if not (name in snapshot.nodes or name in counted or name in ledger)
    }
    for name, node in snapshot.nodes.items():
        is_windows = avoids_windows and node.labels.get(names.LABEL_OS) == names.OS_WINDOWS
        if not (node.taints or is_windows) or name in counted or _has_completed(node, ledger):
            continue
        taints = tolerations.untolerated(node.taints)
        if not (taints or is_windows):
            continue
        labels = {key: value for key, value in node.labels.items() if key != names.LABEL_OS}
        if affinity.matches(name, labels if is_windows else node.labels):
            skipped[name] = _WINDOWS if is_windows else _describe(taints[0])
    return skipped


def is_kept_off(cause: str) -> bool:
    """Return whether a skipped node with this cause exists."""
    return cause != _NO_NODE


def describe_skipped(skipped: Mapping[str, str]) -> str:
    """Return "2 nodes skipped (a: taint gpu=yes:NoSchedule; b: kubernetes.io/os=windows)"."""
    by_cause: dict[str, list[str]] = defaultdict(list)
    for name, cause in skipped.items():
        by_cause[cause].append(name)
    most = sorted(by_cause.items(), key=lambda item: (-len(item[1]), item))
    causes = "; ".join(
        f"{fold(found, limit=100)}: {single_line(cause, 160)}"
        for cause, found in most[:_LISTED_CAUSES]
    )
    rest = len(most) - _LISTED_CAUSES
    more = f"; and {rest} more reasons" if rest > 0 else ""
    return f"{len(skipped)} {'node' if len(skipped) == 1 else 'nodes'} skipped ({causes}{more})"


def _has_completed(node: Node, ledger: Mapping[str, Evidence]) -> bool:
    evidence = ledger.get(node.name)
    return evidence is not None and evidence.completes(node.uid)


def _describe(taint: Taint) -> str:
    """Return a taint as `kubectl describe node` shows it."""
    value = f"={taint.value}" if taint.value else ""
    return f"taint {taint.key}{value}:{taint.effect}"
