"""Jobs that stay: nodes that join, revisions, requests to run again, released pods."""

import time

from tests.e2e.cluster import consistently, counting, eventually, make_job
from tests.e2e.jobs import labelled, patch_spec, pod_on, shell, state, wait_condition

RERUN = "daemonset.darkowlzz.space/rerun"
CONTINUOUS = {"policy": "Continuous"}


def is_complete(cluster, namespace, name, count):
    """Return whether a Job is complete, and its newest spec is observed, with `count` nodes."""
    job = cluster.job(namespace, name)
    status = job["status"]
    (complete,) = [c for c in status["conditions"] if c["type"] == "Complete"]
    return (
        status["observedGeneration"] == job["metadata"]["generation"]
        and complete["status"] == "True"
        and status["nodes"]["completed"] == status["nodes"]["desired"] == count
    )


def are_all_held(cluster, namespace, name, nodes):
    """Return whether each node's only pod waits at its gate, is on no node and has no address."""
    pods = cluster.pods(namespace, name)
    return len(pods) == len(nodes) and all(
        pod["spec"].get("schedulingGates")
        and "nodeName" not in pod["spec"]
        and "podIP" not in pod.get("status", {})
        for pod in pods
    )


def test_a_continuous_job_serves_nodes_that_join(cluster, namespace, folder):
    key = f"{namespace}/member"
    first, later = cluster.nodes[0], cluster.nodes[1]
    selector = {"matchLabels": {key: "in"}}
    with labelled(cluster, key, first):
        job = make_job("standing", namespace, mountPath=folder, completion=CONTINUOUS, **counting())
        job["spec"]["nodes"] = {"selector": selector}
        cluster.apply(job)
        wait_condition(cluster, namespace, "standing", "Complete")
        consistently(lambda: cluster.job(namespace, "standing"), 3, "it is kept")

        cluster.kubectl("label", "node", later, f"{key}=in")

        eventually(lambda: is_complete(cluster, namespace, "standing", 2), 60, "both are done")
        assert cluster.runs(folder)[first] == 1
        assert cluster.runs(folder)[later] == 1
        # The unchanged manifest does nothing.
        before = cluster.job(namespace, "standing")
        cluster.apply(job)
        time.sleep(2)
        after = cluster.job(namespace, "standing")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        assert cluster.completed(namespace, "standing") == {first, later}


def test_what_a_continuous_job_runs_may_change(cluster, namespace, folder):
    """Each node runs each revision once; a revision that fails is replaced by one that does not."""
    task = {"mountPath": folder, "completion": CONTINUOUS, "backoffLimit": 0}
    cluster.apply(make_job("revised", namespace, **task, **counting()))
    count = len(cluster.nodes)
    eventually(lambda: is_complete(cluster, namespace, "revised", count), 90, "the first is done")
    revisions = {
        entry["revision"] for entry in cluster.report(namespace, "revised")["evidence"].values()
    }
    assert len(revisions) == 1

    bad = shell("echo $$ >> /basetarget/second; echo no space left; exit 3")
    cluster.apply(make_job("revised", namespace, **task, **bad))
    eventually(
        lambda: (
            cluster.condition(namespace, "revised", "Progressing").get("reason") == "NodesFailed"
        ),
        90,
        "it says that nodes have failed",
    )
    assert cluster.condition(namespace, "revised", "Complete")["status"] == "False"
    assert "no space left" in state(cluster, namespace, "revised", cluster.nodes[0])["message"]

    third = counting(before="echo $$ >> /basetarget/third")
    cluster.apply(make_job("revised", namespace, **task, **third))
    eventually(lambda: is_complete(cluster, namespace, "revised", count), 90, "the third is done")
    assert set(cluster.runs(folder, "third").values()) == {1}
    assert set(cluster.runs(folder).values()) == {2}
    evidence = cluster.report(namespace, "revised")["evidence"]
    assert {entry["revision"] for entry in evidence.values()}.isdisjoint(revisions)
    # What failed before is on record.
    assert state(cluster, namespace, "revised", cluster.nodes[0])["failures"]


def test_a_request_runs_a_continuous_job_again_on_named_nodes(cluster, namespace, folder):
    completion = {"mode": "Exit", **CONTINUOUS}
    task = shell("echo $$ >> /basetarget/runs")
    cluster.apply(make_job("again", namespace, mountPath=folder, completion=completion, **task))
    count = len(cluster.nodes)
    eventually(lambda: is_complete(cluster, namespace, "again", count), 90, "all are done")
    named, *others = cluster.nodes

    cluster.kubectl("annotate", "dsj", "again", "-n", namespace, f"{RERUN}={named}@1")

    eventually(lambda: cluster.runs(folder)[named] == 2, 60, f"{named} has run again")
    eventually(lambda: is_complete(cluster, namespace, "again", count), 60, "all are done again")
    consistently(lambda: cluster.runs(folder)[named] == 2, 3, "once")
    assert {cluster.runs(folder)[node] for node in others} == {1}


def test_released_pods_are_on_no_node(cluster, namespace, folder):
    completion = {"mode": "Exit", "release": True, **CONTINUOUS}
    task = shell("echo $$ >> /basetarget/runs; echo dsjob:result size=1")
    job = make_job("released", namespace, mountPath=folder, completion=completion, **task)
    job["spec"]["results"] = [{"name": "size"}]
    cluster.apply(job)

    count = len(cluster.nodes)
    eventually(lambda: is_complete(cluster, namespace, "released", count), 90, "all are done")
    eventually(
        lambda: are_all_held(cluster, namespace, "released", cluster.nodes), 60, "no pod is left"
    )
    assert set(cluster.runs(folder).values()) == {1}
    evidence = cluster.report(namespace, "released")["evidence"]
    assert {entry["results"]["size"] for entry in evidence.values()} == {"1"}
    # A new revision runs on each of them, and leaves none, either.
    patch_spec(cluster, namespace, "released", '{"args":["echo $$ >> /basetarget/second"]}')
    eventually(lambda: is_complete(cluster, namespace, "released", count), 90, "all are done")
    eventually(
        lambda: are_all_held(cluster, namespace, "released", cluster.nodes), 60, "no pod is left"
    )
    assert set(cluster.runs(folder, "second").values()) == {1}
    assert set(cluster.runs(folder).values()) == {1}
    # So does a request.
    cluster.kubectl("annotate", "dsj", "released", "-n", namespace, f"{RERUN}=*@1")
    eventually(lambda: set(cluster.runs(folder, "second").values()) == {2}, 60, "all ran again")
    eventually(lambda: is_complete(cluster, namespace, "released", count), 90, "all are done")


def test_a_job_that_releases_its_pods_is_deleted_when_all_are_done(cluster, namespace, folder):
    slow = cluster.nodes[0]
    wait = (
        f'if [ "$NODE_NAME" = {slow} ]; then while [ ! -e /basetarget/go ]; do sleep 0.2; done; fi'
    )
    task = counting(before=wait)
    completion = {"release": True}
    cluster.apply(make_job("freed", namespace, mountPath=folder, completion=completion, **task))
    eventually(
        lambda: (
            {
                pod["spec"]["nodeName"]
                for pod in cluster.pods(namespace, "freed")
                if "nodeName" in pod["spec"]
            }
            == {slow}
        ),
        90,
        "only the pod of the slow node is left",
    )
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "freed")
    assert set(cluster.runs(folder).values()) == {1}
    assert cluster.completed(namespace, "freed") == set(cluster.nodes)
    assert cluster.report(namespace, "freed")["status"]["phase"] == "Succeeded"


def test_a_node_whose_label_is_removed_by_hand_runs_again(cluster, namespace, folder):
    """The label says that the node is done, and the Job's selection excludes it."""
    key = f"{namespace}/configured"
    expression = {"key": key, "operator": "DoesNotExist"}
    job = make_job("labels", namespace, mountPath=folder, completion=CONTINUOUS, **counting())
    job["spec"]["nodes"] = {"selector": {"matchExpressions": [expression]}}
    cluster.apply(job)
    count, first = len(cluster.nodes), cluster.nodes[0]
    eventually(lambda: is_complete(cluster, namespace, "labels", count), 90, "all are done")

    with labelled(cluster, key, *cluster.nodes):
        eventually(lambda: not cluster.pods(namespace, "labels"), 60, "no pod is left")
        eventually(lambda: is_complete(cluster, namespace, "labels", count), 60, "they count")
        assert state(cluster, namespace, "labels", first)["reason"] == "LeftSelection"

        cluster.kubectl("label", "node", first, f"{key}-")

        eventually(lambda: cluster.runs(folder)[first] == 2, 60, f"{first} has run again")
        eventually(lambda: is_complete(cluster, namespace, "labels", count), 60, "all count")
        assert pod_on(cluster, namespace, "labels", first)
        assert cluster.runs(folder)[cluster.nodes[1]] == 1
        cluster.kubectl("delete", "dsj", "labels", "-n", namespace)
