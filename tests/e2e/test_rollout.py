"""Rollouts on real nodes: how many tasks run at once is read from the nodes themselves."""

import itertools

import pytest
import yaml

from tests.e2e.cluster import consistently, eventually, make_job
from tests.e2e.jobs import GO, labelled, patch_spec, shell, wait_condition

CANARY = "e2e.example.com/canary"
PREFIX = "daemonset.darkowlzz.space"
# A task that says when it began and when it had done its work, by the machine's one clock.
BEGAN = "date +%s%N > /basetarget/began"
ENDED = "date +%s%N > /basetarget/ended"
EXIT = {"completion": {"mode": "Exit"}, "ttlSecondsAfterFinished": 3600}


def timed(seconds):
    return {**shell(f"{BEGAN}; sleep {seconds}; {ENDED}; exit 0"), **EXIT}


def times(cluster, folder):
    """Return when the task of each node began and ended, in the order of their beginnings."""
    outputs = cluster.on_all_nodes(f"cat {folder}/began {folder}/ended 2>/dev/null || true")
    found = {node: tuple(map(int, text.split())) for node, text in outputs.items() if text.strip()}
    return dict(sorted(found.items(), key=lambda item: item[1]))


def overlaps(found):
    """Return the pairs of nodes that were at work at the same time."""
    return [
        (first, second)
        for (first, (_, end)), (second, (begin, _)) in itertools.pairwise(found.items())
        if begin < end
    ]


def begun(cluster, folder):
    listed = cluster.on_all_nodes(f"ls {folder} 2>/dev/null || true")
    return {node for node, text in listed.items() if "began" in text}


def annotate(cluster, namespace, name, what, value):
    cluster.kubectl("annotate", "dsj", name, "-n", namespace, f"{PREFIX}/{what}={value}")


@pytest.mark.on_demand
@pytest.mark.alone
def test_no_two_nodes_work_at_once_while_the_controller_is_killed(cluster, namespace, folder):
    job = make_job("gentle", namespace, mountPath=folder, rollout={"maxParallel": 1}, **timed(4))
    cluster.apply(job)
    for _ in range(3):
        count = len(begun(cluster, folder))
        eventually(lambda count=count: len(begun(cluster, folder)) > count, 60, "the next began")
        cluster.kill("job-controller")
    wait_condition(cluster, namespace, "gentle", "Complete", 180)
    found = times(cluster, folder)
    assert set(found) == set(cluster.nodes)
    assert overlaps(found) == []
    records = cluster.report(namespace, "gentle")["status"]["nodeStates"]
    assert all(record["turnAt"] for record in records.values())


def test_a_canary_by_label_waits_for_approval_and_a_promotion_ends_the_soak(
    cluster, namespace, folder
):
    steps = [
        {"selector": {"matchLabels": {CANARY: "in"}}, "approval": "Required"},
        {"nodes": 2, "soakSeconds": 3600, "check": {"nodeReady": True}},
    ]
    canary = max(cluster.nodes)
    with labelled(cluster, CANARY, canary):
        rollout = {"steps": steps}
        cluster.apply(make_job("steps", namespace, mountPath=folder, rollout=rollout, **timed(1)))
        found = wait_condition(cluster, namespace, "steps", "Suspended")
        assert found["reason"] == "WaitingForApproval"
        assert f"kubectl dsjob approve steps -n {namespace}" in found["message"]
        assert begun(cluster, folder) == {canary}
        annotate(cluster, namespace, "steps", "approve", 1)
        eventually(lambda: len(begun(cluster, folder)) == 2, 60, "the second step began")
        eventually(
            lambda: cluster.status(namespace, "steps")["rollout"]["soakStartedAt"], 60, "it soaks"
        )

        def reason():
            return cluster.condition(namespace, "steps", "Progressing")["reason"]

        # The start of the soak is on record first, and the next reconcile shows it.
        eventually(lambda: reason() == "RolloutSoaking", 10, "the condition says so")
        annotate(cluster, namespace, "steps", "promote", "all")
        wait_condition(cluster, namespace, "steps", "Complete")
    records = cluster.report(namespace, "steps")["status"]["nodeStates"]
    rest = [3] * (len(cluster.nodes) - 2)
    assert sorted(record["step"] for record in records.values()) == [1, 2, *rest]
    assert records[canary]["step"] == 1


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_soak_goes_on_over_a_restart_of_the_controller(cluster, namespace, folder):
    rollout = {"steps": [{"nodes": 1, "soakSeconds": 20}]}
    cluster.apply(make_job("soak", namespace, mountPath=folder, rollout=rollout, **timed(0)))
    began = eventually(
        lambda: cluster.status(namespace, "soak")["rollout"]["soakStartedAt"], 60, "it soaks"
    )
    cluster.kill("job-controller")

    def soaks():
        progress = cluster.status(namespace, "soak")["rollout"]
        return progress["step"] == 1 and progress["soakStartedAt"] == began

    consistently(soaks, 10, "the soak is that of before")
    assert len(begun(cluster, folder)) == 1
    wait_condition(cluster, namespace, "soak", "Complete")
    found = times(cluster, folder)
    first, second, *_ = found.values()
    assert second[0] - first[1] >= 20 * 10**9


def test_an_aborted_run_starts_no_further_node_and_no_retry_revives_it(cluster, namespace, folder):
    rollout = {"maxParallel": 1}
    task = {**shell(f"{BEGAN}; {GO}; exit 0"), **EXIT}
    cluster.apply(make_job("stopped", namespace, mountPath=folder, rollout=rollout, **task))
    eventually(lambda: len(begun(cluster, folder)) == 1, 60, "one node began")
    annotate(cluster, namespace, "stopped", "abort", "wrong-version")
    found = wait_condition(cluster, namespace, "stopped", "Failed")
    assert (found["reason"], found["message"]) == (
        "Aborted",
        f"aborted after 0 of {len(cluster.nodes)} nodes: wrong-version",
    )
    cluster.on_all_nodes(f"touch {folder}/go")
    annotate(cluster, namespace, "stopped", "retry", "1")
    consistently(lambda: len(begun(cluster, folder)) == 1, 6, "no other node begins")
    status = cluster.report(namespace, "stopped")["status"]
    assert status["phase"] == "Failed"
    assert "Aborted" in str(status["conditions"])


def test_enough_completed_nodes_end_the_run_and_the_others_are_named(cluster, namespace, folder):
    enough = len(cluster.nodes) - 1
    spec = {"rollout": {"maxParallel": 1}, "successPolicy": {"minCompleted": enough}, **timed(1)}
    cluster.apply(make_job("enough", namespace, mountPath=folder, **spec))
    found = wait_condition(cluster, namespace, "enough", "Complete")
    assert found["reason"] == "MinCompletedReached"
    (rest,) = set(cluster.nodes) - begun(cluster, folder)
    assert rest in found["message"]
    consistently(lambda: rest not in begun(cluster, folder), 6, "it does not start")


def test_a_lower_limit_holds_further_turns_and_a_higher_one_gives_them(cluster, namespace, folder):
    task = {**shell(f"{BEGAN}; {GO}; exit 0"), **EXIT}
    spec = {"rollout": {"maxParallel": 1}, **task}
    cluster.apply(make_job("raised", namespace, mountPath=folder, **spec))
    eventually(lambda: len(begun(cluster, folder)) == 1, 60, "one node began")
    consistently(lambda: len(begun(cluster, folder)) == 1, 5, "no other begins")
    patch_spec(cluster, namespace, "raised", '{"rollout":{"maxParallel":2}}')
    eventually(lambda: len(begun(cluster, folder)) == 2, 60, "another began")
    cluster.on_all_nodes(f"touch {folder}/go")
    wait_condition(cluster, namespace, "raised", "Complete")


def test_a_check_of_pods_waits_until_they_are_ready(cluster, namespace, folder):
    probe = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    container = {
        "name": "web",
        "image": make_job("x", namespace)["spec"]["image"],
        "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
        "readinessProbe": probe,
    }
    for number, node in enumerate(sorted(cluster.nodes)):
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"web-{number}",
                    "namespace": namespace,
                    "labels": {"app": "web"},
                },
                "spec": {
                    "nodeName": node,
                    "containers": [container],
                    "tolerations": [{"operator": "Exists"}],
                },
            }
        )
    check = {"pods": {"matchLabels": {"app": "web"}}}
    rollout = {"steps": [{"nodes": 1, "check": check}]}
    cluster.apply(make_job("checked", namespace, mountPath=folder, rollout=rollout, **timed(0)))
    eventually(
        lambda: (
            "are not Ready" in cluster.condition(namespace, "checked", "Progressing")["message"]
        ),
        60,
        "the check waits",
    )
    (began,) = begun(cluster, folder)
    number = sorted(cluster.nodes).index(began)
    cluster.kubectl("exec", "-n", namespace, f"web-{number}", "--", "touch", "/tmp/ready")
    wait_condition(cluster, namespace, "checked", "Complete")


def test_the_example_changes_a_canary_and_after_a_promotion_all_nodes(cluster, namespace):
    job = yaml.safe_load((cluster.root / "examples/24-canary-then-promote/job.yaml").read_text())
    job["metadata"]["namespace"] = namespace
    file = "/etc/systemd/journald.conf.d/50-example-limit.conf"
    canary = max(cluster.nodes)

    def changed():
        found = cluster.on_all_nodes(f"cat {file} 2>/dev/null || true")
        return {node for node, text in found.items() if "SystemMaxUse=200M" in text}

    try:
        cluster.kubectl("label", "node", canary, "example.com/canary=true")
        cluster.apply(job)
        wait_condition(cluster, namespace, "journal-limit", "Suspended", 120)
        assert changed() == {canary}
        annotate(cluster, namespace, "journal-limit", "approve", 1)
        annotate(cluster, namespace, "journal-limit", "promote", "all")
        wait_condition(cluster, namespace, "journal-limit", "Complete", 120)
        assert changed() == set(cluster.nodes)
    finally:
        cluster.kubectl("label", "node", canary, "example.com/canary-")
        cluster.on_all_nodes(f"rm -f {file}")


def test_a_suspended_job_shows_its_plan_and_runs_nothing(cluster, namespace, folder):
    rollout = {"steps": [{"nodes": 1}]}
    task = {"suspend": True, "rollout": rollout, **timed(0)}
    cluster.apply(make_job("preview", namespace, mountPath=folder, **task))
    plan = eventually(
        lambda: cluster.status(namespace, "preview")["rollout"]["plan"], 30, "there is a plan"
    )
    assert [batch["count"] for batch in plan] == [1, len(cluster.nodes) - 1]
    assert cluster.pods(namespace, "preview") == []
    patch_spec(cluster, namespace, "preview", '{"suspend":false}')
    wait_condition(cluster, namespace, "preview", "Complete")
    order = list(times(cluster, folder))
    assert order[:1] == plan[0]["nodes"]
