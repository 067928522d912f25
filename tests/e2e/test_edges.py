"""Runs that end late, or are tried again late; pods that never start; odd values and long logs.

`labelled` uses a label of its own, so these tests affect no test that runs beside them.
"""

import json
import time
from datetime import UTC, datetime
from functools import partial

import pytest

from tests.e2e.cluster import SYSTEM, TASK_IMAGE, WAIT, consistently, eventually, make_job
from tests.e2e.jobs import (
    GO,
    RETRY,
    assert_succeeded,
    is_unfinished,
    labelled,
    only_on,
    patch_spec,
    reasons,
    set_quota,
    shell,
    state,
    wait_condition,
    working,
)
from tests.e2e.variants import first_of

DEADLINE_SECONDS = 30
INT64_MAX = 2**63 - 1


def wait_deadline_over(cluster, namespace, name):
    """Wait until the run has lasted for longer than its deadline."""
    raw = cluster.job(namespace, name)["status"]["startTime"]
    over = datetime.fromisoformat(raw).timestamp() + DEADLINE_SECONDS + 1
    eventually(lambda: datetime.now(UTC).timestamp() > over, DEADLINE_SECONDS + 30, "the deadline")


def retry(cluster, namespace, name, token):
    cluster.kubectl("annotate", "dsj", name, "-n", namespace, "--overwrite", f"{RETRY}={token}")


# --- one start, really -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", first_of(["Log", "Exit"]))
def test_a_failing_task_without_run_once_refuses_a_second_start(cluster, namespace, folder, mode):
    """The line of docs/how-to/unmodified-image.md; the kubelet restarts a container at once."""
    mark = 'mkdir "$DAEMONSET_JOB_STATE/started" 2>/dev/null || { sleep 600; exit 1; }'
    task = shell(f"{mark}; echo $$ >> /basetarget/runs; exit 3")
    job = make_job("single", namespace, mountPath=folder, backoffLimit=0, **task)
    job["spec"] |= {"completion": {"mode": mode}, "failurePolicy": {"action": "Continue"}}
    cluster.apply(job)
    wait_condition(cluster, namespace, "single", "Failed")
    assert set(cluster.runs(folder).values()) == {1}
    records = cluster.report(namespace, "single")["status"]["nodeStates"].values()
    assert {record["exitCode"] for record in records} == {3}


# --- the deadline, and what comes after it ---------------------------------------------------


@pytest.mark.on_demand
def test_run_failed_by_deadline_is_retried_with_a_new_deadline(cluster, namespace, folder):
    slow = cluster.nodes[0]
    task = working(only_on(slow, GO))
    job = make_job(
        "tomorrow", namespace, mountPath=folder, activeDeadlineSeconds=DEADLINE_SECONDS, **task
    )
    cluster.apply(job)
    failed = wait_condition(cluster, namespace, "tomorrow", "Failed")
    assert failed["reason"] == "DeadlineExceeded"

    retry(cluster, namespace, "tomorrow", "1")

    eventually(lambda: "Retrying" in reasons(cluster, namespace, "tomorrow"), 30, "Retrying")
    assert cluster.condition(namespace, "tomorrow", "Failed")["status"] == "False"
    cluster.on_node(slow, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "tomorrow", folder, set(cluster.nodes))
    assert set(cluster.runs(folder, "finished").values()) == {1}


@pytest.mark.parametrize("action", first_of(["FailFast", "Pause"]))
def test_failed_nodes_are_tried_again_after_the_deadline_of_the_run(
    cluster, namespace, folder, action
):
    bad = cluster.nodes[0]
    task = working(only_on(bad, "[ -e /basetarget/fixed ] || exit 3"))
    job = make_job(
        "later",
        namespace,
        mountPath=folder,
        backoffLimit=0,
        failurePolicy={"action": action},
        activeDeadlineSeconds=DEADLINE_SECONDS,
        **task,
    )
    cluster.apply(job)
    stopped = "Suspended" if action == "Pause" else "Failed"
    assert (
        wait_condition(cluster, namespace, "later", stopped)["reason"] == "MaxFailedNodesExceeded"
    )
    wait_deadline_over(cluster, namespace, "later")
    assert cluster.condition(namespace, "later", stopped)["reason"] == "MaxFailedNodesExceeded"

    cluster.on_node(bad, f"touch {folder}/fixed")
    retry(cluster, namespace, "later", "1")

    def goes_on():
        return cluster.condition(namespace, "later", stopped).get("status") != "True"

    eventually(goes_on, 30, "the run goes on")
    assert_succeeded(cluster, namespace, "later", folder, set(cluster.nodes))
    assert set(cluster.runs(folder, "finished").values()) == {1}


def is_only_one_at_work(cluster, namespace, name):
    nodes = cluster.status(namespace, name)["nodes"]
    return (nodes["active"], nodes["completed"]) == (1, len(cluster.nodes) - 1)


@pytest.mark.on_demand
def test_a_suspended_run_that_is_resumed_after_its_deadline_goes_on(cluster, namespace, folder):
    slow = cluster.nodes[0]
    task = working(only_on(slow, GO))
    job = make_job(
        "resumed", namespace, mountPath=folder, activeDeadlineSeconds=DEADLINE_SECONDS, **task
    )
    cluster.apply(job)
    # A suspension can end a task whose start the kubelet has not reported yet (guarantees.md).
    eventually(lambda: is_only_one_at_work(cluster, namespace, "resumed"), 60, "one at work")
    assert cluster.runs(folder)[slow] == 1
    patch_spec(cluster, namespace, "resumed", '{"suspend":true}')
    wait_condition(cluster, namespace, "resumed", "Suspended")
    wait_deadline_over(cluster, namespace, "resumed")

    patch_spec(cluster, namespace, "resumed", '{"suspend":false}')

    def resumed():
        return cluster.condition(namespace, "resumed", "Suspended").get("status") == "False"

    eventually(resumed, 30, "the run goes on")

    def has_failed():
        return cluster.condition(namespace, "resumed", "Failed").get("status") == "True"

    consistently(lambda: not has_failed(), 3, "the run does not fail")
    cluster.on_node(slow, f"touch {folder}/go")
    assert_succeeded(cluster, namespace, "resumed", folder, set(cluster.nodes))
    assert set(cluster.runs(folder).values()) == {1}


# --- what is reported of failures ----------------------------------------------------------------


@pytest.mark.on_demand
def test_message_of_a_failed_node_stays_if_its_pod_fails_again(cluster, namespace, folder):
    """Its last line is another one each time: it has the time in it."""
    bad = cluster.nodes[0]
    script = "echo x >> /basetarget/runs; echo failed at $(date +%s.%N); exit 1"
    nodes = {"include": [bad]}
    job = make_job(
        "wordy",
        namespace,
        nodes=nodes,
        mountPath=folder,
        backoffLimit=0,
        failurePolicy={"pods": "Keep"},
        **shell(script),
    )
    cluster.apply(job)
    wait_condition(cluster, namespace, "wordy", "Failed")

    def described():
        record = state(cluster, namespace, "wordy", bad)
        return "failed at" in record["message"] and record

    first = eventually(described, 30, "the last line is reported")
    before = cluster.runs(folder)[bad]
    # The kubelet's back-off is 10 and 20 seconds for these.
    eventually(lambda: cluster.runs(folder)[bad] >= before + 2, 90, "it failed again, twice")
    time.sleep(5)  # what is entered is written within five seconds

    assert first["message"].count("failed at") == 1
    assert state(cluster, namespace, "wordy", bad) == first


def on_secret(name):
    """Return a template whose task needs a Secret as a volume."""
    mount = {"name": "secrets", "mountPath": "/secrets"}
    return {
        "spec": {
            "volumes": [{"name": "secrets", "secret": {"secretName": name}}],
            "containers": [{"name": "job-container", "volumeMounts": [mount]}],
        }
    }


def behind(name, script):
    """Return a template with an init container."""
    init = {"name": name, "image": TASK_IMAGE, **shell(script)}
    return {"spec": {"initContainers": [init]}}


# A sysctl that no kubelet allows unless its configuration allows it.
FORBIDDEN = {"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}

# Template, reason, and words that the message has. A pod says nothing about its volumes.
NEVER_STARTED = {
    "volume": (on_secret("never-made"), "TaskNotStarted", "ContainerCreating"),
    "init": (behind("prepare", "exit 7"), "ContainerStartFailed", "init container prepare"),
    "rejected": (FORBIDDEN, "PodRejected", "SysctlForbidden"),
}


def test_pods_that_cannot_start_their_task_are_reported_within_a_minute(cluster, namespace):
    task = shell("echo done; " + WAIT)
    nodes = dict(zip(NEVER_STARTED, cluster.nodes, strict=False))
    for name, (template, _, _) in NEVER_STARTED.items():
        chosen = {"include": [nodes[name]]}
        cluster.apply(make_job(name, namespace, nodes=chosen, template=template, **task))

    def reported():
        return {
            name: found
            for name in NEVER_STARTED
            if (found := cluster.condition(namespace, name, "Progressing")).get("reason")
            == NEVER_STARTED[name][1]
        }

    # A minute, and some seconds for the pods to be made and the words to be written.
    found = eventually(
        lambda: len(t := reported()) == len(NEVER_STARTED) and t, 75, "all are reported"
    )
    for name, (_, reason, words) in NEVER_STARTED.items():
        assert found[name]["status"] == "False"
        assert nodes[name] in found[name]["message"]
        assert words in found[name]["message"]
        assert reason in reasons(cluster, namespace, name)


def test_no_work_starts_while_its_record_is_refused(cluster, namespace, folder):
    set_quota(cluster, namespace, "full", **{"count/jobreports.daemonset.darkowlzz.space": "0"})
    cluster.apply(make_job("quiet", namespace, mountPath=folder, **working(":")))

    def is_refused():
        found = cluster.condition(namespace, "quiet", "Progressing")
        return found.get("reason") == "ReportRefused" and found

    progressing = eventually(is_refused, 30, "the refusal is reported")
    assert "quota" in progressing["message"]
    consistently(lambda: is_unfinished(cluster, namespace, "quiet", "nothing is recorded"), 5)
    assert set(cluster.runs(folder).values()) == {0}

    cluster.kubectl("delete", "resourcequota", "full", "-n", namespace)
    assert_succeeded(cluster, namespace, "quiet", folder, set(cluster.nodes))


# --- the time to live ------------------------------------------------------------------------


def test_a_time_to_live_that_a_failed_run_gets_afterwards_counts(cluster, namespace):
    policy = {"pods": "Delete"}
    job = make_job("after", namespace, backoffLimit=0, failurePolicy=policy, **shell("exit 1"))
    cluster.apply(job)
    wait_condition(cluster, namespace, "after", "Failed")
    eventually(lambda: not cluster.pods(namespace, "after"), 60, "the pods are gone")
    name = "after-daemonset-job"
    eventually(lambda: cluster.find("daemonset", name, "-n", namespace) is None, 60)

    patch_spec(cluster, namespace, "after", '{"ttlSecondsAfterFinished":1}')

    cluster.wait_gone(namespace, "after", 30)
    assert cluster.report(namespace, "after")["status"]["phase"] == "Failed"


@pytest.mark.on_demand
def test_late_failed_node_does_not_keep_a_complete_job(cluster, namespace, folder):
    *first, late = cluster.nodes
    key = f"e2e.example.com/{namespace}"
    nodes = {"selector": {"matchLabels": {key: "in"}}}
    ttl_seconds = 30
    job = make_job(
        "late",
        namespace,
        nodes=nodes,
        mountPath=folder,
        backoffLimit=0,
        ttlSecondsAfterFinished=ttl_seconds,
        **working(only_on(late, "exit 3")),
    )

    with labelled(cluster, key, *first):
        cluster.apply(job)
        wait_condition(cluster, namespace, "late", "Complete")
        cluster.kubectl("label", "node", late, f"{key}=in")
        eventually(lambda: cluster.runs(folder)[late] >= 1, 60, "the late node at work")

        cluster.wait_gone(namespace, "late", ttl_seconds + 30)
    assert cluster.completed(namespace, "late") == set(first)
    assert cluster.report(namespace, "late")["status"]["phase"] == "Succeeded"


@pytest.mark.on_demand
def test_complete_job_without_matching_nodes_is_deleted_after_its_ttl(cluster, namespace, folder):
    key = f"e2e.example.com/{namespace}"
    nodes = {"selector": {"matchLabels": {key: "in"}}}
    job = make_job(
        "left", namespace, nodes=nodes, mountPath=folder, ttlSecondsAfterFinished=40, **working(":")
    )
    with labelled(cluster, key, *cluster.nodes[:2]):
        cluster.apply(job)
        wait_condition(cluster, namespace, "left", "Complete")

    eventually(lambda: not cluster.pods(namespace, "left"), 35, "the pods are gone")
    counts = cluster.job(namespace, "left")["status"]["nodes"]
    assert (counts["desired"], counts["completed"]) == (2, 2)
    cluster.wait_gone(namespace, "left", 90)
    assert cluster.completed(namespace, "left") == set(cluster.nodes[:2])
    report = cluster.report(namespace, "left")["status"]
    assert report["message"] == "2 of 2 nodes completed"


def test_a_node_that_leaves_once_it_has_completed_stays_counted(cluster, namespace, folder):
    """As with a task that labels its own node."""
    first, *rest = cluster.nodes
    key = f"e2e.example.com/{namespace}"
    nodes = {"selector": {"matchLabels": {key: "in"}}}
    job = make_job("leaving", namespace, nodes=nodes, mountPath=folder, **working(GO))

    def is_counted(completed):
        counts = cluster.job(namespace, "leaving")["status"]["nodes"]
        found = counts["desired"], counts["completed"]
        return is_unfinished(cluster, namespace, "leaving", str(found)) and found == (3, completed)

    def has_pods(count):
        return len(cluster.pods(namespace, "leaving")) == count

    with labelled(cluster, key, *cluster.nodes):
        cluster.apply(job)
        eventually(lambda: set(cluster.runs(folder).values()) == {1}, 60, "all at work")
        cluster.wait_gate(namespace, "leaving")
        for number, node in enumerate(rest, start=1):
            cluster.on_node(node, f"touch {folder}/go")
            eventually(partial(is_counted, number), 30, f"{node} has completed")
            cluster.kubectl("label", "node", node, f"{key}-")
            eventually(partial(has_pods, 3 - number), 60, f"{node} has no pod")
            consistently(partial(is_counted, number), 3, f"{node} stays counted")
        cluster.on_node(first, f"touch {folder}/go")
        assert_succeeded(cluster, namespace, "leaving", folder, set(cluster.nodes))
    assert set(cluster.runs(folder).values()) == {1}


def test_a_kept_job_all_of_whose_nodes_leave_in_the_second_of_their_end(cluster, namespace, folder):
    key = f"e2e.example.com/{namespace}"
    nodes = {"selector": {"matchLabels": {key: "in"}}}
    job = make_job(
        "left",
        namespace,
        nodes=nodes,
        mountPath=folder,
        ttlSecondsAfterFinished=600,
        **working(":"),
    )
    with labelled(cluster, key, *cluster.nodes):
        cluster.apply(job)
        eventually(lambda: cluster.completed(namespace, "left") == set(cluster.nodes), 60, "all")
    complete = wait_condition(cluster, namespace, "left", "Complete")
    assert complete["reason"] == "AllNodesCompleted"
    eventually(lambda: not cluster.pods(namespace, "left"), 60, "the pods are gone")
    consistently(
        lambda: cluster.job(namespace, "left")["status"]["nodes"]["completed"] == 3, 5, "3 of 3"
    )


# --- what the schema takes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["activeDeadlineSeconds", "nodeDeadlineSeconds", "ttlSecondsAfterFinished"]
)
def test_a_time_that_no_clock_can_count_is_refused_by_its_field(cluster, namespace, field):
    job = make_job("endless", namespace, **{field: INT64_MAX}, **shell("echo done; " + WAIT))

    done = cluster.run("apply", "-f", "-", stdin=json.dumps(job))

    assert done.returncode != 0
    assert f"spec.{field}" in done.stderr
    assert cluster.job(namespace, "endless") is None


def test_a_thousand_names_beside_a_list_of_excluded_ones(cluster, namespace, folder):
    """A rack by name, and a list of bad nodes that is the same for every Job."""
    *first, last = cluster.nodes
    nodes = {
        "include": [*first, *(f"rack-1-node-{i:03}" for i in range(900))],
        "exclude": [last, *(f"rack-2-node-{i:03}" for i in range(40))],
    }
    cluster.apply(make_job("rack", namespace, nodes=nodes, mountPath=folder, **working(":")))

    assert_succeeded(cluster, namespace, "rack", folder, set(first))


def test_a_retry_annotation_may_be_long(cluster, namespace, folder):
    """Two that differ only at their end are two."""
    bad = cluster.nodes[0]
    task = working(only_on(bad, "[ -e /basetarget/fixed ] || exit 3"))
    cluster.apply(make_job("long", namespace, mountPath=folder, backoffLimit=0, **task))
    wait_condition(cluster, namespace, "long", "Failed")

    retry(cluster, namespace, "long", "x" * 300 + "1")

    def retries():
        found = [e for e in cluster.events(namespace, "long") if e["reason"] == "Retrying"]
        return sum(event.get("count") or 1 for event in found)

    eventually(lambda: retries() == 1, 30, "the first retry")
    wait_condition(cluster, namespace, "long", "Failed")
    cluster.on_node(bad, f"touch {folder}/fixed")
    retry(cluster, namespace, "long", "x" * 300 + "2")
    assert_succeeded(cluster, namespace, "long", folder, set(cluster.nodes))


# --- long logs -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", first_of([3000, 150]))
def test_results_printed_long_before_the_token_are_kept(cluster, namespace, count):
    script = f"echo dsjob:result answer=$NODE_NAME; seq {count}; echo done; " + WAIT
    cluster.apply(make_job("noisy", namespace, results=[{"name": "answer"}], **shell(script)))

    cluster.wait_gone(namespace, "noisy")

    evidence = cluster.report(namespace, "noisy")["evidence"]
    kept = {node: entry.get("results") for node, entry in evidence.items()}
    assert kept == {node: {"answer": node} for node in cluster.nodes}


# --- the system's own pod --------------------------------------------------------------------


@pytest.mark.parametrize("program", ["controller", "terminator"])
def test_the_probes_answer_over_ipv6_too(cluster, program):
    """The kubelet of an IPv6-only cluster asks for nothing else."""
    (pod,) = cluster.get("pods", "-n", SYSTEM)["items"]
    (port,) = [
        port["containerPort"]
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port["name"] == program
    ]
    process = {"controller": "job-controller", "terminator": "terminator"}[program]
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null"
        f" | grep -q '/bin/{process} *$' || continue; grep -q ' lo$' $p/net/if_inet6 || echo none;"
        " nsenter -n -t ${p#/proc/} curl -s -g -m 5 -o /dev/null -w '%{http_code}'"
        f" 'http://[::1]:{port}/healthz'; done; true"
    )
    answer = cluster.on_node(pod["spec"]["nodeName"], script)
    if "none" in answer:
        pytest.skip("the pod's network has no IPv6 loopback")
    assert answer == "200"
