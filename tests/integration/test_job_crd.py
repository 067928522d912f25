"""What the API server keeps of a Job, what may change in it, and what kubectl shows of it."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from daemonset_job.api.job import parse_job
from daemonset_job.api.node_totals import NodeTotals
from job_controller.core.render.job_status import first_status
from tests.integration.jobs import IMAGE, job, jobs_path, start, template
from tests.integration.kube_env import ROOT, KubeEnv

FULL = {
    "image": "registry.example:5000/task@sha256:" + "0" * 64,
    "command": ["/bin/sh", "-c"],
    "args": ["echo 'a  b'", ""],
    "mountPath": "/var/lib/some thing",
    "template": {
        "metadata": {"labels": {"example.com/team": "a", "app": ""}, "annotations": {"x": "y"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "priorityClassName": "system-node-critical",
            "securityContext": {"runAsUser": 0},
            "containers": [{"name": "job-container", "env": [{"name": "A", "value": "b"}]}],
        },
    },
    "nodes": {
        "selector": {
            "matchLabels": {"kubernetes.io/os": "linux"},
            "matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"},
            ],
        },
        "include": ["node-1", "node-2.example.com"],
        "exclude": ["node-3"],
    },
    "completion": {
        "mode": "Log",
        "token": "^all done in [0-9]+ s$",
        "failureToken": "^gave up$",
        "match": "Regex",
        "policy": "Once",
        "release": True,
    },
    "backoffLimit": 2,
    "nodeDeadlineSeconds": 60,
    "nodeUnreachableSeconds": 600,
    "activeDeadlineSeconds": 600,
    "failurePolicy": {
        "action": "Continue",
        "maxFailedNodes": "10%",
        "rules": [{"exitCodes": [2, 3], "action": "Fail"}],
        "pods": "Delete",
    },
    "failureLogLines": 3,
    "ttlSecondsAfterFinished": 0,
    "suspend": False,
    "results": [{"name": "kernel", "label": "example.com/kernel", "annotation": "example.com/k"}],
    "onSuccess": {
        "labels": {"example.com/prepared": "true", "plain": ""},
        "annotations": {"example.com/prepared-by": "a sentence, with blanks"},
        "removeTaints": ["example.com/not-prepared"],
    },
}


def test_the_seed_manifest_is_accepted_as_it_is(kube_env: KubeEnv, namespace):
    manifest = ROOT / "examples" / "01-cleanup" / "job.yaml"
    kube_env.kubectl("apply", "-n", namespace, "-f", str(manifest))
    assert kube_env.get("dsj", "job-sample", namespace)["spec"] == {
        "image": "darkowlzz/cleanup:v0.0.2",
        "args": ["/basetarget/foo"],
        "mountPath": "/tmp",
        "completion": {"match": "Line", "mode": "Log"},
        "backoffLimit": 6,
        "failurePolicy": {"action": "FailFast", "maxFailedNodes": 0, "pods": "DeleteFailed"},
        "failureLogLines": 50,
        "suspend": False,
    }


def test_every_field_is_kept_as_it_was_given(kube_env: KubeEnv, namespace):
    assert kube_env.apply(job(namespace, FULL))["spec"] == FULL


def test_null_that_takes_a_generated_field_away_is_kept(kube_env: KubeEnv, namespace):
    # Sent unchanged, since kubectl apply leaves nulls out. It must not make the Job look changed
    # to the rules either.
    spec = template(spec={"securityContext": None, "containers": [{"name": "job-container"}]})
    path = jobs_path(namespace)
    status, made = kube_env.request("POST", path, job(namespace, spec))
    assert (status, made["spec"]["template"]) == (201, spec["template"])
    start(kube_env, namespace)
    status, changed = kube_env.request(
        "PATCH", f"{path}/sample", {"spec": {"nodes": {"exclude": ["a"]}}}
    )
    assert status == 200, changed


def test_a_name_may_have_253_characters_and_no_more(kube_env: KubeEnv, namespace):
    long = ".".join(["a" * 62] * 4) + "a"
    assert len(long) == 252
    kube_env.apply(job(namespace, name=f"{long}a"))
    refusal = kube_env.refusal(
        "apply", "-f", "-", input=json.dumps(job(namespace, name=f"{long}aa"))
    )
    assert "metadata.name: Invalid value" in refusal
    assert "253" in refusal


def test_long_lists_of_nodes_are_accepted(kube_env: KubeEnv, namespace):
    # 1,000 against 1,000 names costs more than a rule may: it must not apply, rather than fail.
    include = [f"a{i:04}".ljust(253, "x") for i in range(1000)]
    exclude = [f"b{i:04}".ljust(253, "x") for i in range(1000)]
    for size in (1000, 200):
        spec = IMAGE | {"nodes": {"include": include, "exclude": exclude[:size]}}
        path = jobs_path(namespace)
        status, answer = kube_env.request("POST", path, job(namespace, spec, f"nodes-{size}"))
        assert status == 201, answer


CHANGES = {
    "image": {"image": "example/task:v2"},
    "command": {"command": ["/other"]},
    "command removed": {"command": None},
    "args": {"args": ["other"]},
    "args removed": {"args": None},
    "mountPath": {"mountPath": "/other"},
    "mountPath removed": {"mountPath": None},
    "mounts": {"mounts": [{"hostPath": "/other", "mountPath": "/a"}]},
    "mounts removed": {"mounts": None},
    "mounts without readOnly": {"mounts": [{"hostPath": "/log", "mountPath": "/a"}]},
    "template": {"template": {"spec": {"hostPID": True}}},
    "template one field for another": {
        "template": {"spec": {"tolerations": None, "imagePullSecrets": []}}
    },
    "template inside a container": {
        "template": {"spec": {"containers": [{"name": "job-container", "envFrom": []}]}}
    },
    "template removed": {"template": None},
    "completion": {"completion": {"token": "other"}},
    "completion match": {"completion": {"match": "Contains"}},
    "completion removed": {"completion": None},
}
BEFORE = {
    "image": "example/task:v1",
    "command": ["/task"],
    "args": ["a"],
    "mountPath": "/tmp",
    "mounts": [{"hostPath": "/log", "mountPath": "/a", "readOnly": True}],
    "template": {
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "job-container", "env": []}],
        }
    },
    "completion": {"token": "done", "match": "Line"},
}


@pytest.fixture(scope="module")
def started(kube_env: KubeEnv) -> str:
    """A namespace with a started Job that every change is tried on."""
    kube_env.kubectl("create", "namespace", "started")
    kube_env.apply(job("started", BEFORE))
    start(kube_env, "started")
    return "started"


@pytest.fixture(scope="module")
def continuous(kube_env: KubeEnv) -> str:
    """A namespace with a started Job of policy Continuous that every change is tried on."""
    kube_env.kubectl("create", "namespace", "continuous")
    completion = {**BEFORE["completion"], "policy": "Continuous"}
    kube_env.apply(job("continuous", BEFORE | {"completion": completion}))
    start(kube_env, "continuous")
    return "continuous"


@pytest.mark.parametrize(
    "change", [change for change in CHANGES.values() if change != {"completion": None}]
)
def test_what_a_continuous_job_runs_can_change(kube_env: KubeEnv, continuous, change):
    status, answer = kube_env.request(
        "PATCH", jobs_path(continuous, "/sample?dryRun=All"), {"spec": change}
    )
    assert status == 200, answer


@pytest.mark.parametrize("completion", [{"policy": "Once"}, {"policy": None}, None])
def test_a_started_job_keeps_its_policy(kube_env: KubeEnv, continuous, completion):
    status, answer = kube_env.request(
        "PATCH", jobs_path(continuous, "/sample"), {"spec": {"completion": completion}}
    )
    assert status == 422, answer
    assert "spec.completion cannot change once the Job has started" in answer["message"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_runs_cannot_change_once_started(kube_env: KubeEnv, started, change):
    field = next(iter(change))
    status, answer = kube_env.request("PATCH", jobs_path(started, "/sample"), {"spec": change})
    assert status == 422, answer
    assert (
        f"spec.{field}: Forbidden: spec.{field} cannot change once the Job has started: "
    ) in answer["message"]
    # What to do, in the order in which it costs least.
    assert (
        "no task has begun, set spec.suspend to true first; otherwise delete the Job and apply it "
        "again, or apply the new one under another name"
    ) in answer["message"]
    assert len(answer["details"]["causes"]) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_suspension_and_a_change_in_one_write_are_refused(kube_env: KubeEnv, started, change):
    path = jobs_path(started, "/sample")
    both = {"spec": {"suspend": True, **change}}
    status, answer = kube_env.request("PATCH", path, both)
    assert status == 422, answer


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_runs_can_change_when_the_start_is_taken_back(kube_env: KubeEnv, namespace, change):
    kube_env.apply(job(namespace, BEFORE))
    start(kube_env, namespace)
    path = jobs_path(namespace, "/sample")
    status, answer = kube_env.request(
        "PATCH", jobs_path(namespace, "/sample/status"), {"status": {"startTime": None}}
    )
    assert status == 200, answer
    status, answer = kube_env.request("PATCH", path, {"spec": change})
    assert status == 200, answer


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_runs_can_change_before_the_start(kube_env: KubeEnv, namespace, change):
    status, answer = kube_env.request("POST", jobs_path(namespace), job(namespace, BEFORE))
    assert status == 201, answer
    path = jobs_path(namespace, "/sample")
    status, answer = kube_env.request("PATCH", path, {"spec": change})
    assert status == 200, answer


SCRIPTS = {
    "script": ({"script": "true"}, {"script": "false"}),
    "scriptFrom": (
        {"scriptFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        {"scriptFrom": {"configMapKeyRef": {"name": "a", "key": "c"}}},
    ),
    "hostExec": ({"script": "true"}, {"hostExec": True}),
    "hostExec removed": ({"script": "true", "hostExec": True}, {"hostExec": None}),
    "image": ({"script": "true"}, {"script": None, "image": "a"}),
}


@pytest.mark.parametrize(("spec", "change"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_cannot_change_once_started(kube_env: KubeEnv, namespace, spec, change):
    kube_env.apply(job(namespace, spec))
    path = jobs_path(namespace, "/sample")
    start(kube_env, namespace)
    field = next(iter(change))
    status, answer = kube_env.request("PATCH", path, {"spec": change})
    assert status == 422, answer
    assert f"spec.{field}: Forbidden: spec.{field} cannot change once the Job" in answer["message"]


def test_an_absent_host_exec_is_false(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, {"script": "true"}))
    start(kube_env, namespace)
    assert kube_env.apply(job(namespace, {"script": "true", "hostExec": False}))


def test_a_script_of_the_largest_size_is_kept(kube_env: KubeEnv, namespace):
    script = "#!/bin/sh\n" + "\N{LOBSTER}" * (32768 - 10)
    assert kube_env.apply(job(namespace, {"script": script}))["spec"]["script"] == script


def test_nodes_can_change_once_started(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace, BEFORE))
    start(kube_env, namespace)
    for nodes in ({"include": ["a"]}, {"selector": {"matchLabels": {"a": "b"}}}, {}):
        assert kube_env.apply(job(namespace, BEFORE | {"nodes": nodes}))["spec"]["nodes"] == nodes


def test_the_same_manifest_can_be_applied_again_once_started(kube_env: KubeEnv, namespace):
    first = kube_env.apply(job(namespace))
    start(kube_env, namespace)
    # Empty and absent are the same work.
    again = kube_env.apply(job(namespace, IMAGE | {"args": [], "command": [], "completion": {}}))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]


def test_status_is_written_by_its_own_subresource_only(kube_env: KubeEnv, namespace):
    made = kube_env.apply(job(namespace) | {"status": {"phase": "Succeeded"}})
    assert "status" not in made
    path = jobs_path(namespace, "/sample")
    body = {"spec": {"image": "other"}, "status": {"phase": "Running"}}
    status, written = kube_env.request("PATCH", f"{path}/status", body)
    assert status == 200, written
    assert written["spec"]["image"] == "example/task:v1"
    assert written["status"] == {"phase": "Running"}
    assert written["metadata"]["generation"] == made["metadata"]["generation"]


def test_the_schema_knows_all_that_the_controller_writes(kube_env: KubeEnv, namespace):
    made = parse_job(kube_env.apply(job(namespace)))
    totals = NodeTotals(
        desired=4,
        waiting=1,
        active=1,
        completed=2,
        completed_names="node-[001-002]",
        failed_names="node-3",
        unreachable_names="node-4",
    )
    status = replace(first_status(made, datetime(2025, 1, 1, tzinfo=UTC)), nodes=totals).to_raw()
    path = jobs_path(namespace, "/sample/status")
    code, written = kube_env.request("PATCH", f"{path}?fieldValidation=Strict", {"status": status})
    assert code == 200, written
    assert written["status"] == status


def test_kubectl_wait_understands_the_conditions(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace))
    complete = {
        "type": "Complete",
        "status": "True",
        "reason": "AllNodesCompleted",
        "message": "3 of 3 nodes completed",
        "observedGeneration": 1,
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    kube_env.patch_status("dsj", "sample", namespace, {"conditions": [complete]})
    kube_env.kubectl("wait", "--for=condition=Complete", "dsj/sample", "-n", namespace)


def test_columns_and_short_name(kube_env: KubeEnv, namespace):
    kube_env.apply(job(namespace))
    kube_env.patch_status(
        "dsj",
        "sample",
        namespace,
        {
            "phase": "Running",
            "report": "sample-1234",
            "nodes": {"desired": 5, "completed": 3, "failed": 1},
            "conditions": [
                {
                    "type": "Progressing",
                    "status": "False",
                    "reason": "ImagePullFailed",
                    "message": "1 of 5 nodes cannot pull the image (e)",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                }
            ],
        },
    )
    head, row = kube_env.kubectl("get", "dsj", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "PHASE", "DESIRED", "COMPLETED", "FAILED", "REASON", "AGE"]
    assert row.split()[:6] == ["sample", "Running", "5", "3", "1", "ImagePullFailed"]
    head, row = kube_env.kubectl("get", "dsj", "-n", namespace, "-o", "wide").splitlines()
    assert head.split()[-2:] == ["REPORT", "MESSAGE"]
    assert row.endswith("sample-1234   1 of 5 nodes cannot pull the image (e)")
    assert "job.daemonset.darkowlzz.space/sample" in kube_env.kubectl("get", "all", "-n", namespace)


def test_explain_describes_the_fields(kube_env: KubeEnv):
    explained = " ".join(kube_env.kubectl("explain", "dsj.spec.mountPath").split())
    assert "mounted read-write at /basetarget in the container" in explained


def test_the_template_has_every_pod_field_that_a_daemonset_can_have(kube_env: KubeEnv):
    crd = yaml.safe_load((ROOT / "crds" / "jobs.yaml").read_text())
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    ours = set(spec["properties"]["template"]["properties"]["spec"]["properties"])
    _, schemas = kube_env.request("GET", "/openapi/v3/api/v1")
    pod_spec = schemas["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    # Refused in the template of a DaemonSet (pkg/apis/apps/validation).
    assert ours == set(pod_spec) - {"activeDeadlineSeconds", "ephemeralContainers"}


def test_every_example_is_accepted(kube_env: KubeEnv, namespace):
    manifests = sorted((ROOT / "examples").glob("*/job.yaml"))
    assert manifests
    for manifest in manifests:
        kube_env.kubectl("create", "--dry-run=server", "-n", namespace, "-f", str(manifest))


def test_crds_can_be_installed_alone_and_again(kube_env: KubeEnv, tmp_path: Path):
    out = kube_env.kubectl("apply", "--server-side", "-k", str(ROOT / "crds"))
    assert "jobs.daemonset.darkowlzz.space serverside-applied" in out
