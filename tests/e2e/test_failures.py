"""Failures on real nodes: what the user sees of each in status, event and report."""

import re
import time

import pytest

from tests.e2e.cluster import WAIT, consistently, counting, eventually, make_job
from tests.e2e.jobs import GO, RETRY, last_lines, on, reasons, shell, state, wait_condition
from tests.e2e.variants import first_of

COUNTED = "echo $$ >> /basetarget/runs"


def runs_on(cluster, node, command):
    """Return whether a process of the node has this command line."""
    each = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$file 2>/dev/null; echo; done"
    lines = cluster.on_node(node, each).splitlines()
    return any(line.strip() == command for line in lines)


def gated_on(cluster, namespace, name, node):
    """Return whether the only pod of a node waits at its scheduling gate."""
    pods = [pod for pod in cluster.pods(namespace, name) if node_of(pod) == node]
    return len(pods) == 1 and bool(pods[0]["spec"].get("schedulingGates"))


def node_of(pod):
    """Return the node that the DaemonSet controller made a pod for."""
    terms = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    return terms[0]["matchFields"][0]["values"][0]


def described_timeline(cluster, namespace):
    """Return the sentences with which `kubectl describe` of the only report ends."""
    text = cluster.kubectl("describe", "dsjr", "-n", namespace).partition("\nEvents:")[0]
    return [line.strip() for line in text.partition("\n  Timeline:\n")[2].splitlines()]


@pytest.fixture(scope="module")
def impatient(cluster):
    """Let the controller give images and nodes little time, for this file only."""
    with cluster.controller_settings(POD_START_TIMEOUT="5s", NODE_UNREACHABLE_GRACE_PERIOD="5s"):
        yield


# --- a node fails ------------------------------------------------------------------------


def test_failing_exit_code_is_reported_for_node_and_run(cluster, namespace):
    bad = cluster.nodes[0]
    task = on(bad, "echo working; echo disk full; exit 2")
    cluster.apply(make_job("exits", namespace, backoffLimit=0, **task))

    failed = wait_condition(cluster, namespace, "exits", "Failed")

    assert failed["reason"] == "MaxFailedNodesExceeded"
    # The kubelet starts a failed task again at once, before anybody can judge it.
    expected = rf"1 of 3 nodes failed: {bad} exit 2 (at the first attempt|after \d attempts)"
    assert re.match(expected, failed["message"]), failed["message"]
    eventually(lambda: "'disk full'" in state(cluster, namespace, "exits", bad)["message"])
    job = cluster.job(namespace, "exits")
    assert job["status"]["phase"] == "Failed"
    assert job["status"]["nodes"]["failed"] == 1
    assert job["status"]["nodes"]["failedNames"] == bad
    eventually(lambda: "Failed" in reasons(cluster, namespace, "exits"))
    eventually(lambda: cluster.report(namespace, "exits")["status"]["nodes"]["completed"] == 2)
    record = state(cluster, namespace, "exits", bad)
    assert (record["state"], record["reason"]) == ("Failed", "BackoffLimitExceeded")
    assert record["exitCode"] == 2
    evidence = cluster.report(namespace, "exits")["evidence"][bad]
    assert evidence["lastLines"][-1] == "disk full"
    assert "completedAt" not in evidence
    # It stays, its pods too, and its table and its timeline can be read.
    consistently(lambda: cluster.job(namespace, "exits") is not None, 3)
    # The pod of the failed node may still end beside its successor.
    eventually(lambda: len(cluster.pods(namespace, "exits")) == 3)
    table = cluster.kubectl("get", "dsjr", "-n", namespace)
    assert re.search(r"exits\s+Failed\s+3\s+2\s+1", table), table
    timeline = described_timeline(cluster, namespace)
    assert re.fullmatch(r"\S+Z started on 3 nodes", timeline[0]), timeline
    assert any(re.match(rf"\+\d+s {bad} failed: exit 2 .*'disk full'", line) for line in timeline)
    assert re.match(r"\+\d+s the run failed: 1 of 3 nodes failed", timeline[-1]), timeline


def test_restarts_up_to_the_limit_and_then_success(cluster, namespace, folder):
    bad = cluster.nodes[0]
    script = (
        "echo x >> /basetarget/runs; "
        f'[ "$NODE_NAME" = {bad} ] && [ "$(wc -l < /basetarget/runs)" -lt 3 ] && exit 1; '
        "echo done; " + WAIT
    )
    cluster.apply(make_job("retries", namespace, mountPath=folder, backoffLimit=2, **shell(script)))

    cluster.wait_gone(namespace, "retries", timeout=120)

    record = state(cluster, namespace, "retries", bad)
    assert (record["state"], record["attempts"]) == ("Completed", 3)
    assert cluster.runs(folder)[bad] == 3


def test_rules_fail_at_once_and_ignore(cluster, namespace, folder):
    """The kubelet starts a task again at once. Its next exit code does not change what failed."""
    first, second = cluster.nodes[0], cluster.nodes[1]
    script = (
        f'[ "$NODE_NAME" = {first} ] && [ -e /basetarget/began ] && exit 1; '
        f'[ "$NODE_NAME" = {first} ] && touch /basetarget/began && exit 42; '
        f'[ "$NODE_NAME" = {second} ] && [ ! -e /basetarget/again ]'
        " && touch /basetarget/again && exit 75; echo done; " + WAIT
    )
    rules = [
        {"exitCodes": [42], "action": "Fail"},
        {"exitCodes": [75], "action": "Ignore"},
    ]
    policy = {"action": "Continue", "rules": rules}
    cluster.apply(
        make_job(
            "rules",
            namespace,
            mountPath=folder,
            backoffLimit=0,
            failurePolicy=policy,
            **shell(script),
        )
    )

    wait_condition(cluster, namespace, "rules", "Failed", 120)

    failed = state(cluster, namespace, "rules", first)
    assert (failed["state"], failed["reason"], failed["exitCode"]) == (
        "Failed",
        "FailurePolicyRule",
        42,
    )
    ignored = state(cluster, namespace, "rules", second)
    assert (ignored["state"], ignored["attempts"]) == ("Completed", 2)


def test_a_failure_token_fails_its_node_at_once(cluster, namespace):
    bad = cluster.nodes[0]
    completion = {"failureToken": "gave up"}
    task = on(bad, "echo no route; echo gave up; " + WAIT)
    cluster.apply(make_job("token", namespace, completion=completion, **task))

    failed = wait_condition(cluster, namespace, "token", "Failed")

    assert f"{bad} printed the failure token" in failed["message"]
    assert state(cluster, namespace, "token", bad)["reason"] == "FailureToken"
    assert cluster.report(namespace, "token")["evidence"][bad]["failedAt"]


@pytest.mark.parametrize("mode", first_of(["Log", "Exit"]))
def test_a_node_that_takes_too_long_fails_and_its_task_stops(cluster, namespace, mode):
    """What it waits for was its last line: that is on record before its pod goes."""
    bad, mark = cluster.nodes[0], f"86{len(mode)}11"
    hangs = f"echo waiting for the lock; exec sleep {mark}"
    task = on(bad, hangs) if mode == "Log" else on(bad, hangs, "true")
    job = make_job("late", namespace, nodeDeadlineSeconds=6, completion={"mode": mode}, **task)
    cluster.apply(job)
    eventually(lambda: runs_on(cluster, bad, f"sleep {mark}"), 30, "the task runs")

    failed = wait_condition(cluster, namespace, "late", "Failed")

    assert "nodeDeadlineSeconds (6 s)" in failed["message"]
    assert state(cluster, namespace, "late", bad)["reason"] == "DeadlineExceeded"
    eventually(lambda: not runs_on(cluster, bad, f"sleep {mark}"), 60, "the task is stopped")
    evidence = cluster.report(namespace, "late")["evidence"][bad]
    assert evidence["lastLines"] == ["waiting for the lock"]
    nodes = cluster.job(namespace, "late")["status"]["nodes"]
    assert (nodes["desired"], nodes["completed"], nodes["failed"]) == (3, 2, 1)


def test_a_failed_task_stops_and_its_record_is_worth_it(cluster, namespace, folder):
    """The kubelet would start it again and again; the other tasks go on with their work."""
    bad = cluster.nodes[0]
    fails = "seq -f 'step %g' 70; echo disk full; exit 3"
    cluster.apply(
        make_job(
            "stops",
            namespace,
            mountPath=folder,
            backoffLimit=0,
            **on(bad, f"{COUNTED}; {fails}", f"sleep 25; {COUNTED}; echo done; {WAIT}"),
        )
    )

    wait_condition(cluster, namespace, "stops", "Failed")

    eventually(lambda: gated_on(cluster, namespace, "stops", bad), 30, "its successor waits")
    lines = last_lines(cluster, namespace, "stops", bad)
    assert lines == [*(f"step {n}" for n in range(22, 71)), "disk full"]
    started = cluster.runs(folder)[bad]
    assert started in {1, 2}  # the kubelet may start it once more before its pod is deleted
    eventually(lambda: cluster.job(namespace, "stops")["status"]["nodes"]["completed"] == 2, 60)
    assert cluster.runs(folder)[bad] == started
    assert {cluster.runs(folder)[node] for node in cluster.nodes if node != bad} == {1}


@pytest.mark.alone
def test_an_image_that_cannot_be_pulled_fails_its_nodes(cluster, namespace, impatient):
    cluster.apply(make_job("image", namespace, image="localhost/nope:missing"))

    failed = wait_condition(cluster, namespace, "image", "Failed")

    assert "localhost/nope:missing" in failed["message"]
    nodes = cluster.report(namespace, "image")["status"]["nodeStates"]
    assert "ImagePullFailed" in {record["reason"] for record in nodes.values()}


@pytest.mark.alone
def test_a_pod_without_room_fails_its_node(cluster, namespace, impatient):
    huge = {"name": "job-container", "resources": {"requests": {"cpu": "900"}}}
    template = {"spec": {"containers": [huge]}}
    cluster.apply(make_job("huge", namespace, template=template))

    failed = wait_condition(cluster, namespace, "huge", "Failed")

    assert "Insufficient cpu" in failed["message"]
    nodes = cluster.report(namespace, "huge")["status"]["nodeStates"]
    assert "Unschedulable" in {record["reason"] for record in nodes.values()}


def test_an_evicted_pod_is_no_failure(cluster, namespace, folder):
    slow = cluster.nodes[0]
    work = counting(before=f'[ "$NODE_NAME" = {slow} ] && {GO}')
    cluster.apply(make_job("evicted", namespace, mountPath=folder, backoffLimit=0, **work))
    cluster.wait_only(namespace, "evicted", slow, folder)
    pod = next(p for p in cluster.pods(namespace, "evicted") if p["spec"]["nodeName"] == slow)
    name = pod["metadata"]["name"]
    cluster.evict(namespace, name)

    eventually(lambda: cluster.runs(folder)[slow] == 2, 60, "the work started again")
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "evicted")
    record = state(cluster, namespace, "evicted", slow)
    assert (record["state"], record["attempts"]) == ("Completed", 2)


@pytest.mark.slow
@pytest.mark.alone
def test_an_unreachable_node_is_a_state_of_its_own_and_comes_back(
    cluster, namespace, folder, impatient
):
    """Two Jobs share the outage: one waits for its node, the other fails because of it."""
    lost = cluster.nodes[-1]
    work = counting(before=GO)
    policy = {"action": "Continue"}
    cluster.apply(make_job("lost", namespace, mountPath=folder, failurePolicy=policy, **work))
    cluster.apply(make_job("budget", namespace, **on(lost, WAIT)))
    eventually(lambda: cluster.node_totals(namespace, "lost").get("active") == 3)
    eventually(lambda: len(cluster.completed(namespace, "budget")) == 2)
    eventually(lambda: cluster.node_totals(namespace, "budget").get("active") == 1)
    cluster.on_node(lost, "systemctl stop kubelet")
    try:
        for node in cluster.nodes[:-1]:
            cluster.on_node(node, f"touch {folder}/go")
        eventually(lambda: cluster.node_totals(namespace, "lost").get("unreachable") == 1, 120)
        nodes = cluster.node_totals(namespace, "lost")
        assert (nodes["failed"], nodes["completed"]) == (0, 2)
        assert nodes["unreachableNames"] == lost
        progressing = cluster.condition(namespace, "lost", "Progressing")
        assert progressing["reason"] == "NodesUnreachable"
        assert lost in progressing["message"]

        failed = wait_condition(cluster, namespace, "budget", "Failed", 120)
        assert failed["message"] == f"1 unreachable ({lost})"
        nodes = cluster.node_totals(namespace, "budget")
        assert (nodes["failed"], nodes["unreachable"]) == (0, 1)
    finally:
        cluster.on_node(lost, "systemctl start kubelet")
    cluster.on_node(lost, f"touch {folder}/go")
    cluster.wait_gone(namespace, "lost", timeout=150)
    assert set(cluster.runs(folder).values()) == {1}


@pytest.mark.alone
def test_a_deleted_node_leaves_the_count(cluster, namespace):
    gone = cluster.nodes[-1]
    cluster.apply(make_job("fewer", namespace, **on(gone, WAIT)))
    eventually(lambda: len(cluster.completed(namespace, "fewer")) == 2)
    # What the report does not have is not said of a deleted node.
    eventually(lambda: state(cluster, namespace, "fewer", gone)["state"] == "Active")
    cluster.on_node(gone, "systemctl stop kubelet")
    try:
        cluster.kubectl("delete", "node", gone)
        eventually(lambda: cluster.job(namespace, "fewer") is None, 90)
        assert state(cluster, namespace, "fewer", gone)["state"] == "Removed"
        assert cluster.report(namespace, "fewer")["status"]["phase"] == "Succeeded"
    finally:
        cluster.on_node(gone, "systemctl start kubelet")
        eventually(lambda: cluster.find("node", gone), 60)
        cluster.kubectl("wait", "--for=condition=Ready", f"node/{gone}", "--timeout=90s")


# --- the run -----------------------------------------------------------------------------


def test_continue_lets_every_node_try_and_then_fails(cluster, namespace):
    bad, slow = cluster.nodes[0], cluster.nodes[1]
    script = (
        f'[ "$NODE_NAME" = {bad} ] && exit 3; [ "$NODE_NAME" = {slow} ] && sleep 10; '
        "echo done; " + WAIT
    )
    policy = {"action": "Continue"}
    cluster.apply(make_job("all", namespace, backoffLimit=0, failurePolicy=policy, **shell(script)))

    wait_condition(cluster, namespace, "all", "Failed")

    assert cluster.completed(namespace, "all") == set(cluster.nodes) - {bad}


def test_failed_nodes_within_the_limit_do_not_fail_the_run(cluster, namespace, folder):
    bad = cluster.nodes[0]
    policy = {"action": "Continue", "maxFailedNodes": "34%"}
    task = on(bad, "[ -e /basetarget/fixed ] || exit 3; echo done; " + WAIT)
    job = make_job(
        "most", namespace, mountPath=folder, backoffLimit=0, failurePolicy=policy, **task
    )
    cluster.apply(job)

    complete = wait_condition(cluster, namespace, "most", "Complete")

    assert complete["reason"] == "CompletedWithinFailureLimit"
    assert complete["message"] == f"2 of 3 nodes completed, 1 failed ({bad})"
    # A node failed: the Job stays to be looked at, until that node was tried again.
    consistently(lambda: cluster.job(namespace, "most") is not None, 3)
    cluster.on_node(bad, f"touch {folder}/fixed")
    cluster.kubectl("annotate", "dsj", "most", "-n", namespace, f"{RETRY}=1")
    cluster.wait_gone(namespace, "most")
    assert cluster.completed(namespace, "most") == set(cluster.nodes)


def test_a_paused_run_goes_on_when_its_failed_node_is_tried_again(cluster, namespace, folder):
    bad = cluster.nodes[0]
    task = on(bad, "[ -e /basetarget/fixed ] || exit 4; echo done; " + WAIT)
    policy = {"action": "Pause"}
    job = make_job(
        "paused", namespace, mountPath=folder, backoffLimit=0, failurePolicy=policy, **task
    )
    cluster.apply(job)

    paused = wait_condition(cluster, namespace, "paused", "Suspended")
    assert paused["reason"] == "MaxFailedNodesExceeded"
    assert cluster.status(namespace, "paused")["phase"] == "Paused"
    eventually(lambda: "Paused" in reasons(cluster, namespace, "paused"))

    cluster.on_node(bad, f"touch {folder}/fixed")
    cluster.kubectl("annotate", "dsj", "paused", "-n", namespace, f"{RETRY}=1")
    cluster.wait_gone(namespace, "paused")


def test_a_failed_run_is_opened_by_a_retry_of_its_failed_nodes_only(cluster, namespace, folder):
    bad = cluster.nodes[0]
    script = (
        "echo x >> /basetarget/runs; "
        f'[ "$NODE_NAME" = {bad} ] && [ ! -e /basetarget/fixed ] && exit 4; echo done; ' + WAIT
    )
    cluster.apply(make_job("retry", namespace, mountPath=folder, backoffLimit=0, **shell(script)))
    wait_condition(cluster, namespace, "retry", "Failed")
    eventually(lambda: len(cluster.completed(namespace, "retry")) == 2)
    before = cluster.runs(folder)

    cluster.on_node(bad, f"touch {folder}/fixed")
    cluster.kubectl("annotate", "dsj", "retry", "-n", namespace, f"{RETRY}=again")

    cluster.wait_gone(namespace, "retry")
    assert cluster.runs(folder)[bad] > before[bad]
    assert all(cluster.runs(folder)[n] == 1 for n in cluster.nodes if n != bad)
    assert cluster.report(namespace, "retry")["status"]["phase"] == "Succeeded"
    eventually(lambda: "Retrying" in reasons(cluster, namespace, "retry"))


def test_the_deadline_of_the_run_stops_its_tasks(cluster, namespace):
    slow, command = cluster.nodes[0], "sleep 86411"
    task = on(slow, f"echo at work; exec {command}")
    cluster.apply(make_job("deadline", namespace, activeDeadlineSeconds=40, **task))
    eventually(lambda: len(cluster.completed(namespace, "deadline")) == 2)
    assert runs_on(cluster, slow, command)

    failed = wait_condition(cluster, namespace, "deadline", "Failed")

    assert failed["reason"] == "DeadlineExceeded"
    assert failed["message"] == "2 of 3 nodes completed within activeDeadlineSeconds (40 s)"
    eventually(lambda: not runs_on(cluster, slow, command), 60, "the task is stopped")
    eventually(lambda: not cluster.pods(namespace, "deadline"), 60, "no pod is left")
    evidence = cluster.report(namespace, "deadline")["evidence"][slow]
    assert evidence["lastLines"] == ["at work"]


def test_pods_of_a_failed_run_go_when_asked_and_its_record_stays(cluster, namespace):
    policy = {"pods": "Delete"}
    cluster.apply(
        make_job("tidy", namespace, backoffLimit=0, failurePolicy=policy, **shell("exit 1"))
    )
    wait_condition(cluster, namespace, "tidy", "Failed")

    eventually(lambda: not cluster.pods(namespace, "tidy"), 60)

    assert cluster.job(namespace, "tidy") is not None
    assert cluster.report(namespace, "tidy")["status"]["phase"] == "Failed"


def test_time_to_live_of_failed_and_of_completed_jobs(cluster, namespace):
    cluster.apply(
        make_job("bad", namespace, backoffLimit=0, ttlSecondsAfterFinished=8, **shell("exit 1")),
        make_job("good", namespace, ttlSecondsAfterFinished=12, **shell("echo done; " + WAIT)),
    )
    # In the order in which they end: a task that fails is given some seconds.
    wait_condition(cluster, namespace, "good", "Complete")
    assert cluster.job(namespace, "good") is not None
    wait_condition(cluster, namespace, "bad", "Failed")
    cluster.wait_gone(namespace, "bad")
    cluster.wait_gone(namespace, "good")
    assert cluster.report(namespace, "bad")["status"]["phase"] == "Failed"
    assert cluster.report(namespace, "good")["status"]["phase"] == "Succeeded"


def test_suspend_before_the_start_and_resume(cluster, namespace):
    job = make_job("held", namespace, suspend=True, **shell("echo done; " + WAIT))
    cluster.apply(job)
    suspended = wait_condition(cluster, namespace, "held", "Suspended")
    assert suspended["reason"] == "Suspended"
    consistently(lambda: not cluster.pods(namespace, "held"), 3)

    job["spec"]["suspend"] = False
    cluster.apply(job)

    cluster.wait_gone(namespace, "held")


def test_suspend_during_the_run_starts_no_further_node(cluster, namespace, folder):
    first = cluster.nodes[0]
    work = counting(before=GO)
    job = make_job("halt", namespace, nodes={"include": [first]}, mountPath=folder, **work)
    cluster.apply(job)
    eventually(lambda: cluster.runs(folder)[first] == 1)

    job["spec"] |= {"suspend": True, "nodes": {"include": cluster.nodes}}
    cluster.apply(job)
    eventually(lambda: cluster.node_totals(namespace, "halt").get("desired") == 3)
    cluster.on_all_nodes(f"touch {folder}/go")
    eventually(lambda: cluster.completed(namespace, "halt") == {first})
    consistently(lambda: sum(cluster.runs(folder).values()) == 1, 3)

    job["spec"]["suspend"] = False
    cluster.apply(job)
    cluster.wait_gone(namespace, "halt")
    assert set(cluster.runs(folder).values()) == {1}


# --- unmodified images, results, records -------------------------------------------------


def test_mode_exit_completes_by_exit_code_and_keeps_results(cluster, namespace, folder):
    script = "echo x >> /basetarget/runs; echo dsjob:result kernel=$(uname -r); echo bye"
    cluster.apply(
        make_job(
            "plain",
            namespace,
            mountPath=folder,
            completion={"mode": "Exit"},
            results=[{"name": "kernel"}],
            **shell(script),
        )
    )

    cluster.wait_gone(namespace, "plain")

    report = cluster.report(namespace, "plain")
    assert report["status"]["phase"] == "Succeeded"
    kernels = cluster.on_all_nodes("uname -r")
    assert {n: e["results"]["kernel"] for n, e in report["evidence"].items()} == {
        node: text.strip() for node, text in kernels.items()
    }
    assert set(cluster.runs(folder).values()) == {1}


def test_mode_exit_reports_failures_as_mode_log_does(cluster, namespace):
    bad = cluster.nodes[0]
    cluster.apply(
        make_job(
            "plainly",
            namespace,
            backoffLimit=1,
            completion={"mode": "Exit"},
            **on(bad, "echo no such disk; exit 9", "true"),
        )
    )

    failed = wait_condition(cluster, namespace, "plainly", "Failed", 120)

    assert f"{bad} exit 9 after 2 attempts" in failed["message"]
    eventually(
        lambda: (
            cluster.report(namespace, "plainly")["evidence"][bad].get("lastLines")
            == ["no such disk"]
        )
    )


def test_a_run_is_run_again_from_its_record(cluster, namespace, folder):
    cluster.apply(make_job("again", namespace, mountPath=folder, **counting()))
    cluster.wait_gone(namespace, "again")
    (first,) = cluster.get("dsjr", "-n", namespace)["items"]

    cluster.kubectl("create", "-f", "-", stdin=first["spec"]["manifest"])

    cluster.wait_gone(namespace, "again")
    reports = cluster.get("dsjr", "-n", namespace)["items"]
    assert len(reports) == 2
    assert {report["status"]["phase"] for report in reports} == {"Succeeded"}
    assert set(cluster.runs(folder).values()) == {2}


def test_a_completed_nodes_deleted_pod_waits_at_the_gate(cluster, namespace, folder):
    slow, done = cluster.nodes[0], cluster.nodes[1]
    work = counting(before=f'[ "$NODE_NAME" = {slow} ] && {GO}')
    cluster.apply(make_job("gate", namespace, mountPath=folder, **work))
    cluster.wait_only(namespace, "gate", slow, folder)
    pod = next(p for p in cluster.pods(namespace, "gate") if p["spec"].get("nodeName") == done)
    cluster.kubectl("delete", "pod", pod["metadata"]["name"], "-n", namespace)

    def successor():
        return [
            p
            for p in cluster.pods(namespace, "gate")
            if p["spec"].get("schedulingGates") and "deletionTimestamp" not in p["metadata"]
        ]

    eventually(successor)
    time.sleep(3)
    assert successor()
    assert cluster.runs(folder)[done] == 1
    cluster.on_node(slow, f"touch {folder}/go")
    cluster.wait_gone(namespace, "gate")
    assert set(cluster.runs(folder).values()) == {1}
