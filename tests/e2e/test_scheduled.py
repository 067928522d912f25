"""ScheduledJobs on real nodes: two starts, a run that takes long, a pause, and the stop of all."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest
import yaml

from tests.e2e.cluster import TASK_IMAGE, RealCluster, consistently, eventually, make_job
from tests.e2e.jobs import GO, shell

SYSTEM = "daemonset-job-system"
API_VERSION = "daemonset.darkowlzz.space/v1beta1"
# A start comes within a minute, and its run takes some seconds.
START_SECONDS = 90


def schedule(namespace: str, run: dict, **spec: object) -> dict:
    return {
        "apiVersion": API_VERSION,
        "kind": "ScheduledJob",
        "metadata": {"name": "sweep", "namespace": namespace},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": run}, **spec},
    }


def status(cluster: RealCluster, namespace: str, name: str = "sweep") -> dict:
    return dict(cluster.get("dsjs", name, "-n", namespace).get("status") or {})


def reason(cluster: RealCluster, namespace: str) -> str:
    conditions = status(cluster, namespace).get("conditions") or [{}]
    return str(conditions[0].get("reason"))


def reports(cluster: RealCluster, namespace: str) -> list[dict]:
    return list(cluster.get("dsjr", "-n", namespace)["items"])


def ended(cluster: RealCluster, namespace: str) -> list[str]:
    """Return the names of the Jobs whose runs have succeeded."""
    return sorted(
        report["spec"]["job"]["name"]
        for report in reports(cluster, namespace)
        if report.get("status", {}).get("phase") == "Succeeded"
    )


def names(cluster: RealCluster, kind: str, namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in cluster.get(kind, "-n", namespace)["items"]]


@pytest.mark.first
def test_each_minute_has_one_run_on_every_node(cluster: RealCluster, namespace, folder):
    run = {
        "image": TASK_IMAGE,
        "mountPath": folder,
        "completion": {"mode": "Exit"},
        **shell("date +%s >> /basetarget/runs"),
    }
    cluster.apply(schedule(namespace, run))
    eventually(lambda: len(ended(cluster, namespace)) >= 2, 3 * 60, "two runs succeeded")
    # A pause: nothing starts in the next minute.
    patch = json.dumps({"spec": {"suspend": True}})
    cluster.kubectl("patch", "dsjs", "sweep", "-n", namespace, "--type=merge", "-p", patch)
    eventually(lambda: reason(cluster, namespace) == "Suspended", 30, "it says that it is paused")
    eventually(lambda: names(cluster, "dsj", namespace) == [], 60, "the last run is over")
    done = ended(cluster, namespace)
    assert len(done) == len(set(done))
    # What a person counts on the nodes: one execution on each for each start.
    assert set(cluster.runs(folder).values()) == {len(done)}
    consistently(lambda: names(cluster, "dsj", namespace) == [], 62, "nothing starts")

    found = status(cluster, namespace)
    last = datetime.fromisoformat(found["lastScheduleTime"])
    assert done[-1] == f"sweep-{int(last.timestamp()) // 60}"
    assert found["lastSuccessfulTime"] > found["lastScheduleTime"]
    table = cluster.kubectl("get", "dsjs", "-n", namespace)
    assert "* * * * *" in table
    assert "Suspended" in table
    cluster.kubectl("delete", "dsjs", "sweep", "-n", namespace)
    assert ended(cluster, namespace) == done
    label = "daemonset.darkowlzz.space/scheduled-job=sweep"
    assert len(cluster.get("dsjr", "-n", namespace, "-l", label)["items"]) == len(done)


@pytest.mark.first
def test_forbid_waits_and_deletion_ends_the_run(
    cluster: RealCluster, namespace, other_namespace, folder
):
    """Beside it, examples/23-nightly-sweep with a start each minute: both wait for minutes."""
    run = {"image": TASK_IMAGE, "mountPath": folder, **shell(f"{GO}; echo done; sleep 1000")}
    cluster.apply(schedule(namespace, run, concurrencyPolicy="Forbid"))
    with nightly_sweep(cluster, other_namespace):
        waits = "the second start waits"
        eventually(lambda: reason(cluster, namespace) == "WaitingForRun", 2 * START_SECONDS, waits)
    (job,) = names(cluster, "dsj", namespace)
    assert [each["name"] for each in status(cluster, namespace)["active"]] == [job]
    assert job in status(cluster, namespace)["conditions"][0]["message"]
    cluster.kubectl("delete", "dsjs", "sweep", "-n", namespace)
    eventually(lambda: names(cluster, "dsj", namespace) == [], 60, "its Job is deleted")
    eventually(lambda: names(cluster, "pods", namespace) == [], 60, "its tasks have ended")

    def closed() -> bool:
        (report,) = reports(cluster, namespace)
        assert report["spec"]["job"]["name"] == job
        return bool(report["status"]["phase"] == "Cancelled")

    eventually(closed, 30, "the report is closed")


@contextmanager
def nightly_sweep(cluster: RealCluster, namespace: str) -> Iterator[None]:
    """Run the example; at the end, old files are gone from each node and new ones are not."""
    text = (cluster.root / "examples" / "23-nightly-sweep" / "scheduledjob.yaml").read_text()
    body = yaml.safe_load(text)
    body["metadata"]["namespace"] = namespace
    body["spec"]["schedule"] = "* * * * *"
    cache = "/var/tmp/build-cache"
    cluster.on_all_nodes(f"mkdir -p {cache}; touch {cache}/new; touch -d '9 days ago' {cache}/old")
    try:
        cluster.apply(body)
        yield
        eventually(lambda: ended(cluster, namespace), START_SECONDS, "a run succeeded")
        left = cluster.on_all_nodes(f"ls {cache}").values()
        assert {each.strip() for each in left} == {"new"}
        found = sorted(reports(cluster, namespace), key=lambda each: each["metadata"]["name"])
        assert {row["results"]["files"] for row in found[0]["status"]["nodeList"]} == {"1"}
    finally:
        cluster.on_all_nodes(f"rm -rf {cache}")


@pytest.mark.alone
def test_the_stop_of_all_jobs_is_reported_and_lifted(cluster: RealCluster, namespace, folder):
    def plugin(*words: str) -> None:
        program = [sys.executable, "-m", "kubectl_dsjob.main", *words]
        subprocess.run([*program, "--kubeconfig", cluster.kubeconfig], check=True, timeout=60)

    task = shell("echo $$ >> /basetarget/runs; echo done; sleep 1000")
    plugin("stop-all", "--reason", "the new kernel loses disks")
    try:
        cluster.apply(
            make_job("held", namespace, image=TASK_IMAGE, mountPath=folder, **task),
            schedule(namespace, {"image": TASK_IMAGE, **shell("echo done; sleep 1000")}),
        )

        def held() -> bool:
            found = cluster.condition(namespace, "held", "Suspended")
            return found.get("reason") == "ClusterStopped" and "new kernel" in found["message"]

        eventually(held, 30, "the Job says that all Jobs are stopped, and why")
        eventually(
            lambda: reason(cluster, namespace) == "ClusterStopped", 30, "the ScheduledJob says so"
        )
        consistently(lambda: not any(cluster.runs(folder).values()), 5, "no node runs it")
        consistently(lambda: names(cluster, "dsj", namespace) == ["held"], 60, "no run starts")
    finally:
        plugin("resume-all")
    cluster.wait_gone(namespace, "held")
    assert set(cluster.runs(folder).values()) == {1}
    eventually(lambda: ended(cluster, namespace), START_SECONDS, "the schedule goes on")
