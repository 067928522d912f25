"""What a Job asks of nodes, in words: "spec.nodes (role=search) and the nodeSelector of ..."."""

from __future__ import annotations

from typing import Any, Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job_spec import JobSpec
from job_controller.core.desired.manifest import child, children
from job_controller.core.text.sanitize import single_line

_LIMIT: Final = 300


def describe_selection(spec: JobSpec) -> str:
    """Return the fields that select nodes, with the labels and names of `spec.nodes`."""
    nodes, pod_spec = spec.nodes, child(spec.template, "spec")
    selector = nodes.selector or {}
    parts = [
        *(f"{key}={value}" for key, value in sorted(child(selector, "matchLabels").items())),
        *(_requirement(rule) for rule in children(selector, "matchExpressions")),
    ]
    if nodes.include:
        parts.append(f"include {fold(nodes.include, limit=100)}")
    if nodes.exclude:
        parts.append(f"exclude {fold(nodes.exclude, limit=100)}")
    words = f"spec.nodes ({single_line(', '.join(parts), _LIMIT)})" if parts else ""
    theirs = [
        f"the {field} of spec.template"
        for field in ("nodeSelector", "affinity")
        if pod_spec.get(field)
    ]
    return " and ".join([*([words] if words else []), *theirs]) or "the Job"


def _requirement(rule: Any) -> str:
    """Return one requirement of a label selector as kubectl writes it: "zone in (a,b)"."""
    key, operator = rule.get("key"), str(rule.get("operator"))
    values = ",".join(str(value) for value in rule.get("values") or ())
    words = {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": f"{key}",
        "DoesNotExist": f"!{key}",
    }
    return words.get(operator, f"{key} {operator} {values}")
