"""Nodes are cordoned and drained before their turn, and uncordoned whatever ends it.

Each test drains pods of its own only. A cordon keeps the new pods of all tests off, so these tests
need their nodes for themselves.
"""

import json
import time
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import (
    CONTROLLER,
    SYSTEM,
    TASK_IMAGE,
    WAIT,
    RealCluster,
    eventually,
    make_job,
)
from tests.e2e.drains import COMPONENT, MARK, is_clean, is_cordoned, start_web, web_pods
from tests.e2e.jobs import GO, RETRY, shell, state, wait_condition

pytestmark = pytest.mark.alone

# What examples/25-drain-and-patch changes, and by what its restart shows.
PATCH = "/etc/systemd/system/containerd.service.d/50-example-limit.conf"
CONTAINERD = "systemctl show containerd -p MainPID --value"


def drain(namespace: str, **fields: Any) -> dict[str, Any]:
    return {"drain": {"podSelector": {"matchLabels": {"app": namespace}}, **fields}}


def job(namespace: str, node: str, script: str, **spec: Any) -> dict[str, Any]:
    return make_job("drain", namespace, **shell(script), nodes={"include": [node]}, **spec)


def is_at_work(cluster: RealCluster, namespace: str) -> bool:
    pods = cluster.pods(namespace, "drain")
    return any(pod["status"].get("phase") == "Running" for pod in pods)


def test_a_node_is_drained_before_the_task_and_uncordoned_after_it(draining, namespace, folder):
    cluster = draining
    node = start_web(cluster, namespace, available=1)
    script = f"{GO}; echo done; {WAIT}"
    cluster.apply(job(namespace, node, script, mountPath=folder, **drain(namespace)))
    deadline = time.monotonic() + 90
    while not is_at_work(cluster, namespace):
        assert time.monotonic() < deadline
        ready = cluster.get("deployment", "web", "-n", namespace)["status"].get("readyReplicas", 0)
        assert ready >= 1, "the budget is respected"
    assert web_pods(cluster, namespace, node) == []
    assert is_cordoned(cluster, node)
    uid = cluster.get("dsj", "drain", "-n", namespace)["metadata"]["uid"]
    annotations = cluster.get("node", node)["metadata"]["annotations"]
    assert annotations[MARK] == f"{namespace}/drain/{uid}"
    cluster.kubectl("rollout", "status", "deployment/web", "-n", namespace, "--timeout=60s")
    assert web_pods(cluster, namespace, node) == []
    cluster.on_node(node, f"touch {folder}/go")
    cluster.wait_gone(namespace, "drain")
    eventually(lambda: is_clean(cluster, node), 60, "the node is uncordoned")
    assert cluster.report(namespace, "drain")["status"]["phase"] == "Succeeded"


def test_a_drain_that_a_budget_blocks_times_out_and_frees_the_node(draining, namespace):
    cluster = draining
    node = start_web(cluster, namespace, available=2)
    before = [pod["metadata"]["uid"] for pod in web_pods(cluster, namespace)]
    cluster.apply(job(namespace, node, f"echo done; {WAIT}", **drain(namespace, timeoutSeconds=15)))

    def is_told() -> bool:
        found = cluster.condition(namespace, "drain", "Progressing")
        return found.get("reason") == "DrainBlocked" and "disruption budget" in found["message"]

    eventually(is_told, 30, "the condition names the budget")
    wait_condition(cluster, namespace, "drain", "Failed")
    record = state(cluster, namespace, "drain", node)
    assert record["reason"] == "DrainTimedOut"
    assert f"{namespace}/web-" in record["message"]
    assert "web-budget" in record["message"]
    eventually(lambda: is_clean(cluster, node), 60, "the node is uncordoned")
    assert [pod["metadata"]["uid"] for pod in web_pods(cluster, namespace)] == before
    # With another budget, a retry drains the node.
    body = '{"spec": {"minAvailable": 1}}'
    cluster.kubectl("patch", "pdb", "web-budget", "-n", namespace, "--type=merge", "-p", body)
    cluster.kubectl("annotate", "dsj", "drain", "-n", namespace, f"{RETRY}=1")
    cluster.wait_gone(namespace, "drain")
    assert web_pods(cluster, namespace, node) == []


def test_a_pod_that_no_controller_creates_again_is_not_evicted(draining, namespace):
    cluster, node = draining, draining.nodes[-1]
    container = {"name": "alone", "image": TASK_IMAGE, "command": ["sh", "-c", WAIT]}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "alone", "namespace": namespace, "labels": {"app": namespace}},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container],
            },
        }
    )  # fmt: skip
    cluster.kubectl("wait", "--for=condition=Ready", "pod/alone", "-n", namespace)
    cluster.apply(job(namespace, node, f"echo done; {WAIT}", **drain(namespace)))
    wait_condition(cluster, namespace, "drain", "Failed")
    record = state(cluster, namespace, "drain", node)
    assert record["reason"] == "DrainRefused"
    assert f"{namespace}/alone" in record["message"]
    eventually(lambda: is_clean(cluster, node), 60, "the node is uncordoned")
    assert "deletionTimestamp" not in cluster.get("pod", "alone", "-n", namespace)["metadata"]
    patch = json.dumps({"spec": {"drain": {"force": True}}})
    cluster.kubectl("patch", "dsj", "drain", "-n", namespace, "--type=merge", "-p", patch)
    cluster.kubectl("annotate", "dsj", "drain", "-n", namespace, f"{RETRY}=1")
    cluster.wait_gone(namespace, "drain")
    assert cluster.find("pod", "alone", "-n", namespace) is None


def test_a_cordon_that_was_there_before_stays(draining, namespace):
    cluster, node = draining, draining.nodes[-1]
    cluster.kubectl("cordon", node)
    try:
        cluster.apply(job(namespace, node, f"echo done; {WAIT}", cordon=True))
        cluster.wait_gone(namespace, "drain")
        time.sleep(3)
        assert is_cordoned(cluster, node)
        assert MARK not in (cluster.get("node", node)["metadata"].get("annotations") or {})
    finally:
        cluster.kubectl("uncordon", node)


def test_a_failed_task_leaves_no_cordon(draining, namespace):
    cluster, node = draining, draining.nodes[-1]
    cluster.apply(job(namespace, node, "sleep 5; exit 3", cordon=True, backoffLimit=0))
    eventually(lambda: is_cordoned(cluster, node), 30, "the node is cordoned")
    wait_condition(cluster, namespace, "drain", "Failed")
    eventually(lambda: is_clean(cluster, node), 60, "the node is uncordoned")


def test_a_job_that_is_deleted_in_the_middle_leaves_no_cordon(draining, namespace):
    cluster = draining
    node = start_web(cluster, namespace, available=2)
    cluster.apply(job(namespace, node, f"echo done; {WAIT}", **drain(namespace)))
    eventually(lambda: is_cordoned(cluster, node), 30, "the node is cordoned")
    cluster.kubectl("delete", "dsj", "drain", "-n", namespace)
    eventually(lambda: is_clean(cluster, node), 30, "the node is uncordoned")


def test_a_controller_that_is_killed_in_the_middle_goes_on(draining, namespace):
    cluster = draining
    node = start_web(cluster, namespace, available=2)
    cluster.apply(job(namespace, node, f"echo done; {WAIT}", **drain(namespace)))
    eventually(lambda: is_cordoned(cluster, node), 30, "the node is cordoned")
    cluster.kill("job-controller")
    body = '{"spec": {"minAvailable": 1}}'
    cluster.kubectl("patch", "pdb", "web-budget", "-n", namespace, "--type=merge", "-p", body)
    cluster.wait_gone(namespace, "drain", timeout=120)
    assert cluster.report(namespace, "drain")["status"]["phase"] == "Succeeded"
    eventually(lambda: is_clean(cluster, node), 30, "the node is uncordoned")
    assert web_pods(cluster, namespace, node) == []


def test_a_job_that_is_deleted_while_no_controller_runs_leaves_no_cordon(draining, namespace):
    cluster, node = draining, draining.nodes[-1]
    cluster.apply(job(namespace, node, f"sleep 600; echo done; {WAIT}", cordon=True))
    eventually(lambda: is_cordoned(cluster, node), 30, "the node is cordoned")
    deployment = ("deployment", CONTROLLER, "-n", SYSTEM)
    cluster.kubectl("scale", *deployment, "--replicas=0")
    try:
        eventually(lambda: not cluster.get("pods", "-n", SYSTEM)["items"], 60, "no controller")
        cluster.kubectl("delete", "dsj", "drain", "-n", namespace)
        assert is_cordoned(cluster, node)
    finally:
        cluster.kubectl("scale", *deployment, "--replicas=1")
        cluster.wait_for_system(1)
    eventually(lambda: is_clean(cluster, node), 60, "the node is uncordoned")


def test_nodes_are_drained_one_at_a_time(draining, namespace):
    cluster = draining
    path = cluster.root / "examples" / "25-drain-and-patch" / "job.yaml"
    example = yaml.safe_load(path.read_text(encoding="utf-8"))
    example["metadata"]["namespace"] = namespace
    # Not the pods of the cluster itself, which have no other place.
    example["spec"]["drain"] |= drain(namespace)["drain"]
    example["spec"]["template"] = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    before = cluster.on_all_nodes(CONTAINERD)
    try:
        cluster.apply(example)
        seen = cordoned_until_gone(cluster, namespace, example["metadata"]["name"])
        after = cluster.on_all_nodes(f"{CONTAINERD}; cat {PATCH}")
    finally:
        cluster.on_all_nodes(f"rm -f {PATCH}; systemctl daemon-reload")
    assert all(len(each) <= 1 for each in seen)
    assert len(set().union(*seen)) >= 2
    assert cluster.completed(namespace, example["metadata"]["name"]) == set(cluster.nodes)
    for node, text in after.items():
        process, _, patch = text.partition("\n")
        assert process != before[node].strip(), "containerd has restarted"
        assert patch == "[Service]\nLimitNOFILE=1048576\n"


def cordoned_until_gone(cluster: RealCluster, namespace: str, name: str) -> list[set[str]]:
    """Return which nodes were cordoned at each look, until the Job is gone."""
    seen, deadline = [], time.monotonic() + 180
    while cluster.job(namespace, name) is not None:
        assert time.monotonic() < deadline
        # One list, so that it is one moment.
        nodes = cluster.get("nodes")["items"]
        seen.append({n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable")})
    return seen


@pytest.mark.on_demand
def test_without_the_component_a_job_says_what_to_apply_and_starts_then(draining, namespace):
    cluster, node = draining, draining.nodes[-1]
    cluster.kubectl("delete", "clusterrolebinding", "daemonset-job-drain")
    cluster.apply(job(namespace, node, f"echo done; {WAIT}", cordon=True))
    words = "kubectl apply --server-side -k deploy/components/drain"

    def is_shown() -> bool:
        found = cluster.condition(namespace, "drain", "Progressing")
        return found.get("reason") == "CordonRefused" and words in found["message"]

    eventually(is_shown, 60, "the Job says what is missing")
    assert "startTime" not in cluster.get("dsj", "drain", "-n", namespace)["status"]
    cluster.kubectl("apply", "--server-side", "-k", str(cluster.root / COMPONENT))
    cluster.wait_gone(namespace, "drain", timeout=120)


def test_a_job_starts_after_another_one_has_succeeded(cluster, namespace, folder):
    second = make_job(
        "second", namespace, **shell(f"echo done; {WAIT}"), after=["first"],
        ttlSecondsAfterFinished=600,
    )  # fmt: skip
    cluster.apply(second)

    def waits() -> str:
        found = cluster.condition(namespace, "second", "Progressing")
        return str(found["message"]) if found.get("reason") == "WaitingForJob" else ""

    eventually(lambda: "neither a Job nor a report" in waits(), 30, "the Job waits")
    cluster.apply(
        make_job("first", namespace, **shell(f"{GO}; echo done; {WAIT}"), mountPath=folder)
    )
    eventually(lambda: "which is running" in waits(), 60, "the other Job runs")
    assert cluster.find("daemonset", "second-daemonset-job", "-n", namespace) is None
    cluster.on_all_nodes(f"touch {folder}/go")
    cluster.wait_gone(namespace, "first")
    wait_condition(cluster, namespace, "second", "Complete")
    first = cluster.report(namespace, "first")["status"]["completionTime"]
    assert cluster.status(namespace, "second")["startTime"] >= first


def test_jobs_with_one_key_never_run_on_a_node_at_the_same_time(cluster, namespace, folder):
    # mkdir fails if the directory is there: then another task is at work on the node.
    busy, collision = "/basetarget/busy", "/basetarget/collision"
    script = f"mkdir {busy} || touch {collision}; sleep 3; rmdir {busy}; echo done; {WAIT}"
    jobs = ("first", "second", "third")
    cluster.apply(
        *(
            make_job(
                name,
                namespace,
                **shell(script),
                mountPath=folder,
                rollout={"exclusive": "disk"},
                ttlSecondsAfterFinished=600,
            )
            for name in jobs
        )
    )

    def is_told() -> bool:
        found = [cluster.condition(namespace, name, "Progressing") for name in jobs]
        return any(
            each.get("reason") == "NodeInUse" and "rollout.exclusive" in each["message"]
            for each in found
        )

    eventually(is_told, 30, "a condition names the other Job")
    for name in jobs:
        wait_condition(cluster, namespace, name, "Complete")
        assert cluster.completed(namespace, name) == set(cluster.nodes)
    found = cluster.on_all_nodes(f"ls {folder}")
    assert not [node for node, names in found.items() if "collision" in names]
