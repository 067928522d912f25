"""Reading real logs: what tasks print, however odd or long, and what the kubelet does to it.

Every test asserts what a user sees: the Job is gone, and its report says that each node completed.
Some change the kubelet's log settings on one node, for as long as they last.
"""

import re
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.e2e.cluster import SYSTEM, WAIT, eventually, make_job
from tests.e2e.kubelets import kubelet_setting, worker
from tests.e2e.variants import first_of

MIB = 1024 * 1024
TOKEN = {"token": "done"}


def shell(script: str) -> dict:
    return {"command": ["bash", "-c"], "args": [f"{script}; {WAIT}"]}


def succeeded(cluster, namespace, name, nodes):
    """Assert that a report says a success on exactly these nodes, with the evidence for it."""
    report = cluster.report(namespace, name)
    assert report["status"]["phase"] == "Succeeded"
    assert report["status"]["nodes"]["completed"] == len(nodes)
    assert set(report["evidence"]) == set(nodes)
    assert all(entry["completedAt"] for entry in report["evidence"].values())
    return report


class Terminator:
    """The process that reads logs, seen from its node and by its metrics."""

    def __init__(self, cluster):
        self._cluster = cluster
        (self._pod,) = [
            pod
            for pod in cluster.get("pods", "-n", SYSTEM)["items"]
            if pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp")
        ]

    def process(self) -> tuple[str, int]:
        """Return its pid on the node and its peak of resident memory so far, in KiB."""
        script = (
            "for p in /proc/[0-9]*; do "
            "tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q '/bin/terminator *$' && "
            "echo ${p#/proc/} $(sed -n 's/^VmHWM:[^0-9]*\\([0-9]*\\).*/\\1/p' $p/status);"
            " done; true"
        )
        pid, peak = self._cluster.on_node(self._pod["spec"]["nodeName"], script).split()
        return pid, int(peak)

    def log_bytes(self) -> int:
        """Return how much log it has received so far."""
        path = (
            f"/api/v1/namespaces/{SYSTEM}/pods/{self._pod['metadata']['name']}:8081/proxy/metrics"
        )
        text = self._cluster.kubectl("get", "--raw", path)
        return int(float(re.search(r"^dsj_log_read_bytes_total (\S+)$", text, re.MULTILINE)[1]))


# --- what a task may print ---------------------------------------------------------------

ODDITIES = {
    "nul-bytes": ("printf 'a\\0b\\n\\0\\0\\ndone\\n'", TOKEN),
    "invalid-utf-8": ("printf '\\xff\\xfe\\x80 \\xc3\\n\\xf0\\x28\\ndone\\n'", TOKEN),
    "ansi-colours": ("printf '\\033[1;32mdone\\033[0m\\n'", TOKEN),
    "crlf": ("printf 'working\\r\\ndone\\r\\n'", TOKEN),
    "contains": ("echo '[12:00:01] all is done, waiting'", {**TOKEN, "match": "Contains"}),
    "regex": (
        "echo 'finished in 42 ms'",
        {"token": "finished in [0-9]+ ms", "match": "Regex"},
    ),
}


@pytest.mark.parametrize("oddity", first_of(ODDITIES))
def test_a_token_is_found_whatever_it_is_printed_with(cluster, namespace, oddity):
    script, completion = ODDITIES[oddity]

    cluster.apply(make_job(oddity, namespace, completion=completion, **shell(script)))

    cluster.wait_gone(namespace, oddity)
    succeeded(cluster, namespace, oddity, cluster.nodes)


def test_a_token_without_a_final_newline_counts_once_it_is_in_the_log(cluster, namespace, folder):
    """The runtime (containerd) keeps an unfinished line to itself until the task ends."""
    node = worker(cluster)
    script = (
        "if mkdir /basetarget/was; then printf 'working\\ndone';"
        " while [ ! -e /basetarget/go ]; do sleep 0.2; done; exit 0; fi"
    )
    job = make_job(
        "unfinished", namespace, mountPath=folder, nodes={"include": [node]}, **shell(script)
    )
    cluster.apply(job)
    files = f"cat /var/log/pods/{namespace}_unfinished-*/job-container/0.log"
    eventually(lambda: running(cluster, namespace, "unfinished"), 60, "the task runs")
    eventually(lambda: "working" in cluster.on_node(node, files), 30, "the first line")
    time.sleep(3)
    assert "done" not in cluster.on_node(node, files)
    assert cluster.completed(namespace, "unfinished") == set()

    cluster.on_node(node, f"touch {folder}/go")

    cluster.wait_gone(namespace, "unfinished")
    succeeded(cluster, namespace, "unfinished", [node])


def test_lines_that_only_resemble_the_token_complete_nothing(cluster, namespace):
    # The last one is longer than a runtime's records: what is left of it alone would be the token.
    script = (
        "printf 'undone\\ndone!\\nis done\\nDONE\\ndo\\0ne\\n';"
        " head -c 16384 /dev/zero | tr '\\0' x; echo done"
    )
    cluster.apply(make_job("nearly", namespace, completion=TOKEN, **shell(script)))

    def active():
        job = cluster.job(namespace, "nearly") or {}
        return job.get("status", {}).get("nodes", {}).get("active") == len(cluster.nodes)

    eventually(active, 60, "every node at work")
    time.sleep(5)

    assert cluster.completed(namespace, "nearly") == set()


def test_a_token_in_the_log_of_the_previous_container_counts(cluster, namespace, folder):
    script = "if mkdir /basetarget/was; then echo done; exit 1; fi"
    job = make_job("crashing", namespace, mountPath=folder, **shell(script))

    cluster.apply(job)

    cluster.wait_gone(namespace, "crashing", 120)
    succeeded(cluster, namespace, "crashing", cluster.nodes)


# --- what the kubelet does to logs -------------------------------------------------------

LINES = 300_000
LINE_BYTES = 100


@contextmanager
def follow_log(cluster, namespace, name, sink):
    """Write the log of a pod into `sink`; end the process that does so in any case."""
    kubectl = ("kubectl", "--kubeconfig", cluster.kubeconfig)
    with subprocess.Popen((*kubectl, "logs", "-f", "-n", namespace, name), stdout=sink) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.on_demand
@pytest.mark.alone
def test_rotation_while_a_task_prints_30_mb_loses_no_token(
    cluster, namespace, folder, tmp_path, record_property
):
    """Beside it a plain follow stream is held, to show what the same stream would have missed."""
    node = worker(cluster)
    script = (
        "echo begin; while [ ! -e /basetarget/go ]; do sleep 0.1; done;"
        f" for i in $(seq 0 29); do seq -f '%0{LINE_BYTES - 1}.0f' $((i * {LINES // 30} + 1))"
        f" $(((i + 1) * {LINES // 30})); sleep 0.5; done; echo done"
    )
    job = make_job(
        "rotated", namespace, mountPath=folder, nodes={"include": [node]}, **shell(script)
    )

    with kubelet_setting(
        cluster, node, containerLogMaxSize="1Mi", containerLogMonitorInterval="3s"
    ):
        cluster.apply(job)
        eventually(lambda: running(cluster, namespace, "rotated"), 60, "the task runs")
        name = cluster.pods(namespace, "rotated")[0]["metadata"]["name"]
        followed = tmp_path / "followed"
        with followed.open("wb") as sink, follow_log(cluster, namespace, name, sink) as follow:
            eventually(lambda: b"begin" in followed.read_bytes(), 30, "the stream has begun")
            cluster.on_node(node, f"touch {folder}/go")
            files = f"ls /var/log/pods/{namespace}_{name}_*/job-container | wc -l"
            eventually(lambda: int(cluster.on_node(node, files)) > 1, 60, "the log is rotated")

            cluster.wait_gone(namespace, "rotated", 180)
            follow.wait(30)

    succeeded(cluster, namespace, "rotated", [node])
    arrived = {line for line in followed.read_bytes().split() if line.isdigit()}
    record_property("lines_followed", len(arrived))
    print(f"a plain follow stream brought {len(arrived)} of {LINES} lines")  # noqa: T201


@pytest.mark.on_demand
@pytest.mark.alone
def test_of_a_gibibyte_of_log_only_a_bounded_part_is_read(
    cluster, namespace, folder, record_property
):
    node = worker(cluster)
    free = int(cluster.on_node(node, "df --output=avail -k /var/log | tail -1"))
    assert free > 4 * MIB, "less than 4 GiB left on the node's disk"
    script = (
        f"yes {'x' * (LINE_BYTES - 1)} | head -c {1024 * MIB}; echo;"
        " date +%s.%N > /basetarget/printed; echo done"
    )
    job = make_job(
        "gibibyte", namespace, mountPath=folder, nodes={"include": [node]}, **shell(script)
    )
    terminator = Terminator(cluster)
    pid, peak = terminator.process()
    read = terminator.log_bytes()

    # One file, so that the whole gibibyte lies before the token.
    began = time.time()
    with kubelet_setting(cluster, node, containerLogMaxSize="4Gi"):
        cluster.apply(job)
        eventually(lambda: cluster.job(namespace, "gibibyte") is None, 240, "the Job gone")
        gone = time.time()
        printed = float(cluster.on_node(node, f"cat {folder}/printed"))
        cluster.wait_gone(namespace, "gibibyte")

    succeeded(cluster, namespace, "gibibyte", [node])
    after_pid, after_peak = terminator.process()
    figures = {
        "seconds_from_token_to_gone": round(gone - printed, 1),
        "peak_before_mib": round(peak / 1024, 1),
        "peak_after_mib": round(after_peak / 1024, 1),
        "log_bytes_read": terminator.log_bytes() - read,
    }
    for figure in figures.items():
        record_property(*figure)
    print(figures)  # noqa: T201 - recorded where the test is run
    assert after_pid == pid, "the terminator was restarted meanwhile"
    assert figures["seconds_from_token_to_gone"] < 20
    assert after_peak - peak < 30 * 1024
    # The shared budget, however long the log: 32 MiB at once and 1 MiB a second (see
    # terminator/logs/read_budget.py), and the short reads.
    assert figures["log_bytes_read"] < (40 + gone - began) * MIB


def running(cluster, namespace, name):
    pods = cluster.pods(namespace, name)
    return pods and all(pod["status"]["phase"] == "Running" for pod in pods)


@pytest.mark.alone
def test_one_endless_line_before_the_token(cluster, namespace):
    node = worker(cluster)
    script = f"head -c {64 * MIB} /dev/zero | tr '\\0' x; echo; echo done"
    job = make_job("endless", namespace, nodes={"include": [node]}, **shell(script))
    terminator = Terminator(cluster)
    pid, before = terminator.process()

    cluster.apply(job)

    cluster.wait_gone(namespace, "endless", 180)
    succeeded(cluster, namespace, "endless", [node])
    assert terminator.process()[0] == pid
    assert terminator.process()[1] - before < 30 * 1024
