"""What the CRD takes and refuses of rollbacks and of the limit of unreachable nodes."""

import pytest

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
