"""The main job: the seed manifest, many Jobs, late nodes, and no completion before its time."""

import time

import pytest
import yaml

from tests.e2e.cluster import TASK_IMAGE, WAIT, consistently, counting, eventually, make_job
from tests.e2e.jobs import one_at_a_time


def test_seed_manifest_cleans_every_node_and_is_deleted(cluster, namespace):
    manifest = (cluster.root / "examples" / "01-cleanup" / "job.yaml").read_text()
    assert yaml.safe_load(manifest) == {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": "job-sample"},
        "spec": {
            "image": "darkowlzz/cleanup:v0.0.2",
            "args": ["/basetarget/foo"],
            "mountPath": "/tmp",
        },
    }
    assert len(cluster.nodes) >= 3
    with one_at_a_time("tmp-foo"):
        cluster.on_all_nodes(
            "mkdir -p /tmp/foo/deep /tmp/foobar && echo x > /tmp/foo/deep/file"
            " && echo keep > /tmp/foobar/kept && echo keep > /tmp/kept"
        )

        cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)

        cluster.wait_gone(namespace, "job-sample")
        left = cluster.on_all_nodes("ls -d /tmp/foo /tmp/foobar/kept /tmp/kept 2>/dev/null; true")
        assert set(left.values()) == {"/tmp/foobar/kept\n/tmp/kept\n"}
        report = cluster.report(namespace, "job-sample")
        assert set(report["evidence"]) == set(cluster.nodes)
        assert report["status"]["phase"] == "Succeeded"
        assert report["status"]["nodes"]["completed"] == len(cluster.nodes)
        cluster.on_all_nodes("rm -rf /tmp/foobar /tmp/kept")


def test_five_jobs_at_once_in_three_namespaces_two_of_one_name(
    cluster, namespace, other_namespace, third_namespace, folder
):
    jobs = [
        ("same", namespace),
        ("same", other_namespace),
        ("first", namespace),
        ("second", other_namespace),
        ("third", third_namespace),
    ]
    manifests = []
    for i, (name, where) in enumerate(jobs):
        job = make_job(name, where, mountPath=f"{folder}/{i}", **counting())
        manifests.append(job)

    cluster.apply(*manifests)

    for name, where in jobs:
        cluster.wait_gone(where, name)
    for i, (name, where) in enumerate(jobs):
        assert set(cluster.runs(f"{folder}/{i}").values()) == {1}, (name, where)
        assert cluster.completed(where, name) == set(cluster.nodes)


def test_a_job_waits_for_its_last_node_however_long_it_takes(cluster, namespace, folder):
    slow = cluster.nodes[-1]
    work = f'[ "$NODE_NAME" = {slow} ] && sleep 15'
    cluster.apply(make_job("slow", namespace, mountPath=folder, **counting(before=work)))

    others = set(cluster.nodes) - {slow}
    eventually(lambda: cluster.completed(namespace, "slow") == others, 60)
    first = time.monotonic()
    while True:
        # In this order: the Job may go as soon as its last node has completed.
        job = cluster.job(namespace, "slow")
        if slow in cluster.completed(namespace, "slow"):
            break
        assert job is not None
        assert time.monotonic() - first < 60
        time.sleep(0.3)
    assert time.monotonic() - first > 5
    cluster.wait_gone(namespace, "slow")
    assert set(cluster.runs(folder).values()) == {1}


@pytest.mark.alone
def test_a_job_applied_before_its_node_exists_waits_and_serves_it(cluster, namespace, folder):
    late = cluster.nodes[-1]
    uid = cluster.get("node", late)["metadata"]["uid"]
    cluster.on_node(late, "systemctl stop kubelet")
    try:
        cluster.kubectl("delete", "node", late)
        nodes = {"include": [late]}
        cluster.apply(make_job("late", namespace, nodes=nodes, mountPath=folder, **counting()))
        cluster.apply(make_job("early", namespace, mountPath=folder + "/all", **counting()))
        eventually(
            lambda: (
                cluster.condition(namespace, "late", "Progressing").get("reason")
                == "NoMatchingNodes"
            ),
            30,
        )
        cluster.wait_gone(namespace, "early")
    finally:
        cluster.on_node(late, "systemctl start kubelet")

    cluster.wait_gone(namespace, "late", timeout=120)
    assert cluster.completed(namespace, "late") == {late}
    evidence = cluster.report(namespace, "late")["evidence"][late]
    assert evidence["nodeUID"] != uid
    assert cluster.runs(folder) == {n: (1 if n == late else 0) for n in cluster.nodes}


@pytest.mark.alone
def test_a_node_that_joins_during_the_run_is_done_too(cluster, namespace, folder):
    late, slow = cluster.nodes[-1], cluster.nodes[0]
    work = f'[ "$NODE_NAME" = {slow} ] && while [ ! -e /basetarget/go ]; do sleep 0.2; done'
    cluster.on_node(late, "systemctl stop kubelet")
    try:
        cluster.kubectl("delete", "node", late)
        cluster.apply(make_job("join", namespace, mountPath=folder, **counting(before=work)))
        others = set(cluster.nodes) - {late, slow}
        eventually(lambda: cluster.completed(namespace, "join") == others, 60)
    finally:
        cluster.on_node(late, "systemctl start kubelet")
    eventually(lambda: late in cluster.completed(namespace, "join"), 90)
    assert cluster.job(namespace, "join") is not None

    cluster.on_node(slow, f"touch {folder}/go")

    cluster.wait_gone(namespace, "join")
    assert set(cluster.runs(folder).values()) == {1}


def test_lines_that_only_look_like_the_token_do_not_count(cluster, namespace):
    lines = r"printf 'not done yet\ndone!\n  done?\nDONE\ndone done\n'; "
    script = lines + "while [ ! -e /basetarget/go ]; do sleep 0.2; done; printf ' done \\r\\n'; "
    folder = f"/var/tmp/{namespace}"
    cluster.apply(
        make_job("words", namespace, mountPath=folder, command=["sh", "-c"], args=[script + WAIT])
    )
    eventually(
        lambda: (
            [pod["status"]["phase"] for pod in cluster.pods(namespace, "words")]
            == ["Running"] * len(cluster.nodes)
        )
    )
    consistently(lambda: not cluster.completed(namespace, "words"), 4)

    cluster.on_all_nodes(f"touch {folder}/go")

    cluster.wait_gone(namespace, "words")
    cluster.on_all_nodes(f"rm -rf {folder}")


def test_a_job_of_a_name_of_253_characters_runs(cluster, namespace):
    name = "n" * 253
    cluster.apply(make_job(name, namespace, command=["sh", "-c"], args=["echo done; sleep 3600"]))

    eventually(lambda: cluster.job(namespace, name) is None, 90)
    (report,) = cluster.get("dsjr", "-n", namespace)["items"]
    assert report["spec"]["job"]["name"] == name
    assert report["status"]["phase"] == "Succeeded"


def test_node_selection_may_change_during_the_run(cluster, namespace, folder):
    first, second = cluster.nodes[0], cluster.nodes[1]
    work = "while [ ! -e /basetarget/go ]; do sleep 0.2; done"
    job = make_job(
        "moving",
        namespace,
        nodes={"include": [first]},
        mountPath=folder,
        **counting(before=work),
    )
    cluster.apply(job)
    eventually(lambda: cluster.status(namespace, "moving").get("phase") == "Running")

    job["spec"]["nodes"] = {"include": [first, second]}
    cluster.apply(job)
    eventually(lambda: cluster.node_totals(namespace, "moving").get("desired") == 2)
    cluster.on_all_nodes(f"touch {folder}/go")

    cluster.wait_gone(namespace, "moving")
    assert cluster.completed(namespace, "moving") == {first, second}


def test_a_job_deleted_by_hand_leaves_a_closed_report(cluster, namespace):
    cluster.apply(make_job("stopped", namespace, command=["sleep", "3600"]))
    eventually(lambda: cluster.pods(namespace, "stopped"))

    cluster.kubectl("delete", "dsj", "stopped", "-n", namespace)

    cluster.wait_gone(namespace, "stopped")
    eventually(
        lambda: cluster.report(namespace, "stopped").get("status", {}).get("phase") == "Cancelled",
        30,
    )


def test_a_restarted_container_does_not_do_the_work_again(cluster, namespace, folder):
    slow, done = cluster.nodes[0], cluster.nodes[1]
    wait = {
        "name": "wait",
        "image": TASK_IMAGE,
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "command": ["sh", "-c"],
        "args": [f'[ "$NODE_NAME" != {slow} ] || while [ ! -e /basetarget/go ]; do sleep 1; done'],
        "volumeMounts": [{"name": "basetarget", "mountPath": "/basetarget"}],
    }
    cluster.on_all_nodes(f"mkdir -p {folder}/foo")
    job = make_job(
        "restarted",
        namespace,
        image="darkowlzz/cleanup:v0.0.2",
        args=["/basetarget/foo"],
        mountPath=folder,
        template={"spec": {"initContainers": [wait]}},
    )
    cluster.apply(job)
    eventually(lambda: done in cluster.completed(namespace, "restarted"))
    cluster.on_node(done, f"mkdir {folder}/foo")

    cluster.on_node(
        done,
        "for p in /proc/[0-9]*; do grep -q bin/run-onc[e] $p/cmdline 2>/dev/null"
        " && grep -q basetarget/fo[o] $p/cmdline && kill -9 ${p#/proc/}; done; true",
    )

    def restarts():
        return {
            pod["spec"]["nodeName"]: pod["status"]["containerStatuses"][0]["restartCount"]
            for pod in cluster.pods(namespace, "restarted")
        }

    eventually(lambda: restarts()[done] >= 1, 60, "the container was started again")
    # The slow node's container has no log yet, so the command fails; what it prints is enough.
    logs = ("logs", "-n", namespace, "-l", "job=restarted", "-c", "job-container", "--tail=5")
    eventually(lambda: "done already" in cluster.run(*logs).stdout)
    cluster.on_node(done, f"ls -d {folder}/foo")
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "restarted")
