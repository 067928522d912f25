"""The alerts against the code and the pages: what they ask for exists, and each has a runbook."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset_job.runtime.clock import SystemClock
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics as ControllerMetrics
from terminator.config import Options, load_config
from terminator.main import Terminator
from terminator.metrics import Metrics as TerminatorMetrics

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "components" / "monitoring"
RULES = (MONITORING / "rules.yaml").read_text()
RUNBOOKS = "docs/how-to/runbooks.md"
ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES)["groups"] for rule in group["rules"]
}
NO_CLIENT: Any = None


@cache
def exported() -> dict[str, dict[str, set[str]]]:
    """Return the values of each label of each metric, by the names that Prometheus sees."""
    controller, terminator = ControllerMetrics(), TerminatorMetrics()
    # The objects that the gauges read go with them.
    programs = (
        new_controller(NO_CLIENT, Config(), controller),
        Terminator(NO_CLIENT, Options(), load_config({}, None), terminator, SystemClock()),
    )
    found: dict[str, dict[str, set[str]]] = {}
    for registry in (controller.registry, terminator.registry):
        for family in registry.collect():
            for sample in family.samples:
                labels = found.setdefault(sample.name, {})
                for label, value in sample.labels.items():
                    labels.setdefault(label, set()).add(value)
    assert all(programs)
    return found


@pytest.fixture
async def metrics() -> dict[str, dict[str, set[str]]]:
    """The metrics of both programs; their number of tasks is known within a loop only."""
    return exported()


def selectors(expression: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each metric of an expression with its matchers: label, and values separated by |."""
    for name, matchers in re.findall(r"\b(dsj_\w+)(?:\{([^}]*)\})?", expression):
        yield name, re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers)


@pytest.mark.parametrize("alert", ALERTS)
async def test_an_alert_asks_for_metrics_labels_and_values_that_exist(alert, metrics):
    expression = ALERTS[alert]["expr"]
    asked = list(selectors(expression))
    assert asked
    for name, matchers in asked:
        for label, values in matchers:
            assert set(values.split("|")) <= metrics[name][label], (name, label)
    for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
        for label in grouping.split(","):
            assert any(label.strip() in metrics[name] for name, _ in asked), label


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_and_how_bad_and_where_to_read_on(alert):
    rule = ALERTS[alert]
    assert alert.startswith("DaemonSetJob")
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["runbook"] == f"{RUNBOOKS}#{alert.lower()}"


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    page = (ROOT / RUNBOOKS).read_text()
    sections = dict(re.findall(r"(?ms)^## (DaemonSetJob\w+)$(.*?)(?=^## |\Z)", page))
    assert list(sections) == list(ALERTS)
    for alert, text in sections.items():
        parts = re.findall(r"(?m)^\*\*([A-Z][a-z ]+)\.\*\*", text)
        assert parts == ["Means", "Type first", "Likely causes", "Ends"], alert
        assert "```" in text, f"{alert}: a command to type first"


def test_the_lines_that_runbooks_search_the_log_for_are_logged():
    page = (ROOT / RUNBOOKS).read_text()
    searched = re.findall(
        r"""logs .*\| grep (?:-\w )?(?:'([^']+)'|"([^"]+)"|(\w+))$""", page, re.MULTILINE
    )
    texts = {text for found in searched for text in found if text}
    texts.update(re.findall(r'\.message == "([^"]+)"', page))
    programs = ("daemonset_job", "job_controller", "terminator")
    code = "".join(file.read_text() for name in programs for file in (ROOT / name).rglob("*.py"))
    assert len(texts) > 8
    assert [text for text in texts if text not in code] == []


def test_each_alert_is_tested_to_fire_and_not_to_fire():
    cases = yaml.safe_load((ROOT / "tests" / "integration" / "alert_cases.yaml").read_text())
    results: dict[str, set[bool]] = {alert: set() for alert in ALERTS}
    for each in (check for test in cases["tests"] for check in test["alert_rule_test"]):
        results[each["alertname"]].add(bool(each["exp_alerts"]))
    assert [alert for alert, kinds in results.items() if kinds != {True, False}] == []


def test_the_operators_rule_has_the_same_alerts():
    groups = RULES[RULES.index("groups:\n") :]
    indented = re.sub(r"(?m)^(?=.)", "  ", groups)
    text = (MONITORING / "prometheusrule.yaml").read_text()
    assert text[text.index("  groups:\n") :] == indented
    found = yaml.safe_load(text)
    assert found["spec"] == {"groups": yaml.safe_load(RULES)["groups"]}
    assert found["metadata"]["namespace"] == "daemonset-job-system"


def test_the_component_has_the_rule():
    component = yaml.safe_load((MONITORING / "kustomization.yaml").read_text())
    assert (component["kind"], component["resources"]) == ("Component", ["prometheusrule.yaml"])
