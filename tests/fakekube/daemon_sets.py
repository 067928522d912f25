"""The DaemonSet controller's rules as pure functions of raw objects.

Every ring that needs a DaemonSet controller takes its decisions from here and carries them out in
its own way. The rules are those of Kubernetes 1.34 (pkg/controller/daemon/daemon_controller.go and
pkg/controller/daemon/util/daemonset_util.go); each function names the one that it follows.

Not modelled: rolling updates (the product uses OnDelete), surge, and minReadySeconds.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.fakekube.selectors import matches

Raw = Mapping[str, Any]

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMINAL = frozenset({"Succeeded", "Failed"})
# util.AddOrUpdateDaemonPodTolerations: taint keys and effects that every daemon pod tolerates.
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Placement:
    """What the DaemonSet controller wants on one node (`NodeShouldRunDaemonPod`).

    `should_run`: a pod is to be created where there is none. `should_continue`: a pod that is
    there may stay. An untolerated NoSchedule taint gives (False, True).
    """

    should_run: bool
    should_continue: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """The outcome of one sync of a DaemonSet.

    `create` are the names of nodes that need a pod, `delete` the pods to delete. `counts` are the
    counters of the status (`updateDaemonSetStatus`), of the pods as they were before the sync.
    """

    create: tuple[str, ...]
    delete: tuple[Raw, ...]
    counts: Mapping[str, int]


def placement(template: Raw, node: Raw) -> Placement:
    """Return whether pods of this raw pod template belong on a raw node."""
    spec = template.get("spec") or {}
    name = node["metadata"]["name"]
    if spec.get("nodeName") not in (None, "", name) or not fits(spec, node):
        return Placement(should_run=False, should_continue=False)
    effects = {taint["effect"] for taint in keeping_off(template, node)}
    return Placement(should_run=not effects, should_continue="NoExecute" not in effects)


def keeping_off(template: Raw, node: Raw) -> list[Raw]:
    """Return the raw taints of a raw node that keep pods of this raw pod template off it."""
    taints, spec = (node.get("spec") or {}).get("taints") or (), template.get("spec") or {}
    hard = [taint for taint in taints if taint["effect"] in {"NoSchedule", "NoExecute"}]
    return [taint for taint in hard if not _is_tolerated(taint, spec)]


def fits(spec: Raw, node: Raw) -> bool:
    """Return whether nodeSelector and required node affinity of a pod's spec match a raw node."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(REQUIRED)
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(matches(rule, labels) for rule in term.get("matchExpressions") or ())
        and all(matches(rule, fields) for rule in term.get("matchFields") or ())
        for term in required.get("nodeSelectorTerms") or ()
    )


def sync(
    daemon_set: Raw,
    nodes: Sequence[Raw],
    pods: Iterable[Raw],
    stays: Callable[[Raw], bool] = lambda _pod: False,
) -> Sync:
    """Return what the DaemonSet controller does for a raw DaemonSet, and what its status counts.

    `pods` are those that the DaemonSet controls. The order of the results follows `nodes`. `stays`
    is asked of each failed pod on a node where pods may stay: whether its back-off keeps it.
    """
    template = daemon_set["spec"]["template"]
    by_node: dict[str, list[Raw]] = defaultdict(list)
    for pod in pods:
        if not (is_terminal(pod) and is_deleting(pod)):
            by_node[node_of(pod)].append(pod)
    create: list[str] = []
    delete: list[Raw] = []
    counts = {"desiredNumberScheduled": 0, "currentNumberScheduled": 0, "numberMisscheduled": 0}
    for node in nodes:
        name = node["metadata"]["name"]
        wish, there = placement(template, node), by_node.get(name, [])
        if wish.should_run:
            counts["desiredNumberScheduled"] += 1
            counts["currentNumberScheduled"] += bool(there)
        else:
            counts["numberMisscheduled"] += bool(there)
        if wish.should_run and not there:
            create.append(name)
        elif wish.should_continue:
            delete += _surplus(there, stays)
        else:
            delete += [pod for pod in there if not is_deleting(pod)]
    known = {node["metadata"]["name"] for node in nodes}
    delete += [
        pod
        for name, there in by_node.items()
        if name not in known
        for pod in there
        if not pod["spec"].get("nodeName") and not is_deleting(pod)
    ]
    return Sync(tuple(create), tuple(delete), counts)


def desired_nodes(template: Raw, nodes: Iterable[Raw]) -> dict[str, str]:
    """Return the UIDs, by name, of the nodes on which pods of this template should run."""
    return {
        node["metadata"]["name"]: node["metadata"]["uid"]
        for node in nodes
        if placement(template, node).should_run
    }


def node_of(pod: Raw) -> str:
    """Return the node that a raw pod is bound to or, while it is unbound, created for.

    util.GetTargetNodeName: the one value of `matchFields metadata.name` in its node affinity.
    """
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    for term in (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ():
        for rule in term.get("matchFields") or ():
            if rule["key"] == "metadata.name" and len(rule.get("values") or ()) == 1:
                return str(rule["values"][0])
    return ""


def is_terminal(pod: Raw) -> bool:
    """Return whether the phase of a raw pod is Succeeded or Failed."""
    return (pod.get("status") or {}).get("phase") in _TERMINAL


def has_failed(pod: Raw) -> bool:
    """Return whether the phase of a raw pod is Failed."""
    return bool((pod.get("status") or {}).get("phase") == "Failed")


def is_deleting(pod: Raw) -> bool:
    """Return whether a raw pod has a deletionTimestamp."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def _surplus(pods: Sequence[Raw], stays: Callable[[Raw], bool]) -> list[Raw]:
    """Return the pods of one node that go: ended ones, and all but the oldest of the rest."""
    living = [pod for pod in pods if not is_deleting(pod)]
    ended = [pod for pod in living if is_terminal(pod) and not (has_failed(pod) and stays(pod))]
    running = sorted(
        (pod for pod in living if not is_terminal(pod)),
        key=lambda pod: (not pod["spec"].get("nodeName"), pod["metadata"]["creationTimestamp"]),
    )
    return [*ended, *running[1:]]


def _is_tolerated(taint: Raw, spec: Raw) -> bool:
    tolerated = (*_TOLERATED, _NETWORK) if spec.get("hostNetwork") else _TOLERATED
    if (taint["key"], taint["effect"]) in tolerated:
        return True
    return any(_tolerates(toleration, taint) for toleration in spec.get("tolerations") or ())


def _tolerates(toleration: Raw, taint: Raw) -> bool:
    """k8s.io/api core/v1 Toleration.ToleratesTaint: empty effect and empty key match all."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator") == "Exists":
        return True
    has_key = bool(toleration.get("key"))
    return has_key and (toleration.get("value") or "") == (taint.get("value") or "")
