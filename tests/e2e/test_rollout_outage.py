"""Rollouts during the outage of a node: its kubelet is stopped. What began is read from the nodes.

Kubernetes takes most of a minute to see the outage, so that all Jobs share one.
"""

import pytest

from tests.e2e.cluster import RealCluster, consistently, eventually, make_job
from tests.e2e.jobs import GO, in_turn, labelled, on, shell, state, wait_condition
from tests.e2e.test_rollout import BEGAN, CANARY, EXIT, annotate, begun, timed

FIRST = {"selector": {"matchLabels": {CANARY: "in"}}}
# Longer than Kubernetes takes to see that a kubelet is gone: 50 s, and what it takes to stop it.
SOAK_SECONDS = 75


def is_ready(cluster: RealCluster, node: str) -> bool:
    conditions = cluster.get("node", node)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def within_the_budget(namespace: str, folder: str, dead: str) -> dict:
    """Return a Job whose first step is the dead node alone, which never finishes there."""
    spec = {
        "rollout": {"maxParallel": 1, "steps": [FIRST, {"nodes": 2}]},
        "failurePolicy": {"maxFailedNodes": 1},
        "nodeUnreachableSeconds": 20,
        **on(dead, f"{BEGAN}; {GO}; exit 0", f"{BEGAN}; exit 0"),
        **EXIT,
    }
    return make_job("dead", namespace, mountPath=f"{folder}/dead", **spec)


def checked(namespace: str, folder: str) -> dict:
    """Return a Job whose first step is the dead node alone, which has finished before."""
    check = {"nodeReady": True, "timeoutSeconds": 600}
    rollout = {"steps": [{**FIRST, "soakSeconds": SOAK_SECONDS, "check": check}]}
    return make_job(
        "checked", namespace, mountPath=f"{folder}/checked", rollout=rollout, **timed(0)
    )


def two_of_three(name: str, namespace: str, folder: str, nodes: list[str], **policy: int) -> dict:
    """Return a Job for three nodes that is at work on two of them until it may go on."""
    spec = {
        "nodes": {"include": nodes},
        "rollout": {"maxParallel": 2},
        "failurePolicy": {"maxFailedNodes": 1, **policy},
        "nodeUnreachableSeconds": 5,
        **shell(f"{BEGAN}; {GO}; exit 0"),
        **EXIT,
    }
    return make_job(name, namespace, mountPath=f"{folder}/{name}", **spec)


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_dead_node_is_set_aside_within_its_limits_and_passes_no_check(cluster, namespace, folder):
    order, nodes = in_turn(cluster), set(cluster.nodes)
    dead = next(node for node in order if "control-plane" not in node)
    working, three = set(order[:2]), set(order[:3])
    assert dead in working
    with labelled(cluster, CANARY, dead):
        cluster.apply(
            within_the_budget(namespace, folder, dead),
            checked(namespace, folder),
            two_of_three("limited", namespace, folder, order[:3], unreachableSeconds=5),
            two_of_three("patient", namespace, folder, order[:3]),
        )
        for name in ("dead", "checked"):
            eventually(lambda name=name: begun(cluster, f"{folder}/{name}") == {dead}, 60, name)
        for name in ("limited", "patient"):
            eventually(lambda name=name: begun(cluster, f"{folder}/{name}") == working, 60, name)
        eventually(lambda: cluster.completed(namespace, "checked") == {dead}, 60, "it finished")
        cluster.on_node(dead, "systemctl stop kubelet")
        try:
            eventually(lambda: not is_ready(cluster, dead), 80, "the outage is seen")
            # The limit of time has the third node begin; without one, the place stays taken.
            eventually(lambda: begun(cluster, f"{folder}/limited") == three, 60, "the limit")
            consistently(lambda: begun(cluster, f"{folder}/patient") == working, 5, "no limit")
            for name in ("limited", "patient"):
                cluster.on_all_nodes(f"mkdir -p {folder}/{name}; touch {folder}/{name}/go")
                assert_complete_without(cluster, namespace, name, dead)
            assert begun(cluster, f"{folder}/patient") == three
            # The only node of a step is set aside: a person decides, and the others follow.
            found = wait_condition(cluster, namespace, "dead", "Suspended", 180)
            assert found["reason"] == "CheckInconclusive"
            assert state(cluster, namespace, "dead", dead)["setAsideAt"]
            annotate(cluster, namespace, "dead", "approve", 1)
            assert_complete_without(cluster, namespace, "dead", dead)
            assert begun(cluster, f"{folder}/dead") == nodes
            # The check waits for the node, and the next step for the check.
            eventually(
                lambda: (
                    f"not Ready: {dead}"
                    in cluster.condition(namespace, "checked", "Progressing")["message"]
                ),
                SOAK_SECONDS,
                "the check waits",
            )
            consistently(lambda: begun(cluster, f"{folder}/checked") == {dead}, 5, "none begins")
        finally:
            cluster.on_node(dead, "systemctl start kubelet")
        wait_condition(cluster, namespace, "checked", "Complete")
        assert is_ready(cluster, dead)
        assert begun(cluster, f"{folder}/checked") == nodes


def assert_complete_without(cluster: RealCluster, namespace: str, name: str, dead: str) -> None:
    """Wait until a Job is complete although a node of it is not, which its message names."""
    found = wait_condition(cluster, namespace, name, "Complete", 120)
    assert found["reason"] == "CompletedWithinFailureLimit"
    assert dead in found["message"]
