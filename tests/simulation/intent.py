"""The nodes that a user asked for, computed from a Job's spec and the nodes only.

No object that the product made is used. Unlike the product, which builds node affinity, this code
matches `spec.nodes` with one node at a time. `spec.template` and taints are evaluated by the rules
of the DaemonSet controller (`tests.fakekube.daemon_sets`).
"""

from collections.abc import Collection, Iterable

from tests.fakekube import daemon_sets, selectors
from tests.fakekube.daemon_sets import Placement
from tests.simulation.server import Raw

_NOWHERE = Placement(should_run=False, should_continue=False)


def selects(selection: Raw, node: Raw) -> bool:
    """Return whether `spec.nodes` of a Job means a raw node."""
    name = node["metadata"]["name"]
    if selection.get("include") and name not in selection["include"]:
        return False
    if name in (selection.get("exclude") or ()):
        return False
    return has_labels(selection.get("selector") or {}, node)


def has_labels(selector: Raw, node: Raw) -> bool:
    """Return whether a label selector matches a raw node."""
    labels = node["metadata"].get("labels") or {}
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    return all(selectors.matches(r, labels) for r in selector.get("matchExpressions") or ())


def placement(spec: Raw, node: Raw) -> Placement:
    """Return whether a Job of this raw spec is to start, or may go on, on a raw node."""
    if not selects(spec.get("nodes") or {}, node):
        return _NOWHERE
    return daemon_sets.placement(spec.get("template") or {}, node)


def matches(spec: Raw, node: Raw) -> bool:
    """Return whether a Job of this raw spec means a raw node, whatever its taints."""
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return selects(spec.get("nodes") or {}, node) and daemon_sets.fits(pod_spec, node)


def selection(spec: Raw) -> tuple[Raw, Raw, Raw]:
    """Return all that chooses nodes by label or name in a Job of this raw spec."""
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return (
        spec.get("nodes") or {},
        pod_spec.get("nodeSelector") or {},
        pod_spec.get("affinity") or {},
    )


def is_held(spec: Raw, node: Raw) -> bool:
    """Return whether nothing but its own condition keeps pods of the Job off a raw node."""
    template = spec.get("template") or {}
    keys = [taint["key"] for taint in daemon_sets.keeping_off(template, node)]
    return (
        matches(spec, node)
        and bool(keys)
        and all(key.startswith("node.kubernetes.io/") for key in keys)
    )


def desired_nodes(
    spec: Raw,
    nodes: Iterable[Raw],
    occupied: Collection[str],
    begun: Collection[str] = (),
) -> dict[str, str]:
    """Return the UIDs, by name, of the nodes that a Job of this raw spec is for.

    `occupied` are names of nodes with a pod of the Job. A taint NoSchedule that came after the pod
    lets it stay, and the node has still to complete. `begun` are UIDs of nodes that have begun.
    Such a node has still to complete although its own condition keeps pods off it.
    """
    found = {}
    for node in nodes:
        name, wish = node["metadata"]["name"], placement(spec, node)
        uid = node["metadata"]["uid"]
        is_begun = uid in begun and is_held(spec, node)
        if wish.should_run or (wish.should_continue and name in occupied) or is_begun:
            found[name] = uid
    return found
