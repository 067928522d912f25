"""Whether a pod's node selector and required node affinity match a node: labels and name only.

The rules are those of the scheduler (k8s.io/component-helpers scheduling/corev1/nodeaffinity).
Taints are not looked at: a node that does not match here is certainly not wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node(pod_spec: Mapping[str, Any], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether pods of this raw spec may run on a node of that name and those labels."""
    selector = pod_spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    node_affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node_affinity.get(REQUIRED)
    if not required:
        return True
    terms = required.get("nodeSelectorTerms") or ()
    return any(_matches_term(term, {"metadata.name": name}, labels) for term in terms)


def _matches_term(
    term: Mapping[str, Any], fields: Mapping[str, str], labels: Mapping[str, str]
) -> bool:
    expressions, names = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not names:
        return False  # an empty term matches no node
    return all(_holds(rule, labels) for rule in expressions) and all(
        _holds(rule, fields) for rule in names
    )


def _holds(rule: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    """Return whether one requirement holds; one that makes no sense holds nowhere."""
    value, allowed = values.get(str(rule.get("key"))), list(rule.get("values") or ())
    match rule.get("operator"):
        case "In":
            return value in allowed
        case "NotIn":
            return value not in allowed
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return _compares(operator, value, allowed)
    return False


def _compares(operator: str, value: str | None, allowed: list[Any]) -> bool:
    try:
        number, bound = int(value or ""), int(allowed[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else number < bound
