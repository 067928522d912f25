"""The scheduler's rules: which pods it takes, whether a node fits, and the condition it writes."""

from collections.abc import Mapping
from typing import Any

from tests.fakekube.conditions import condition, find_condition, with_condition
from tests.fakekube.daemon_sets import Raw, is_deleting, placement

# FitError in pkg/scheduler/framework/types.go, of a pod that one node may take. The scheduler says
# NO_NODE as well of a pod whose node has gone.
TAINTED_NODE = "0/1 nodes are available: 1 node(s) had untolerated taint(s)"
NO_NODE = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector"


def may_bind(pod: Raw) -> bool:
    """Return whether a raw pod waits for a node: unbound, without a gate, and not being deleted.

    The plugin SchedulingGates, and skipPodSchedule in pkg/scheduler/schedule_one.go.
    """
    spec = pod["spec"]
    return not (spec.get("nodeName") or spec.get("schedulingGates") or is_deleting(pod))


def fits(pod: Raw, node: Raw) -> bool:
    """Return whether a raw node takes a raw pod of a DaemonSet, as far as resources do not matter.

    The filters NodeName, NodeAffinity, NodeUnschedulable and TaintToleration.
    """
    return placement(pod, node).should_run


def scheduled() -> Raw:
    """Return the condition of a pod that is bound to a node."""
    return condition("PodScheduled", "True")


def unschedulable(status: Raw | None, message: str, at: str) -> Mapping[str, Any] | None:
    """Return the status of a pod that no node takes, None if its status says so already.

    handleSchedulingFailure in pkg/scheduler/schedule_one.go, and UpdatePodCondition.
    """
    if find_condition(status, "PodScheduled").get("message") == message:
        return None
    new = condition("PodScheduled", "False", "Unschedulable", message, at)
    found = status or {}
    return {**found, "conditions": with_condition(found.get("conditions"), new)}
