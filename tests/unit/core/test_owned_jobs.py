"""Jobs that a Job creates as parts of its own run: their manifests, and what became of them."""

from dataclasses import replace

import pytest

from daemonset_job.api.job import parse_job
from daemonset_job.api.job_status import Condition, JobStatus
from daemonset_job.api.states import ConditionType, Phase
from job_controller.core.desired.owned_job import build_owned_job, copied_spec, owned_name
from job_controller.core.owned_jobs.outcome import OwnedOutcome, find_owned, owned_outcome
from tests.unit.builders import make_job

RAW = {
    "image": "example/task:1",
    "args": ["/etc/x"],
    "script": "change",
    "template": {"spec": {"hostPID": True}},
    "mounts": [{"hostPath": "/etc", "mountPath": "/host/etc"}],
    "mountPath": "/tmp",
    "hostExec": True,
    "backoffLimit": 2,
    "nodeDeadlineSeconds": 60,
    "failureLogLines": 5,
    "cordon": True,
    "drain": {"timeoutSeconds": 60},
    "nodes": {"include": ["a"]},
    "rollout": {
        "maxParallel": "10%",
        "maxParallelPerZone": 1,
        "order": "Spread",
        "exclusive": "kernel",
        "steps": [{"nodes": 1}],
        "window": {"start": "0 1 * * *", "duration": "2h"},
    },
    "after": ["other"],
    "suspend": True,
    "onSuccess": {"labels": {"x": "y"}},
    "results": [{"name": "r"}],
    "notify": [{"receiver": "team"}],
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 60,
    "completion": {"policy": "Once"},
    "failurePolicy": {"maxFailedNodes": 3},
}
PARENT = make_job(raw_spec=RAW)


def test_an_owned_job_runs_things_as_its_parent_does_and_starts_nothing_of_its_own():
    spec = copied_spec(PARENT)
    rollout = spec.pop("rollout")
    assert rollout == {
        "maxParallel": "10%",
        "maxParallelPerZone": 1,
        "order": "Spread",
        "exclusive": "kernel",
    }
    assert set(spec) == {
        "image",
        "template",
        "mounts",
        "mountPath",
        "hostExec",
        "backoffLimit",
        "nodeDeadlineSeconds",
        "failureLogLines",
        "cordon",
        "drain",
    }
    assert all(spec[key] == RAW[key] for key in spec)


def test_a_parent_without_a_rollout_has_owned_jobs_without_one():
    assert copied_spec(make_job(raw_spec={"image": "x", "rollout": {"steps": []}})) == {
        "image": "x"
    }


def test_an_owned_job_is_of_its_parent_and_stays_when_it_has_ended():
    body = build_owned_job(PARENT, "rollback-2", {"image": "x"})
    assert body["metadata"]["name"] == "sample-rollback-2"
    assert body["metadata"]["namespace"] == "default"
    assert body["spec"] == {"image": "x", "ttlSecondsAfterFinished": 315_360_000}
    stored = {**body, "metadata": {**body["metadata"], "uid": "child-uid"}}
    assert parse_job(stored).owner_uid == PARENT.uid


def test_an_object_that_names_another_kind_of_owner_has_no_owning_job():
    body = build_owned_job(PARENT, "rollback", {"image": "x"})
    (owner,) = body["metadata"]["ownerReferences"]
    for change in (
        {"kind": "ScheduledJob"},
        {"apiVersion": "batch/v1"},
        {"controller": False},
    ):
        meta = {**body["metadata"], "uid": "u", "ownerReferences": [{**owner, **change}]}
        assert parse_job({**body, "metadata": meta}).owner_uid == ""


@pytest.mark.parametrize("length", [1, 243, 244, 253])
def test_the_name_of_an_owned_job_is_never_too_long(length):
    name = owned_name("p" * length, "rollback")
    assert len(name) <= 253
    assert name.endswith("-rollback")
    assert owned_name("p" * length, "rollback") == name
    assert owned_name("p" * length, "rollback-2") != name


def test_the_outcome_of_an_owned_job_is_that_of_its_status():
    def ended(phase: Phase, type_: ConditionType) -> JobStatus:
        return JobStatus(phase=phase, conditions=(Condition(type_, True),))

    job = make_job("sample-rollback")
    assert owned_outcome(None) == OwnedOutcome.MISSING
    assert owned_outcome(job) == OwnedOutcome.IN_PROGRESS
    done = replace(job, status=ended(Phase.SUCCEEDED, ConditionType.COMPLETE))
    assert owned_outcome(done) == OwnedOutcome.SUCCEEDED
    failed = replace(job, status=ended(Phase.FAILED, ConditionType.FAILED))
    assert owned_outcome(failed) == OwnedOutcome.FAILED
    # A retry has opened it again.
    again = replace(failed, status=replace(failed.status, phase=Phase.RUNNING))
    assert owned_outcome(again) == OwnedOutcome.IN_PROGRESS
    assert find_owned((job,), "sample-rollback") is job
    assert find_owned((replace(job, is_terminating=True),), "sample-rollback") is None
    assert find_owned((job,), "other") is None
