"""The system of the cluster as a user's kustomization makes it, applied and rolled out."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import SYSTEM, RealCluster


def build(cluster: RealCluster, folder: Path, *components: str) -> list[dict[str, Any]]:
    """Return what a user's kustomization of deploy/ and these components consists of."""
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(cluster.root / "deploy", folder)],
        "components": [
            os.path.relpath(cluster.root / "deploy" / "components" / each, folder)
            for each in components
        ],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(content))
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(folder))))


def apply(cluster: RealCluster, manifests: Sequence[dict[str, Any]]) -> None:
    """Apply as `devcluster deploy` does, so that what is left out is removed."""
    body = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
    cluster.kubectl(
        *("apply", "--server-side", "--force-conflicts", "-f", "-"), stdin=json.dumps(body)
    )


def rolled_out(cluster: RealCluster, *deployments: str) -> None:
    """Wait until these Deployments are rolled out."""
    for name in deployments:
        cluster.kubectl(
            *("rollout", "status", f"deployment/{name}", "-n", SYSTEM, "--timeout=180s")
        )
