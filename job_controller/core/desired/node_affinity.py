"""Which nodes a Job is for, as the node affinity of its pods.

The scheduler and the DaemonSet controller select the nodes; this file only writes the selection
in their form. Terms are alternatives; all requirements within a term must hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.job_spec import JobSpec, NodeSelection
from job_controller.core.desired.manifest import child, children

_NOT_WINDOWS: Final = {
    "key": names.LABEL_OS,
    "operator": "NotIn",
    "values": [names.OS_WINDOWS],
}


def node_terms(nodes: NodeSelection, *, avoids_windows: bool = False) -> list[dict[str, Any]]:
    """Return the nodeSelectorTerms for a selection, empty when every node is meant.

    `avoids_windows`: no Windows node is meant, unless `include` names it. The requirement is
    `NotIn`: a node without the label runs another operating system.

    `matchFields metadata.name` takes one value a requirement: several names to include are
    several terms, several to exclude are several requirements in each term.
    """
    expressions = _expressions(nodes.selector or {})
    excluded = [_name_requirement("NotIn", name) for name in nodes.exclude]
    if nodes.include:
        # A name that is both included and excluded (the CRD refuses it) is excluded. The others
        # need no exclusion, so there are as many requirements as names.
        gone = frozenset(nodes.exclude)
        left = [name for name in nodes.include if name not in gone]
        if left:
            return [_term(expressions, [_name_requirement("In", name)]) for name in left]
        nowhere = nodes.include[0]
        return [_term((), [_name_requirement("In", nowhere), _name_requirement("NotIn", nowhere)])]
    if avoids_windows:
        expressions = [*expressions, _NOT_WINDOWS]
    term = _term(expressions, excluded)
    return [term] if term else []


def needs_linux(spec: JobSpec) -> bool:
    """Return whether the Job leaves Windows nodes out: it names no operating system and no nodes.

    An image is for one operating system, mostly Linux.
    """
    pod_spec = child(spec.template, "spec")
    if spec.nodes.include or child(pod_spec, "os"):
        return False
    chosen = [spec.nodes.selector, pod_spec.get("nodeSelector"), pod_spec.get("affinity")]
    if not any(chosen):
        return True
    return f'"{names.LABEL_OS}"' not in json.dumps(chosen)


def intersect_terms(
    ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the terms that hold where one of `ours` and one of `theirs` hold.

    A side without terms asks for nothing; a term without requirements holds nowhere, as in the
    scheduler. So an affinity in `spec.template` narrows `spec.nodes` and never widens it.
    """
    if not ours:
        return [dict(term) for term in theirs]
    if not theirs:
        return [dict(term) for term in ours]
    matchable = [
        term
        for term in theirs
        if isinstance(term, Mapping) and (term.get("matchExpressions") or term.get("matchFields"))
    ]
    if not matchable:
        return [{}]
    return [
        _term(
            [*(a.get("matchExpressions") or ()), *(b.get("matchExpressions") or ())],
            [*(a.get("matchFields") or ()), *(b.get("matchFields") or ())],
        )
        for a in ours
        for b in matchable
    ]


def _expressions(selector: Mapping[str, Any]) -> list[Any]:
    labels = child(selector, "matchLabels")
    return [
        *({"key": key, "operator": "In", "values": [labels[key]]} for key in sorted(labels)),
        *children(selector, "matchExpressions"),
    ]


def _name_requirement(operator: str, name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def _term(expressions: Sequence[Any], fields: Sequence[Any]) -> dict[str, Any]:
    term: dict[str, Any] = {}
    if expressions:
        term["matchExpressions"] = list(expressions)
    if fields:
        term["matchFields"] = list(fields)
    return term
