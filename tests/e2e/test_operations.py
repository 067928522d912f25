"""Running the system: replicas, metrics, a changed configuration, and who may do what."""

import json
import time

import pytest

from tests.e2e.cluster import CONTROLLER, SYSTEM, WAIT, counting, eventually, make_job
from tests.e2e.jobs import on, shell, wait_condition
from tests.e2e.system_metrics import CONTROLLER_PORT, TERMINATOR_PORT, metrics
from tests.e2e.test_rollout import begun, overlaps, timed, times

GO = "while [ ! -e /basetarget/go ]; do sleep 0.2; done"


def scale(cluster, replicas):
    cluster.kubectl("scale", f"deployment/{CONTROLLER}", "-n", SYSTEM, f"--replicas={replicas}")
    cluster.wait_for_system(replicas)


def holder(cluster, lease):
    found = cluster.get("lease", lease, "-n", SYSTEM)["spec"].get("holderIdentity") or ""
    return found.rpartition("_")[0]


@pytest.mark.on_demand
@pytest.mark.alone
def test_two_replicas_take_turns_and_lose_no_run_with_their_leader(cluster, namespace, folder):
    """One is deleted, and the other one killed, while a rollout has one node at work at a time."""
    slow, lease = cluster.nodes[0], "daemonset-job-controller"
    work = counting(before=f'[ "$NODE_NAME" = {slow} ] && {GO}')
    turns = {"mountPath": folder, "rollout": {"maxParallel": 1}, **timed(3)}
    scale(cluster, 2)
    try:
        cluster.apply(
            make_job("pair", namespace, mountPath=folder, **work),
            make_job("turns", namespace, **turns),
        )
        eventually(lambda: len(begun(cluster, folder)) == 1, 60, "the first node is at work")
        leader = holder(cluster, lease)
        pods = [pod["metadata"]["name"] for pod in cluster.get("pods", "-n", SYSTEM)["items"]]
        assert leader in pods
        leading = [
            metrics(cluster, pod, CONTROLLER_PORT)['dsj_is_leader{component="controller"}']
            for pod in pods
        ]
        assert sorted(leading) == ["0.0", "1.0"]

        cluster.kubectl("delete", "pod", leader, "-n", SYSTEM)
        second = eventually(lambda: {holder(cluster, lease)} - {"", leader}, 60, "the other leads")
        eventually(lambda: len(begun(cluster, folder)) == 2, 60, "the next node is at work")
        # It does not give the Lease back, so that the third one waits until that has expired.
        cluster.kill("job-controller", second.pop())
        cluster.on_node(slow, f"touch {folder}/go")

        cluster.wait_gone(namespace, "pair", timeout=120)
        assert set(cluster.runs(folder).values()) == {1}
        wait_condition(cluster, namespace, "turns", "Complete")
        found = times(cluster, folder)
        assert set(found) == set(cluster.nodes)
        assert overlaps(found) == []
    finally:
        scale(cluster, 1)


def test_a_changed_configuration_is_taken_over_without_a_restart(cluster, namespace):
    """The kubelet brings a changed ConfigMap to the pod within about a minute."""
    name = "daemonset-job-terminator"
    before = cluster.get("configmap", name, "-n", SYSTEM)["data"]["config.yaml"]
    (pod,) = cluster.get("pods", "-n", SYSTEM)["items"]
    changed = before.replace("resyncPeriod: 30s", "resyncPeriod: 31s")
    assert changed != before

    def patch(text):
        body = json.dumps({"data": {"config.yaml": text}})
        cluster.kubectl("patch", "configmap", name, "-n", SYSTEM, "--type=merge", "-p", body)

    def reloads():
        found = metrics(cluster, pod["metadata"]["name"], TERMINATOR_PORT)
        return {key: float(value) for key, value in found.items() if "reload" in key}

    start = reloads()
    patch(changed)
    try:
        eventually(lambda: reloads() != start, 150, "the configuration was read again")
    finally:
        patch(before)
    (same,) = cluster.get("pods", "-n", SYSTEM)["items"]
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    restarts = [c["restartCount"] for c in same["status"]["containerStatuses"]]
    assert restarts == [c["restartCount"] for c in pod["status"]["containerStatuses"]]


def test_metrics_tell_runs_and_their_duration(cluster, namespace):
    cluster.apply(make_job("measured", namespace, command=["sh", "-c"], args=["echo done;" + WAIT]))
    cluster.wait_gone(namespace, "measured")
    (pod,) = cluster.get("pods", "-n", SYSTEM)["items"]

    controller = metrics(cluster, pod["metadata"]["name"], CONTROLLER_PORT)
    terminator = metrics(cluster, pod["metadata"]["name"], TERMINATOR_PORT)

    assert float(controller['dsj_run_duration_seconds_count{phase="Succeeded"}']) >= 1
    assert 'dsj_nodes{state="unreachable"}' in controller
    assert any(key.startswith("dsj_log_") for key in terminator)


def test_metrics_of_an_ended_run_outlive_its_job(cluster, namespace):
    """The counters are of the whole cluster, in which tests beside this one end runs, too."""
    (pod,) = cluster.get("pods", "-n", SYSTEM)["items"]

    def read():
        found = metrics(cluster, pod["metadata"]["name"], CONTROLLER_PORT)
        return {key: float(value) for key, value in found.items()}

    def ended(values, phase):
        keys = [key for key in values if key.startswith("dsj_runs_ended_total{")]
        return sum(values[key] for key in keys if f'phase="{phase}"' in key)

    def last(values, what, name):
        return values[f'dsj_last_run_{what}{{job="{name}",namespace="{namespace}"}}']

    bad, before, began = cluster.nodes[0], read(), time.time()
    cluster.apply(
        make_job("well", namespace, **shell("sleep 2; echo done; " + WAIT)),
        make_job(
            *("ill", namespace),
            **{**on(bad, "exit 3"), "backoffLimit": 0, "ttlSecondsAfterFinished": 1},
        ),
    )
    for name in ("well", "ill"):
        cluster.wait_gone(namespace, name)
    over, after = time.time(), read()
    for phase in ("Succeeded", "Failed"):
        assert ended(after, phase) >= ended(before, phase) + 1
    for name, success, failed in (("well", 1, 0), ("ill", 0, 1)):
        assert last(after, "success", name) == success
        assert last(after, "nodes_failed", name) == failed
        assert began - 1 <= last(after, "end_timestamp_seconds", name) <= over
    assert 2 <= last(after, "duration_seconds", "well") <= over - began + 1
    # No series of a Job that is there remains.
    assert not [key for key in after if key.startswith("dsj_job_nodes{") and namespace in key]


@pytest.mark.on_demand
@pytest.mark.alone
def test_history_is_kept_by_number_and_by_age(cluster, namespace):
    def run(name):
        cluster.apply(make_job(name, namespace, command=["sh", "-c"], args=["echo done;" + WAIT]))
        cluster.wait_gone(namespace, name)

    def kept(name):
        return [
            report["spec"]["job"]["uid"]
            for report in cluster.get("dsjr", "-n", namespace, "-l", f"job={name}")["items"]
        ]

    run("other")
    with cluster.controller_settings(HISTORY_LIMIT="2"):
        runs = []
        for _ in range(3):
            run("often")
            runs += [uid for uid in kept("often") if uid not in runs]
        assert len(runs) == 3
        eventually(lambda: set(kept("often")) == set(runs[1:]), 30, "the two newest runs")
        assert len(kept("other")) == 1

    with cluster.controller_settings(HISTORY_MAX_AGE="5"):
        eventually(lambda: not kept("often") and not kept("other"), 60, "all are too old")
