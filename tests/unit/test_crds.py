"""The schemas against the code: every field is read and described, everything read is a field."""

import dataclasses
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.generate import _render, _split
from daemonset_job.api import names
from daemonset_job.api.evidence import Evidence, parse_evidence
from daemonset_job.api.job import parse_job
from daemonset_job.api.job_spec import (
    Completion,
    FailurePolicy,
    FailureRule,
    JobSpec,
    Mount,
    NodeSelection,
    parse_spec,
)
from daemonset_job.api.node_changes import OnSuccess
from daemonset_job.api.pod import GATES_LIMIT
from daemonset_job.api.report import new_report, parse_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.rollout import Check, Rollout, SuccessPolicy, WindowSpec
from daemonset_job.api.states import NodeState, Phase
from daemonset_job.api.task_progress import TaskProgress

CRDS = Path(__file__).resolve().parents[2] / "crds"
FILES = {"jobs": CRDS / "jobs.yaml", "jobreports": CRDS / "jobreports.yaml"}
# Recorded for readers of a report; the programs have it from the Job.
FOR_PEOPLE = {"image", "command", "args", "mountPath", "manifest"}


@cache
def crd(plural: str) -> dict[str, Any]:
    return yaml.safe_load(FILES[plural].read_text())


def schema(plural: str) -> dict[str, Any]:
    (version,) = crd(plural)["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def walk(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every schema below a schema, with its path."""
    for name, child in (node.get("properties") or {}).items():
        yield f"{path}.{name}", child
        yield from walk(child, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(node.get(key), Mapping):
            yield f"{path}{mark}", node[key]
            yield from walk(node[key], f"{path}{mark}")


def camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.title() for word in tail)


def fields(kind: type) -> set[str]:
    return {camel(each.name) for each in dataclasses.fields(kind)}


# --- both ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plural", "kind", "short"), [("jobs", "Job", "dsj"), ("jobreports", "JobReport", "dsjr")]
)
def test_names_are_those_of_the_code(plural, kind, short):
    spec = crd(plural)["spec"]
    assert crd(plural)["metadata"]["name"] == f"{plural}.{names.GROUP}"
    assert (spec["group"], spec["names"]["kind"]) == (names.GROUP, kind)
    assert [v["name"] for v in spec["versions"]] == [names.VERSION]
    assert spec["names"]["shortNames"] == [short]
    assert kind in {names.JOB_KIND, names.REPORT_KIND}


@pytest.mark.parametrize("plural", FILES)
def test_every_field_says_what_it_is(plural):
    root = schema(plural)
    silent = [
        path
        for path, node in walk(root)
        if "description" not in node
        and path != ".metadata"
        and path[-2:] not in {"[]", "{}"}
        # What is inside the fields of a pod is Kubernetes' to explain.
        and not re.match(r"\.spec\.template\.spec\.\w+[.\[]", path)
    ]
    assert silent == []
    for path, node in walk(root):
        text = node.get("description", "Text")
        assert text[0].isupper() or text.startswith("daemonset."), path


@pytest.mark.parametrize("plural", FILES)
def test_nothing_unknown_is_kept(plural):
    # What is not declared could be nested deeper than the programs can read.
    for path, node in walk(schema(plural)):
        assert "x-kubernetes-preserve-unknown-fields" not in node, path
        is_typed = "type" in node or "x-kubernetes-int-or-string" in node
        assert is_typed, path
        inner = {"properties", "additionalProperties"} & node.keys()
        assert node.get("type") != "object" or inner or path == ".metadata", path


@pytest.mark.parametrize("plural", FILES)
def test_kubectl_apply_can_keep_what_it_applied_last_in_an_annotation(plural):
    # All annotations of an object have 256 KiB (apimachinery TotalAnnotationSizeLimitB).
    assert len(json.dumps(crd(plural), separators=(",", ":"))) < 128 * 1024


@pytest.mark.parametrize("plural", FILES)
def test_columns_show_fields_that_exist(plural):
    paths = {path for path, _ in walk(schema(plural))} | {".metadata.creationTimestamp"}
    (version,) = crd(plural)["spec"]["versions"]
    for column in version["additionalPrinterColumns"]:
        assert re.sub(r"\[\?\(@\.type==\"\w+\"\)\]", "[]", column["jsonPath"]) in paths
    assert version["subresources"] == {"status": {}}


@pytest.mark.parametrize("plural", FILES)
def test_every_rule_names_its_field(plural):
    root = schema(plural)
    for path, node in [("", root), *walk(root)]:
        for rule in node.get("x-kubernetes-validations", ()):
            place = re.sub(r"\[\]|\{\}", "", path + rule.get("fieldPath", "")).strip(".")
            message = rule["message"]
            # By its full name or, in a list's item, that of the list.
            assert place in message or place.rpartition(".")[0] in message, (path, message)
            # What is added to it is the value.
            shown = rule.get("messageExpression", "")
            assert not shown or shown == f"'{message}; it is ' + string(self)", path


# --- Job -------------------------------------------------------------------------------


def test_the_generated_part_is_as_the_tool_writes_it():
    head, indent, lines, tail = _split(FILES["jobs"].read_text())
    assert textwrap.indent(_render(yaml.safe_load(lines)), indent) == lines
    assert head + lines + tail == FILES["jobs"].read_text()


def test_one_field_of_a_pods_object_can_be_null_at_most():
    # Of two, one could take the other's place: to the rule on spec.template null is absence.
    found = set()
    for path, node in walk(schema("jobs")):
        nullable = [k for k, child in (node.get("properties") or {}).items() if "nullable" in child]
        assert len(nullable) <= 1, path
        found |= set(nullable)
        for inner in ("items", "additionalProperties"):
            assert "nullable" not in (node.get(inner) or {}), path
    assert found == {"securityContext", "allowPrivilegeEscalation"}


SPEC = schema("jobs")["properties"]["spec"]["properties"]
STEP = SPEC["rollout"]["properties"]["steps"]["items"]["properties"]


# Parsed already, not offered yet: a field enters the schema when the whole system heeds it.


@pytest.mark.parametrize(
    ("schema_", "kind"),
    [
        (SPEC, JobSpec),
        (SPEC["mounts"]["items"]["properties"], Mount),
        (SPEC["nodes"]["properties"], NodeSelection),
        (SPEC["completion"]["properties"], Completion),
        (SPEC["failurePolicy"]["properties"], FailurePolicy),
        (SPEC["failurePolicy"]["properties"]["rules"]["items"]["properties"], FailureRule),
        (STEP["check"]["properties"], Check),
        (SPEC["rollout"]["properties"], Rollout),
        (SPEC["rollout"]["properties"]["window"]["properties"], WindowSpec),
        (SPEC["successPolicy"]["properties"], SuccessPolicy),
    ],
    ids=[
        "spec",
        "mounts",
        "nodes",
        "completion",
        "failurePolicy",
        "rules",
        "check",
        "rollout",
        "window",
        "successPolicy",
    ],
)
def test_the_schema_has_the_fields_that_are_parsed_and_no_others(schema_, kind):
    assert set(schema_) <= fields(kind), "accepted and then ignored"
    assert fields(kind) <= set(schema_), "heeded, but refused at apply"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image", "a"),
        ("command", ["a"]),
        ("args", ["a"]),
        ("mountPath", "/a"),
        ("mounts", [{"hostPath": "/a", "mountPath": "/b"}]),
        ("script", "true"),
        ("scriptFrom.configMapKeyRef", {"name": "a", "key": "b"}),
        ("scriptFrom.secretKeyRef", {"name": "a", "key": "b"}),
        ("hostExec", True),
        ("template", {"spec": {"hostPID": True}}),
        ("nodes.selector", {"matchLabels": {"a": "b"}}),
        ("nodes.include", ["a"]),
        ("nodes.exclude", ["a"]),
        ("completion.token", "a"),
        ("completion.match", "Regex"),
        ("completion.mode", "Exit"),
        ("completion.failureToken", "a"),
        ("backoffLimit", 0),
        ("nodeDeadlineSeconds", 1),
        ("nodeUnreachableSeconds", 1),
        ("activeDeadlineSeconds", 1),
        ("failurePolicy.action", "Pause"),
        ("failurePolicy.maxFailedNodes", "10%"),
        ("failurePolicy.maxUnreachableNodes", 3),
        ("failurePolicy.action", "Rollback"),
        ("rollback", {"args": ["undo"]}),
        ("failurePolicy.rules", [{"exitCodes": [2], "action": "Fail"}]),
        ("failurePolicy.pods", "Delete"),
        ("failureLogLines", 0),
        ("ttlSecondsAfterFinished", 0),
        ("suspend", True),
        ("results", [{"name": "a"}]),
        ("results", [{"name": "a", "label": "b"}]),
        ("results", [{"name": "a", "annotation": "b"}]),
        ("rollout.maxParallel", 1),
        ("successPolicy.minCompleted", "95%"),
        ("failurePolicy.unreachableSeconds", 1),
        ("onSuccess.labels", {"a": "b"}),
        ("onSuccess.annotations", {"a": "b"}),
        ("onSuccess.removeTaints", ["a"]),
    ],
)
def test_every_field_of_the_spec_is_read(path, value):
    outer, _, inner = path.partition(".")
    raw = {outer: {inner: value} if inner else value}
    assert parse_spec(raw) != parse_spec({})


def test_the_fields_of_on_success_and_results_are_those_that_are_parsed():
    targets = {f"result{field.title()}s" for field in SPEC["results"]["items"]["properties"]}
    parsed = set(SPEC["onSuccess"]["properties"]) | targets - {"resultNames"}
    assert parsed == fields(OnSuccess)


def test_defaults_are_those_of_the_code():
    assert SPEC["completion"]["default"] == {}
    assert SPEC["completion"]["properties"]["match"]["default"] == Completion().match
    assert "default" not in SPEC["completion"]["properties"]["token"]
    assert Completion().token is None


def test_phases_are_those_of_the_code():
    def of_status(plural):
        return schema(plural)["properties"]["status"]["properties"]

    assert set(of_status("jobs")["phase"]["enum"]) == set(Phase) - {Phase.CANCELLED}
    assert set(of_status("jobreports")["phase"]["enum"]) == set(Phase)
    record = of_status("jobreports")["nodeStates"]["additionalProperties"]["properties"]
    assert record["state"]["enum"] == list(NodeState)


def test_labels_of_the_generated_pods_are_reserved():
    rules = SPEC["template"]["properties"]["metadata"]["properties"]["labels"]
    text = str(rules["x-kubernetes-validations"])
    for label in (names.LABEL_DAEMON_SET, names.LABEL_JOB, names.LABEL_MANAGED):
        assert f"'{label}'" in text
    assert names.LABEL_JOB_UID.startswith(f"{names.GROUP}/")
    assert f"{names.GROUP}/" in text


def test_what_runs_is_guarded_and_where_is_not():
    guarded = {rule["fieldPath"] for rule in schema("jobs")["x-kubernetes-validations"]}
    what = {"image", "command", "args", "mountPath", "template", "completion"}
    assert guarded >= {f".spec.{name}" for name in what}
    assert ".spec.nodes" not in guarded


def test_the_status_has_what_the_controller_writes():
    status = pytest.importorskip("job_controller.core.render.job_status")
    job = parse_job({"metadata": {"name": "a", "uid": "b"}, "spec": {"image": "c"}})
    written = status.first_status(job, datetime(2025, 1, 1, tzinfo=UTC)).to_raw()
    known = schema("jobs")["properties"]["status"]["properties"]
    assert set(written) <= set(known)
    condition = known["conditions"]["items"]
    for each in written["conditions"]:
        assert set(each) <= set(condition["properties"])
        assert set(condition["required"]) <= set(each)


# --- JobReport -------------------------------------------------------------------------


REPORT = schema("jobreports")["properties"]


def test_a_new_report_has_the_fields_of_the_schema():
    spec = dict.fromkeys(FOR_PEOPLE, "x")
    made = new_report(namespace="a", name="b-1", job_name="b", job_uid="c", spec=spec)
    assert set(made["spec"]) == set(REPORT["spec"]["properties"])
    assert set(made["spec"]["job"]) == set(REPORT["spec"]["properties"]["job"]["properties"])


def test_every_field_of_a_report_that_programs_need_is_read():
    raw = {
        "metadata": {"name": "a"},
        "spec": {"job": {"name": "b", "uid": "c"}, "shard": 2},
        "evidence": {"n": {"nodeUID": "d"}},
        "status": {"phase": "Running"},
    }
    read = parse_report(raw)
    assert (read.job_name, read.job_uid, read.shard) == ("b", "c", 2)
    assert read.evidence == {"n": Evidence("d")}
    assert read.status == ReportStatus(phase="Running")
    assert set(REPORT["spec"]["properties"]) - FOR_PEOPLE == {"job", "shard"}


def test_evidence_is_written_and_read_field_by_field():
    samples = {"results": {"k": "v"}, "last_lines": ("l",), "attempt": 1}
    samples |= {"omitted_results": ("n",), "progress": TaskProgress("p", 1, 3, 10)}
    names_ = [each.name for each in dataclasses.fields(Evidence) if each.init]
    full = Evidence(**{name: samples.get(name, name) for name in names_})
    known = REPORT["evidence"]["additionalProperties"]
    assert set(full.to_raw()) == set(known["properties"])
    assert set(known["required"]) == set(Evidence("a").to_raw())
    assert parse_evidence(full.to_raw()) == full


def test_a_reports_counts_are_the_jobs():
    job = schema("jobs")["properties"]["status"]["properties"]["nodes"]["properties"]
    assert set(REPORT["status"]["properties"]["nodes"]["properties"]) == set(job)


def test_pods_with_all_gates_of_a_template_are_read():
    """A pod with more gates is not read, so its Job would wait without a word."""
    gates = dict(walk(schema("jobs")))[".spec.template.spec.schedulingGates"]
    assert gates["maxItems"] + len([names.START_GATE]) == GATES_LIMIT
