"""Which pods leave a node that is drained, which stay, and which must not be evicted.

The rules are those of kubectl drain (k8s.io/kubectl pkg/drain/filters.go), with two differences:
pods that have ended stay, since nothing of them runs, and so do this system's own. A controller
that evicts itself may find no other node to run on, and then this one stays cordoned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.drain import Drain
from daemonset_job.api.drained_pod import DrainedPod
from daemonset_job.api.label_selector import parse_label_selector
from job_controller.core.text.sanitize import single_line

# Names of pods in a message, in characters, and of how many the answer of the API server is quoted.
_NAMES_LIMIT: Final = 300
_QUOTED: Final = 3
_QUOTE_LIMIT: Final = 200
_RETURNS: Final = (
    "pods that tolerate cordons may come back (spec.drain.podSelector can leave them out)"
)


@dataclass(frozen=True, slots=True)
class NodeDrain:
    """The pods that have yet to leave a node, as the API server has just listed them.

    `leaving` are those that are evicted or are being deleted, `refused` those that must not be
    evicted, each with the reason. `answers` is why the API server did not evict a pod, by its UID.
    `due` are the pods whose eviction is to be requested now. `tried_seconds` is how long ago this
    controller, which may have been away, requested the first one on this node; None for never.
    """

    leaving: tuple[DrainedPod, ...] = ()
    refused: tuple[tuple[DrainedPod, str], ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    due: tuple[DrainedPod, ...] = ()
    tried_seconds: float | None = math.inf

    @property
    def is_done(self) -> bool:
        """Whether all pods that are to leave have left."""
        return not self.leaving and not self.refused

    @property
    def is_blocked(self) -> bool:
        """Whether the API server has refused to evict a pod that is still there."""
        return any(pod.uid in self.answers for pod in self.leaving)


NO_DRAIN: Final = NodeDrain()


def judge_pods(pods: Iterable[DrainedPod], drain: Drain, system_namespace: str) -> NodeDrain:
    """Return which of the pods of a node are to leave it, and which must not be evicted."""
    selector = parse_label_selector(drain.pod_selector)
    leaving: list[DrainedPod] = []
    refused: list[tuple[DrainedPod, str]] = []
    for pod in sorted(pods, key=lambda each: each.path):
        is_selected = pod.is_unreadable or selector.matches(pod.name, pod.labels)
        if _stays(pod, system_namespace) or not is_selected:
            continue
        if why := _why_refused(pod, drain):
            refused.append((pod, why))
        else:
            leaving.append(pod)
    return NodeDrain(tuple(leaving), tuple(refused))


def _stays(pod: DrainedPod, system_namespace: str) -> bool:
    is_system = (
        pod.namespace == system_namespace and pod.labels.get(names.LABEL_APP) in names.SYSTEM_APPS
    )
    return pod.is_mirror or pod.has_ended or pod.controller_kind == "DaemonSet" or is_system


def _why_refused(pod: DrainedPod, drain: Drain) -> str:
    """Return why the pod must not be evicted, "" if it may be."""
    if pod.is_unreadable:
        return "their JSON cannot be read (delete them)"
    if pod.is_terminating:
        return ""  # it is leaving in any case
    if not pod.controller_kind and not drain.force:
        return "no controller creates them again (spec.drain.force evicts them)"
    if pod.has_empty_dir and not drain.delete_empty_dir_data:
        return "they have an emptyDir (spec.drain.deleteEmptyDirData evicts them)"
    return ""


def ends_at(started_at: datetime, drain: Drain) -> datetime:
    """Return when the drain of a node times out."""
    return started_at + timedelta(seconds=drain.timeout_seconds)


def describe_refused(found: NodeDrain) -> str:
    """Return which pods must not be evicted and why."""
    by_why: dict[str, list[str]] = {}
    for pod, why in found.refused:
        by_why.setdefault(why, []).append(pod.path)
    parts = (f"{_listed(paths)}: {why}" for why, paths in sorted(by_why.items()))
    return f"none of its pods was evicted, because of {'; '.join(parts)}"


def describe_left(found: NodeDrain) -> str:
    """Return which pods have not left yet, and what the API server says of their evictions."""
    paths = _listed([pod.path for pod in found.leaving])
    count = len(found.leaving)
    words = f"{count} {'pod has' if count == 1 else 'pods have'} not left it yet ({paths})"
    answers: dict[str, str] = {}
    for pod in found.leaving:
        if answer := found.answers.get(pod.uid):
            answers.setdefault(single_line(answer, _QUOTE_LIMIT), pod.path)
    quoted = [f"{path}: {answer}" for answer, path in list(answers.items())[:_QUOTED]]
    if not quoted and any(pod.tolerates_cordon and pod.controller_kind for pod in found.leaving):
        quoted = [_RETURNS]
    return "; ".join((words, *quoted))


def _listed(paths: Sequence[str]) -> str:
    """Return the paths of pods, cut with the number that is left out."""
    shown: list[str] = []
    for path in paths:
        if shown and len(", ".join((*shown, path))) > _NAMES_LIMIT:
            return f"{', '.join(shown)} and {len(paths) - len(shown)} more"
        shown.append(path)
    return ", ".join(shown)
