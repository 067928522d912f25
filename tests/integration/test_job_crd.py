"""What `kubectl apply` of a Job accepts and refuses, with which words, and what it keeps."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from daemonset_job.api.job import parse_job
from daemonset_job.api.node_totals import NodeTotals
from job_controller.core.render.job_status import first_status
from tests.integration.jobs import job, start
from tests.integration.kube_env import ROOT, KubeEnv

IMAGE = {"image": "example/task:v1"}
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
    },
    "backoffLimit": 2,
    "nodeDeadlineSeconds": 60,
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
    "results": [{"name": "kernel"}],
}


def expressions(*items: dict[str, Any]) -> dict[str, Any]:
    return IMAGE | {"nodes": {"selector": {"matchExpressions": list(items)}}}


def labels(**items: str) -> dict[str, Any]:
    return IMAGE | {"nodes": {"selector": {"matchLabels": items}}}


def completion(**fields: str) -> dict[str, Any]:
    return IMAGE | {"completion": fields}


def template(**fields: Any) -> dict[str, Any]:
    return IMAGE | {"template": fields}


REFUSED = {
    "no image": ({}, "spec.image: Required value"),
    "empty image": ({"image": ""}, "spec.image must be one image reference without blanks"),
    "image with a blank": ({"image": "a b"}, "spec.image must be one image reference"),
    "image with a line break": ({"image": "a\nb"}, "spec.image must be one image reference"),
    "image of a wrong type": ({"image": 5}, "spec.image in body must be of type string"),
    "endless image": ({"image": "a" * 1025}, "spec.image: Too long: may not be more than 1024"),
    "args not a list": (IMAGE | {"args": "a"}, "spec.args in body must be of type array"),
    "args not strings": (IMAGE | {"args": [1]}, "spec.args[0] in body must be of type string"),
    "1001 args": (IMAGE | {"args": ["a"] * 1001}, "spec.args: Too many: 1001: must have at most"),
    "relative mountPath": (
        IMAGE | {"mountPath": "tmp"},
        "spec.mountPath must be an absolute path on the node: start it with a slash",
    ),
    "empty mountPath": (IMAGE | {"mountPath": ""}, "spec.mountPath must be an absolute path"),
    "mountPath with ..": (IMAGE | {"mountPath": "/a/../b"}, "spec.mountPath must not contain '..'"),
    "mountPath ends in ..": (IMAGE | {"mountPath": "/a/.."}, "spec.mountPath must not contain"),
    "mountPath with a colon": (
        IMAGE | {"mountPath": "/a:b"},
        "spec.mountPath must not contain ':'",
    ),
    "empty token": (
        completion(token=""),
        "spec.completion.token must not be empty or blank: leave it out",
    ),
    "blank token": (completion(token="  ", match="Contains"), "must not be empty or blank"),
    "token of Unicode's blanks": (
        completion(token="\u00a0\u2003\u200b\ufeff"),
        "spec.completion.token must not be empty or blank",
    ),
    "failure token of Unicode's blanks": (
        completion(failureToken="\u3000\u2009\u1680"),
        "spec.completion.failureToken must not be blank",
    ),
    "token with a line separator": (
        completion(token="a\u2028b"),
        "spec.completion.token must not contain line breaks",
    ),
    "token with an 8-bit control character": (
        completion(token="a\u009bb"),
        "or control characters",
    ),
    "failure token with a control character": (
        completion(failureToken="a\x07b"),
        "spec.completion.failureToken must not contain line breaks or control characters",
    ),
    "token with a blank before": (completion(token=" done"), "must not begin or end with blanks"),
    "token with a blank after": (completion(token="all done\t"), "must not begin or end with"),
    "token with a line break": (
        completion(token="a\nb", match="Contains"),
        "spec.completion.token must not contain line breaks",
    ),
    "token with an escape": (completion(token="\x1b[0mdone"), "or control characters"),
    "long token": (completion(token="a" * 257), "spec.completion.token: Too long"),
    "unknown match": (
        completion(match="Glob"),
        'spec.completion.match: Unsupported value: "Glob": supported values: "Line"',
    ),
    "Regex without token": (completion(match="Regex"), "must be given when match is Regex"),
    "Regex that is none": (
        completion(match="Regex", token="a("),
        "missing closing ): `a(` evaluating rule: with match Regex, spec.completion.token must be",
    ),
    "Regex for everything": (
        completion(match="Regex", token=".*"),
        "does not match the empty line",
    ),
    "Regex with an empty side": (completion(match="Regex", token="a|"), "not match the empty line"),
    "node on both lists": (
        IMAGE | {"nodes": {"include": ["a", "b"], "exclude": ["b"]}},
        "spec.nodes.include and spec.nodes.exclude must not name the same node",
    ),
    "node twice": (IMAGE | {"nodes": {"include": ["b", "b"]}}, "include[1]: Duplicate value"),
    "impossible node": (
        IMAGE | {"nodes": {"include": ["Node_1"]}},
        "spec.nodes.include must hold names of nodes",
    ),
    "impossible excluded node": (
        IMAGE | {"nodes": {"exclude": ["a/b"]}},
        "spec.nodes.exclude must hold names of nodes",
    ),
    "1001 nodes": (
        IMAGE | {"nodes": {"include": [f"n{i}" for i in range(1001)]}},
        "spec.nodes.include: Too many: 1001",
    ),
    "In without values": (
        expressions({"key": "a", "operator": "In"}),
        "operators In and NotIn need at least one value",
    ),
    "Exists with values": (
        expressions({"key": "a", "operator": "Exists", "values": ["b"]}),
        "operators Exists and DoesNotExist take no values",
    ),
    "unknown operator": (
        expressions({"key": "a", "operator": "Gt", "values": ["1"]}),
        'operator: Unsupported value: "Gt"',
    ),
    "impossible label": (labels(**{"a b": "c"}), "spec.nodes.selector.matchLabels must have"),
    "impossible label value": (labels(a="b c"), "spec.nodes.selector.matchLabels.a in body should"),
    "label of ours": (
        template(metadata={"labels": {"daemonset-job": "false"}}),
        "spec.template.metadata.labels must not set daemonset, job, daemonset-job",
    ),
    "label of our group": (
        template(metadata={"labels": {"daemonset.darkowlzz.space/x": ""}}),
        "spec.template.metadata.labels must not set",
    ),
    "impossible pod label": (
        template(metadata={"labels": {"-a": ""}}),
        "spec.template.metadata.labels must have keys of letters",
    ),
    "pods on one node": (
        template(spec={"nodeName": "a"}),
        "spec.template.spec.nodeName would send the pods of all nodes to one",
    ),
    "pods that end": (
        template(spec={"restartPolicy": "Never"}),
        'spec.template.spec.restartPolicy: Unsupported value: "Never"',
    ),
    "pod field of a wrong type": (
        template(spec={"hostNetwork": "yes"}),
        "spec.template.spec.hostNetwork in body must be of type boolean",
    ),
    "mode Exit with a token": (
        completion(mode="Exit", token="x"),
        "spec.completion.token has no meaning when mode is Exit",
    ),
    "the two tokens are one": (
        completion(token="x", failureToken="x"),
        "spec.completion.failureToken must differ from spec.completion.token",
    ),
    "blank failure token": (
        completion(failureToken=" x"),
        "spec.completion.failureToken must be a word",
    ),
    "negative budget": (
        IMAGE | {"failurePolicy": {"maxFailedNodes": -1}},
        "spec.failurePolicy.maxFailedNodes must be a number from 0 up",
    ),
    "odd percentage": (
        IMAGE | {"failurePolicy": {"maxFailedNodes": "ten%"}},
        "spec.failurePolicy.maxFailedNodes must be a number from 0 up",
    ),
    "exit code of a giant": (
        IMAGE | {"failurePolicy": {"rules": [{"exitCodes": [256], "action": "Fail"}]}},
        "should be less than or equal to 255",
    ),
}

UNKNOWN = {
    "spec.imgae": IMAGE | {"imgae": "x"},
    "spec.mountpath": IMAGE | {"mountpath": "/tmp"},
    "spec.completion.word": completion(word="x"),
    "spec.nodes.names": IMAGE | {"nodes": {"names": ["a"]}},
    "spec.template.labels": template(labels={"a": "b"}),
    "spec.template.metadata.name": template(metadata={"name": "a"}),
    "spec.template.spec.toleration": template(spec={"toleration": []}),
    "spec.backofflimit": IMAGE | {"backofflimit": 3},
    "spec.failurePolicy.maxFailed": IMAGE | {"failurePolicy": {"maxFailed": 3}},
}


# What kubectl apply asks of the server; hundreds of kubectl processes would take a minute.
AS_KUBECTL = "?fieldValidation=Strict"


def jobs_path(namespace: str, name: str = "") -> str:
    return f"/apis/daemonset.darkowlzz.space/v1beta1/namespaces/{namespace}/jobs{name}"


@pytest.mark.parametrize(("spec", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_field_and_fix(kube_env: KubeEnv, spec, message):
    path = jobs_path("default") + AS_KUBECTL
    status, answer = kube_env.request("POST", path, job("default", spec))
    assert (status, answer["reason"]) == (422, "Invalid"), answer
    assert message in answer["message"]


@pytest.mark.parametrize(("field", "spec"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_unknown_field_is_refused_by_name(kube_env: KubeEnv, field, spec):
    path = jobs_path("default") + AS_KUBECTL
    status, answer = kube_env.request("POST", path, job("default", spec))
    assert (status, answer["reason"]) == (400, "BadRequest"), answer
    assert f'unknown field "{field}"' in answer["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        REFUSED["no image"],
        REFUSED["relative mountPath"],
        REFUSED["empty token"],
        (UNKNOWN["spec.imgae"], 'unknown field "spec.imgae"'),
    ],
)
def test_kubectl_apply_shows_it(kube_env: KubeEnv, spec, message):
    assert message in kube_env.refusal("apply", "-f", "-", input=json.dumps(job("default", spec)))


def test_a_job_without_spec_is_refused(kube_env: KubeEnv):
    manifest = job("default")
    del manifest["spec"]
    assert "spec: Required value" in kube_env.refusal(
        "apply", "-f", "-", input=json.dumps(manifest)
    )


def test_the_seed_manifest_is_accepted_as_it_is(kube_env: KubeEnv, namespace):
    manifest = ROOT / "examples" / "01-cleanup" / "job.yaml"
    kube_env.kubectl("apply", "-n", namespace, "-f", str(manifest))
    assert kube_env.get("dsj", "job-sample", namespace)["spec"] == {
        "image": "darkowlzz/cleanup:v0.0.2",
        "args": ["/basetarget/foo"],
        "mountPath": "/tmp",
        "completion": {"match": "Line", "mode": "Log"},
        "backoffLimit": 6,
        "failurePolicy": {"action": "FailFast", "maxFailedNodes": 0, "pods": "Keep"},
        "failureLogLines": 5,
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


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_runs_cannot_change_once_started(kube_env: KubeEnv, started, change):
    field = next(iter(change))
    status, answer = kube_env.request("PATCH", jobs_path(started, "/sample"), {"spec": change})
    assert status == 422, answer
    assert (
        f"spec.{field}: Forbidden: spec.{field} cannot change once the Job has started: "
        "delete the Job and apply it again, or apply the new one under another name"
    ) in answer["message"]
    assert len(answer["details"]["causes"]) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_runs_can_change_before_the_start(kube_env: KubeEnv, namespace, change):
    status, answer = kube_env.request("POST", jobs_path(namespace), job(namespace, BEFORE))
    assert status == 201, answer
    path = jobs_path(namespace, "/sample")
    status, answer = kube_env.request("PATCH", path, {"spec": change})
    assert status == 200, answer


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
