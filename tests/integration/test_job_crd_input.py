"""What `kubectl apply` of a Job refuses: the message names the field and the fix."""

import json
from typing import Any

import pytest

from tests.integration.jobs import IMAGE, job, jobs_path, template
from tests.integration.kube_env import KubeEnv


def expressions(*items: dict[str, Any]) -> dict[str, Any]:
    return IMAGE | {"nodes": {"selector": {"matchExpressions": list(items)}}}


def labels(**items: str) -> dict[str, Any]:
    return IMAGE | {"nodes": {"selector": {"matchLabels": items}}}


def completion(**fields: str) -> dict[str, Any]:
    return IMAGE | {"completion": fields}


def on_success(**fields: Any) -> dict[str, Any]:
    return IMAGE | {"onSuccess": fields}


TASK = {"name": "job-container"}


def on_host(**fields: Any) -> dict[str, Any]:
    return {"script": "true", "hostExec": True, "template": {"spec": fields}}


REFUSED = {
    "time to live of a continuous Job": (
        completion(policy="Continuous") | {"ttlSecondsAfterFinished": 5},
        "spec.ttlSecondsAfterFinished has no meaning when spec.completion.policy is Continuous",
    ),
    "deadline of a continuous Job": (
        completion(policy="Continuous") | {"activeDeadlineSeconds": 5},
        "spec.activeDeadlineSeconds has no meaning when spec.completion.policy is Continuous",
    ),
    "no image": ({}, "spec.image: Required value: spec.image is required, unless spec.script or"),
    "no script": ({"script": ""}, "spec.script in body should be at least 1 chars long"),
    "endless script": (
        {"script": "a" * 32769},
        "spec.script: Too long: may not be more than 32768",
    ),
    "script with Windows line ends": (
        {"script": "#!/bin/sh\r\ntrue\r\n"},
        "spec.script must not have Windows line ends (CR LF)",
    ),
    "two scripts": (
        {"script": "true", "scriptFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        "spec.script and spec.scriptFrom cannot both be set: remove one of them",
    ),
    "script from nowhere": ({"scriptFrom": {}}, "must have either configMapKeyRef or secretKeyRef"),
    "script from two objects": (
        {
            "scriptFrom": {
                "configMapKeyRef": {"name": "a", "key": "b"},
                "secretKeyRef": {"name": "a", "key": "b"},
            }
        },
        "spec.scriptFrom must have either configMapKeyRef or secretKeyRef",
    ),
    "script without its key": (
        {"scriptFrom": {"configMapKeyRef": {"name": "a"}}},
        "spec.scriptFrom.configMapKeyRef.key: Required value",
    ),
    "script from a path": (
        {"scriptFrom": {"secretKeyRef": {"name": "a", "key": "b/c"}}},
        "spec.scriptFrom.secretKeyRef.key in body should match",
    ),
    "script and command": (
        {"script": "true", "command": ["sh"]},
        "spec.command cannot be set beside a script: remove it",
    ),
    "script in an image that prints no token": (
        IMAGE | {"script": "true"},
        "spec.image beside a script needs spec.completion.mode Exit",
    ),
    "script with a token that is a pattern": (
        {"script": "true", "completion": {"match": "Regex", "token": "^a+$"}},
        "spec.completion.match must not be Regex beside a script",
    ),
    "hostExec without a script": (
        IMAGE | {"hostExec": True},
        "spec.hostExec runs a script in the namespaces of the node: set spec.script or",
    ),
    "hostExec with an image": (
        IMAGE | {"script": "true", "hostExec": True, "completion": {"mode": "Exit"}},
        "spec.image cannot be set with spec.hostExec: remove it",
    ),
    "hostExec without the processes of the node": (
        {"script": "true", "hostExec": True, "template": {"spec": {"hostPID": False}}},
        "spec.template.spec.hostPID must not be false with spec.hostExec: remove it",
    ),
    "hostExec without privileges": (
        on_host(containers=[TASK | {"securityContext": {"privileged": False}}]),
        "spec.template.spec.containers must not take privileged from job-container with",
    ),
    "hostExec without privileges, in mode Exit": (
        on_host(initContainers=[TASK | {"securityContext": {"privileged": False}}]),
        "spec.template.spec.initContainers must not take privileged from job-container with",
    ),
    "an annotation of the system on the pods": (
        template(metadata={"annotations": {"daemonset.darkowlzz.space/revision": "5-x"}}),
        "spec.template.metadata.annotations must not set daemonset.darkowlzz.space/…: they say",
    ),
    "empty image": ({"image": ""}, "spec.image must be one image reference without blanks"),
    "image with a blank": ({"image": "a b"}, "spec.image must be one image reference"),
    "image with a line break": ({"image": "a\nb"}, "spec.image must be one image reference"),
    "image of a wrong type": ({"image": 5}, "spec.image in body must be of type string"),
    "endless image": ({"image": "a" * 1025}, "spec.image: Too long: may not be more than 1024"),
    "args not a list": (IMAGE | {"args": "a"}, "spec.args in body must be of type array"),
    "args not strings": (IMAGE | {"args": [1]}, "spec.args[0] in body must be of type string"),
    "1001 args": (IMAGE | {"args": ["a"] * 1001}, "spec.args: Too many: 1001: must have at most"),
    "another container without an image": (
        IMAGE | {"template": {"spec": {"containers": [{"name": "proxy"}]}}},
        "containers[0].image: Required value: spec.template.spec.containers must have an image in",
    ),
    "an init container without a name": (
        IMAGE | {"template": {"spec": {"initContainers": [{"image": "a"}]}}},
        "spec.template.spec.initContainers[0].name: Required value",
    ),
    "a volume mount without a path": (
        IMAGE
        | {
            "template": {
                "spec": {
                    "containers": [{"name": "job-container", "volumeMounts": [{"name": "data"}]}]
                }
            }
        },
        "spec.template.spec.containers[0].volumeMounts[0].mountPath: Required value",
    ),
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
    "mount without a path of the node": (
        IMAGE | {"mounts": [{"mountPath": "/a"}]},
        "spec.mounts[0].hostPath: Required value",
    ),
    "relative mount": (
        IMAGE | {"mounts": [{"hostPath": "a", "mountPath": "/a"}]},
        "spec.mounts must have an absolute hostPath: start it with a slash",
    ),
    "mount with ..": (
        IMAGE | {"mounts": [{"hostPath": "/a/..", "mountPath": "/a"}]},
        "spec.mounts must not have '..' in hostPath",
    ),
    "mount over one of ours": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": "/basetarget"}]},
        "spec.mounts must not use /, /basetarget, /run/daemonset-job or /task.d, or a path below",
    ),
    "mount below the script's directory": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": "/task.d/script"}]},
        "spec.mounts must not use /, /basetarget, /run/daemonset-job or /task.d, or a path below",
    ),
    "taken mount path with a slash": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": "/run/daemonset-job/"}]},
        "spec.mounts must have a plain mountPath",
    ),
    "taken mount path with two slashes": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": "//task.d"}]},
        "spec.mounts must have a plain mountPath",
    ),
    "taken mount path with a dot": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": "/./task.d"}]},
        "spec.mounts must have a plain mountPath",
    ),
    "blank script": (
        {"script": " \n\t"},
        "spec.script must not be blank",
    ),
    "task as a sidecar": (
        template(spec={"initContainers": [{"name": "job-container", "restartPolicy": "Always"}]}),
        "spec.template.spec.initContainers must not set restartPolicy of job-container",
    ),
    "two mounts in one place": (
        IMAGE
        | {
            "mounts": [
                {"hostPath": "/a", "mountPath": "/c"},
                {"hostPath": "/b", "mountPath": "/c"},
            ]
        },
        "spec.mounts[1]: Duplicate value",
    ),
    "17 mounts": (
        IMAGE | {"mounts": [{"hostPath": "/a", "mountPath": f"/{i}"} for i in range(17)]},
        "spec.mounts: Too many: 17",
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
    "percentage in words": (
        IMAGE | {"failurePolicy": {"maxFailedNodes": "10 percent"}},
        'from 0 up or a percentage such as "10%"; it is 10 percent',
    ),
    "share above all nodes": (
        IMAGE | {"rollout": {"steps": [{"nodes": "150%"}]}},
        'steps.nodes must be a number from 1 up or a percentage such as "10%"; it is 150%',
    ),
    "share of no node": (
        IMAGE | {"rollout": {"maxParallel": 0}},
        'maxParallel must be a number from 1 up or a percentage such as "10%"; it is 0',
    ),
    "exit code of a giant": (
        IMAGE | {"failurePolicy": {"rules": [{"exitCodes": [256], "action": "Fail"}]}},
        "should be less than or equal to 255",
    ),
    "label without a key": (on_success(labels={"": "a"}), "spec.onSuccess.labels must have label"),
    "label with a bad key": (
        on_success(labels={"Example.com/a": "a"}),
        "label keys: an optional DNS prefix and a slash, then up to 63 letters",
    ),
    "label with a long key": (
        on_success(labels={f"example.com/{'a' * 64}": "a"}),
        "spec.onSuccess.labels must have label keys",
    ),
    "label with a long prefix": (
        on_success(labels={f"{'a' * 254}/{'a' * 63}": "a"}),
        "spec.onSuccess.labels must have label keys",
    ),
    "label with a bad value": (
        on_success(labels={"a": "two words"}),
        "spec.onSuccess.labels must have label values: letters, digits",
    ),
    "label with a long value": (on_success(labels={"a": "a" * 64}), "may not be more than 63"),
    "too many labels": (
        on_success(labels={f"a{number}": "" for number in range(17)}),
        "spec.onSuccess.labels: Too many: 17: must have at most 16",
    ),
    "annotation with a bad key": (
        on_success(annotations={"a/b/c": "a"}),
        "spec.onSuccess.annotations must have annotation keys",
    ),
    "annotation with a long value": (
        on_success(annotations={"a": "a" * 1025}),
        "may not be more than 1024",
    ),
    "too many annotations": (
        on_success(annotations={f"a{number}": "" for number in range(17)}),
        "must have at most 16",
    ),
    "taint with its effect": (
        on_success(removeTaints=["example.com/a=b:NoSchedule"]),
        "must have keys of taints, without value and effect",
    ),
    "a taint twice": (on_success(removeTaints=["a", "a"]), "Duplicate value"),
    "result to a bad label": (
        IMAGE | {"results": [{"name": "a", "label": "two words"}]},
        "spec.results must have a label key in label",
    ),
    "result to a bad annotation": (
        IMAGE | {"results": [{"name": "a", "annotation": ""}]},
        "spec.results must have an annotation key in annotation",
    ),
    "two results to one label": (
        IMAGE | {"results": [{"name": "a", "label": "x"}, {"name": "b", "label": "x"}]},
        "spec.results must not use one label twice, or one of spec.onSuccess.labels",
    ),
    "a result to a label of onSuccess": (
        on_success(labels={"x": "y"}) | {"results": [{"name": "a", "label": "x"}]},
        "spec.results must not use one label twice, or one of spec.onSuccess.labels",
    ),
    "a result to an annotation of onSuccess": (
        on_success(annotations={"x": "y"}) | {"results": [{"name": "a", "annotation": "x"}]},
        "spec.results must not use one annotation twice, or one of spec.onSuccess.annotations",
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


@pytest.mark.parametrize(("spec", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_with_field_and_fix(kube_env: KubeEnv, spec, message):
    path = jobs_path("default") + AS_KUBECTL
    status, answer = kube_env.request("POST", path, job("default", spec))
    assert (status, answer["reason"]) == (422, "Invalid"), answer
    assert message in answer["message"]


@pytest.mark.parametrize(
    "spec",
    [
        on_host(containers=[TASK | {"securityContext": {"readOnlyRootFilesystem": True}}]),
        on_host(initContainers=[TASK | {"securityContext": {"privileged": True}}]),
        on_host(
            containers=[TASK, {"name": "b", "image": "b", "securityContext": {"privileged": False}}]
        ),
        IMAGE
        | template(spec={"containers": [TASK | {"securityContext": {"privileged": False}}]})
        | {"hostExec": False},
    ],
)
def test_on_the_host_only_the_privilege_of_the_task_is_set(kube_env: KubeEnv, spec):
    path = f"{jobs_path('default')}{AS_KUBECTL}&dryRun=All"
    status, answer = kube_env.request("POST", path, job("default", spec))
    assert status == 201, answer


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
