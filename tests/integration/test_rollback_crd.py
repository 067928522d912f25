"""What the CRD takes and refuses of rollbacks and of the limit of unreachable nodes."""

import pytest

from daemonset_job.api.job import parse_job
from daemonset_job.api.owned_task import OwnedTask
from job_controller.core.desired.check_job import check_spec
from job_controller.core.desired.image_pull import image_pull_spec
from job_controller.core.desired.owned_job import runs_as
from job_controller.core.desired.part import PartKind, build_part, make_part
from job_controller.core.desired.rollback_job import build_rollback_job
from job_controller.core.owned_jobs.part import find_part
from job_controller.core.owned_jobs.rollback_jobs import find_rollback_jobs
from job_controller.core.settings import Settings
from job_controller.core.state.snapshot import Snapshot
from tests.integration.jobs import job
from tests.integration.kube_env import KubeEnv

SPEC = {"image": "example/task:v1", "rollback": {"args": ["undo"]}}
PATH = "/apis/daemonset.darkowlzz.space/v1beta1/namespaces/{}/jobs"
REFUSED = {
    "policy without rollback": (
        {"rollback": None, "failurePolicy": {"action": "Rollback"}},
        "spec.failurePolicy.action Rollback needs spec.rollback",
    ),
    "continuous": (
        {"completion": {"policy": "Continuous"}},
        "spec.rollback has no meaning when spec.completion.policy is Continuous",
    ),
    "kept pods": (
        {"failurePolicy": {"pods": "Keep"}},
        "spec.failurePolicy.pods cannot be Keep with spec.rollback",
    ),
    "nothing": ({"rollback": {}}, "spec.rollback must say how to undo the work"),
    "no arguments": ({"rollback": {"args": []}}, "spec.rollback must say how to undo the work"),
    "an image alone": (
        {"rollback": {"image": "x"}},
        "spec.rollback must say how to undo the work",
    ),
    "two scripts": (
        {
            "rollback": {
                "script": "true",
                "scriptFrom": {"configMapKeyRef": {"name": "a", "key": "b"}},
            }
        },
        "spec.rollback.script and spec.rollback.scriptFrom cannot both be set",
    ),
    "a command beside a script": (
        {"rollback": {"script": "true", "command": ["sh"]}},
        "spec.rollback.command cannot be set beside a script",
    ),
    "a blank script": ({"rollback": {"script": " "}}, "spec.rollback.script must not be blank"),
    "Windows": (
        {"rollback": {"script": "true\r\n"}},
        "spec.rollback.script must not have Windows line ends",
    ),
    "no source": (
        {"rollback": {"scriptFrom": {}}},
        "spec.rollback.scriptFrom must have either configMapKeyRef or secretKeyRef",
    ),
    "no image": (
        {"image": None, "script": "true"},
        "spec.rollback.image is required for a command or args",
    ),
    "an image on the host": (
        {
            "image": None,
            "script": "true",
            "hostExec": True,
            "rollback": {"script": "true", "image": "x"},
        },
        "spec.rollback.image cannot be set beside a script with spec.hostExec",
    ),
    "a bad percentage": (
        {"failurePolicy": {"maxUnreachableNodes": "101%"}},
        "spec.failurePolicy.maxUnreachableNodes must be a number",
    ),
}
TAKEN = {
    "args": {},
    "policy": {"failurePolicy": {"action": "Rollback", "maxUnreachableNodes": "100%"}},
    "no unreachable nodes": {"failurePolicy": {"maxUnreachableNodes": 0}},
    "script": {"rollback": {"script": "true", "args": ["x"]}},
    "script in an image": {"rollback": {"script": "true", "image": "tools:1"}},
    "source": {"rollback": {"scriptFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}},
    "host": {"image": None, "script": "true", "hostExec": True, "rollback": {"script": "true"}},
    "image for a script": {
        "image": None,
        "script": "true",
        "rollback": {"command": ["undo"], "image": "tools:1"},
    },
}


def spec_with(change):
    return {key: value for key, value in {**SPEC, **change}.items() if value is not None}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_what_would_not_undo_anything_is_refused(kube_env: KubeEnv, namespace, change, words):
    body = job(namespace, spec_with(change))
    status, answer = kube_env.request("POST", PATH.format(namespace), body)
    assert status == 422, answer
    assert words in answer["message"]


@pytest.mark.parametrize("change", TAKEN.values(), ids=TAKEN)
def test_what_undoes_the_work_is_taken(kube_env: KubeEnv, namespace, change):
    body = job(namespace, spec_with(change))
    status, answer = kube_env.request("POST", PATH.format(namespace), body)
    assert status == 201, answer


def test_a_rollback_can_change_until_it_begins(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, spec_with({"rollback": None})))
    started = {"startTime": "2026-01-01T00:00:00Z"}
    kube_env.patch_status("dsj", "sample", namespace, started)
    path = f"{PATH.format(namespace)}/sample"
    for args in (["undo"], ["undo", "better"]):
        status, answer = kube_env.request("PATCH", path, {"spec": {"rollback": {"args": args}}})
        assert status == 200, answer
    rollback = {"desired": 1, "completed": 0, "failed": 0, "unreachable": 0}
    kube_env.patch_status("dsj", "sample", namespace, {**started, "rollback": rollback})
    for change in ({"args": ["worse"]}, None):
        status, answer = kube_env.request("PATCH", path, {"spec": {"rollback": change}})
        assert status == 422, answer
        assert "spec.rollback cannot change once the run is rolled back" in answer["message"]
    status, answer = kube_env.request("PATCH", path, {"spec": {"ttlSecondsAfterFinished": 60}})
    assert status == 200, answer


SHAPES = {
    "arguments": {"rollback": {"args": ["undo"]}},
    "a script on the host": {
        "image": None,
        "script": "true",
        "hostExec": True,
        "rollback": {"script": "false"},
    },
    "a script": {"image": None, "script": "true", "rollback": {"script": "false"}},
    "from a ConfigMap": {
        "rollback": {"scriptFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        "completion": {"token": "ok", "match": "Contains", "failureToken": "bad"},
    },
    "surroundings": {
        "mounts": [{"hostPath": "/etc", "mountPath": "/host/etc"}],
        "cordon": True,
        "completion": {"mode": "Exit"},
        "template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "nodeSelector": {"role": "x"},
                "tolerations": [{"operator": "Exists"}],
                "containers": [
                    {
                        "name": "job-container",
                        "env": [{"name": "A", "value": "b"}],
                        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                    },
                    {"name": "other", "image": "x", "ports": [{"containerPort": 80}]},
                ],
            },
        },
    },
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_is_rendered_is_recognised_as_the_api_server_stores_it(
    kube_env: KubeEnv, namespace, shape
):
    """Defaults are added to it. The controller compares the stored Job with a rendered one."""
    kube_env.apply(job(namespace, spec_with(shape)))
    parent = parse_job(kube_env.get("dsj", "sample", namespace))
    settings = Settings()
    script = OwnedTask(script="test -e /etc/ok")
    pull = make_part(PartKind.IMAGE_PULL, "image-pull", image_pull_spec(parent, settings))
    check = make_part(
        PartKind.CHECK, "check-1", check_spec(parent, script, ["a", "b"], settings), "x"
    )
    rollback = build_rollback_job(parent, 1, ["a", "b"])
    for body in (rollback, build_part(parent, pull), build_part(parent, check)):
        kube_env.apply(body)
    stored = [
        parse_job(kube_env.get("dsj", name, namespace))
        for name in ("sample-check-1", "sample-image-pull", "sample-rollback")
    ]
    snapshot = Snapshot(parent, owned_jobs=tuple(stored))
    assert runs_as(stored[2], rollback["spec"])
    assert find_rollback_jobs(snapshot).jobs == (stored[2],)
    assert find_part(snapshot, check) == stored[0]
    assert find_part(snapshot, pull) == stored[1]
    # And nothing else is taken for it.
    assert not runs_as(stored[0], rollback["spec"])
    assert not runs_as(parent, rollback["spec"])
