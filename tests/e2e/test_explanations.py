"""What a person asks at 3 a.m.: which nodes were left out, why nothing starts, what a retry did."""

import json
import time

import pytest

from tests.e2e.cluster import WAIT, consistently, eventually, make_job
from tests.e2e.jobs import (
    RETRY,
    labelled,
    on,
    patch_spec,
    reasons,
    set_quota,
    shell,
    tainted,
    wait_condition,
    working,
)

KEEP = 3600
LABEL = "e2e.example.com/explained"


def message(cluster, namespace, name):
    return cluster.condition(namespace, name, "Progressing").get("message", "")


def says(cluster, namespace, name, words, seconds=60):
    """Wait until the condition Progressing has these words, and return its message."""
    return eventually(
        lambda: (found := message(cluster, namespace, name)) and words in found and found,
        seconds,
        words,
    )


@pytest.mark.alone
def test_a_tainted_node_is_counted_and_named(cluster, namespace):
    left_out = cluster.nodes[0]
    with tainted(cluster, left_out):
        job = make_job(
            "most", namespace, ttlSecondsAfterFinished=KEEP, **shell("echo done;" + WAIT)
        )
        cluster.apply(job)
        complete = wait_condition(cluster, namespace, "most", "Complete")
        assert complete["message"].startswith(
            f"2 of 2 nodes completed; 1 node skipped ({left_out}: taint e2e.example.com/"
        )
        assert complete["message"].endswith(":NoSchedule)")
        report = cluster.report(namespace, "most")["status"]
        for status in (cluster.status(namespace, "most"), report):
            assert status["nodes"]["skipped"] == 1
            assert status["nodes"]["skippedNames"] == left_out
        assert report["message"] == complete["message"]
    # Without the taint the node joins, and the message says what became of it.
    says(cluster, namespace, "most", "3 of 3 nodes completed")


def test_the_message_of_a_failed_run_counts_all_nodes_that_failed(cluster, namespace):
    cluster.apply(make_job("broken", namespace, backoffLimit=0, **shell("sleep 1; exit 7")))
    wait_condition(cluster, namespace, "broken", "Failed")
    words = says(cluster, namespace, "broken", "3 of 3 nodes failed")
    assert cluster.condition(namespace, "broken", "Failed")["message"] == words
    assert cluster.status(namespace, "broken")["nodes"]["failed"] == 3
    eventually(lambda: cluster.report(namespace, "broken")["status"]["message"] == words)


def test_a_node_that_fails_after_the_completion_is_shown(cluster, namespace):
    first, later = cluster.nodes[:2]
    with labelled(cluster, LABEL, first):
        selected = {"selector": {"matchLabels": {LABEL: "in"}}}
        job = make_job(
            "standing",
            namespace,
            nodes=selected,
            backoffLimit=0,
            ttlSecondsAfterFinished=KEEP,
            **on(later, "exit 3"),
        )
        cluster.apply(job)
        wait_condition(cluster, namespace, "standing", "Complete")
        cluster.kubectl("label", "node", later, f"{LABEL}=in")
        says(cluster, namespace, "standing", f"1 of 2 nodes completed, 1 failed ({later})")
        assert cluster.status(namespace, "standing")["phase"] == "Succeeded"
        eventually(lambda: "NodeFailed" in reasons(cluster, namespace, "standing"), 30)


def test_a_completed_job_that_is_widened_does_the_rest(cluster, namespace, folder):
    first = cluster.nodes[0]
    job = make_job(
        "canary",
        namespace,
        mountPath=folder,
        nodes={"include": [first]},
        ttlSecondsAfterFinished=KEEP,
        **working("sleep 1"),
    )
    cluster.apply(job)
    wait_condition(cluster, namespace, "canary", "Complete")
    ended = cluster.status(namespace, "canary")["completionTime"]

    patch_spec(cluster, namespace, "canary", '{"nodes":null}')

    eventually(lambda: "NodesAdded" in reasons(cluster, namespace, "canary"), 30, "NodesAdded")
    wait_condition(cluster, namespace, "canary", "Complete")
    assert cluster.runs(folder, "finished") == dict.fromkeys(cluster.nodes, 1)
    status = cluster.status(namespace, "canary")
    assert status["nodes"]["completed"] == 3
    assert status["completionTime"] > ended
    assert cluster.report(namespace, "canary")["status"]["phase"] == "Succeeded"


@pytest.mark.on_demand
def test_a_retry_acts_while_the_kubelet_backs_off(cluster, namespace, folder):
    """After three failures the kubelet waits for 40 s and more; the retry does not."""
    node = cluster.nodes[0]
    script = f"[ -e /basetarget/fixed ] && echo done && {{ {WAIT}; }}; exit 1"
    job = make_job(
        "repaired",
        namespace,
        mountPath=folder,
        nodes={"include": [node]},
        backoffLimit=50,
        **shell(script),
    )
    cluster.apply(job)

    def restarts():
        (pod,) = cluster.pods(namespace, "repaired")
        (container,) = pod["status"].get("containerStatuses", [{"restartCount": 0}])
        return container["restartCount"]

    eventually(lambda: restarts() >= 3, 120, "three restarts")
    cluster.on_node(node, f"touch {folder}/fixed")
    cluster.kubectl("annotate", "dsj", "repaired", "-n", namespace, f"{RETRY}=1")
    began = time.monotonic()
    cluster.wait_gone(namespace, "repaired", timeout=40)
    assert time.monotonic() - began < 40
    events = {e["reason"]: e["message"] for e in cluster.events(namespace, "repaired")}
    assert events["Retrying"] == f"1 of 1 nodes are tried again ({node})"


def test_a_retry_without_anything_to_retry_says_so(cluster, namespace, folder):
    task = working("while [ ! -e /basetarget/go ]; do sleep 0.2; done")
    cluster.apply(make_job("busy", namespace, mountPath=folder, **task))
    eventually(lambda: cluster.node_totals(namespace, "busy").get("active") == 3, 60)
    cluster.kubectl("annotate", "dsj", "busy", "-n", namespace, f"{RETRY}=1")
    eventually(lambda: "NothingToRetry" in reasons(cluster, namespace, "busy"), 30)
    assert cluster.runs(folder) == dict.fromkeys(cluster.nodes, 1)
    cluster.on_all_nodes(f"touch {folder}/go")
    cluster.wait_gone(namespace, "busy")


@pytest.mark.on_demand
def test_a_raised_quota_is_used_within_seconds(cluster, namespace):
    """By then the DaemonSet controller would wait for a minute before it tries again."""
    set_quota(cluster, namespace, "tight", pods="0")
    cluster.apply(make_job("squeezed", namespace, **shell("echo done;" + WAIT)))
    says(cluster, namespace, "squeezed", "exceeded quota: tight")
    time.sleep(60)
    patch = '{"spec":{"hard":{"pods":"9"}}}'
    cluster.kubectl("patch", "quota", "tight", "-n", namespace, "--type=merge", "-p", patch)
    cluster.wait_gone(namespace, "squeezed", timeout=30)


def test_a_volume_that_cannot_be_mounted_is_reported_in_the_kubelets_words(cluster, namespace):
    template = {
        "spec": {
            "volumes": [{"name": "script", "configMap": {"name": "nocm"}}],
            "containers": [
                {"name": "job-container", "volumeMounts": [{"name": "script", "mountPath": "/s"}]}
            ],
        }
    }
    job = make_job("scripted", namespace, template=template, **shell("sh /s/run; " + WAIT))
    cluster.apply(job)
    found = says(cluster, namespace, "scripted", 'configmap "nocm" not found', 90)
    assert found.startswith("3 of 3 nodes have not started the task")
    cluster.kubectl("create", "configmap", "nocm", "-n", namespace, "--from-literal=run=echo done")
    cluster.wait_gone(namespace, "scripted", timeout=150)


def test_a_task_that_exits_after_its_token_is_reported_once_and_stopped(cluster, namespace, folder):
    slow = cluster.nodes[0]
    go = f'[ "$NODE_NAME" != {slow} ] || while [ ! -e /basetarget/go ]; do sleep 0.2; done'
    job = make_job(
        "hasty",
        namespace,
        mountPath=folder,
        **shell(f"{go}; echo $$ >> /basetarget/runs; echo done"),
    )
    cluster.apply(job)
    others = cluster.nodes[1:]
    eventually(lambda: "TaskExited" in reasons(cluster, namespace, "hasty"), 60, "TaskExited")
    said = [e["message"] for e in cluster.events(namespace, "hasty") if e["reason"] == "TaskExited"]
    assert len(said) == 1
    assert "set spec.completion.mode to Exit" in said[0]

    def are_gated():
        pods = [p for p in cluster.pods(namespace, "hasty") if p["spec"].get("schedulingGates")]
        return len(pods) == len(others)

    eventually(are_gated, 60, "gated pods replace those of the completed nodes")
    before = cluster.runs(folder)
    consistently(lambda: cluster.runs(folder) == before, 15)
    assert all(before[node] <= 3 for node in others)
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "hasty")


def test_the_report_answers_when_the_job_is_gone(cluster, namespace):
    script = 'echo "dsjob:result kernel=$(uname -r)"; echo done; ' + WAIT
    results = [{"name": "kernel"}]
    job = make_job("facts", namespace, results=results, ttlSecondsAfterFinished=5, **shell(script))
    cluster.apply(job)
    name = eventually(lambda: cluster.status(namespace, "facts").get("report"), 30)
    wait = ("--for=condition=Complete", "--timeout=90s", "-n", namespace)
    cluster.kubectl("wait", *wait, f"dsjr/{name}")
    rows = '{range .status.nodeList[*]}{.name} {.state} {.results.kernel}{"\\n"}{end}'
    table = cluster.kubectl("get", "dsjr", name, "-n", namespace, "-o", f"jsonpath={rows}")
    lines = [line.split() for line in table.splitlines()]
    assert [line[:2] for line in lines] == [[node, "Completed"] for node in sorted(cluster.nodes)]
    assert len({line[2] for line in lines}) == 1  # the nodes of this cluster share a kernel


@pytest.mark.on_demand
def test_a_report_that_is_put_back_is_left_as_it_is(cluster, namespace):
    cluster.apply(make_job("kept", namespace, **shell("echo done;" + WAIT)))
    cluster.wait_gone(namespace, "kept")
    saved = cluster.report(namespace, "kept")
    assert saved["status"]["phase"] == "Succeeded"
    name = saved["metadata"]["name"]
    cluster.kubectl("delete", "dsjr", name, "-n", namespace)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(saved))

    def is_untouched():
        found = cluster.report(namespace, "kept")
        return "status" not in found and found["evidence"] == saved["evidence"]

    consistently(is_untouched, 20)

    for field in ("uid", "resourceVersion"):
        del saved["metadata"][field]
    replace_status = ("replace", "--subresource=status", "-n", namespace, "-f", "-")
    cluster.kubectl(*replace_status, stdin=json.dumps(saved))
    consistently(lambda: cluster.report(namespace, "kept")["status"] == saved["status"], 10)


def test_the_report_of_a_deleted_job_is_cancelled(cluster, namespace):
    cluster.apply(make_job("stopped", namespace, **shell(WAIT)))
    eventually(lambda: cluster.node_totals(namespace, "stopped").get("active") == 3, 60)
    name = cluster.status(namespace, "stopped")["report"]
    cluster.kubectl("delete", "dsj", "stopped", "-n", namespace)
    wait = ("--for=condition=Cancelled", "--timeout=60s", "-n", namespace)
    cluster.kubectl("wait", *wait, f"dsjr/{name}")
    assert cluster.report(namespace, "stopped")["status"]["completionTime"]
