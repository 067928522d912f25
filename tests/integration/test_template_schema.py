"""spec.template has the schema of pods: nothing unknown is kept, and nothing in it can change."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from crds.generate import JOBS, generated
from tests.integration.jobs import STARTED, job
from tests.integration.kube_env import KubeEnv
from tests.mutation.schema import Schema, part

IMAGE = {"image": "example/task:v1"}
POD_SPEC = part("jobs", "spec")["properties"]["template"]["properties"]["spec"]
SAME = "spec.template cannot change once the Job has started"
# What no started Job can have.
FORBIDDEN = {"nodeName"}

Path = tuple[str | int, ...]


def test_the_schema_is_what_the_api_server_says_of_pods(kube_env: KubeEnv):
    status, document = kube_env.request("GET", "/openapi/v3/api/v1")
    assert status == 200
    text = JOBS.read_text()
    assert generated(text, document) == text, "run `make schema`"


def sample(schema: Schema) -> Any:
    """Return a value with every field that the schema has."""
    if schema.get("x-kubernetes-int-or-string"):
        return 1
    match schema["type"]:
        case "object" if "additionalProperties" in schema:
            return {"example.com/key": sample(schema["additionalProperties"])}
        case "object":
            return {
                name: sample(child)
                for name, child in schema["properties"].items()
                if name not in FORBIDDEN
            }
        case "array":
            return [sample(schema["items"])]
    if schema.get("format") == "date-time":
        return "2025-01-01T00:00:00Z"
    return {"string": "Always", "integer": 1, "boolean": True}[schema["type"]]


def parts(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Yield small pieces of the pod's spec, which together have all fields of it."""
    for name, child in schema["properties"].items():
        here = (*path, name)
        if len(path) < 2 and child.get("items", {}).get("type") == "object":
            yield from parts(child["items"], (*here, 0))
        elif name not in FORBIDDEN:
            yield here, child


def wrapped(path: Path, value: Any) -> Any:
    """Return a pod's spec with that value at that path, and what the items around it need."""
    for place, key in reversed(list(enumerate(path))):
        value = [identity(path[:place]) | value] if key == 0 else {key: value}
    return value


def identity(path: Path) -> Any:
    """Return the fields that an item of this list must have."""
    (name,) = path
    items = POD_SPEC["properties"][name]["items"]
    needed = [*items.get("required", ()), *(["image"] if "ontainers" in name else [])]
    return {field: sample(items["properties"][field]) for field in needed}


def others(value: Any) -> Iterator[Any]:
    """Yield the value with one change, for each place in it; and without each of its fields."""
    if isinstance(value, dict):
        for key, child in value.items():
            yield {k: v for k, v in value.items() if k != key}
            for changed in others(child):
                yield {**value, key: changed}
    elif isinstance(value, list):
        yield []
        for changed in others(value[0]):
            yield [changed]
    elif isinstance(value, bool):
        yield False
    elif isinstance(value, int):
        yield 2
    elif value != "Always":
        yield "2025-01-02T00:00:00Z" if value.startswith("2025") else "y"


STRICT = "?fieldValidation=Strict"
# Init containers are containers.
FIELDS = sorted(set(POD_SPEC["properties"]) - FORBIDDEN - {"initContainers"})


def jobs_path(namespace: str, name: str = "") -> str:
    return f"/apis/daemonset.darkowlzz.space/v1beta1/namespaces/{namespace}/jobs{name}"


def started(kube_env: KubeEnv, namespace: str, pod_spec: Any, name: str = "sample") -> Any:
    """Return a started Job with that template, of which nothing was dropped."""
    raw = job(namespace, IMAGE | {"template": {"spec": pod_spec}}, name)
    status, made = kube_env.request("POST", jobs_path(namespace) + STRICT, raw)
    assert status == 201, made
    assert made["spec"]["template"]["spec"] == pod_spec
    path = jobs_path(namespace, f"/{name}/status")
    status, made = kube_env.request("PATCH", path, {"status": STARTED})
    assert status == 200, made
    return made


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS)
def test_no_part_of_the_template_of_a_started_job_can_change(kube_env, namespace, field):
    taken = []
    only = {"properties": {field: POD_SPEC["properties"][field]}}
    for number, (path, schema) in enumerate(parts(only)):
        value = sample(schema)
        made = started(kube_env, namespace, wrapped(path, value), f"part-{number}")
        for changed in others(value):
            made["spec"]["template"]["spec"] = wrapped(path, changed)
            where = jobs_path(namespace, f"/part-{number}") + "?dryRun=All"
            status, answer = kube_env.request("PUT", where, made)
            message = answer["message"] if status == 422 else ""
            if SAME not in message and "Required value" not in message:
                taken.append((path, changed, status))
    assert taken == []


def test_init_containers_are_containers():
    both = POD_SPEC["properties"]
    init, other = both["initContainers"]["items"], both["containers"]["items"]
    assert init["properties"] == other["properties"]
    assert init["required"] == other["required"] == ["name"]


def test_the_same_template_may_be_applied_again(kube_env, namespace):
    # With every field there is.
    made = started(kube_env, namespace, sample(POD_SPEC))
    made["spec"]["nodes"] = {"exclude": ["a"]}
    status, answer = kube_env.request("PUT", jobs_path(namespace, "/sample"), made)
    assert status == 200, answer


TASK = {"name": "job-container"}
# Null is kept for one field of an object at most, which cannot hide another one's change.
NULLS = {
    "a field for a null": ({"hostPID": True}, {"securityContext": None}),
    "a null and a field": ({"securityContext": None}, {"securityContext": None, "hostPID": True}),
    "a null": ({}, {"securityContext": None}),
    "no null": ({"securityContext": None}, {"securityContext": {}}),
    "a null in a container": (
        {"containers": [{**TASK, "tty": True}]},
        {"containers": [{**TASK, "securityContext": None}]},
    ),
    "a null in its security": (
        {"containers": [{**TASK, "securityContext": {"privileged": True}}]},
        {"containers": [{**TASK, "securityContext": {"allowPrivilegeEscalation": None}}]},
    ),
}


@pytest.mark.parametrize(("before", "after"), NULLS.values(), ids=NULLS)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_null_hides_no_change(kube_env, namespace, before, after, is_reversed):
    if is_reversed:
        before, after = after, before
    made = started(kube_env, namespace, before)
    made["spec"]["template"]["spec"] = after
    status, answer = kube_env.request("PUT", jobs_path(namespace, "/sample"), made)
    assert status == 422, answer
    assert SAME in answer["message"]


@pytest.mark.parametrize(
    "value", [1, 0, "1", "0.5", ".5", "1.", "100m", "1Gi", "1e3", "+1E-3", "5n"]
)
def test_quantities_are_taken_as_pods_take_them(kube_env, value):
    limits = {"resources": {"limits": {"memory": value}}}
    raw = job("default", IMAGE | {"template": {"spec": {"containers": [{**TASK, **limits}]}}})
    status, answer = kube_env.request("POST", jobs_path("default") + "?dryRun=All", raw)
    assert status == 201, answer


def test_null_that_takes_nothing_away_is_dropped(kube_env, namespace):
    given = {"nodeSelector": None, "containers": [{**TASK, "args": None}], "affinity": None}
    raw = job(namespace, IMAGE | {"template": {"spec": given}})
    status, made = kube_env.request("POST", jobs_path(namespace) + STRICT, raw)
    assert status == 201, made
    assert made["spec"]["template"]["spec"] == {"containers": [TASK]}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


UNKNOWN = {
    "containers[0].imagee": {"containers": [{**TASK, "imagee": "a"}]},
    "containers[0].env[0].valueForm": {
        "containers": [{**TASK, "env": [{"name": "a", "valueForm": {}}]}]
    },
    "containers[0].securityContext.privilegd": {
        "containers": [{**TASK, "securityContext": {"privilegd": True}}]
    },
    "volumes[0].hostpath": {"volumes": [{"name": "a", "hostpath": {"path": "/a"}}]},
    "affinity.nodeafinity": {"affinity": {"nodeafinity": {}}},
    "containers[0].x": {"containers": [{**TASK, "x": nested(500)}]},
    "ephemeralContainers": {"ephemeralContainers": []},
    "activeDeadlineSeconds": {"activeDeadlineSeconds": 1},
}


@pytest.mark.parametrize(("field", "template"), UNKNOWN.items(), ids=UNKNOWN)
def test_what_pods_do_not_have_is_named_by_kubectl_and_never_stored(
    kube_env, namespace, field, template
):
    raw = job(namespace, IMAGE | {"template": {"spec": template}})
    status, answer = kube_env.request("POST", jobs_path(namespace) + STRICT, raw)
    assert status == 400, answer
    assert f'unknown field "spec.template.spec.{field}"' in answer["message"]
    status, made = kube_env.request("POST", jobs_path(namespace), raw)
    assert status == 201, made
    last = field.rpartition(".")[2]
    assert f'"{last}"' not in json.dumps(made["spec"])


WRONG = {
    "affinity": ("x", "object"),
    "containers": ([None], "object"),
    "nodeSelector": ({"a": 1}, "string"),
    "tolerations": ([{}] * 129, "at most 128 items"),
    "volumes": ([[[[]]]], "object"),
    "overhead": ({"cpu": 0.5}, "integer,string"),
    "resources": ({"limits": {"cpu": "a lot"}}, "should match"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_value_of_a_wrong_type_is_refused_by_name(kube_env, field):
    value, words = WRONG[field]
    raw = job("default", IMAGE | {"template": {"spec": {field: value}}})
    status, answer = kube_env.request("POST", jobs_path("default"), raw)
    assert status == 422, answer
    assert f"spec.template.spec.{field}" in answer["message"]
    assert words in answer["message"]


def test_the_manifest_can_be_applied_by_kubectl_itself(kube_env: KubeEnv):
    # Not by server-side apply: what was applied last has to fit into an annotation.
    kube_env.kubectl("apply", "--dry-run=server", "-f", str(JOBS))
