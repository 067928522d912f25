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
def wheel(tmp_path_factory):
    """Return the wheel as a file."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel):
    """Return the unpacked wheel, apart from the clone."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


@pytest.fixture(scope="module")
def installed(wheel):
    """Return a virtual environment with the wheel and its extra, as pipx creates one."""
    home = wheel.parent / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
    what = ["-c", str(ROOT / "constraints.txt"), f"{wheel}[cli]"]
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "-q"]
    subprocess.run([*pip, *what], check=True, timeout=400)
    return home


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


@pytest.mark.slow
@pytest.mark.on_demand
def test_what_the_extra_installs_is_a_plugin_that_kubectl_finds(
    installed, kube_env, namespace, tmp_path
):
    paths = os.pathsep.join([str(installed / "bin"), str(kube_env.binaries), "/usr/bin", "/bin"])
    env = {"PATH": paths, "HOME": str(tmp_path), "KUBECONFIG": str(kube_env.kubeconfig)}

    def kubectl(*args):
        done = subprocess.run(
            ["kubectl", *args],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done
        return done.stdout

    assert f"{installed}/bin/kubectl-dsjob" in kubectl("plugin", "list")
    kubectl("dsjob", "run", "sweep", "--image", "i:v1", "--no-wait", "-n", namespace)
    assert "sweep" in kubectl("dsjob", "list", "-n", namespace)
    assert kubectl("__complete", "dsjob", "stat").splitlines()[0].startswith("status\t")
    assert kubectl("__complete", "dsjob", "pause", "-n", namespace, "").splitlines()[0] == "sweep"
    pages = {page.name for page in (installed / "share" / "man" / "man1").iterdir()}
    assert pages == {page.name for page in (ROOT / "docs" / "man").iterdir()}
