"""Fixtures of the ring with a real API server: started once, a fresh namespace for every test."""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.jobs import job
from tests.integration.kube_env import ROOT, KubeEnv, User
from tests.integration.kube_env import kube_env as run_kube_env


@pytest.fixture(scope="session")
def kube_env() -> Iterator[KubeEnv]:
    """A real API server with crds/ and deploy/ applied, as a user would.

    Of the controller manager only what aggregates roles runs: no DaemonSet gets pods and nothing
    is garbage-collected unless a test does it.
    """
    with run_kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
        install(env, ROOT / "deploy")
        yield env


@pytest.fixture(scope="session")
def tenants_env() -> Iterator[KubeEnv]:
    """Another one, for programs that look at all namespaces: they meet no other test's Jobs."""
    with run_kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
        install(env, ROOT / "deploy")
        yield env


def install(env: KubeEnv, kustomization: Path) -> None:
    """Apply what a kustomization builds, and return once CRDs and admission policy serve."""
    env.kubectl("apply", "--server-side", "-k", str(kustomization))
    env.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    _wait_for_the_policy(env)


def _wait_for_the_policy(env: KubeEnv) -> None:
    """Return once the admission policy is in force, which takes the API server a moment."""
    probe = User("policy-probe")
    jobs = "jobs.daemonset.darkowlzz.space"
    env.kubectl("create", "role", probe.name, "--verb=create", f"--resource={jobs}")
    env.kubectl("create", "rolebinding", probe.name, f"--role={probe.name}", f"--user={probe.name}")
    deadline = time.monotonic() + 30
    while True:
        body = json.dumps(job("default"))
        done = env.run("create", "--dry-run=server", "-f", "-", input=body, user=probe)
        if "right to create DaemonSets" in done.stderr:
            return
        assert time.monotonic() < deadline, f"the policy is not in force: {done}"
        time.sleep(0.1)


@pytest.fixture
def namespace(kube_env: KubeEnv) -> str:
    """A namespace of the test's own. It goes with the server, not before."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    status, answer = kube_env.request("POST", "/api/v1/namespaces", body)
    assert status == 201, answer
    return name


@pytest.fixture(autouse=True)
def _no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the tests away from the cluster of the user who runs them."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
