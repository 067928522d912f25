"""What a Job changes on a node once its task has completed: `spec.onSuccess`, and `results`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from daemonset_job.api.names import LABEL_VALUE_LIMIT
from daemonset_job.api.shape import STRING, STRINGS, fields, list_of

ON_SUCCESS_SHAPE: Final = fields(labels=STRINGS, annotations=STRINGS, removeTaints=list_of(STRING))

# apimachinery pkg/util/validation, IsValidLabelValue.
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


@dataclass(frozen=True, slots=True)
class OnSuccess:
    """The changes of a node whose task has completed.

    `labels` and `annotations` are set, and all taints with a key of `remove_taints` are removed.
    `result_labels` and `result_annotations` are the keys to which a result goes, by its name.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    remove_taints: tuple[str, ...] = ()
    result_labels: Mapping[str, str] = field(default_factory=dict)
    result_annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_nodes(self) -> bool:
        """Whether a completed node is changed at all."""
        return bool(self.labels or self.annotations or self.remove_taints or self.result_names)

    @property
    def result_names(self) -> frozenset[str]:
        """The names of the results that go to a label or an annotation."""
        return frozenset(self.result_labels) | frozenset(self.result_annotations)


NO_CHANGES: Final = OnSuccess()


def parse_on_success(raw: Mapping[str, Any]) -> OnSuccess:
    """Return what the raw spec of a Job changes on nodes. Never raises for the spec's shape."""
    found = raw.get("onSuccess") or {}
    results = [each for each in raw.get("results") or () if each.get("name")]
    return OnSuccess(
        labels=found.get("labels") or {},
        annotations=found.get("annotations") or {},
        remove_taints=tuple(found.get("removeTaints") or ()),
        result_labels={each["name"]: each["label"] for each in results if each.get("label")},
        result_annotations={
            each["name"]: each["annotation"] for each in results if each.get("annotation")
        },
    )


def is_label_value(text: str) -> bool:
    """Return whether a text can be the value of a label."""
    return len(text) <= LABEL_VALUE_LIMIT and _LABEL_VALUE.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What is to change on one node, which is still the one with this UID, for one completion."""

    name: str
    uid: str
    completion_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    remove_taints: tuple[str, ...] = ()


def build_node_patch(raw: Mapping[str, Any], change: NodeChange) -> dict[str, Any]:
    """Return the merge patch of a raw node that makes the change, empty if nothing is to be done.

    One that removes taints holds for this version of the node only. The list is written as a whole,
    and a taint that was added meanwhile must not be lost.
    """
    meta = raw.get("metadata") or {}
    patch: dict[str, Any] = {}
    for part, wanted in (("labels", change.labels), ("annotations", change.annotations)):
        known = meta.get(part) or {}
        if missing := {key: value for key, value in wanted.items() if known.get(key) != value}:
            patch[part] = missing
    taints = (raw.get("spec") or {}).get("taints") or []
    kept = [taint for taint in taints if taint.get("key") not in change.remove_taints]
    if len(kept) == len(taints):
        return {"metadata": {"uid": change.uid, **patch}} if patch else {}
    version = meta.get("resourceVersion") or ""
    return {
        "metadata": {"uid": change.uid, "resourceVersion": version, **patch},
        "spec": {"taints": kept or None},
    }
