"""A Job's script is a file in the task's container, of an annotation, a ConfigMap or a Secret."""

from dataclasses import replace

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_spec import JobSpec, parse_spec
from daemonset_job.api.script_source import ScriptSource
from job_controller.core.desired.daemon_set import build_pod_template
from job_controller.core.render.job_status import first_status
from job_controller.core.settings import Settings
from tests.unit.builders import START, make_job


def template(spec):
    parsed = spec if isinstance(spec, JobSpec) else parse_spec(spec)
    return build_pod_template(
        make_job("sample", spec=parsed), gated=False, settings=Settings(task_image="task:9")
    )


def task_of(spec):
    pod = template(spec)["spec"]
    (found,) = (
        each
        for each in (*pod.get("initContainers", ()), *pod["containers"])
        if each["name"] == names.CONTAINER_NAME
    )
    return found


def volume_of(spec):
    volumes = template(spec)["spec"]["volumes"]
    (found,) = (each for each in volumes if each["name"] == "daemonset-job-script")
    return found


def test_a_script_is_in_an_annotation_that_a_volume_shows_as_a_file():
    spec = {"script": "#!/usr/bin/env python3\nprint(1)\n"}
    annotations = template(spec)["metadata"]["annotations"]
    assert annotations["daemonset.darkowlzz.space/script"] == "#!/usr/bin/env python3\nprint(1)\n"
    assert volume_of(spec) == {
        "name": "daemonset-job-script",
        "downwardAPI": {
            "defaultMode": 0o555,
            "items": [
                {
                    "path": "script",
                    "fieldRef": {
                        "apiVersion": "v1",
                        "fieldPath": "metadata.annotations['daemonset.darkowlzz.space/script']",
                    },
                }
            ],
        },
    }
    mounts = {mount["mountPath"]: mount for mount in task_of(spec)["volumeMounts"]}
    assert mounts["/task.d"] == {
        "name": "daemonset-job-script",
        "mountPath": "/task.d",
        "readOnly": True,
    }


def test_a_script_without_a_first_line_for_the_kernel_is_one_of_sh():
    annotations = template({"script": "echo a\n"})["metadata"]["annotations"]
    assert annotations[names.ANNOTATION_SCRIPT] == "#!/bin/sh\necho a\n"


def test_the_template_cannot_exchange_the_script():
    other = {"metadata": {"annotations": {names.ANNOTATION_SCRIPT: "echo b", "kept": "yes"}}}
    annotations = template({"script": "#!/bin/sh\necho a", "template": other})["metadata"][
        "annotations"
    ]
    assert annotations[names.ANNOTATION_SCRIPT] == "#!/bin/sh\necho a"
    assert annotations["kept"] == "yes"


def test_a_job_without_a_script_has_nothing_of_it():
    found = template({"image": "a"})
    assert names.ANNOTATION_SCRIPT not in found["metadata"]["annotations"]
    assert "daemonset-job-script" not in {each["name"] for each in found["spec"]["volumes"]}
    assert "hostPID" not in found["spec"]
    assert "command" not in task_of({"image": "a"})


@pytest.mark.parametrize(
    ("reference", "source"),
    [
        ("configMapKeyRef", {"configMap": {"name": "scripts"}}),
        ("secretKeyRef", {"secret": {"secretName": "scripts"}}),
    ],
)
def test_a_script_of_another_object_is_one_file_of_it(reference, source):
    spec = {"scriptFrom": {reference: {"name": "scripts", "key": "trim.sh"}}}
    ((kind, expected),) = source.items()
    assert volume_of(spec) == {
        "name": "daemonset-job-script",
        kind: {
            **expected,
            "defaultMode": 0o555,
            "items": [{"key": "trim.sh", "path": "script"}],
        },
    }
    assert names.ANNOTATION_SCRIPT not in template(spec)["metadata"]["annotations"]


def test_without_an_image_the_entrypoint_of_the_task_image_runs_it():
    task = task_of({"script": "true", "args": ["a"]})
    assert task["image"] == "task:9"
    assert "command" not in task
    assert task["args"] == ["a"]


def test_an_image_of_the_users_runs_the_file_itself():
    spec = {"script": "true", "image": "python:3", "args": ["a"], "completion": {"mode": "Exit"}}
    task = task_of(spec)
    assert (task["image"], task["command"], task["args"]) == (
        "python:3",
        ["/task.d/script"],
        ["a"],
    )


@pytest.mark.parametrize(("mode", "expected"), [("Exit", "Exit"), ("Log", None)])
def test_the_task_is_told_that_it_has_to_end(mode, expected):
    task = task_of({"script": "true", "completion": {"mode": mode}})
    variables = {each["name"]: each.get("value") for each in task["env"]}
    assert variables.get("COMPLETION_MODE") == expected


def test_a_script_on_the_host_is_privileged_in_every_way_that_it_needs():
    spec = {"script": "true", "hostExec": True}
    pod, task = template(spec)["spec"], task_of(spec)
    assert pod["hostPID"] is True
    assert "securityContext" not in pod
    assert task["securityContext"] == {"privileged": True}
    assert {"name": "HOST_EXEC", "value": "true"} in task["env"]


def test_the_template_may_still_set_the_rest_of_the_security_context():
    changes = {"containers": [{"name": "job-container", "securityContext": {"runAsUser": 0}}]}
    task = task_of({"script": "true", "hostExec": True, "template": {"spec": changes}})
    assert task["securityContext"] == {"privileged": True, "runAsUser": 0}


def test_an_object_stored_before_the_rules_is_read_as_far_as_it_goes():
    both = {"configMapKeyRef": {"name": "a", "key": "b"}, "secretKeyRef": {"name": "c"}}
    assert parse_spec({"scriptFrom": both}).script_from == ScriptSource("a", "b")
    assert parse_spec({"scriptFrom": {}}).has_script is False
    assert parse_spec({"script": ""}).has_script is False


@pytest.mark.parametrize(
    ("spec", "token"),
    [
        ({"image": "a"}, "ready"),
        ({"script": "echo done"}, "completed-1234"),
        ({"scriptFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}, "completed-1234"),
        ({"script": "echo done", "completion": {"token": "mine"}}, ""),
    ],
)
def test_no_line_of_a_script_is_its_token_by_chance(spec, token):
    job = replace(make_job("sample", spec=parse_spec(spec)), uid="1234")
    assert first_status(job, START, "ready").completion_token == token
