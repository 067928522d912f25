"""The DaemonSets that are built, as a real API server takes them."""

import pytest

from daemonset_job.api.job import parse_job
from job_controller.core.desired.daemon_set import build_daemon_set
from job_controller.core.settings import Settings
from tests.integration.jobs import job

PRIVILEGED = {"privileged": True}
TEMPLATES = {
    "none": {},
    "privileged": {"securityContext": PRIVILEGED},
    "SYS_ADMIN": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
    "CAP_SYS_ADMIN": {"securityContext": {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}},
    "no privilege at all": {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "capabilities": {"drop": ["ALL"]},
        }
    },
    "a long sleep": {"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}},
    "a variable of ours": {"env": [{"name": "NODE_NAME", "value": "x"}]},
    "a source for a variable of ours": {
        "env": [
            {
                "name": "COMPLETION_TOKEN",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }
        ]
    },
}
PODS = {
    "Linux": {"os": {"name": "linux"}},
    "Windows": {"os": {"name": "windows"}},
    "Windows host process": {
        "os": {"name": "windows"},
        "hostNetwork": True,
        "securityContext": {
            "windowsOptions": {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
        },
    },
    "the node's namespaces": {"hostNetwork": True, "hostPID": True, "hostIPC": True},
    "users of its own": {"hostUsers": False},
    "a profile of its own": {
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "a.json"}}
    },
    "no profile": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "no security context": {"securityContext": None},
    "hold as root": {
        "containers": [{"name": "pause", "securityContext": {"runAsUser": 0, **PRIVILEGED}}]
    },
    "a volume of ours": {
        "volumes": [{"name": "daemonset-job-state", "hostPath": {"path": "/var/state"}}]
    },
    "a gate": {"schedulingGates": [{"name": "example.com/gate"}]},
    "no time to end": {"terminationGracePeriodSeconds": None},
}


def refusal(kube_env, namespace, template, mode):
    """Return what the API server says about the Job's DaemonSet, "" when it takes it."""
    spec = {
        "image": "example/task:v1",
        "mountPath": "/tmp",
        "completion": {"mode": mode},
        "template": {"spec": template},
        "nodes": {"include": ["a", "b"]},
    }
    raw = job(namespace, spec)
    raw["metadata"]["uid"] = "12345678-1234-1234-1234-123456789012"
    body = build_daemon_set(parse_job(raw), gated=True, settings=Settings())
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets?dryRun=All&fieldValidation=Strict"
    status, answer = kube_env.request("POST", path, body)
    return "" if status == 201 else answer["message"]


@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_generated_fields_give_way_to_what_the_task_needs(kube_env, template, mode):
    field = {"Log": "containers", "Exit": "initContainers"}[mode]
    whole = {field: [{"name": "job-container", **template}]}
    if "lifecycle" in template and mode == "Exit":
        # Init containers have none; the one beside the holding one may.
        whole = {"containers": [{"name": "other", "image": "a", **template}]}
    assert refusal(kube_env, "default", whole, mode) == ""


@pytest.mark.parametrize("mode", ["Log", "Exit"])
@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_the_task_may_be_changed_in_either_list_of_containers(kube_env, field, mode):
    changes = {field: [{"name": "job-container", "env": [{"name": "A", "value": "b"}]}]}
    assert refusal(kube_env, "default", changes, mode) == ""


@pytest.mark.parametrize("template", PODS.values(), ids=PODS)
def test_generated_fields_give_way_to_what_the_pod_needs(kube_env, template):
    assert refusal(kube_env, "default", template, "Exit") == ""
    # In mode Log nothing holds the pod.
    assert refusal(kube_env, "default", {**template, "containers": []}, "Log") == ""


def test_a_template_that_contradicts_itself_is_refused(kube_env):
    context = {**PRIVILEGED, "allowPrivilegeEscalation": False}
    template = {"containers": [{"name": "job-container", "securityContext": context}]}
    assert "cannot set `allowPrivilegeEscalation`" in refusal(kube_env, "default", template, "Log")
