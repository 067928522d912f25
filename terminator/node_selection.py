"""Checks whether a DaemonSet selects all nodes that its Job selects.

Pure, and independent on purpose of the code that places the pods. This code matches `spec.nodes`
with one node at a time, and does not merge it into node affinity.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.affinity import NodeAffinity, label_keys
from daemonset_job.api.daemon_set import DaemonSet, names_os, pod_spec_of
from daemonset_job.api.job import Job
from daemonset_job.api.label_selector import parse_label_selector, selector_keys
from daemonset_job.api.node import Node
from daemonset_job.api.tolerations import parse_tolerations


class NodeMatcher:
    """Matches nodes with the `spec.nodes` of a Job and the node affinity in its `spec.template`.

    A Job that names neither an operating system nor nodes does not select nodes with Windows.
    """

    def __init__(self, job: Job) -> None:
        """Read a Job's spec."""
        nodes = job.spec.nodes
        self._include = frozenset(nodes.include)
        self._exclude = frozenset(nodes.exclude)
        self._by_label = parse_label_selector(nodes.selector)
        template = _template_pod_spec(job)
        self._by_template = NodeAffinity(template)
        named = label_keys(template) | selector_keys(nodes.selector)
        self._avoids_windows = not (nodes.include or names_os(template) or names.LABEL_OS in named)

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the Job selects a node of that name and those labels."""
        if name in self._exclude or (self._include and name not in self._include):
            return False
        if self._avoids_windows and labels.get(names.LABEL_OS) == names.OS_WINDOWS:
            return False
        return self._by_label.matches(name, labels) and self._by_template.matches(name, labels)


def find_unselected_node(job: Job, daemon_set: DaemonSet, nodes: Iterable[Node]) -> str:
    """Return a message about a node that the Job selects and its DaemonSet does not, "" for none.

    Checks labels, names and the Job's own tolerations. A DaemonSet that selects more nodes than the
    Job is no problem.
    """
    kept = frozenset(parse_tolerations(daemon_set.pod_spec))
    if any(toleration not in kept for toleration in parse_tolerations(_template_pod_spec(job))):
        return "its DaemonSet lacks a toleration of spec.template"
    selection, affinity = NodeMatcher(job), NodeAffinity(daemon_set.pod_spec)
    unselected = (
        node.name
        for node in nodes
        if not affinity.matches(node.name, node.labels)
        and selection.selects(node.name, node.labels)
    )
    name = min(unselected, default="")
    return f"its DaemonSet does not choose {name}, which the Job asks for" if name else ""


def _template_pod_spec(job: Job) -> Mapping[str, Any]:
    """Return the raw pod spec of `spec.template`, empty where there is none."""
    return pod_spec_of({"template": job.spec.template})
