"""The alerts as Prometheus reads them: promtool checks the files, and tests when each fires."""

import subprocess
from pathlib import Path

import pytest
import yaml

from hack.devcluster import promtool
from hack.devcluster.settings import find_paths
from tests.e2e.doc_blocks import blocks
from tests.integration.kube_env import ROOT, find_binaries

MONITORING = ROOT / "deploy" / "components" / "monitoring"
CASES = Path(__file__).with_name("alert_cases.yaml")


@pytest.fixture(scope="module")
def program():
    return promtool.ensure(find_paths())


def run(program, *arguments):
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules(program):
    assert "SUCCESS" in run(program, "check", "rules", str(MONITORING / "rules.yaml"))


def test_each_alert_fires_when_it_should_and_not_otherwise(program):
    assert "SUCCESS" in run(program, "test", "rules", str(CASES))


@pytest.mark.parametrize("threshold", ["> 900", "> 3600", "> 180", "< 1"])
def test_the_cases_notice_another_threshold(program, tmp_path, threshold):
    rules = (MONITORING / "rules.yaml").read_text()
    assert threshold in rules
    (tmp_path / "rules.yaml").write_text(rules.replace(threshold, f"{threshold}00000"))
    cases = yaml.safe_load(CASES.read_text()) | {"rule_files": ["rules.yaml"]}
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(
        [program, "test", "rules", str(tmp_path / "cases.yaml")],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1


def test_kustomize_adds_the_rule_to_an_installation(tmp_path):
    overlay = ROOT / "build" / tmp_path.name
    overlay.mkdir(parents=True)
    try:
        (overlay / "kustomization.yaml").write_text(
            "resources: [../../deploy]\ncomponents: [../../deploy/components/monitoring]\n"
        )
        built = run(find_binaries() / "kubectl", "kustomize", str(overlay))
    finally:
        (overlay / "kustomization.yaml").unlink(missing_ok=True)
        overlay.rmdir()
    rules = [d for d in yaml.safe_load_all(built) if d["kind"] == "PrometheusRule"]
    assert [each["metadata"]["name"] for each in rules] == ["daemonset-job"]


@pytest.mark.parametrize("name", ["rules", "prometheusrule"])
def test_the_command_of_the_page_makes_links_to_the_runbooks(program, tmp_path, name):
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text(encoding="utf-8")
    (command,) = [block.text for block in blocks(page) if block.text.startswith("sed ")]
    (tmp_path / "daemonset-job").symlink_to(ROOT)
    command = command.replace("rules.yaml", f"{name}.yaml")
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True, timeout=60)
    made = yaml.safe_load((tmp_path / f"{name}.yaml").read_text())
    groups = made["groups"] if name == "rules" else made["spec"]["groups"]
    annotations = [rule["annotations"] for group in groups for rule in group["rules"]]
    assert all("runbook" not in each for each in annotations)
    base = "https://git.example.com/team/daemonset-job/blob/main/docs/how-to/runbooks.md#"
    assert all(each["runbook_url"].startswith(base) for each in annotations)
    (tmp_path / "made.yaml").write_text(yaml.safe_dump({"groups": groups}))
    assert "SUCCESS" in run(program, "check", "rules", str(tmp_path / "made.yaml"))
