"""The model of the API server's storage answers as a real API server does."""

import uuid
from urllib.parse import quote

import pytest

from daemonset_job.kube.client.resource import CONFIG_MAPS
from tests.fakekube.kinds import kind_of
from tests.fakekube.refusals import Refused
from tests.fakekube.selectors import parse_selector
from tests.integration.storage_requests import (
    JSON,
    RESOURCES,
    Ask,
    Known,
    ModelledServer,
    RealServer,
    answers,
    apply,
    merge,
)

LABELLED = {"metadata": {"labels": {"a": "1"}}}
FINALIZER = {"metadata": {"finalizers": ["example.com/x"]}}
NO_FINALIZER = {"metadata": {"finalizers": None}}
STALE = {"metadata": {"resourceVersion": "$first"}}
FRESH = {"metadata": {"resourceVersion": "$version", "uid": "$uid"}}
OTHER_UID = {"metadata": {"uid": "another", "labels": {"uid": "other"}}}
DELETE = Ask("DELETE", {})
NOW = Ask("DELETE", {"gracePeriodSeconds": 0})

JOB = {"spec": {"image": "example/task:v1"}}
RUNNING = {"status": {"phase": "Running"}}
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
BOUND = {"spec": {**POD["spec"], "nodeName": "n"}}
GATED = {"spec": {**POD["spec"], "schedulingGates": [{"name": "example.com/gate"}]}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
SET = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
LEASE = {"spec": {"holderIdentity": "a"}}


def data(**values):
    return {"data": values} if values else {}


def deletion(**preconditions):
    return Ask("DELETE", {"preconditions": preconditions})


SCENARIOS = {
    "jobs: create": (
        Ask("POST", {**JOB, **RUNNING, "metadata": {"uid": "mine", "generation": 7}}),
        Ask("POST", JOB),
    ),
    "jobs: refused creates": (
        Ask("POST", {**JOB, "metadata": {"resourceVersion": "1"}}),
        Ask("POST", {**JOB, "metadata": {"name": ""}}),
        Ask("POST", {**JOB, "metadata": {"namespace": "default"}}),
    ),
    "jobs: merge patches": (
        merge(LABELLED),
        Ask("POST", JOB),
        merge(LABELLED),
        merge(LABELLED),
        merge({"spec": {"suspend": True}}),
        merge({"spec": {"suspend": True}}),
        merge({"spec": {"suspend": False}, **RUNNING}),
        merge({"metadata": {"labels": {"a": None, "b": "2"}, "generation": 9}}),
        merge({"metadata": {"name": "other"}}),
        merge({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}),
        merge([]),
    ),
    "jobs: preconditions": (
        Ask("POST", JOB),
        merge(LABELLED),
        merge(STALE),
        merge(FRESH),
        merge(OTHER_UID),
        merge({**STALE, **RUNNING}, "status"),
        merge({**OTHER_UID, **RUNNING}, "status"),
        merge({"metadata": {"resourceVersion": None}}),
        deletion(uid="another"),
        deletion(resourceVersion="$first"),
        deletion(uid="$uid", resourceVersion="$version"),
        DELETE,
    ),
    "jobs: status": (
        Ask("POST", JOB),
        merge({**RUNNING, **LABELLED, "spec": {"suspend": True}}, "status"),
        merge(RUNNING, "status"),
        merge({**NO_FINALIZER, "status": {"phase": "Paused"}}, "status"),
        merge({"status": None}, "status"),
    ),
    "jobs: put": (
        Ask("POST", JOB),
        Ask("PUT", {**JOB, **FRESH}),
        Ask("PUT", {"spec": {**JOB["spec"], "suspend": True}, **FRESH}),
        Ask("PUT", {**JOB, **STALE}),
        Ask("PUT", {**JOB, "metadata": {"resourceVersion": "$version", "uid": "another"}}),
        Ask("PUT", JOB),
        Ask("PUT", {**JOB, **FRESH, **RUNNING}, subresource="status"),
        Ask("PUT", {**JOB, **FRESH}, name="other"),
    ),
    "jobs: finalizer": (
        Ask("POST", {**JOB, **FINALIZER}),
        DELETE,
        DELETE,
        merge({"metadata": {"deletionTimestamp": None, "labels": {"a": "1"}}}),
        merge({"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}),
        merge({"spec": {"suspend": True}}),
        merge(NO_FINALIZER),
    ),
    "jobs: apply": (
        apply("a", {"spec": {**JOB["spec"], "nodes": {"include": ["n"]}}, **RUNNING}),
        apply("b", {"spec": {"suspend": True}}),
        apply("b", {"spec": {"suspend": True}}),
        apply("b", {}),
        apply("b", RUNNING, subresource="status"),
        apply("b", RUNNING, subresource="status"),
        apply("a", {"status": {"phase": "Paused"}}, subresource="status"),
        apply("a", {"status": {"phase": "Paused"}}, subresource="status", force=True),
        apply("a", JOB),
    ),
    "configmaps: apply by two managers": (
        apply("a", data(x="1")),
        apply("a", data(x="1")),
        apply("b", data(x="1")),
        apply("b", data(x="1")),
        apply("b", data(x="2")),
        apply("a", {}),
        apply("b", {}),
        apply("a", data(x="1", y="1")),
        apply("b", data(x="2"), force=True),
        apply("a", data(y="2")),
        apply("b", data(z="1")),
        apply("a", {**LABELLED, **data(y="2")}),
        apply("a", data(y="2")),
    ),
    "configmaps: apply and update": (
        Ask("POST", data(x="1")),
        apply("a", data(x="1", y="1")),
        apply("a", data(x="2", y="1")),
        merge(data(x="5")),
        apply("a", data(y="1")),
        apply("a", data(x="6", y="1")),
        apply("a", data(x="6", y="1"), force=True),
        merge({"data": None}),
        apply("a", data(x="6", y="1")),
        apply("a", {}),
    ),
    "configmaps: preconditions of apply": (
        apply("a", {"metadata": {"uid": "another"}}),
        apply("a", {"metadata": {"resourceVersion": "1"}}),
        apply("a", {"metadata": {"uid": "another"}}),
        apply("a", {"metadata": {"resourceVersion": "1"}, **data(x="1")}),
        apply("a", {**FRESH, **data(x="1")}),
        apply("a", {"metadata": {"name": "other"}}),
    ),
    "configmaps: JSON patch": (
        Ask("POST", data(x="1")),
        Ask("PATCH", [{"op": "test", "path": "/data/x", "value": "2"}], JSON),
        Ask("PATCH", [{"op": "remove", "path": "/data/y"}], JSON),
        Ask("PATCH", [{"op": "replace", "path": "/data/y", "value": "2"}], JSON),
        Ask("PATCH", [{"op": "unknown", "path": "/data/x", "value": "2"}], JSON),
        Ask("PATCH", {"data": {}}, JSON),
        Ask(
            "PATCH",
            [
                {"op": "test", "path": "/data/x", "value": "1"},
                {"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}},
                {"op": "copy", "from": "/metadata/labels/a~1b", "path": "/data/y"},
                {"op": "move", "from": "/data/x", "path": "/data/z"},
            ],
            JSON,
        ),
        Ask("PATCH", [{"op": "test", "path": "/data/y", "value": "c"}], JSON),
        merge(RUNNING, "status"),
        DELETE,
    ),
    "pods: bound": (
        Ask("POST", {**BOUND, **RUNNING}),
        merge(OTHER_UID, "status"),
        merge({**RUNNING, **LABELLED}, "status"),
        merge({"status": {"phase": "Failed"}, **FINALIZER}),
        DELETE,
        DELETE,
        Ask("DELETE", {"gracePeriodSeconds": 10}),
        Ask("DELETE", {"gracePeriodSeconds": 20}),
        merge({"status": {"phase": "Failed"}}, "status"),
        DELETE,
        NOW,
        merge(NO_FINALIZER),
    ),
    "pods: removed by the kubelet": (
        Ask("POST", {**BOUND, **FINALIZER}),
        DELETE,
        merge(NO_FINALIZER),
        NOW,
    ),
    "pods: ended": (
        Ask("POST", BOUND),
        merge({"status": {"phase": "Succeeded"}}, "status"),
        DELETE,
    ),
    "pods: unbound": (Ask("POST", POD), DELETE),
    "pods: unbound with a finalizer": (
        Ask("POST", {**POD, **FINALIZER}),
        DELETE,
        merge(NO_FINALIZER),
    ),
    "pods: gate": (
        Ask("POST", GATED),
        merge({"metadata": {"uid": "$uid"}, "spec": {"schedulingGates": None}}),
        merge({"metadata": {"uid": "$uid"}, "spec": {"schedulingGates": None}}),
    ),
    "nodes": (
        Ask("POST", {"status": {"phase": "Running"}}),
        merge({"spec": {"unschedulable": True}}),
        merge({"status": {"phase": "Pending"}}),
        merge({**LABELLED, "status": {"phase": "Pending"}}, "status"),
        DELETE,
    ),
    "daemonsets": (
        Ask("POST", SET),
        merge(LABELLED),
        merge({"spec": {"minReadySeconds": 3}}),
        merge({"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
        merge({"spec": {"minReadySeconds": 4}, "status": {"desiredNumberScheduled": 3}}, "status"),
        merge({"status": {"desiredNumberScheduled": 9}}),
        merge(OTHER_UID, "status"),
        merge(FINALIZER),
        DELETE,
        DELETE,
        merge(NO_FINALIZER),
    ),
    "daemonsets: apply": (
        apply("a", SET),
        apply("a", SET),
        apply("a", {**SET, **OTHER_UID}),
        apply("a", {"spec": {**SET["spec"], "minReadySeconds": 3}}),
        apply("a", SET),
        apply("a", {"spec": {**SET["spec"], "selector": {"matchLabels": {"x": "b"}}}}),
    ),
    "leases": (
        Ask("POST", LEASE),
        Ask("PUT", LEASE),
        Ask("PUT", {**LEASE, **FRESH}),
        Ask("PUT", {"spec": {"holderIdentity": "b"}, **FRESH}),
        Ask("PUT", {**LEASE, **STALE}),
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_model_answers_as_the_api_server(kube_env, namespace, scenario):
    resource = RESOURCES[scenario.split(":")[0]]
    name, where = f"x-{uuid.uuid4().hex[:8]}", namespace if resource.namespaced else None
    real, modelled = (
        answers(server, Known(resource, name, where), SCENARIOS[scenario])
        for server in (RealServer(kube_env), ModelledServer())
    )
    for ask, expected, found in zip(SCENARIOS[scenario], real, modelled, strict=True):
        assert (ask, found) == (ask, expected)


LABELS = {"one": {"a": "1", "example.com/b": "x"}, "two": {"a": "2"}, "three": {}}
LABEL_SELECTORS = (
    *("a", "!a", "a=1", "a==1", "a!=1", "a in (1, 3),example.com/b", "a notin (1)", "a>1", "a<2"),
    *("a=", "a in ()", "a===1", "a in 1", "a&b", "-a,,"),
)
FIELD_SELECTORS = (
    *("metadata.name=one", "metadata.name!=one,metadata.name!=two", "metadata.namespace=none"),
    *("data.x=1", "foo", "status.phase=x"),
)


def test_selectors_select_the_same(kube_env, namespace):
    kind, path = kind_of("", "configmaps"), CONFIG_MAPS.path(namespace)
    for name, labels in LABELS.items():
        code, _ = kube_env.request("POST", path, {"metadata": {"name": name, "labels": labels}})
        assert code == 201
    _, everything = kube_env.request("GET", path)
    asked = [("label", text) for text in LABEL_SELECTORS]
    asked += [("field", text) for text in FIELD_SELECTORS]
    for which, text in asked:
        code, answer = kube_env.request("GET", f"{path}?{which}Selector={quote(text)}")
        real = {raw["metadata"]["name"] for raw in answer["items"]} if code == 200 else code
        try:
            labels, fields = (text, None) if which == "label" else (None, text)
            selector = parse_selector(kind, labels, fields)
            found = {
                raw["metadata"]["name"] for raw in everything["items"] if selector.selects(raw)
            }
        except Refused as refused:
            found = refused.status
        assert (text, found) == (text, real)
