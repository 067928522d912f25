"""`kubectl dsjob bundle` on real nodes: a folder of scripts becomes an image, runs, is changed."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hack.devcluster import images
from hack.devcluster.settings import find_paths
from tests.e2e.cluster import TASK_IMAGE, consistently, eventually

ROOT = Path(__file__).resolve().parents[2]
DSJOB = [sys.executable, "-m", "kubectl_dsjob.main"]
LOAD = f"{sys.executable} -m hack.devcluster load"
BASE = f"docker.io/{TASK_IMAGE}"
RUN_SECONDS = 120

PREPARE = '#!/bin/sh\nset -eu\necho "$1" >/basetarget/prepared\n'
WRITE = (
    "#!/bin/sh\nset -eu\necho $(cat /basetarget/prepared /task.d/lib/words) {} >>/basetarget/runs\n"
)


@pytest.fixture
def builder(tmp_path):
    """Return a builder that has the task image, and its environment.

    On machines without a registry that is buildah with a store of the test's own.
    """
    if shutil.which("buildah") is None:
        return "docker", {}
    store = tmp_path / "store"
    store.mkdir()
    conf = tmp_path / "storage.conf"
    driver = images._driver(find_paths())
    conf.write_text(
        f'[storage]\ndriver = "{driver}"\ngraphroot = "{store}"\nrunroot = "{store}/r"\n'
    )
    environment = {"CONTAINERS_STORAGE_CONF": str(conf), "BUILDAH_ISOLATION": "chroot"}
    archive = ROOT / "build" / "task.tar"
    command = ["buildah", "pull", "--quiet", f"docker-archive:{archive}:{images.full_name('task')}"]
    subprocess.run(command, env=os.environ | environment, check=True, timeout=300)
    return "buildah", environment


@pytest.fixture
def scripts(tmp_path):
    path = tmp_path / "two-scripts"
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "words").write_text("and\n")
    write(path / "10-prepare", PREPARE)
    write(path / "20-write", WRITE.format("first"))
    return path


def write(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Watch:
    """The verb with --watch, and what it has printed."""

    def __init__(self, process, log):
        self.process, self.log = process, log

    @property
    def output(self):
        return self.log.read_text()

    def says(self, text, times=1):
        def look():
            assert self.process.poll() is None, self.output
            return self.output.count(text) >= times

        eventually(look, RUN_SECONDS, f"{text!r} in the output")


def _default_signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def watch(cluster, namespace, folder, builder, scripts, tmp_path):
    name, environment = builder
    log = tmp_path / "log"
    command = [*DSJOB, "bundle", str(scripts), "--watch", "--builder", name, "--base", BASE]
    command += ["--load", LOAD, "--mount", folder, "-n", namespace]
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--kubeconfig", cluster.kubeconfig, "--", "hello"],
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # A test that runs in the background ignores SIGINT, and so would the verb.
            preexec_fn=_default_signals,  # noqa: PLW1509 - no threads here
        )
    try:
        yield Watch(process, log)
    finally:
        print(log.read_text())  # noqa: T201 - for the log of a failed test
        process.kill()
        process.wait()


def test_a_folder_is_built_and_run_again_after_each_change(
    cluster, namespace, folder, scripts, watch
):
    def lines():
        found = cluster.on_all_nodes(f"cat {folder}/runs 2>/dev/null || true")
        return {tuple(text.splitlines()) for text in found.values()}

    def run_is(*expected):
        return lambda: lines() == {tuple(f"hello and {each}" for each in expected)}

    eventually(run_is("first"), RUN_SECONDS, "each node ran both scripts in their order")
    watch.says("the run has ended")
    assert "1. 10-prepare" in watch.output

    # An error keeps the folder from being built, and the file, the line and the fix are named.
    write(scripts / "20-write", "#!/bin/sh\nif true\n")
    watch.says("20-write:3: sh -n: ")
    assert run_is("first")()

    # Work that does not end, and the Job that must be replaced for the next change.
    write(scripts / "20-write", WRITE.format("second") + "sleep 3600\n")
    eventually(run_is("first", "second"), RUN_SECONDS, "each node ran the change")
    before = cluster.job(namespace, "two-scripts")
    assert before is not None

    write(scripts / "20-write", WRITE.format("third"))
    watch.says("deleted Job two-scripts of the earlier image, created it again")
    eventually(run_is("first", "second", "third"), RUN_SECONDS, "each node ran the next change")
    cluster.wait_gone(namespace, "two-scripts")
    watch.says("the run has ended", 2)
    reports = cluster.get("dsjr", "-n", namespace)["items"]
    phases = {each["spec"]["image"]: each["status"]["phase"] for each in reports}
    assert sorted(phases.values()) == ["Cancelled", "Succeeded", "Succeeded"]

    # A file that is written again as it was is no change.
    write(scripts / "20-write", WRITE.format("third"))
    consistently(run_is("first", "second", "third"), 8, "no further run")

    os.kill(watch.process.pid, signal.SIGINT)
    assert watch.process.wait(30) == 130
    assert not processes_of(watch.process.pid)
    assert "Traceback" not in watch.output


def processes_of(session):
    """Return the commands of a session's processes."""
    found = subprocess.run(
        ["ps", "-s", str(session), "-o", "args="], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


@pytest.mark.on_demand
def test_the_printed_manifest_runs_the_image_that_was_saved(
    cluster, namespace, folder, builder, scripts, tmp_path
):
    name, environment = builder
    archive = tmp_path / "image.tar"
    command = [*DSJOB, "bundle", str(scripts), "--builder", name, "--base", BASE]
    command += ["--save", str(archive), "--name", "saved", "--mount", folder, "--", "hello"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    subprocess.run([*LOAD.split(), str(archive)], cwd=ROOT, check=True, timeout=300)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=done.stdout)
    cluster.wait_gone(namespace, "saved")
    assert cluster.completed(namespace, "saved") == set(cluster.nodes)
    for text in cluster.on_all_nodes(f"cat {folder}/runs").values():
        assert text == "hello and first\n"
