"""The verbs of kubectl dsjob against a real API server; the test plays the controller."""

import csv
import io
import os
import subprocess
import sys
import threading
import time

import pytest
import yaml

from tests.integration.jobs import API_VERSION, job
from tests.integration.kube_env import ROOT

COUNTS = {"desired": 2, "waiting": 0, "active": 0, "completed": 1, "failed": 1, "unreachable": 0}
STATES = {
    "n1": {"uid": "u1", "state": "Completed", "attempts": 1, "exitCode": 0},
    "n2": {"uid": "u2", "state": "Failed", "attempts": 2, "exitCode": 2, "message": "no disk"},
}


@pytest.fixture
def dsjob(kube_env, namespace):
    """Run the plugin as a process: its arguments to its end."""
    config = kube_env.folder / "cli-kubeconfig"
    if not config.exists():
        config.write_bytes((kube_env.folder / "kubeconfig").read_bytes())

    def call(*args):
        return subprocess.run(
            [sys.executable, "-m", "kubectl_dsjob.main", *args, "-n", namespace],
            env={**os.environ, "KUBECONFIG": str(config), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def add_report(env, namespace, uid, status, *, job="sweep", evidence=None):
    name = f"{job}-{uid}"
    labels = {"job": job, "daemonset.darkowlzz.space/job-uid": uid}
    manifest = (
        f'{{"apiVersion":"{API_VERSION}","kind":"Job","metadata":{{"name":"x"}},'
        '"spec":{"image":"example/task:v1"}}'
    )
    body = {
        "apiVersion": API_VERSION,
        "kind": "JobReport",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"job": {"name": job, "uid": uid}, "image": "i", "manifest": manifest},
        "evidence": evidence or {},
    }
    env.apply(body)
    env.patch_status("dsjr", name, namespace, status)
    return name


def finished(phase="Succeeded", **more):
    return {"phase": phase, "nodes": COUNTS, "nodeStates": STATES, "message": "the end", **more}


def test_run_creates_the_job_and_list_and_status_show_it(dsjob, kube_env, namespace):
    done = dsjob("run", "sweep", "--image", "i:v1", "--mount", "/tmp", "--no-wait")
    assert done.returncode == 0, done
    assert done.stdout == ""
    assert kube_env.get("dsj", "sweep", namespace)["spec"]["mountPath"] == "/tmp"
    kube_env.patch_status("dsj", "sweep", namespace, {"phase": "Running", "nodes": COUNTS})
    assert "sweep   Running   2" in dsjob("list").stdout
    assert "1 of 2 nodes completed, 1 failed" in dsjob("status", "sweep").stdout


def test_a_second_run_of_the_name_is_refused_with_a_way_out(dsjob):
    assert dsjob("run", "sweep", "--image", "i:v1", "--no-wait").returncode == 0
    done = dsjob("run", "sweep", "--image", "i:v1")
    assert done.returncode == 1
    assert "kubectl delete dsj sweep" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("who", ["client", "server"])
def test_a_dry_run_prints_the_manifest_and_creates_nothing(dsjob, who):
    args = ("--image", "i", "--nodes", "role=edge", f"--dry-run={who}", "-o", "yaml", "--", "/fix")
    done = dsjob("run", "sweep", "-n", "ignored", *args[:-2])
    done = done if done.returncode == 0 else dsjob("run", "sweep", *args[:-2])
    assert done.returncode == 0, done
    spec = yaml.safe_load(done.stdout)["spec"]
    assert spec["nodes"] == {"selector": {"matchLabels": {"role": "edge"}}}
    assert "no Jobs" in dsjob("list").stderr


def test_a_canary_is_what_the_api_server_takes(dsjob):
    args = ("--canary", "1", "--max-parallel", "10%", "--dry-run=server", "-o", "yaml")
    done = dsjob("run", "sweep", "--image", "i", *args)
    assert done.returncode == 0, done
    rollout = yaml.safe_load(done.stdout)["spec"]["rollout"]
    assert rollout["maxParallel"] == "10%"
    assert rollout["steps"] == [{"nodes": 1, "approval": "Required"}]


def test_the_report_answers_for_a_deleted_job(dsjob, kube_env, namespace):
    add_report(kube_env, namespace, "uid-1", finished())
    done = dsjob("wait", "sweep")
    assert done.returncode == 3, done
    assert "the end" in done.stderr


def test_wait_survives_the_deletion_of_the_job(dsjob, kube_env, namespace):
    assert dsjob("run", "sweep", "--image", "i", "--no-wait").returncode == 0
    uid = kube_env.get("dsj", "sweep", namespace)["metadata"]["uid"]
    name = add_report(kube_env, namespace, uid, {"phase": "Running"})

    def end():
        time.sleep(3)
        kube_env.kubectl("delete", "dsj", "sweep", "-n", namespace)
        time.sleep(1)
        counts = {**COUNTS, "completed": 2, "failed": 0}
        kube_env.patch_status("dsjr", name, namespace, {"phase": "Succeeded", "nodes": counts})

    thread = threading.Thread(target=end)
    thread.start()
    done = dsjob("wait", "sweep", "--timeout", "40")
    thread.join()
    assert done.returncode == 0, done


def test_wait_has_an_exit_code_for_each_end(dsjob, kube_env, namespace):
    assert dsjob("wait", "sweep").returncode == 1
    assert dsjob("run", "sweep", "--image", "i", "--no-wait").returncode == 0
    assert dsjob("wait", "sweep", "--timeout", "0.2").returncode == 4
    add_report(kube_env, namespace, "other", finished("Failed"), job="other")
    assert dsjob("wait", "other").returncode == 1


def test_report_results_history_and_diff_read_the_reports(dsjob, kube_env, namespace, tmp_path):
    found = {"n1": {"nodeUID": "u1", "completedAt": "2025-01-01T00:00:00Z"}}
    one = add_report(kube_env, namespace, "uid-1", finished(), evidence=found)
    evidence = {"n1": {**found["n1"], "results": {"kernel": "6.1"}}}
    two = add_report(kube_env, namespace, "uid-2", finished(), evidence=evidence)
    kube_env.patch_status("dsjr", one, namespace, {"startTime": "2025-01-01T00:00:00Z"})
    kube_env.patch_status("dsjr", two, namespace, {"startTime": "2025-01-02T00:00:00Z"})
    rows = list(csv.DictReader(io.StringIO(dsjob("results", "sweep", "-o", "csv").stdout)))
    assert rows == [{"node": "n1", "kernel": "6.1"}, {"node": "n2", "kernel": ""}]
    assert "no disk" in dsjob("report", "sweep", "-o", "wide").stdout
    assert dsjob("history", "sweep").stdout.index(one) < dsjob("history", "sweep").stdout.index(two)
    assert "result kernel" in dsjob("diff", one, two).stdout
    page = tmp_path / "page.html"
    assert dsjob("report", "sweep", "--html", str(page)).returncode == 0
    assert "no disk" in page.read_text()


def test_pause_resume_retry_and_rerun_write_what_kubectl_would(dsjob, kube_env, namespace):
    assert dsjob("run", "sweep", "--image", "i", "--no-wait").returncode == 0
    assert dsjob("pause", "sweep").returncode == 0
    assert kube_env.get("dsj", "sweep", namespace)["spec"]["suspend"] is True
    assert "resume sweep" in dsjob("status", "sweep").stdout
    assert dsjob("resume", "sweep").returncode == 0
    assert dsjob("retry", "sweep", "--failed").returncode == 0
    annotations = kube_env.get("dsj", "sweep", namespace)["metadata"]["annotations"]
    assert annotations["daemonset.darkowlzz.space/retry"]
    assert "not Continuous" in dsjob("rerun", "sweep").stderr
    kube_env.kubectl("delete", "dsj", "sweep", "-n", namespace)
    assert dsjob("retry", "sweep").returncode == 1
    add_report(kube_env, namespace, "uid-1", finished())
    assert dsjob("rerun", "sweep").returncode == 0
    assert kube_env.get("dsj", "sweep", namespace)["spec"]["image"] == "example/task:v1"


def test_a_rerun_of_a_continuous_job_names_its_nodes(dsjob, kube_env, namespace):
    spec = {"image": "i:v1", "completion": {"policy": "Continuous"}}
    kube_env.apply(job(namespace, spec, name="agent"))
    uid = kube_env.get("dsj", "agent", namespace)["metadata"]["uid"]
    add_report(kube_env, namespace, uid, finished(), job="agent")
    assert dsjob("rerun", "agent", "--node", "n1", "--node", "n2").returncode == 0
    annotations = kube_env.get("dsj", "agent", namespace)["metadata"]["annotations"]
    assert annotations["daemonset.darkowlzz.space/rerun"].startswith("n1,n2@")
    assert dsjob("rerun", "agent").returncode == 0
    annotations = kube_env.get("dsj", "agent", namespace)["metadata"]["annotations"]
    assert annotations["daemonset.darkowlzz.space/rerun"].startswith("*@")


def test_a_rerun_of_a_node_that_there_is_not_is_refused(dsjob, kube_env, namespace):
    spec = {"image": "i:v1", "completion": {"policy": "Continuous"}}
    kube_env.apply(job(namespace, spec, name="agent"))
    for node in ("nosuchnode", "n1,n2", "no/node", "*"):
        done = dsjob("rerun", "agent", "--node", node)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert f"error: agent has no such node: {node}" in done.stderr
    uid = kube_env.get("dsj", "agent", namespace)["metadata"]["uid"]
    states = {**STATES, "gone": {"uid": "u3", "state": "Removed"}}
    add_report(kube_env, namespace, uid, finished(nodeStates=states), job="agent")
    done = dsjob("rerun", "agent", "--node", "n2", "--node", "n22")
    assert "error: agent has no such node: n22\nDid you mean n2?" in done.stderr
    assert dsjob("rerun", "agent", "--node", "gone").returncode == 2
    annotations = kube_env.get("dsj", "agent", namespace)["metadata"]["annotations"]
    assert "daemonset.darkowlzz.space/rerun" not in annotations


def test_a_rerun_of_a_node_that_is_in_no_report_yet_says_so(dsjob, kube_env, namespace):
    spec = {"image": "i:v1", "completion": {"policy": "Continuous"}}
    kube_env.apply(job(namespace, spec, name="agent"))
    kube_env.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"new-{namespace}"}})
    done = dsjob("rerun", "agent", "--node", f"new-{namespace}")
    # Jobs of other tests would count it: it has a taint.
    kube_env.kubectl("delete", "node", f"new-{namespace}")
    assert done.returncode == 0, done
    assert f"not among the nodes of agent so far: new-{namespace}." in done.stderr
    assert "RerunIgnored" in done.stderr


def test_results_of_an_earlier_revision_are_marked(dsjob, kube_env, namespace):
    spec = {"image": "i:v1", "completion": {"policy": "Continuous"}}
    kube_env.apply(job(namespace, spec, name="agent"))
    uid = kube_env.get("dsj", "agent", namespace)["metadata"]["uid"]
    evidence = {
        node: {
            "nodeUID": uid_,
            "revision": revision,
            "completedAt": "2026-01-01T00:00:00Z",
            "results": {"kernel": value},
        }
        for node, uid_, revision, value in (
            ("n1", "u1", "1-0123456789abcdef", "5.15"),
            ("n2", "u2", "2-0123456789abcdef", "6.1"),
        )
    }
    add_report(kube_env, namespace, uid, finished(), job="agent", evidence=evidence)
    kube_env.patch_status("dsj", "agent", namespace, {"revision": "2-0123456789abcdef"})
    done = dsjob("results", "agent", "-o", "csv")
    assert done.stdout.splitlines() == [
        "node,revision,kernel",
        "n1,1-0123456789abcdef,5.15",
        "n2,2-0123456789abcdef,6.1",
    ]
    assert "results of 1 node are of an earlier revision than 2-0123456789abcdef: n1" in done.stderr


def test_without_a_cluster_the_error_is_a_sentence(dsjob, tmp_path):
    done = dsjob("list", "--kubeconfig", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "--kubeconfig" in done.stderr
    assert "Traceback" not in done.stderr
