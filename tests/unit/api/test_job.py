"""A Job from its JSON, defaults as the CRD's."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from daemonset_job.api.job import parse_job
from daemonset_job.api.job_spec import (
    Completion,
    FailurePolicy,
    FailureRule,
    JobSpec,
    NodeSelection,
    parse_spec,
)
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.names import ANNOTATION_RERUN, ANNOTATION_RETRY

CRD = Path(__file__).parents[3] / "crds" / "jobs.yaml"


def raw_job(**changes):
    meta = {"name": "sample", "namespace": "here", "uid": "u", "resourceVersion": "7"}
    return {"metadata": meta, "spec": {"image": "x"}, **changes}


def test_the_shortest_job_has_the_defaults():
    assert parse_spec({"image": "x"}) == JobSpec(image="x")


@pytest.mark.parametrize(("levels", "is_read"), [(64, True), (65, False), (900, False)])
@pytest.mark.parametrize("wrap", [lambda inner: [0, inner], lambda inner: {"x": inner, "y": 0}])
def test_a_spec_that_is_nested_too_deep_is_refused(levels, is_read, wrap):
    value = 0
    for _ in range(levels - 1):
        value = wrap(value)
    spec = {"image": "x", "unread": value}
    if is_read:
        assert parse_job(raw_job(spec=spec)).name == "sample"
    else:
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            parse_job(raw_job(spec=spec))


def test_the_defaults_are_those_of_the_crd():
    """A Job stored before the CRD had a field is read as one that was stored with its default."""
    (version,) = yaml.safe_load(CRD.read_text())["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert parse_spec({"image": "x", **defaults(schema)}) == parse_spec({"image": "x"})


def defaults(schema):
    """Return what the API server would fill in, nested objects included."""
    found = {}
    for name, field in schema.get("properties", {}).items():
        if "default" in field:
            found[name] = field["default"]
        if inner := defaults(field):
            found[name] = {**inner, **(found.get(name) or {})}
    return found


def test_every_field_is_read():
    spec = parse_spec(
        {
            "image": "x",
            "command": ["c"],
            "args": ["a", "b"],
            "mountPath": "/tmp",
            "template": {"spec": {"hostPID": True}},
            "nodes": {"selector": {"matchLabels": {"a": "b"}}, "include": ["n"], "exclude": ["m"]},
            "completion": {"mode": "Exit", "token": "t", "match": "Regex", "failureToken": "f"},
            "backoffLimit": 0,
            "nodeDeadlineSeconds": 1,
            "activeDeadlineSeconds": 2,
            "failurePolicy": {
                "action": "Pause",
                "maxFailedNodes": "10%",
                "rules": [{"exitCodes": [1, 2], "action": "Ignore"}],
                "pods": "Delete",
            },
            "failureLogLines": 0,
            "ttlSecondsAfterFinished": 0,
            "suspend": True,
            "results": [{"name": "ip"}, {"name": "id"}],
        }
    )
    assert spec == JobSpec(
        image="x",
        command=("c",),
        args=("a", "b"),
        mount_path="/tmp",
        template={"spec": {"hostPID": True}},
        nodes=NodeSelection({"matchLabels": {"a": "b"}}, ("n",), ("m",)),
        completion=Completion("Exit", "t", "Regex", "f"),
        backoff_limit=0,
        node_deadline_seconds=1,
        active_deadline_seconds=2,
        failure_policy=FailurePolicy("Pause", "10%", (FailureRule((1, 2), "Ignore"),), "Delete"),
        failure_log_lines=0,
        ttl_seconds_after_finished=0,
        suspend=True,
        results=("ip", "id"),
    )


def test_an_empty_spec_is_read_without_an_error():
    assert parse_spec({}) == JobSpec(image="")


def test_a_job_is_read():
    raw = raw_job(status={"phase": "Running"})
    raw["metadata"] |= {
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {ANNOTATION_RETRY: "2"},
    }
    job = parse_job(raw)
    assert (job.namespace, job.name, job.uid, job.resource_version) == ("here", "sample", "u", "7")
    assert (job.generation, job.is_terminating, job.retry_request) == (3, True, "2")
    assert job.created_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert job.status == JobStatus(phase="Running")
    assert job.daemon_set_name == "sample-daemonset-job"


@pytest.mark.parametrize("missing", ["name", "uid"])
def test_what_has_no_name_or_uid_is_no_job(missing):
    raw = raw_job()
    del raw["metadata"][missing]
    with pytest.raises(ValueError, match=missing):
        parse_job(raw)


def test_conditions_are_found_by_type():
    raw = {"type": "Complete", "status": "True", "reason": "R", "message": "m"}
    job = parse_job(raw_job(status={"conditions": [raw]}))
    assert job.condition("Complete") == Condition("Complete", True, "R", "m")
    assert job.condition("Failed") is None
    assert job.is_true("Complete")
    assert not job.is_true("Failed")
    unknown = parse_job(raw_job(status={"conditions": [{**raw, "status": "Unknown"}]}))
    assert not unknown.is_true("Complete")


def test_of_a_request_that_is_too_long_hash_and_length_are_kept():
    raw = raw_job()
    raw["metadata"]["annotations"] = {ANNOTATION_RERUN: "a" * (16 * 1024)}
    raw["spec"]["completion"] = {"policy": "Continuous"}
    assert parse_job(raw).rerun.nodes
    raw["metadata"]["annotations"][ANNOTATION_RERUN] += "a"
    job = parse_job(raw)
    assert not job.rerun.nodes
    assert ANNOTATION_RERUN not in job.annotations
    assert job.rerun.characters == 16 * 1024 + 1
    raw["metadata"]["annotations"][ANNOTATION_RERUN] = "b" * (16 * 1024 + 1)
    assert parse_job(raw).rerun.id != job.rerun.id
