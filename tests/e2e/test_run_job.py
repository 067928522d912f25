"""examples/11-wait-in-ci/run-job: every end of a run, and a run that has none."""

import json
import subprocess
import time

import pytest

from tests.e2e.cluster import WAIT, eventually, make_job
from tests.e2e.jobs import shell

FAILS = {**shell("echo no disk; exit 3"), "completion": {"mode": "Exit"}, "backoffLimit": 0}
ENDS = {**shell("echo fine"), "completion": {"mode": "Exit"}}
WORKS = shell(WAIT)


@pytest.fixture
def run_job(cluster, namespace, tmp_path):
    """Return a function that starts the script on a manifest, as a CI job does."""

    def start(manifest: dict, seconds: int = 90, *, current: str = "") -> subprocess.Popen:
        file = tmp_path / "job.json"
        file.write_text(json.dumps(manifest))
        config = tmp_path / "kubeconfig"
        config.write_text(cluster.kubectl("config", "view", "--raw", "--flatten", "--minify"))
        context = ("config", "set-context", "--current", f"--namespace={current or namespace}")
        cluster.kubectl(f"--kubeconfig={config}", *context)
        script = cluster.root / "examples" / "11-wait-in-ci" / "run-job"
        return subprocess.Popen(
            ["env", f"KUBECONFIG={config}", str(script), str(file), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended(process: subprocess.Popen, timeout: float = 120) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def test_success_is_0(cluster, namespace, run_job):
    code, out, err = ended(run_job(make_job("fine", namespace, **ENDS)))
    assert (code, out, err) == (0, "Succeeded: 3 of 3 nodes completed\n", "")


def test_failure_is_1_with_the_failed_nodes_in_any_namespace(cluster, namespace, run_job):
    code, out, err = ended(run_job(make_job("broken", namespace, **FAILS), current="default"))
    assert (code, out) == (1, "")
    assert err.startswith("Failed: ")
    assert "exit 3" in err


def test_a_cancelled_run_is_1(cluster, namespace, run_job):
    process = run_job(make_job("endless", namespace, **WORKS))
    eventually(
        lambda: (cluster.job(namespace, "endless") or {}).get("status", {}).get("report"),
        60,
        "the run has a report",
    )
    cluster.kubectl("delete", "dsj", "endless", "-n", namespace)
    code, _, err = ended(process)
    assert code == 1
    assert err.startswith("Cancelled: ")


@pytest.mark.parametrize("spec", [WORKS, {**ENDS, "suspend": True}], ids=["endless", "suspended"])
def test_no_end_in_time_is_1_after_that_time(cluster, namespace, run_job, spec):
    started = time.monotonic()
    code, _, err = ended(run_job(make_job("late", namespace, **spec), seconds=6))
    assert code == 1
    assert "not ended within 6 s." in err
    assert 5 <= time.monotonic() - started < 40


def test_a_job_that_the_api_server_refuses_is_1_at_once(cluster, namespace, run_job):
    code, _, err = ended(run_job(make_job("wrong", namespace, backoffLimit=-1)))
    assert code == 1
    assert "spec.backoffLimit" in err


def test_a_second_job_of_the_name_is_refused(cluster, namespace, run_job):
    cluster.apply(make_job("taken", namespace, **WORKS))
    code, _, err = ended(run_job(make_job("taken", namespace, **ENDS)))
    assert code == 1
    assert "already exists" in err
