"""Manifests, as short as the tests' point allows."""

from typing import Any

from tests.integration.kube_env import KubeEnv

API_VERSION = "daemonset.darkowlzz.space/v1beta1"
IMAGE = {"image": "example/task:v1"}
STARTED = {"startTime": "2025-01-01T00:00:00Z"}


def job(namespace: str, spec: dict[str, Any] | None = None, name: str = "sample") -> dict[str, Any]:
    """Return a Job; without a spec, the shortest one."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(IMAGE) if spec is None else spec,
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


def template(**fields: Any) -> dict[str, Any]:
    """Return a spec with a template."""
    return IMAGE | {"template": fields}


def jobs_path(namespace: str, name: str = "") -> str:
    """Return the path of a namespace's Jobs; `name` begins with a slash."""
    return f"/apis/{API_VERSION}/namespaces/{namespace}/jobs{name}"
