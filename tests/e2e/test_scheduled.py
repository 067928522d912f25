"""ScheduledJobs on real nodes: all that two starts, a minute apart, can show, side by side.

The first start is held up by a stop of all Jobs, and is made up for. Each name below is that of a
ScheduledJob and of the file in which its task leaves a line on the node for each execution.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import TASK_IMAGE, RealCluster, eventually, make_job
from tests.e2e.jobs import shell

API_VERSION = "daemonset.darkowlzz.space/v1beta1"
LABEL = "daemonset.darkowlzz.space/scheduled-job"
EXIT = {"completion": {"mode": "Exit"}}
# Of the schedule that leaves a start out. The stop of all Jobs lasts for longer.
DEADLINE_SECONDS = 10
STOPPED_SECONDS = DEADLINE_SECONDS + 3
SWEEP = "nightly-sweep"
CACHE = "/var/tmp/build-cache"

pytestmark = pytest.mark.timeout(300)


def schedule(namespace: str, name: str, run: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ScheduledJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": run}, **spec},
    }


def schedules(namespace: str, folder: str, node: str) -> list[dict[str, Any]]:
    """Return one ScheduledJob for each thing that is shown; only one of them uses all nodes."""

    def task(name: str, script: str = "exit 0", **spec: Any) -> dict[str, Any]:
        work = shell(f"echo $$ >> /basetarget/{name}; {script}")
        return {"image": TASK_IMAGE, "mountPath": folder, **EXIT, **work, **spec}

    one = {"nodes": {"include": [node]}}
    waits = "while [ ! -e /basetarget/go ]; do sleep 0.2; done; exit 0"
    stays = {"ttlSecondsAfterFinished": 3600, **one}
    return [
        schedule(namespace, "each", task("each")),
        schedule(namespace, "held", task("held", **one)),
        schedule(namespace, "late", task("late", **one), startingDeadlineSeconds=DEADLINE_SECONDS),
        schedule(namespace, "allow", task("allow", "sleep 1000", **one)),
        schedule(namespace, "forbid", task("forbid", waits, **one), concurrencyPolicy="Forbid"),
        schedule(
            namespace, "replace", task("replace", "sleep 1000", **one), concurrencyPolicy="Replace"
        ),
        schedule(namespace, "kept", task("kept", **stays), successfulJobsHistoryLimit=1),
        schedule(namespace, "failing", task("failing", "exit 3", backoffLimit=0, **one)),
    ]


class Scheduled:
    """What there is of the ScheduledJobs of a namespace."""

    def __init__(self, cluster: RealCluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def jobs(self, name: str = "") -> list[str]:
        """Return the names of the Jobs of a ScheduledJob, or of all of them."""
        label = f"{LABEL}={name}" if name else LABEL
        found = self._cluster.get("dsj", "-n", self._namespace, "-l", label)["items"]
        return sorted(job["metadata"]["name"] for job in found)

    def condition(self, name: str) -> dict[str, Any]:
        """Return the condition of a ScheduledJob."""
        return dict(self.status(name)["conditions"][0])

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a ScheduledJob."""
        return dict(self._cluster.get("dsjs", name, "-n", self._namespace)["status"])

    def ends(self, name: str) -> dict[str, str]:
        """Return the phase of each run of a ScheduledJob that has ended, by its Job's name."""
        found = self._cluster.get("dsjr", "-n", self._namespace, "-l", f"{LABEL}={name}")["items"]
        phases = {each["spec"]["job"]["name"]: each["status"].get("phase") for each in found}
        return {
            job: phase
            for job, phase in phases.items()
            if phase in {"Succeeded", "Failed", "Cancelled"}
        }

    def events(self, name: str) -> set[str]:
        """Return the reasons of the events on a ScheduledJob."""
        found = self._cluster.get("events", "-n", self._namespace)["items"]
        about = {"kind": "ScheduledJob", "name": name}
        return {each["reason"] for each in found if about.items() <= each["involvedObject"].items()}

    def suspend(self, *names: str) -> None:
        """Suspend ScheduledJobs."""
        patch = json.dumps({"spec": {"suspend": True}})
        words = (*names, "-n", self._namespace, "--type=merge", "-p", patch)
        self._cluster.kubectl("patch", "dsjs", *words)


@contextmanager
def all_stopped(cluster: RealCluster) -> Iterator[None]:
    """Stop all Jobs of the cluster while the block runs."""

    def plugin(*words: str) -> None:
        program = [sys.executable, "-m", "kubectl_dsjob.main", *words]
        subprocess.run([*program, "--kubeconfig", cluster.kubeconfig], check=True, timeout=60)

    plugin("stop-all", "--reason", "the new kernel loses disks")
    try:
        yield
    finally:
        plugin("resume-all")


@contextmanager
def old_files(cluster: RealCluster) -> Iterator[None]:
    """Have a new file and an old one in the folder that the example sweeps."""
    cluster.on_all_nodes(f"mkdir -p {CACHE}; touch {CACHE}/new; touch -d '9 days ago' {CACHE}/old")
    try:
        yield
    finally:
        cluster.on_all_nodes(f"rm -rf {CACHE}")


def nightly_sweep(cluster: RealCluster, namespace: str) -> dict[str, Any]:
    """Return the example, with a start each minute."""
    text = (cluster.root / "examples" / "23-nightly-sweep" / "scheduledjob.yaml").read_text()
    body: dict[str, Any] = yaml.safe_load(text)
    body["metadata"]["namespace"] = namespace
    body["spec"]["schedule"] = "* * * * *"
    return body


def start_after(cluster: RealCluster, namespace: str) -> int:
    """Return the time of the first start of all ScheduledJobs, in seconds."""
    found = cluster.get("dsjs", "-n", namespace)["items"]
    times = [datetime.fromisoformat(each["metadata"]["creationTimestamp"]) for each in found]
    return int(max(times).timestamp()) // 60 * 60 + 60


def sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.time(), 0.0))


@pytest.mark.on_demand
@pytest.mark.alone
def test_two_starts_of_every_kind_of_schedule_and_a_stop_of_all_jobs(
    cluster: RealCluster, namespace, folder
):
    node, runs = cluster.nodes[0], Scheduled(cluster, namespace)
    plain = make_job("plain", namespace, **EXIT, **shell("echo $$ >> /basetarget/plain"))
    plain["spec"]["mountPath"] = folder
    bodies = [*schedules(namespace, folder, node), nightly_sweep(cluster, namespace)]
    names = [body["metadata"]["name"] for body in bodies]
    with old_files(cluster):
        with all_stopped(cluster):
            cluster.apply(plain, *bodies)
            first = start_after(cluster, namespace)
            stop_is_told(cluster, namespace, runs, names)
            sleep_until(first + STOPPED_SECONDS)
            assert runs.jobs() == []
            assert set(cluster.on_all_nodes(f"ls {folder}").values()) == {""}
        one, two = (f"-{first // 60 + number}" for number in (0, 1))
        the_first_start_is_made_up_for(cluster, namespace, runs, one)
        sleep_until(first + 60)
        others = {"each", "late", "replace", "kept", "failing", SWEEP}
        eventually(
            lambda: all(name + two in [*runs.jobs(), *runs.ends(name)] for name in others),
            *(30, "the second start"),
        )
        # There is no third start.
        runs.suspend(*others)
        each_start_has_one_run_on_every_node(cluster, namespace, runs, ("each" + one, "each" + two))
        forbid_waits_and_then_starts(cluster, folder, runs, one, two)
        replace_deletes_the_run_before(cluster, folder, runs, one, two)
        the_history_keeps_one_job_of_each_kind(runs, one, two)
        assert runs.jobs("held") == []
        assert runs.ends("held") == {"held" + one: "Succeeded"}
        eventually(lambda: runs.ends("late") == {"late" + two: "Succeeded"}, 60, "only the second")
        deletion_ends_what_allow_has_started(cluster, namespace, folder, runs, one, two)


def stop_is_told(cluster: RealCluster, namespace: str, runs: Scheduled, names: list[str]) -> None:
    """A Job and all ScheduledJobs say that all Jobs are stopped, and why."""

    def is_held() -> bool:
        found = cluster.condition(namespace, "plain", "Suspended")
        return found["reason"] == "ClusterStopped" and "new kernel" in found["message"]

    eventually(is_held, 30, "the Job says it")
    eventually(
        lambda: {runs.condition(name)["reason"] for name in names} == {"ClusterStopped"},
        *(30, "the ScheduledJobs say it"),
    )


def the_first_start_is_made_up_for(
    cluster: RealCluster, namespace: str, runs: Scheduled, one: str
) -> None:
    """All start late after the stop, but the one with a deadline; one is suspended then."""
    begun = {"allow", "forbid", "replace"}
    eventually(lambda: {name + one for name in begun} <= {*runs.jobs()}, 30, "they start late")
    eventually(lambda: runs.condition("late")["reason"] == "StartMissed", 30, "one is left out")
    assert runs.jobs("late") == []
    eventually(lambda: runs.ends("held"), 60, "it has run once")
    runs.suspend("held")
    cluster.wait_gone(namespace, "plain")
    eventually(lambda: runs.ends(SWEEP) == {SWEEP + one: "Succeeded"}, 60, "the example has run")
    left = cluster.on_all_nodes(f"ls {CACHE}").values()
    assert {each.strip() for each in left} == {"new"}
    (report,) = cluster.get("dsjr", "-n", namespace, "-l", f"{LABEL}={SWEEP}")["items"]
    assert {row["results"]["files"] for row in report["status"]["nodeList"]} == {"1"}


def each_start_has_one_run_on_every_node(
    cluster: RealCluster, namespace: str, runs: Scheduled, jobs: tuple[str, str]
) -> None:
    """What a person counts on the nodes, and what the status and the table say."""
    eventually(lambda: runs.ends("each") == dict.fromkeys(jobs, "Succeeded"), 60, "two runs")
    eventually(lambda: runs.jobs("each") == [], 60, "they delete themselves")
    mount = cluster.get("dsjs", "each", "-n", namespace)["spec"]["jobTemplate"]["spec"]["mountPath"]
    assert set(cluster.runs(mount, "each").values()) == {2}
    eventually(lambda: runs.condition("each")["reason"] == "Suspended", 30, "it says so")

    def is_recorded() -> bool:
        found = runs.status("each")
        return str(found["lastSuccessfulTime"]) > str(found["lastScheduleTime"])

    eventually(is_recorded, 30, "the success of the second run")
    found = runs.status("each")
    last = datetime.fromisoformat(found["lastScheduleTime"])
    assert jobs[1] == f"each-{int(last.timestamp()) // 60}"
    (row,) = (
        line
        for line in cluster.kubectl("get", "dsjs", "-n", namespace).splitlines()
        if line.startswith("each")
    )
    assert "* * * * *" in row
    assert "Suspended" in row


def forbid_waits_and_then_starts(
    cluster: RealCluster, folder: str, runs: Scheduled, one: str, two: str
) -> None:
    """The second start waits until the first run has ended, and comes at once then."""
    eventually(lambda: runs.condition("forbid")["reason"] == "WaitingForRun", 30, "it waits")
    assert "forbid" + one in runs.condition("forbid")["message"]
    assert [each["name"] for each in runs.status("forbid")["active"]] == ["forbid" + one]
    assert sum(cluster.runs(folder, "forbid").values()) == 1
    cluster.on_all_nodes(f"touch {folder}/go")
    done = {"forbid" + one: "Succeeded", "forbid" + two: "Succeeded"}
    eventually(lambda: done.items() <= runs.ends("forbid").items(), 60, "the second one runs")


def replace_deletes_the_run_before(
    cluster: RealCluster, folder: str, runs: Scheduled, one: str, two: str
) -> None:
    """The first run is cancelled, its task has ended, and the second one is at work."""
    eventually(lambda: sum(cluster.runs(folder, "replace").values()) == 2, 60, "the second works")
    assert runs.jobs("replace") == ["replace" + two]
    assert [each["name"] for each in runs.status("replace")["active"]] == ["replace" + two]
    eventually(lambda: runs.ends("replace") == {"replace" + one: "Cancelled"}, 30, "it is closed")
    assert "RunReplaced" in runs.events("replace")


def the_history_keeps_one_job_of_each_kind(runs: Scheduled, one: str, two: str) -> None:
    """The older Job that has succeeded or failed is deleted, and its report stays."""
    for name, phase in (("kept", "Succeeded"), ("failing", "Failed")):
        ends = {name + one: phase, name + two: phase}
        eventually(lambda name=name, ends=ends: runs.ends(name) == ends, 60, f"{name}: two ends")
        eventually(lambda name=name: runs.jobs(name) == [name + two], 30, f"{name}: one is kept")


def deletion_ends_what_allow_has_started(
    cluster: RealCluster, namespace: str, folder: str, runs: Scheduled, one: str, two: str
) -> None:
    """Two runs are at work at a time; both end with their ScheduledJob."""
    jobs = ["allow" + one, "allow" + two]
    assert runs.jobs("allow")[:2] == jobs
    eventually(lambda: sum(cluster.runs(folder, "allow").values()) >= 2, 60, "both are at work")
    assert [each["name"] for each in runs.status("allow")["active"]][:2] == jobs
    cluster.kubectl("delete", "dsjs", "allow", "-n", namespace)
    eventually(lambda: runs.jobs("allow") == [], 60, "its Jobs are deleted")
    for name in jobs:
        eventually(
            lambda name=name: cluster.pods(namespace, name) == [], 60, "the tasks have ended"
        )
    cancelled = dict.fromkeys(jobs, "Cancelled")
    eventually(lambda: cancelled.items() <= runs.ends("allow").items(), 30, "reports are closed")
