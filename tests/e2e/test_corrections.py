"""A Job with a mistake is corrected without being deleted, as long as no task has begun."""

import json

import pytest

from tests.e2e.cluster import WAIT, consistently, eventually, make_job
from tests.e2e.jobs import patch_spec, shell

MISTAKES = {
    "image": {"image": "localhost/nope:missing"},
    "ConfigMap": {"scriptFrom": {"configMapKeyRef": {"name": "nope", "key": "run"}}},
}
REASON = "StartTakenBack"


def suspended(cluster, namespace, name):
    """Return the condition Suspended, {} while there is none that is true."""
    found = cluster.condition(namespace, name, "Suspended")
    return found if found.get("status") == "True" else {}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_job_that_cannot_start_is_corrected(cluster, namespace, mistake):
    right = make_job("fixed", namespace, suspend=False, **shell("echo done; " + WAIT))
    wrong = make_job("fixed", namespace, **MISTAKES[mistake])
    if mistake == "ConfigMap":
        del wrong["spec"]["image"]
    cluster.apply(wrong)
    eventually(lambda: len(cluster.pods(namespace, "fixed")) == 3)
    uid = cluster.job(namespace, "fixed")["metadata"]["uid"]
    refused = cluster.run("apply", "-f", "-", stdin=json.dumps(right))
    assert refused.returncode != 0
    assert "set spec.suspend to true first" in refused.stderr, refused.stderr

    patch_spec(cluster, namespace, "fixed", '{"suspend":true}')
    eventually(lambda: suspended(cluster, namespace, "fixed").get("reason") == REASON)
    assert "no task has begun" in suspended(cluster, namespace, "fixed")["message"]
    assert "startTime" not in cluster.status(namespace, "fixed")
    cluster.apply(right)

    cluster.wait_gone(namespace, "fixed")
    report = cluster.report(namespace, "fixed")
    assert report["spec"]["job"]["uid"] == uid
    assert report["spec"]["image"] == right["spec"]["image"]
    assert report["status"]["phase"] == "Succeeded"
    nodes = report["status"]["nodeStates"]
    assert set(nodes) == set(cluster.nodes)
    assert {(node["state"], node["attempts"]) for node in nodes.values()} == {("Completed", 1)}


def test_a_job_whose_pods_a_quota_refuses_is_corrected(cluster, namespace):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    quota["metadata"]["namespace"] = namespace
    cluster.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    right = make_job("fixed", namespace, suspend=False, **shell("echo done; " + WAIT))
    cluster.apply(make_job("fixed", namespace, **shell("exit 1")))
    eventually(lambda: "exceeded quota" in str(cluster.status(namespace, "fixed")))

    patch_spec(cluster, namespace, "fixed", '{"suspend":true}')
    eventually(lambda: suspended(cluster, namespace, "fixed").get("reason") == REASON)
    cluster.run("delete", "resourcequota", "none", "-n", namespace)
    cluster.apply(right)

    cluster.wait_gone(namespace, "fixed")
    assert cluster.report(namespace, "fixed")["status"]["phase"] == "Succeeded"


def test_a_failed_job_of_which_nothing_has_begun_is_corrected(cluster, namespace):
    """The name of the image is invalid: each node fails at once, and the run with it."""
    right = make_job("fixed", namespace, suspend=False, **shell("echo done; " + WAIT))
    cluster.apply(make_job("fixed", namespace, image="localhost/Nope"))
    eventually(lambda: cluster.condition(namespace, "fixed", "Failed").get("status") == "True")
    uid = cluster.job(namespace, "fixed")["metadata"]["uid"]
    report = cluster.report(namespace, "fixed")
    assert report["status"]["phase"] == "Failed"
    refused = cluster.run("apply", "-f", "-", stdin=json.dumps(right))
    assert "set spec.suspend to true first" in refused.stderr, refused.stderr

    patch_spec(cluster, namespace, "fixed", '{"suspend":true}')
    eventually(lambda: suspended(cluster, namespace, "fixed").get("reason") == REASON)
    failed = cluster.condition(namespace, "fixed", "Failed")
    assert (failed["status"], failed["reason"]) == ("False", REASON)
    cluster.apply(right)

    cluster.wait_gone(namespace, "fixed")
    report = cluster.report(namespace, "fixed")
    assert report["spec"]["job"]["uid"] == uid
    assert report["status"]["phase"] == "Succeeded"
    nodes = report["status"]["nodeStates"].values()
    assert {(node["state"], node["attempts"]) for node in nodes} == {("Completed", 1)}
    (entry,) = [entry for entry in report["status"]["history"] if entry["reason"] == REASON]
    assert "must be lowercase" in entry["message"], entry


def test_no_pod_of_a_daemon_set_that_was_orphaned_starts_in_the_corrected_run(cluster, namespace):
    """A person deletes the DaemonSet of a failed run, and leaves its pods, which wait."""
    right = make_job("fixed", namespace, suspend=False, **shell("echo done; " + WAIT))
    cluster.apply(make_job("fixed", namespace, image="localhost/Nope"))

    def are_held():
        pods = cluster.pods(namespace, "fixed")
        return len(pods) == 3 and all(pod["spec"].get("schedulingGates") for pod in pods)

    eventually(are_held, 60, "the failed pods are replaced by others, which wait")
    old = {pod["metadata"]["uid"] for pod in cluster.pods(namespace, "fixed")}
    name = "fixed-daemonset-job"
    cluster.kubectl("delete", "daemonset", name, "-n", namespace, "--cascade=orphan")
    pods = cluster.pods(namespace, "fixed")
    assert {pod["metadata"]["uid"] for pod in pods} == old
    assert not any(pod["metadata"].get("ownerReferences") for pod in pods)

    patch_spec(cluster, namespace, "fixed", '{"suspend":true}')
    eventually(lambda: suspended(cluster, namespace, "fixed").get("reason") == REASON)
    eventually(lambda: not cluster.pods(namespace, "fixed"), 30, "no pod is left")
    cluster.apply(right)

    cluster.wait_gone(namespace, "fixed")
    report = cluster.report(namespace, "fixed")
    assert report["status"]["phase"] == "Succeeded"
    assert old.isdisjoint({entry["podUID"] for entry in report["evidence"].values()})


def test_a_run_that_has_begun_on_one_node_keeps_what_it_runs(cluster, namespace):
    first = cluster.nodes[0]
    job = make_job("begun", namespace, nodes={"include": [first]}, **shell("echo at work; " + WAIT))
    cluster.apply(job)
    eventually(lambda: cluster.node_totals(namespace, "begun").get("active") == 1)

    patch_spec(cluster, namespace, "begun", '{"suspend":true}')
    eventually(lambda: suspended(cluster, namespace, "begun"))

    consistently(lambda: "startTime" in cluster.status(namespace, "begun"), 5)
    found = suspended(cluster, namespace, "begun")
    assert found["reason"] == "Suspended"
    assert f"a task has begun, or may have, on {first}" in found["message"]
    job["spec"] |= {"suspend": True, "image": "localhost/nope:missing"}
    refused = cluster.run("apply", "-f", "-", stdin=json.dumps(job))
    assert refused.returncode != 0
    assert "spec.image cannot change once the Job has started" in refused.stderr
    assert len(cluster.pods(namespace, "begun")) == 1
