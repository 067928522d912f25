"""What a real API server writes of pods as Protocol Buffers is what it writes of them as JSON.

The numbers of fields that the product declares, and the fake API server uses too, are those of
Kubernetes only if this is so.
"""

import asyncio
import json

import pytest

from daemonset_job.api.pod import parse_pod
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.protobuf_events import ProtobufEventStream
from daemonset_job.kube.client.request import PROTOBUF_TYPE, Request
from daemonset_job.kube.client.resource import PODS
from daemonset_job.kube.client.selection import Selection
from tests.contract.test_protobuf import PODS_OF_ALL_KINDS

pytestmark = pytest.mark.timeout(60)

IMAGE = "registry.example/none:1"
# What a pod needs beside the fields of the examples, and values that the API server accepts.
WHOLE_SPEC = {"containers": [{"name": "hold", "image": IMAGE}]}
WHOLE_STATUS = {"image": IMAGE, "imageID": "", "ready": False, "restartCount": 0}


def created(kube_env, namespace, number, raw):
    """Create the pod of an example with its status, and return it."""
    meta = {
        key: value
        for key, value in raw["metadata"].items()
        if key in {"labels", "annotations", "ownerReferences"}
    }
    spec = dict(raw["spec"])
    node = "" if spec.get("schedulingGates") else spec.pop("nodeName", "")
    spec.pop("nodeName", None)
    inits = [{**each, "image": IMAGE} for each in spec.pop("initContainers", ())]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "name": f"p{number}", "finalizers": ["example.com/kept"]},
        "spec": {**WHOLE_SPEC, **spec, **({"initContainers": inits} if inits else {})}
        | ({"nodeName": node} if node else {}),
    }
    path = f"/api/v1/namespaces/{namespace}/pods"
    status, answer = kube_env.request("POST", path, pod)
    assert status == 201, answer
    full = json.loads(json.dumps(raw["status"]))
    for group in ("containerStatuses", "initContainerStatuses"):
        full[group] = [{**WHOLE_STATUS, **each} for each in full.get(group, ())]
    answer["status"] = full
    status, answer = kube_env.request("PUT", f"{path}/p{number}/status", answer)
    assert status == 200, answer
    return answer


async def connected(kube_env):
    return await KubeClient.connect(kubeconfig=str(kube_env.kubeconfig), user_agent="test")


async def events_until(stream, number):
    found = []
    async with asyncio.timeout(20):
        async for event in stream:
            if event["type"] != "BOOKMARK":
                found.append(event)
            if len(found) == number:
                return found
    raise AssertionError(found)


async def test_pods_are_the_same_in_both_formats(kube_env, namespace, monkeypatch):
    for number, raw in enumerate(PODS_OF_ALL_KINDS):
        created(kube_env, namespace, number, raw)
    kube_env.kubectl("delete", "pod", "p0", "p1", "--wait=false", "--namespace", namespace)
    what, count = Selection(PODS, namespace), len(PODS_OF_ALL_KINDS)
    async with await connected(kube_env) as client:
        async with client.watch(what, resource_version="0") as events:
            assert isinstance(events, ProtobufEventStream)
            short = await events_until(events, count)
        listed = {
            raw["metadata"]["name"]: raw for raw in (await client.list(PODS, namespace))["items"]
        }
        monkeypatch.setattr("daemonset_job.kube.client.reads._PROTOBUF_OR_JSON", "application/json")
        async with client.watch(what, resource_version="0") as events:
            assert not isinstance(events, ProtobufEventStream)
            long = await events_until(events, count)
    assert len(listed) == count
    by_name = {event["object"]["metadata"]["name"]: event for event in long}
    for event in short:
        name = event["object"]["metadata"]["name"]
        assert event["type"] == by_name[name]["type"] == "ADDED"
        pod = parse_pod(event["object"])
        assert pod == parse_pod(by_name[name]["object"]) == parse_pod(listed[name])
    pods = [parse_pod(event["object"]) for event in short]
    assert sum(pod.is_terminating for pod in pods) == 2
    assert sum(pod.container is not None for pod in pods) == 4
    assert {pod.node_name for pod in pods} > {"n2"}
    # A change, a deletion, and an end of history.
    async with await connected(kube_env) as client:
        monkeypatch.undo()
        version = (await client.list(PODS, namespace))["metadata"]["resourceVersion"]
        async with client.watch(what, resource_version=version) as events:
            body = {"metadata": {"finalizers": None}}
            await client.merge_patch(PODS, "p0", body, namespace)
            (event,) = await events_until(events, 1)
        assert event["type"] == "DELETED"
        assert event["object"]["metadata"]["name"] == "p0"
        async with client.watch(what, resource_version="1") as events:
            found = await events_until(events, 1)
        assert found[0]["type"] in {"ADDED", "ERROR"}


async def test_refusal_in_this_format_is_read(kube_env, namespace):
    async with await connected(kube_env) as client:
        request = Request("get", PODS, namespace, "none", accept=PROTOBUF_TYPE)
        with pytest.raises(NotFound) as caught:
            await client._transport.send(request)
    assert caught.value.message == 'pods "none" not found'
    assert caught.value.details["name"] == "none"
