"""`rollout.pullImagesFirst`, and checks by a script: what `kubectl apply` takes, and says."""

import json

import pytest

from daemonset_job.api.job import parse_job
from daemonset_job.api.owned_task import OwnedTask
from daemonset_job.api.script_source import ScriptSource
from tests.integration.jobs import IMAGE, job, start
from tests.integration.kube_env import KubeEnv

PULL = {"rollout": {"pullImagesFirst": True}}
ON_THE_HOST = {"script": "true", "hostExec": True}


def with_check(check, base=None):
    return (base or IMAGE) | {"rollout": {"steps": [{"nodes": 1, "check": check}]}}


def step(base=None, timeout=None, **script):
    check = {"script": script} | ({} if timeout is None else {"timeoutSeconds": timeout})
    return with_check(check, base)


def test_images_may_be_pulled_first_also_in_a_job_that_has_started(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, IMAGE))
    start(kube_env, namespace)
    found = parse_job(kube_env.apply(job(namespace, IMAGE | PULL)))
    assert found.spec.rollout is not None
    assert found.spec.rollout.pull_images_first is True


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ({"script": "test -e /x", "args": ["a"]}, OwnedTask(script="test -e /x", args=("a",))),
        ({"command": ["/check"]}, OwnedTask(command=("/check",))),
        ({"args": ["--check"], "image": "x:1"}, OwnedTask(image="x:1", args=("--check",))),
        (
            {"scriptFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
            OwnedTask(script_from=ScriptSource("a", "b", is_secret=True)),
        ),
    ],
    ids=str,
)
def test_a_check_runs_a_script_a_command_or_arguments(
    kube_env: KubeEnv, namespace, script, expected
):
    found = parse_job(kube_env.apply(job(namespace, step(**script))))
    assert found.spec.rollout is not None
    assert found.spec.rollout.steps[0].check.script == expected


def test_a_check_of_a_job_on_the_host_is_a_script(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, step(ON_THE_HOST, script="sysctl -n vm.swappiness")))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (step(), "must have script, scriptFrom, command or args: what to run"),
        (step(image="x:1"), "must have script, scriptFrom, command or args: what to run"),
        (with_check({}), "must have nodeReady: true, http, prometheus, pods or script"),
        (with_check({"nodeReady": False, "timeoutSeconds": 9}), "without a check, leave it out"),
        (
            step(script="a", scriptFrom={"configMapKeyRef": {"name": "a", "key": "b"}}),
            "script and scriptFrom cannot both be set",
        ),
        (step(script="a", command=["b"]), "command cannot be set beside a script, remove it"),
        (step(script=" \n"), "script.script must not be blank"),
        (
            IMAGE | {"rollout": {"window": {"start": "@daily", "duration": "1h", "timeZone": ""}}},
            "spec.rollout.window.timeZone",
        ),
        (step(script="a\r\nb"), "must not have Windows line ends (CR LF)"),
        (step(script="a" * 16385), "may not be more than 16384"),
        (step(scriptFrom={}), "must have either configMapKeyRef or secretKeyRef"),
        (step(command=[]), "should have at least 1 items"),
        (step(script="a", image="a b"), "must be one image reference without blanks"),
        (step(script="a", timeout=0), "timeoutSeconds must be at least 1 with a script"),
        (
            step(ON_THE_HOST, script="a", image="x:1"),
            "must have script or scriptFrom, and no image, with spec.hostExec",
        ),
        (
            step(ON_THE_HOST, command=["a"]),
            "must have script or scriptFrom, and no image, with spec.hostExec",
        ),
        (
            IMAGE | PULL | {"template": {"spec": {"os": {"name": "windows"}}}},
            "spec.rollout.pullImagesFirst works on Linux nodes only",
        ),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_mistake_is_refused(kube_env: KubeEnv, namespace, spec, words):
    refused = kube_env.refusal("apply", "-f", "-", input=json.dumps(job(namespace, spec)))
    assert words in refused.replace("\n", " ")
