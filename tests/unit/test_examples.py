"""Examples of jobs on nodes: each says what it replaces, and no pod of any has credentials."""

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
