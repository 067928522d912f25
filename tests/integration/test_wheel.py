"""The wheel carries all that the plugin needs: `pipx install 'daemonset-job[cli]'` has no clone."""

import os
import subprocess
import sys
import zipfile

import pytest
import yaml

from kubectl_dsjob.system import render
from tests.integration.kube_env import ROOT


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Return the unpacked wheel, apart from the clone."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def call(site, *args):
    done = subprocess.run(
        [sys.executable, "-m", "kubectl_dsjob.main", *args],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=site.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def test_the_manifests_in_the_wheel_are_those_of_the_clone(unpacked):
    assert (unpacked / "kubectl_dsjob" / "system_files" / "deploy").is_dir()
    names = ",".join(render.component_names())
    printed = list(
        yaml.safe_load_all(call(unpacked, "install", "--components", names, "-o", "yaml"))
    )
    for manifest in printed:
        manifest["metadata"].pop("annotations", None)
    expected = render.render(render.SystemWish(tuple(render.component_names())))
    for manifest in expected:
        manifest["metadata"].pop("annotations", None)
    assert printed == expected


def test_a_folder_is_bundled_without_the_clone(unpacked, tmp_path):
    script = tmp_path / "fix" / "10-x"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n:\n")
    script.chmod(0o755)
    printed = call(unpacked, "bundle", str(script.parent), "--write", str(tmp_path / "out"))
    assert yaml.safe_load(printed)["metadata"]["name"] == "fix"
    assert (tmp_path / "out" / "task.d" / "10-x").exists()
