"""The nodes that a LabelSelector selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemonset_job.api.affinity import REQUIRED, NodeAffinity


def parse_label_selector(selector: Mapping[str, Any] | None) -> NodeAffinity:
    """Return a raw LabelSelector as node affinity; None and an empty one match every node.

    The operators of its expressions (In, NotIn, Exists, DoesNotExist) mean the same in both.
    """
    found = selector or {}
    pod_spec: dict[str, Any] = {"nodeSelector": found.get("matchLabels") or {}}
    if expressions := found.get("matchExpressions"):
        required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        pod_spec["affinity"] = {"nodeAffinity": {REQUIRED: required}}
    return NodeAffinity(pod_spec)


def selector_keys(selector: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the keys of the labels that a raw LabelSelector names."""
    found = selector or {}
    expressions = found.get("matchExpressions") or ()
    return frozenset(found.get("matchLabels") or ()) | {
        str(rule.get("key")) for rule in expressions
    }


def selector_text(selector: Mapping[str, Any]) -> str:
    """Return a raw LabelSelector as the text of a label selector; "" selects everything.

    What makes no sense selects nothing: the API server refuses such a text.
    """
    labels = sorted((selector.get("matchLabels") or {}).items())
    parts = [f"{key}={value}" for key, value in labels]
    for rule in selector.get("matchExpressions") or ():
        key, values = str(rule.get("key")), ",".join(map(str, rule.get("values") or ()))
        match rule.get("operator"):
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case other:
                parts.append(f"{key} {other}")
    return ",".join(parts)
