"""What a Job asks for before a node's turn: `spec.cordon` and `spec.drain`; and the cordon's mark.

The mark is an annotation of the node. It says which Job cordoned it, and is written in the patch
that cordons. So it shows whose cordon it is, also when that Job is gone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.shape import BOOLEAN, NUMBER, REQUIREMENTS, STRINGS, fields

DRAIN_SHAPE: Final = fields(
    gracePeriodSeconds=NUMBER,
    timeoutSeconds=NUMBER,
    deleteEmptyDirData=BOOLEAN,
    force=BOOLEAN,
    podSelector=fields(matchLabels=STRINGS, matchExpressions=REQUIREMENTS),
)
DEFAULT_TIMEOUT_SECONDS: Final = 600
# A day: the CRD's maximum.
TIMEOUT_LIMIT_SECONDS: Final = 86_400

# <namespace>/<name>/<UID> of a Job.
_MARK: Final = re.compile(
    r"([a-z0-9][-a-z0-9]{0,62})/([a-z0-9][-a-z0-9.]{0,252})/([-a-z0-9]{1,64})"
)


@dataclass(frozen=True, slots=True)
class Drain:
    """How pods leave a node before its turn.

    `grace_period_seconds` None is that of each pod. `delete_empty_dir_data`: pods with an emptyDir
    are evicted too. `force`: so are pods that no controller creates again. `pod_selector` is a raw
    LabelSelector; None selects all pods.
    """

    grace_period_seconds: int | None = None
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    delete_empty_dir_data: bool = False
    force: bool = False
    pod_selector: Mapping[str, Any] | None = None


def parse_drain(raw: Mapping[str, Any] | None) -> Drain | None:
    """Return the drain of a Job's spec, None if it has none. Never raises for DRAIN_SHAPE."""
    if raw is None:
        return None
    timeout = raw.get("timeoutSeconds")
    seconds = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
    return Drain(
        grace_period_seconds=raw.get("gracePeriodSeconds"),
        timeout_seconds=max(1, min(seconds, TIMEOUT_LIMIT_SECONDS)),
        delete_empty_dir_data=bool(raw.get("deleteEmptyDirData")),
        force=bool(raw.get("force")),
        pod_selector=raw.get("podSelector"),
    )


@dataclass(frozen=True, slots=True)
class CordonMark:
    """Which Job cordoned a node."""

    namespace: str
    job_name: str
    job_uid: str

    def __str__(self) -> str:
        """Return the value of the annotation."""
        return f"{self.namespace}/{self.job_name}/{self.job_uid}"


def parse_mark(text: str) -> CordonMark | None:
    """Return what the annotation of a node says, None if no controller has written that."""
    found = _MARK.fullmatch(text)
    return CordonMark(found[1], found[2], found[3]) if found is not None else None


def build_cordon(raw: Mapping[str, Any], uid: str, mark: CordonMark) -> dict[str, Any]:
    """Return the merge patch that cordons a raw node, empty if it is cordoned or marked already.

    It holds for this version of the node only: if another client cordons it meanwhile, that cordon
    is not ours, and must not be lifted later.
    """
    meta = raw.get("metadata") or {}
    known = (meta.get("annotations") or {}).get(names.ANNOTATION_CORDONED_BY) or ""
    if parse_mark(known) is not None or (raw.get("spec") or {}).get("unschedulable"):
        return {}
    annotations = {names.ANNOTATION_CORDONED_BY: str(mark)}
    return {
        "metadata": {
            "uid": uid,
            "resourceVersion": meta.get("resourceVersion") or "",
            "annotations": annotations,
        },
        "spec": {"unschedulable": True},
    }


def build_uncordon(raw: Mapping[str, Any], mark: CordonMark) -> dict[str, Any]:
    """Return the merge patch that lifts this cordon of a raw node, empty if it is there no more.

    It holds for this version of the node only. A cordon without the mark is that of a person.
    """
    meta = raw.get("metadata") or {}
    if (meta.get("annotations") or {}).get(names.ANNOTATION_CORDONED_BY) != str(mark):
        return {}
    return {
        "metadata": {
            "uid": meta.get("uid") or "",
            "resourceVersion": meta.get("resourceVersion") or "",
            "annotations": {names.ANNOTATION_CORDONED_BY: None},
        },
        "spec": {"unschedulable": None},
    }
