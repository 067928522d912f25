"""`kubectl dsjob uninstall`, `install` and `upgrade` on real nodes, with the deployed images."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hack.devcluster import images
from tests.e2e.cluster import CONTROLLER, SYSTEM, eventually, make_job
from tests.e2e.drains import assert_nothing_left, start_drains
from tests.e2e.jobs import assert_succeeded

ROOT = Path(__file__).resolve().parents[2]


def dsjob(cluster, *args):
    done = subprocess.run(
        [sys.executable, "-m", "kubectl_dsjob.main", *args, "--kubeconfig", cluster.kubeconfig],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    print(done.stdout, done.stderr)  # noqa: T201 - for the log of a failed test
    return done


def uids(cluster, kind, *where):
    items = json.loads(cluster.kubectl("get", kind, *(where or ["-A"]), "-o", "json"))["items"]
    return {each["metadata"]["uid"] for each in items}


def reports(cluster, namespace):
    return uids(cluster, "dsjr", "-n", namespace)


@pytest.mark.on_demand
@pytest.mark.alone
def test_a_system_is_uninstalled_and_installed_again_and_runs_jobs(draining, namespace, folder):
    """It is uninstalled in the middle of drains, of which nothing is left. Reports stay."""
    cluster = draining
    job = make_job("before", namespace, script="true")
    del job["spec"]["image"]
    cluster.apply(job)
    eventually(lambda: not uids(cluster, "dsj"), 60, "no Job of another test is left")
    start_drains(cluster, namespace, folder)
    before = reports(cluster, namespace)
    assert len(before) == 2
    prefix = ("--image-prefix", images.prefix())
    try:
        done = dsjob(cluster, "uninstall")
        assert done.returncode == 1, done
        assert f"{namespace}/drains" in done.stderr
        done = dsjob(cluster, "uninstall", "--delete-jobs")
        assert done.returncode == 0, done
        assert_nothing_left(cluster, folder)
        for what in (f"namespace/{SYSTEM}", f"clusterrole/{CONTROLLER}"):
            assert "not found" in cluster.run("get", what).stderr
        assert reports(cluster, namespace) == before
        assert dsjob(cluster, "doctor").returncode == 1

        done = dsjob(cluster, "install", "--components", "split", *prefix)
        assert done.returncode == 0, done
        script = "echo $$ >> /basetarget/runs; echo $$ >> /basetarget/finished\n"
        job = make_job("after", namespace, script=script, mountPath=folder)
        del job["spec"]["image"]
        cluster.apply(job)
        assert_succeeded(cluster, namespace, "after", folder, set(cluster.nodes))
        assert dsjob(cluster, "doctor", "-n", namespace).returncode == 0

        done = dsjob(cluster, "upgrade")
        assert done.returncode == 0, done
        assert re.search(r"[3-9][0-9] objects unchanged", done.stderr)

        # An image that no node can pull is named, and the pod that works goes on.
        done = dsjob(cluster, "upgrade", "--image-prefix", "no.such.example", "--timeout", "15")
        assert done.returncode == 4, done
        assert "no.such.example" in done.stderr
        assert dsjob(cluster, "upgrade", *prefix).returncode == 0
    finally:
        dsjob(cluster, "uninstall", "--keep-jobs")
        environment = os.environ | {"KUBECONFIG": cluster.kubeconfig}
        command = [sys.executable, "-m", "hack.devcluster", "deploy"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)
    cluster.wait_for_system(1)
