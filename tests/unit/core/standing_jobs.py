"""Jobs that stay, policy Continuous: a cluster with one, and what a user does to it."""

from dataclasses import replace
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.choices import CompletionPolicy
from daemonset_job.api.job_spec import Completion, NodeSelection
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.revision import find_revision
from job_controller.core.plan import DeletePods, Plan, RemoveSchedulingGates
from tests.unit.builders import SampleCluster, done, gated_pod, make_cluster
from tests.unit.core.runs import acts

CONTINUOUS = Completion(policy=CompletionPolicy.CONTINUOUS)
# The nodes without the label that `configure` gives to one.
UNCONFIGURED = NodeSelection(
    selector={"matchExpressions": [{"key": "configured", "operator": "DoesNotExist"}]}
)


def standing(*nodes: str, completed: tuple[str, ...] = (), **changes: Any) -> SampleCluster:
    """Return a cluster whose Job serves every node; the pods are of its revision."""
    cluster = make_cluster(*nodes, gated=True, **changes)
    change(cluster, completion=CONTINUOUS)
    # As it was written when the run started.
    status = replace(cluster.job.status, revision=cluster.job.revision)
    cluster.job = replace(cluster.job, status=status)
    cluster.pods = [replace(pod, revision=cluster.job.revision) for pod in cluster.pods]
    cluster.evidence = {
        name: replace(done(name), revision=cluster.job.revision) for name in completed
    }
    return cluster


def change(cluster: SampleCluster, **changes: Any) -> SampleCluster:
    """Change the spec of the Job, as a user does."""
    spec = replace(cluster.job.spec, **changes)
    generation = cluster.job.generation + 1
    cluster.job = replace(
        cluster.job, spec=spec, generation=generation, revision_hash=find_revision(spec)
    )
    return cluster


def completed_by(cluster: SampleCluster, node: str, revision: str) -> None:
    """Let the evidence about a node be of that revision."""
    cluster.evidence[node] = replace(cluster.evidence[node], revision=revision)


def request(cluster: SampleCluster, value: str) -> SampleCluster:
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RERUN: value})
    return cluster


def select(cluster: SampleCluster, *names: str) -> None:
    """Have the Job select these nodes from now on."""
    change(cluster, nodes=NodeSelection(include=names))
    cluster.job = replace(cluster.job, raw_spec={"nodes": {"include": list(names)}})


def configure(cluster: SampleCluster) -> None:
    """Label node a, the first of two: it leaves the selection UNCONFIGURED, and its pod goes."""
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    cluster.pods = cluster.pods[1:]
    cluster.desired = cluster.scheduled = 1


def unconfigure(cluster: SampleCluster, *, desired: int = 2) -> None:
    """Remove that label: node a matches again, and another pod of it waits at the gate."""
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={})
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = desired


def totals_of(cluster: SampleCluster) -> NodeTotals:
    """Return the numbers of nodes in the status of the Job."""
    totals = cluster.job.status.nodes
    assert totals is not None
    return totals


def deleted(plan: Plan) -> list[str]:
    return sorted(pod.node_name for action in acts(plan, DeletePods) for pod in action.pods)


def released(plan: Plan) -> list[str]:
    found = acts(plan, RemoveSchedulingGates)
    return sorted(pod.node_name for action in found for pod in action.pods)
