"""crds/scheduledjobs.yaml against the code, and against the CRD of Jobs."""

import json
import re
from pathlib import Path

import yaml

from crds.generate_scheduled import generated, template_spec
from daemonset_job.api.schedule_reasons import ScheduleEventReason, SchedulingReason
from daemonset_job.api.scheduled_job import (
    DEFAULT_FAILED_LIMIT,
    DEFAULT_SUCCESSFUL_LIMIT,
    DEFAULT_TIME_ZONE,
    ActiveRun,
    ConcurrencyPolicy,
    ScheduleStatus,
)
from job_controller.core.cron.cron_schedule import TEXT_LIMIT
from job_controller.core.cron.time_zones import NAME_LIMIT, zone_names
from tests.unit.builders import NOW

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "crds" / "scheduledjobs.yaml"
JOBS = yaml.safe_load((ROOT / "crds" / "jobs.yaml").read_text())
CRD = yaml.safe_load(FILE.read_text())
(VERSION,) = CRD["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]["properties"]
SPEC = SCHEMA["spec"]["properties"]
PAGE = (ROOT / "docs" / "reference" / "scheduledjob.md").read_text()


def test_the_template_is_that_of_jobs():
    """After a change of crds/jobs.yaml: python -m crds.generate_scheduled."""
    assert generated(FILE.read_text(), JOBS) == FILE.read_text()
    assert SPEC["jobTemplate"]["properties"]["spec"] == template_spec(JOBS)


def test_each_message_of_the_template_names_the_field_where_it_is():
    text = yaml.safe_dump(template_spec(JOBS), width=9999)
    messages = re.findall(r"message(?:Expression)?: '*\"?(.*)", text)
    assert len(messages) > 50
    for message in messages:
        assert not re.search(r"(?<![\w.])spec\.(?!jobTemplate)", message)


def test_no_rule_of_the_template_compares_with_an_earlier_one():
    assert "oldSelf" not in json.dumps(template_spec(JOBS))


def test_it_fits_into_the_annotation_of_kubectl_apply():
    assert len(json.dumps(CRD, separators=(",", ":"))) < 250_000


def test_defaults_and_limits_are_those_of_the_code():
    assert SPEC["timeZone"]["default"] == DEFAULT_TIME_ZONE
    assert SPEC["successfulJobsHistoryLimit"]["default"] == DEFAULT_SUCCESSFUL_LIMIT
    assert SPEC["failedJobsHistoryLimit"]["default"] == DEFAULT_FAILED_LIMIT
    assert SPEC["concurrencyPolicy"]["enum"] == [str(each) for each in ConcurrencyPolicy]
    assert (SPEC["schedule"]["maxLength"], SPEC["timeZone"]["maxLength"]) == (
        TEXT_LIMIT,
        NAME_LIMIT,
    )
    assert max(map(len, zone_names())) <= NAME_LIMIT
    (rule,) = SPEC["timeZone"]["x-kubernetes-validations"]
    (pattern,) = re.findall(r"r'(.*)'", rule["rule"])
    assert all(re.fullmatch(pattern, name) for name in zone_names())


def test_the_status_has_every_field_that_is_written_and_no_other():
    status = ScheduleStatus((ActiveRun("a", "b"),), 1, NOW, NOW, NOW, "x", NOW)
    assert {*status.to_raw(), "conditions"} == {*SCHEMA["status"]["properties"]}


def test_the_reference_has_every_field_and_the_reasons_with_their_meanings():
    for field in (*SPEC, *SCHEMA["status"]["properties"]):
        assert f"`{field}" in PAGE
    for reason in (*SchedulingReason, *ScheduleEventReason):
        assert f"| `{reason}` | {reason.meaning} |" in PAGE
