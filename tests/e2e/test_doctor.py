"""`kubectl dsjob doctor` on the deployed system: when it is well, and when it is broken."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import CONTROLLER, SYSTEM, eventually, make_job

ROOT = Path(__file__).resolve().parents[2]


def doctor(cluster, namespace, *args):
    """Return the exit code, and the messages of the problems."""
    done = subprocess.run(
        [sys.executable, "-m", "kubectl_dsjob.main", "doctor", "-o", "json", "-n", namespace,
         "--kubeconfig", cluster.kubeconfig, *args],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    found = json.loads(done.stdout)["checks"]
    return done.returncode, [each["message"] for each in found if each["level"] == "problem"]


def test_a_deployed_system_is_well(cluster, namespace):
    assert doctor(cluster, namespace) == (0, [])


def test_a_job_that_cannot_start_is_stuck_with_its_cause(cluster, namespace):
    job = make_job("stuck", namespace, image="no.such.registry.example/image:v1")
    cluster.apply(job)

    def finds_it():
        code, problems = doctor(cluster, namespace, "--stuck-after", "1")
        return code == 1 and any(
            each.startswith(f"{namespace}/stuck ") and "image" in each for each in problems
        )

    eventually(finds_it, 120, "the doctor names the Job and the image")


@pytest.mark.alone
def test_a_system_that_is_scaled_to_0_is_not_well(cluster, namespace):
    cluster.kubectl("scale", f"deployment/{CONTROLLER}", "-n", SYSTEM, "--replicas=0")
    try:
        code, problems = doctor(cluster, namespace)
        assert code == 1
        assert any("has 0 replicas" in each for each in problems)

        def is_lease_free():
            return sum("Lease" in each for each in doctor(cluster, namespace)[1]) == 2

        eventually(is_lease_free, 60, "no process holds a Lease")
    finally:
        cluster.kubectl("scale", f"deployment/{CONTROLLER}", "-n", SYSTEM, "--replicas=1")
        cluster.wait_for_system(1)
    eventually(lambda: doctor(cluster, namespace) == (0, []), 60, "all is well again")
