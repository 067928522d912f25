"""Examples of jobs on nodes: each says what it replaces, and no pod of any has credentials."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from daemonset_job.api.job import parse_job
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.settings import Settings

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NODE_JOBS = (
    "14-cleanup-sweep",
    "15-image-prepull",
    "16-disk-report",
    "17-kubelet-config-drift",
    "18-host-script",
    "19-node-reboot",
    "20-sysctl-and-taint",
    "21-node-labels",
    "22-ca-certificates",
)
MANIFESTS = sorted(EXAMPLES.glob("*/*.yaml"))
JOBS = [
    (path, raw)
    for path in MANIFESTS
    for raw in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    if raw.get("kind") == "Job"
]


@pytest.mark.parametrize("name", NODE_JOBS)
def test_an_example_says_in_its_first_line_what_it_replaces(name):
    title, first, _ = (EXAMPLES / name / "README.md").read_text(encoding="utf-8").split("\n\n", 2)
    assert title.startswith("# ")
    assert first.startswith("It replaces ")
    assert "\n" not in first


@pytest.mark.skipif(shutil.which("ionice") is None, reason="the sweep yields the disk to others")
@pytest.mark.parametrize("name", ["23-nightly-sweep", "26-sweep-in-a-window"])
@pytest.mark.parametrize("directory", ["link/cache", "cache-link", "..", "other/../other", "cache"])
def test_a_sweep_leaves_its_directory_through_no_link_on_the_way(tmp_path, name, directory):
    """Any user may make such a link below `/var/tmp`, also while the sweep begins."""
    target = tmp_path / "target"
    for folder in ("cache", "other/cache"):
        (target / folder).mkdir(parents=True)
    (target / "link").symlink_to("other")
    (target / "cache-link").symlink_to("cache")
    files = [tmp_path / "old", target / "cache" / "old", target / "other" / "cache" / "old"]
    for file in files:
        file.touch()
        os.utime(file, (0, 0))
    raw = yaml.safe_load((EXAMPLES / name / "scheduledjob.yaml").read_text(encoding="utf-8"))
    script = raw["spec"]["jobTemplate"]["spec"]["script"]
    assert script.count("/basetarget/") == 1
    script = script.replace("/basetarget/", f"{target}/")
    ended = subprocess.run(
        ["bash", "-c", script, "script", directory, "7"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    left = [file for file in files if file.exists()]
    if directory == "cache":
        assert (ended.returncode, left) == (0, [files[0], files[2]])
    else:
        assert left == files
    if "/" in directory:
        assert (ended.returncode, ended.stdout) == (
            2,
            f"refused: {directory} is not a plain path below the mounted directory\n",
        )


@pytest.mark.parametrize(
    "raw", [raw for _, raw in JOBS], ids=[path.parent.name for path, _ in JOBS]
)
def test_no_pod_of_an_example_has_credentials(raw):
    uid = {"uid": "12345678-uid", "name": "sample", **raw["metadata"]}
    job = parse_job({**raw, "metadata": uid})
    body = build_daemon_set(job, gated=False, settings=Settings())
    spec = body["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert not [volume for volume in spec["volumes"] if {"projected", "secret"} & volume.keys()]
