"""A Job that has no end runs what its user asked for last, once on each node that is due.

Its being Complete is judged at each status that says so (`completion`), and at rest, by the demands
that the controller has read. What a pod runs is what its kubelet has started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.server import Raw, node_of

if TYPE_CHECKING:
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "due again",
        "At rest a Job of policy Continuous is Complete only if each node has completed what runs "
        "now. Its pod started after the last change of what runs, after the last rerun request, "
        "and after its labels came back.",
        mutant="counts_earlier_tries",
        seed=49,
    ),
    Invariant(
        "earlier revision",
        "No gate of a pod of an earlier revision is removed once the controller has read the "
        "change.",
        mutant="starts_earlier_revisions",
        seed=231,
    ),
)


def judge_gate(world: World, pod: Raw) -> None:
    """Judge that the controller lets a pod start."""
    demands, uid = world.oracle.demands, pod["metadata"]["uid"]
    job_uid = world.oracle.job_of.get(uid, "")
    demands.gate_removed(pod, job_uid)
    facts = demands.pods.get(uid)
    if facts is None:
        return
    newest = demands.newest_image(job_uid, facts.jobs_known)
    if facts.image != newest:
        words = f"{node_of(pod)} may start {facts.image}, and {newest} was asked for"
        world.oracle.violate("earlier revision", words)


def is_followed(world: World, job_uid: str, node: str, node_uid: str, record: Raw) -> bool:
    """Return whether a node is recorded as due again for what does not bind (see `demands`)."""
    demands = world.oracle.demands
    if job_uid not in demands.images or record.get("state") == "Completed":
        return False
    pod_uid = world.oracle.evidence.entered_pods.get((job_uid, node))
    return demands.may_run_again(job_uid, node, node_uid, pod_uid)


def judge_rest(world: World, job: Raw, desired: Raw, truth: Raw) -> None:
    """Judge a Job at rest with its desired nodes, and what is true of each."""
    uid, demands = job["metadata"]["uid"], world.oracle.demands
    if uid not in demands.images or not is_true(job, "Complete"):
        return
    for node in sorted(desired):
        if truth[node] not in {"completed", "failed"}:
            due = demands.due(uid, node, desired[node])
            words = f"{node} has not run {due.image} since {due.since:.3f}, {due.why}"
            world.oracle.violate("due again", words)
