"""Manifests, as short as the tests' point allows."""

from typing import Any

from tests.integration.kube_env import KubeEnv

API_VERSION = "daemonset.darkowlzz.space/v1beta1"
STARTED = {"startTime": "2025-01-01T00:00:00Z"}


def job(namespace: str, spec: dict[str, Any] | None = None, name: str = "sample") -> dict[str, Any]:
    """Return a Job; without a spec, the shortest one."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": "example/task:v1"} if spec is None else spec,
    }


def report(namespace: str, name: str = "sample-1234") -> dict[str, Any]:
    """Return a JobReport with what its schema asks for."""
    return {
        "apiVersion": API_VERSION,
        "kind": "JobReport",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"job": {"name": "sample", "uid": "1234-5678"}, "image": "example/task:v1"},
    }


def start(env: KubeEnv, namespace: str, name: str = "sample") -> dict[str, Any]:
    """Do what the controller does when it begins with a Job."""
    return env.patch_status("dsj", name, namespace, STARTED)
