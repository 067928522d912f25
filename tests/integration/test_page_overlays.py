"""The overlays of the how-to guides: kustomize builds them, and they change what the pages say."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.doc_blocks import ROOT, blocks
from tests.integration.kube_env import find_binaries

HOW_TO = ROOT / "docs" / "how-to"


def parts(page: str) -> list[str]:
    """Return the yaml blocks of a how-to guide, in order."""
    text = (HOW_TO / page).read_text(encoding="utf-8")
    return [block.text for block in blocks(text) if block.language == "yaml"]


def merge(*texts: str) -> dict[str, Any]:
    """Return a kustomization with the lines of all blocks, as their pages say; a later one wins."""
    return {key: value for text in texts for key, value in yaml.safe_load(text).items()}


def build(folder: Path, overlay: Mapping[str, Any], **files: str) -> dict[str, Any]:
    """Return the objects of an overlay that is beside the clone, by kind and name."""
    (folder / "daemonset-job").symlink_to(ROOT)
    (folder / "overlay").mkdir()
    for name, text in {"kustomization": yaml.safe_dump(dict(overlay)), **files}.items():
        (folder / "overlay" / f"{name}.yaml").write_text(text, encoding="utf-8")
    command = [find_binaries() / "kubectl", "kustomize", "overlay"]
    built = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert built.returncode == 0, built.stderr
    found = yaml.safe_load_all(built.stdout)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in found}


def images(deployment: Mapping[str, Any]) -> list[str]:
    return [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]]


def test_the_overlay_of_the_installation_has_the_readers_images_and_settings(tmp_path):
    base, setting, *_ = parts("install.md")
    objects = build(tmp_path, merge(base, setting))
    deployment = objects["Deployment/daemonset-job-controller"]
    registry = "registry.example.com/team/daemonset-job"
    assert [image.rpartition(":")[0] for image in images(deployment)] == [
        f"{registry}-controller",
        f"{registry}-terminator",
    ]
    assert deployment["spec"]["replicas"] == 2
    assert objects["ConfigMap/daemonset-job-controller"]["data"]["LOG_LEVEL"] == "DEBUG"


def test_the_components_that_harden_can_be_added_to_it(tmp_path):
    base, setting, components, *_ = parts("install.md")
    assert "Deployment/daemonset-job-terminator" in build(
        tmp_path, merge(base, setting, components)
    )


def test_the_overlay_for_some_namespaces_watches_these_only(tmp_path):
    change, nodes, team = parts("limit-namespaces.md")
    overlay = merge(parts("install.md")[0], change)
    objects = build(tmp_path, overlay, **{"nodes": nodes, "team-a": team})
    containers = objects["Deployment/daemonset-job-controller"]["spec"]["template"]["spec"]
    assert [each["env"][0]["value"] for each in containers["containers"]] == ["team-a", "team-a"]
    assert [name for name in objects if name.startswith("ClusterRoleBinding/")] == [
        "ClusterRoleBinding/daemonset-job-nodes"
    ]


def test_the_limits_of_the_history_are_set_in_the_overlay(tmp_path):
    limits, *_ = parts("history.md")
    objects = build(tmp_path, merge(parts("install.md")[0], limits))
    settings = objects["ConfigMap/daemonset-job-controller"]["data"]
    assert {name: value for name, value in settings.items() if name.startswith("HISTORY")} == {
        "HISTORY_LIMIT": "50",
        "HISTORY_MAX_AGE": "0",
        "HISTORY_NAMESPACE_LIMIT": "2000",
    }


def test_reserved_keys_of_nodes_are_chosen_in_the_overlay(tmp_path):
    component, _, chosen = parts("label-completed-nodes.md")
    objects = build(tmp_path, merge(parts("install.md")[0], component, chosen))
    assert "ClusterRoleBinding/daemonset-job-node-changes" in objects
    for name in ("daemonset-job-node-changes", "daemonset-job-node-keys"):
        variables = objects[f"ValidatingAdmissionPolicy/{name}"]["spec"]["variables"]
        assert variables[0] == {
            "name": "chosen",
            "expression": "['node-role.kubernetes.io/storage']",
        }


@pytest.mark.parametrize("page", sorted(page.name for page in HOW_TO.glob("*.md")))
def test_no_page_applies_the_manifests_of_the_repository_in_place_of_the_overlay(page):
    commands = "\n".join(block.text for block in blocks((HOW_TO / page).read_text()))
    assert "-k deploy" not in commands
    assert "[daemonset-job/deploy" not in commands
