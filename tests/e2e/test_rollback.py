"""Rollbacks on real nodes: what was done, and what was undone, is read from the nodes' files."""

from tests.e2e.cluster import consistently, eventually, make_job
from tests.e2e.jobs import GO, LOOK_SECONDS, in_turn, wait_condition

PREFIX = "daemonset.darkowlzz.space"
CHANGE = "echo changed > /basetarget/conf; echo x >> /basetarget/runs"
UNDO = "echo as-before > /basetarget/conf; echo x >> /basetarget/undone"


def scripts(cluster, namespace, name, change, undo, **spec):
    """Apply a Job with a script that changes nodes one by one, and one that undoes it."""
    body = make_job(
        name,
        namespace,
        script=change,
        rollback={"script": undo},
        backoffLimit=0,
        rollout={"maxParallel": 1},
        **spec,
    )
    del body["spec"]["image"]
    cluster.apply(body)


def fails_on(node):
    return f'{CHANGE}; test "$NODE_NAME" != {node}'


def ask(cluster, namespace, name):
    cluster.kubectl("annotate", "dsj", name, "-n", namespace, f"{PREFIX}/rollback=it was wrong")


def files(cluster, folder):
    """Return what a node's conf says, and how often it ran the change and its undoing."""
    look = f"cat {folder}/conf; cat {folder}/runs | wc -l; cat {folder}/undone | wc -l"
    outputs = cluster.on_all_nodes(f"({look}) 2>/dev/null; true")
    return {node: tuple(text.split()) for node, text in outputs.items()}


def test_a_canary_that_fails_on_the_second_node_is_rolled_back(cluster, namespace, folder):
    first, second, third = in_turn(cluster)
    scripts(
        cluster, namespace, "canary", fails_on(second), UNDO,
        mountPath=folder, failurePolicy={"action": "Rollback"},
    )  # fmt: skip
    found = wait_condition(cluster, namespace, "canary", "RolledBack", 180)
    assert (found["reason"], found["message"]) == ("RolledBack", "2 of 2 nodes are rolled back")
    undone = ("as-before", "1", "1")
    assert files(cluster, folder) == {first: undone, second: undone, third: ("0", "0")}
    status = cluster.status(namespace, "canary")
    assert status["phase"] == "Failed"
    assert status["rollback"]["jobs"] == ["canary-rollback"]
    assert (status["rollback"]["desired"], status["rollback"]["completed"]) == (2, 2)
    assert cluster.report(namespace, "canary")["status"]["rollback"] == status["rollback"]
    assert cluster.report(namespace, "canary-rollback")["status"]["phase"] == "Succeeded"
    # It is over for good: a retry starts nothing, and the Jobs go together.
    cluster.kubectl("annotate", "dsj", "canary", "-n", namespace, f"{PREFIX}/retry=1")
    consistently(
        lambda: files(cluster, folder)[third] == ("0", "0"), LOOK_SECONDS, "no node starts"
    )
    cluster.kubectl("delete", "dsj", "canary", "-n", namespace)
    cluster.wait_gone(namespace, "canary-rollback")


def test_tasks_at_work_finish_before_the_rollback(cluster, namespace, folder):
    first, second, _ = in_turn(cluster)
    # The second node fails at once; the first one goes on until the test lets it.
    change = f'{CHANGE}; if [ "$NODE_NAME" = {second} ]; then exit 1; fi; {GO}'
    body = make_job(
        "slow", namespace, script=change, rollback={"script": UNDO}, backoffLimit=0,
        rollout={"maxParallel": 2}, mountPath=folder, failurePolicy={"action": "Rollback"},
    )  # fmt: skip
    del body["spec"]["image"]
    cluster.apply(body)
    eventually(
        lambda: (
            cluster.condition(namespace, "slow", "RolledBack").get("reason") == "RollbackWaiting"
        ),
        90,
        "it waits",
    )
    consistently(lambda: cluster.job(namespace, "slow-rollback") is None, LOOK_SECONDS, "it waits")
    assert first in cluster.condition(namespace, "slow", "RolledBack")["message"]
    cluster.on_node(first, f"touch {folder}/go")
    wait_condition(cluster, namespace, "slow", "RolledBack", 120)
    found = files(cluster, folder)
    assert found[first] == found[second] == ("as-before", "1", "1")


def test_a_success_that_is_kept_is_rolled_back_by_hand(cluster, namespace, folder):
    scripts(
        cluster, namespace, "kept", CHANGE, UNDO, mountPath=folder, ttlSecondsAfterFinished=3600
    )
    wait_condition(cluster, namespace, "kept", "Complete", 120)
    assert set(files(cluster, folder).values()) == {("changed", "1", "0")}
    ask(cluster, namespace, "kept")
    wait_condition(cluster, namespace, "kept", "RolledBack", 120)
    assert set(files(cluster, folder).values()) == {("as-before", "1", "1")}
    assert cluster.condition(namespace, "kept", "Complete")["status"] == "True"
    status = cluster.status(namespace, "kept")
    assert status["rollback"]["requestedBy"] == "kubectl-annotate"


def test_a_rollback_that_fails_is_said_and_stops(cluster, namespace, folder):
    first, second, third = in_turn(cluster)
    undo = f'{UNDO}; test "$NODE_NAME" != {first} || {{ echo the disk is full; exit 7; }}'
    scripts(
        cluster, namespace, "stuck", fails_on(second), undo,
        mountPath=folder, failurePolicy={"action": "Rollback"},
    )  # fmt: skip

    def failed():
        return cluster.condition(namespace, "stuck", "RolledBack").get("reason") == "RollbackFailed"

    eventually(failed, 180, "the rollback failed")
    message = cluster.condition(namespace, "stuck", "RolledBack")["message"]
    assert "Job stuck-rollback failed: 1 of 2 nodes failed" in message
    assert "the disk is full" in message
    consistently(failed, LOOK_SECONDS, "it stops")
    found = files(cluster, folder)
    assert found[second] == ("changed", "1", "0")
    assert found[third] == ("0", "0")
    kinds = {event["reason"]: event["type"] for event in cluster.events(namespace, "stuck")}
    assert kinds["RollbackFailed"] == "Warning"
