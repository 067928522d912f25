"""kubectl dsjob leads a rollout on real nodes: plan, resume, approve, promote, abort.

What ran where is read from files of the nodes, never from what the plugin prints.
"""

import pytest

from tests.e2e.cluster import consistently, eventually, make_job
from tests.e2e.jobs import shell, wait_condition
from tests.e2e.plugin import Plugin

pytestmark = pytest.mark.timeout(300)

WORK = shell("echo $$ >> /basetarget/runs; exit 0")
EXIT = {"completion": {"mode": "Exit"}, "ttlSecondsAfterFinished": 3600}


@pytest.fixture
def run(cluster, namespace):
    """Run `kubectl dsjob ARGS` in the test's namespace."""
    return Plugin(cluster.kubeconfig, namespace)


def ran(cluster, folder):
    """Return the nodes on which the task ran, each with how often."""
    return {node: count for node, count in cluster.runs(folder).items() if count}


def test_a_plan_is_shown_and_the_run_goes_on_by_approval_and_promotion(
    cluster, namespace, folder, run
):
    steps = [{"nodes": 1, "approval": "Required"}, {"nodes": 2, "soakSeconds": 3600}]
    rollout = {"maxParallel": 1, "steps": steps}
    task = {"suspend": True, "mountPath": folder, "rollout": rollout, **WORK, **EXIT}
    cluster.apply(make_job("steps", namespace, **task))

    def planned():
        return run("plan", "steps").stdout.splitlines()[1:]

    rows = [row.split() for row in eventually(planned, 60, "there is a plan")]
    assert [row[:2] for row in rows] == [["1", "1"], ["2", "1"], ["rest", "1"]]
    order = [row[2] for row in rows]
    assert sorted(order) == sorted(cluster.nodes)
    assert ran(cluster, folder) == {}

    run.succeed("resume", "steps")
    wait_condition(cluster, namespace, "steps", "Suspended")
    assert ran(cluster, folder) == {order[0]: 1}
    status = run.succeed("status", "steps")
    assert "step 1 of 2" in status
    assert f"`kubectl dsjob approve steps -n {namespace}`" in status
    assert run("wait", "steps", "--timeout", "0.5").returncode == 4

    run.succeed("approve", "steps")
    eventually(lambda: ran(cluster, folder) == dict.fromkeys(order[:2], 1), 60, "step 2 ran")
    refused = run("approve", "steps")
    assert refused.returncode == 2
    assert "waits for no approval" in refused.stderr
    consistently(lambda: len(ran(cluster, folder)) == 2, 4, "it soaks")

    run.succeed("promote", "steps")
    run.succeed("wait", "steps", "--timeout", "120")
    assert ran(cluster, folder) == dict.fromkeys(cluster.nodes, 1)
    history = cluster.report(namespace, "steps")["status"]["history"]
    approved = next(entry for entry in history if entry["reason"] == "StepApproved")
    assert "kubectl-dsjob" in approved["by"]


@pytest.mark.on_demand
def test_an_aborted_run_reaches_no_further_node_and_says_why(cluster, namespace, folder, run):
    rollout = {"maxParallel": 1, "steps": [{"nodes": 1, "approval": "Required"}]}
    cluster.apply(make_job("stopped", namespace, mountPath=folder, rollout=rollout, **WORK, **EXIT))
    wait_condition(cluster, namespace, "stopped", "Suspended")
    (first,) = ran(cluster, folder)
    run.succeed("abort", "stopped", "--reason", "the disks fill up")
    done = run("wait", "stopped", "--timeout", "60")
    assert done.returncode == 1
    assert "the disks fill up" in done.stderr
    assert "the disks fill up" in run.succeed("status", "stopped")
    run("approve", "stopped", "--step", "1")
    run("retry", "stopped")
    consistently(lambda: ran(cluster, folder) == {first: 1}, 6, "no other node starts")


@pytest.mark.on_demand
def test_a_run_that_had_succeeded_is_rolled_back_on_all_nodes(cluster, namespace, folder, run):
    task = {"script": "#!/bin/sh\ntouch /basetarget/changed\n", "mountPath": folder}
    undo = {"rollback": {"script": "#!/bin/sh\nrm /basetarget/changed\n"}}
    body = make_job("undone", namespace, ttlSecondsAfterFinished=3600, **task, **undo)
    del body["spec"]["image"]
    cluster.apply(body)
    wait_condition(cluster, namespace, "undone", "Complete")
    changed = f"ls {folder}"
    assert set(cluster.on_all_nodes(changed).values()) == {"changed\n"}
    run.succeed("rollback", "undone", "--reason", "the disks fill up", "--wait")
    assert set(cluster.on_all_nodes(changed).values()) == {""}
    assert "rollback: RolledBack: 3 of 3 nodes rolled back" in run.succeed("status", "undone")
    rows = [line.split() for line in run.succeed("report", "undone").splitlines()]
    assert rows[0][-1] == "ROLLBACK"
    assert {row[-1] for row in rows[1:]} == {"Completed"}
    refused = run("retry", "undone")
    assert refused.returncode == 1
    assert "no retry revives it" in refused.stderr
