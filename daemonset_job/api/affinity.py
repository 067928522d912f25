"""Whether a pod's node selector and required node affinity match a node: labels and name only.

The rules are those of the scheduler (k8s.io/component-helpers scheduling/corev1/nodeaffinity).
Taints are not checked: a node that does not match here is certainly not desired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from daemonset_job.api.label_terms import LabelTerms

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
# An object that selects nodes by more labels than this is found by ANY_LABEL alone, which is no
# label.
LABELS_LIMIT: Final = 32
ANY_LABEL: Final = "*"


class NodeAffinity:
    """Node selector and required node affinity of a raw pod spec, made ready for many nodes.

    Thousands of terms, names or values cost no more for each node than a few, see `LabelTerms`.
    """

    def __init__(self, pod_spec: Mapping[str, Any]) -> None:
        """Read the parts of a pod's spec that choose nodes by label and name."""
        self._selector: Mapping[str, str] = _part(pod_spec, "nodeSelector")
        required = _part(_part(_part(pod_spec, "affinity"), "nodeAffinity"), REQUIRED)
        self._is_open = not required
        self._by_label, self._by_name = LabelTerms(), LabelTerms()
        self._terms = 0
        for number, raw in enumerate(required.get("nodeSelectorTerms") or ()):
            expressions, names = raw.get("matchExpressions") or (), raw.get("matchFields") or ()
            if not expressions and not names:
                continue  # an empty term matches no node
            term = 1 << number
            self._terms |= term
            self._by_label.add(term, expressions)
            self._by_name.add(term, names)

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the pods may run on a node of that name and those labels."""
        if any(labels.get(key) != value for key, value in self._selector.items()):
            return False
        if self._is_open:
            return True
        failing = self._by_name.failing({"metadata.name": name})
        if not self._terms & ~failing:
            return False
        return bool(self._terms & ~(failing | self._by_label.failing(labels)))


def label_keys(pod_spec: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the node labels that the pods' node selector and required affinity name.

    A node whose other labels change matches as it did before.
    """
    required = _part(_part(_part(pod_spec, "affinity"), "nodeAffinity"), REQUIRED)
    return frozenset(_part(pod_spec, "nodeSelector")) | frozenset(
        str(rule.get("key"))
        for term in required.get("nodeSelectorTerms") or ()
        for rule in term.get("matchExpressions") or ()
    )


def indexed_labels(keys: frozenset[str]) -> frozenset[str]:
    """Return by which labels an object is indexed that selects nodes by these: ANY_LABEL if many.

    An index costs some 300 bytes a label, and tenants may write thousands into each object.
    """
    return keys if len(keys) <= LABELS_LIMIT else frozenset({ANY_LABEL})


def changed_labels(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Return the labels by which objects are found that the change of a node may concern."""
    changed = sorted(changed_keys(old, new))
    return (*changed, ANY_LABEL) if changed else ()


def changed_keys(old: Mapping[str, str], new: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of the labels that one of two sets of labels lacks or has otherwise."""
    if old == new:
        return frozenset()
    return frozenset(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _part(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return an object inside another one, empty where there is none."""
    found = raw.get(key)
    return found if isinstance(found, Mapping) else {}
