"""Bad input and faults: what goes wrong is said, nothing is counted that is not true, and
whatever dies, the work goes on where it was."""

import json
import time
from contextlib import contextmanager

import pytest

from tests.e2e.cluster import TASK_IMAGE, WAIT, consistently, counting, eventually, make_job
from tests.e2e.jobs import set_quota, shell

GO = "while [ ! -e /basetarget/go ]; do sleep 0.2; done"


def only_slow_waits(node: str) -> str:
    return f'[ "$NODE_NAME" = {node} ] && {GO}'


def progressing(cluster, namespace, name, reason, seconds=60):
    """Wait for the condition and its event; return the condition's message."""
    found = eventually(
        lambda: (
            (c := cluster.condition(namespace, name, "Progressing")).get("reason") == reason and c
        ),
        seconds,
        f"Progressing {reason}",
    )
    assert found["status"] == "False"
    event = eventually(
        lambda: next((e for e in cluster.events(namespace, name) if e["reason"] == reason), None)
    )
    assert event["type"] == "Warning"
    return found["message"]


# --- what cannot run ---------------------------------------------------------------------


def test_an_image_that_does_not_exist_is_said(cluster, namespace):
    cluster.apply(make_job("nope", namespace, image="localhost/nope:missing"))

    assert "localhost/nope:missing" in progressing(cluster, namespace, "nope", "ImagePullFailed")
    eventually(
        lambda: (
            "3 of 3 nodes cannot pull the image"
            in cluster.condition(namespace, "nope", "Progressing")["message"]
        )
    )


def test_a_quota_that_forbids_the_pods_is_said_and_its_end_is_noticed(cluster, namespace):
    set_quota(cluster, namespace, "none", pods="0")
    cluster.apply(make_job("squeezed", namespace, command=["sh", "-c"], args=["echo done;" + WAIT]))

    message = progressing(cluster, namespace, "squeezed", "FailedCreate")
    assert "exceeded quota: none" in message

    cluster.kubectl("delete", "quota", "none", "-n", namespace)
    cluster.wait_gone(namespace, "squeezed", timeout=180)


def test_pod_security_that_forbids_the_pods_is_said(cluster, namespace):
    cluster.kubectl(
        "label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"
    )
    cluster.apply(make_job("forbidden", namespace, mountPath="/tmp"))

    message = progressing(cluster, namespace, "forbidden", "FailedCreate")

    assert "violates PodSecurity" in message
    assert "hostPath" in message


@pytest.mark.on_demand
def test_a_scheduler_that_does_not_exist_is_said(cluster, namespace):
    template = {"spec": {"schedulerName": "batch-schedular"}}
    cluster.apply(make_job("unseen", namespace, template=template, **shell("echo done;" + WAIT)))

    message = progressing(cluster, namespace, "unseen", "NotScheduled", 100)

    assert "schedulerName in spec.template" in message


def templated(namespace, **container):
    """Return a Job whose template has these fields of the task's container."""
    template = {"spec": {"containers": [{"name": "job-container", **container}]}}
    return make_job("odd", namespace, template=template, **shell("echo done;" + WAIT))


def test_a_template_that_is_no_pod_is_refused_at_apply(cluster, namespace):
    done = cluster.run("apply", "-f", "-", stdin=json.dumps(templated(namespace, nonsense=True)))
    assert done.returncode != 0
    assert "unknown field" in done.stderr
    assert "nonsense" in done.stderr


def test_refused_template_is_reported_and_can_be_corrected(cluster, namespace):
    cluster.apply(templated(namespace, resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}))

    message = progressing(cluster, namespace, "odd", "DaemonSetRefused")

    assert "must be less than or equal to cpu limit" in message
    cluster.apply(templated(namespace, resources={"requests": {"cpu": "10m"}}))
    cluster.wait_gone(namespace, "odd")
    assert cluster.completed(namespace, "odd") == set(cluster.nodes)


def test_a_task_that_fails_is_started_again_and_said(cluster, namespace):
    cluster.apply(make_job("failing", namespace, command=["sh", "-c"], args=["exit 3"]))

    assert "exit 3" in progressing(cluster, namespace, "failing", "TaskFailing")


def test_a_command_that_the_image_does_not_have_is_named(cluster, namespace):
    cluster.apply(make_job("missing", namespace, command=["nosuch"], backoffLimit=0))
    message = progressing(cluster, namespace, "missing", "Failed")
    assert "exit 128 (StartError)" in message
    assert '"nosuch": executable file not found in $PATH' in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"mountPath": "tmp"}, "spec.mountPath", id="relative mountPath"),
        pytest.param({"completion": {"token": ""}}, "token", id="empty token"),
        pytest.param({"image": ""}, "spec.image", id="no image"),
        pytest.param({"mountpath": "/tmp"}, 'unknown field "spec.mountpath"', id="unknown field"),
    ],
)
def test_bad_input_is_refused_at_apply_with_field_and_fix(cluster, namespace, spec, words):
    done = cluster.run("apply", "-f", "-", stdin=json.dumps(make_job("bad", namespace, **spec)))

    assert done.returncode != 0
    assert words in done.stderr
    assert cluster.job(namespace, "bad") is None


# --- what must not count -----------------------------------------------------------------


def test_a_pod_with_forged_labels_counts_for_nothing(cluster, namespace, folder):
    slow = cluster.nodes[0]
    job = make_job("true", namespace, mountPath=folder, **counting(before=only_slow_waits(slow)))
    cluster.apply(job)
    others = set(cluster.nodes) - {slow}
    eventually(lambda: cluster.completed(namespace, "true") == others)
    forged = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "forged",
            "namespace": namespace,
            "labels": {
                "daemonset": "true-daemonset-job",
                "job": "true",
                "daemonset-job": "true",
            },
        },
        "spec": {
            "nodeName": slow,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "job-container",
                    "image": TASK_IMAGE,
                    "command": ["sh", "-c", "echo done;" + WAIT],
                }
            ],
        },
    }
    cluster.apply(forged)
    eventually(lambda: "done" in cluster.run("logs", "forged", "-n", namespace).stdout)

    consistently(lambda: cluster.completed(namespace, "true") == others, 4)
    assert cluster.job(namespace, "true") is not None

    cluster.on_node(slow, f"touch {folder}/go")
    cluster.kubectl("delete", "pod", "forged", "-n", namespace)
    cluster.wait_gone(namespace, "true")


def test_a_task_pod_deleted_during_the_run_is_replaced_and_done(cluster, namespace, folder):
    slow = cluster.nodes[0]
    job = make_job(
        "replaced", namespace, mountPath=folder, **counting(before=only_slow_waits(slow))
    )
    cluster.apply(job)
    cluster.wait_only(namespace, "replaced", slow, folder)
    by_node = {p["spec"]["nodeName"]: p for p in cluster.pods(namespace, "replaced")}

    for node in cluster.nodes[:2]:
        cluster.kubectl("delete", "pod", by_node[node]["metadata"]["name"], "-n", namespace)

    eventually(lambda: cluster.runs(folder)[slow] == 2, 60, "the work started again")
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "replaced")
    # The node that had completed does not do its work again: its new pod waits at the gate.
    assert cluster.runs(folder) == {n: (2 if n == slow else 1) for n in cluster.nodes}


def test_a_daemon_set_deleted_during_the_run_is_made_again(cluster, namespace, folder):
    slow = cluster.nodes[0]
    job = make_job("again", namespace, mountPath=folder, **counting(before=only_slow_waits(slow)))
    cluster.apply(job)
    cluster.wait_only(namespace, "again", slow, folder)

    cluster.kubectl("delete", "daemonset", "again-daemonset-job", "-n", namespace)

    eventually(lambda: cluster.runs(folder)[slow] == 2, 90, "the work started again")
    eventually(
        lambda: "DaemonSetRecreated" in {e["reason"] for e in cluster.events(namespace, "again")}
    )
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "again")
    assert cluster.runs(folder) == {n: (2 if n == slow else 1) for n in cluster.nodes}


# --- what dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("program", ["terminator", "job-controller"])
@pytest.mark.alone
def test_a_killed_process_goes_on_where_it_was(cluster, namespace, folder, program):
    slow = cluster.nodes[0]
    job = make_job("kill", namespace, mountPath=folder, **counting(before=only_slow_waits(slow)))
    cluster.apply(job)
    eventually(lambda: cluster.completed(namespace, "kill"), 60, "the first completion")

    cluster.kill(program)
    cluster.on_node(slow, f"touch {folder}/go")

    cluster.wait_gone(namespace, "kill", timeout=120)
    assert set(cluster.runs(folder).values()) == {1}
    assert cluster.report(namespace, "kill")["status"]["phase"] == "Succeeded"


@pytest.mark.on_demand
@pytest.mark.alone
def test_both_killed_before_the_first_completion(cluster, namespace, folder):
    cluster.apply(make_job("both", namespace, mountPath=folder, **counting()))
    cluster.kill("job-controller")
    cluster.kill("terminator")

    cluster.wait_gone(namespace, "both", timeout=120)
    assert set(cluster.runs(folder).values()) == {1}


@contextmanager
def without(cluster, component):
    """Have the kubelet end a static pod of the control plane for a while."""
    control_plane = next(
        n["metadata"]["name"]
        for n in cluster.get("nodes")["items"]
        if "node-role.kubernetes.io/control-plane" in n["metadata"]["labels"]
    )
    manifest, aside = f"/etc/kubernetes/manifests/{component}.yaml", f"/root/{component}.yaml"
    cluster.on_node(control_plane, f"mv {manifest} {aside}")
    try:
        yield
    finally:
        cluster.on_node(control_plane, f"mv {aside} {manifest}")


@pytest.mark.on_demand
@pytest.mark.alone
def test_the_api_server_going_away_for_a_minute(cluster, namespace, folder):
    slow = cluster.nodes[-1]
    job = make_job("away", namespace, mountPath=folder, **counting(before=only_slow_waits(slow)))
    cluster.apply(job)
    cluster.wait_only(namespace, "away", slow, folder)

    with without(cluster, "kube-apiserver"):
        time.sleep(30)
        cluster.on_node(slow, f"touch {folder}/go")
        time.sleep(30)

    eventually(lambda: cluster.run("get", "nodes").returncode == 0, 120, "the API server is back")
    eventually(lambda: cluster.run("get", "dsj", "away", "-n", namespace).returncode != 0, 120)
    # A kubelet that lost its API server tries again after 30 seconds at most, jittered up to
    # twice that (the reflectors of client-go): only then does it see that its pod is to end.
    cluster.wait_gone(namespace, "away", timeout=180)
    assert set(cluster.runs(folder).values()) == {1}


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_daemon_set_controller_that_is_away_is_said(cluster, namespace, folder):
    with without(cluster, "kube-controller-manager"):
        # The kubelet needs a moment to end it.
        time.sleep(20)
        cluster.apply(make_job("stalled", namespace, mountPath=folder, **counting()))
        message = progressing(cluster, namespace, "stalled", "DaemonSetStalled", 90)
        assert "check that kube-controller-manager is running" in message
    cluster.wait_gone(namespace, "stalled", timeout=180)
    assert set(cluster.runs(folder).values()) == {1}
