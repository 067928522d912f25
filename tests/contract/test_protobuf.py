"""Watches of pods in the format of Protocol Buffers: what is read, and what is survived."""

import asyncio
import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api import names
from daemonset_job.api.container import Container
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.kube.client.errors import Gone, NotFound, Unavailable
from daemonset_job.kube.client.protobuf import (
    MAGIC,
    MESSAGES,
    NODE_TERMS_LIMIT,
    is_protobuf,
    read_event,
    read_object,
)
from daemonset_job.kube.client.protobuf_events import FrameSplitter, ProtobufEventStream
from daemonset_job.kube.client.resource import NODES, PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.status_errors import error_from_response
from daemonset_job.kube.client.streams import MALFORMED_EVENT
from tests.contract.fake_protobuf import encode_object, event_frame
from tests.contract.followers import follow, pod
from tests.contract.pod_format import field, written

__all__ = ["follow"]

TIME = "2026-11-02T03:04:05Z"
LATER = "2026-11-02T03:04:06Z"
ENDED = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "message": "too much",
    "startedAt": TIME,
    "finishedAt": LATER,
}


def pod_with(metadata=None, spec=None, status=None):
    meta = {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", **(metadata or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": spec or {},
        "status": status or {},
    }


def task(**status):
    return {"name": names.CONTAINER_NAME, **status}


def affinity_to(node):
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}], "matchFields": [field]}
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def terms_of(raw):
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return raw["spec"]["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]


OWNER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "name": "ds",
    "uid": "o",
    "controller": True,
}
# Between them every field of a Pod and of a Container has another value than that of an empty pod.
PODS_OF_ALL_KINDS = [
    pod_with(
        {
            "creationTimestamp": TIME,
            "deletionTimestamp": LATER,
            "labels": {names.LABEL_EXCLUSIVE: "key", names.LABEL_JOB_UID: "j"},
            "annotations": {names.ANNOTATION_REVISION: "3", "other": "ü"},
            "ownerReferences": [OWNER],
        },
        {"nodeName": "n1", "schedulingGates": [{"name": names.START_GATE}]},
        {
            "phase": "Running",
            "reason": "Evicted",
            "message": "low on memory",
            "startTime": TIME,
            "conditions": [
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
                {"type": "PodReadyToStartContainers", "status": "False"},
            ],
            "containerStatuses": [
                task(
                    containerID="c1",
                    restartCount=2,
                    state={"terminated": ENDED},
                    lastState={"terminated": ENDED},
                ),
                {"name": "hold", "state": {"running": {"startedAt": TIME}}, "lastState": {}},
            ],
        },
    ),
    pod_with(
        {"labels": {names.LABEL_DAEMON_SET: "d", names.LABEL_JOB: "job"}},
        {
            "affinity": affinity_to("n2"),
            "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "first"}],
        },
        {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes",
                },
            ],
            "initContainerStatuses": [
                {"name": "side", "state": {"running": {"startedAt": TIME}}},
                {"name": "first", "state": {"running": {}}},
                {"name": "bad", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}},
                task(state={"waiting": {"reason": "PodInitializing"}}, lastState={}),
            ],
        },
    ),
    pod_with(status={"initContainerStatuses": [task(state={"running": {"startedAt": TIME}})]}),
    pod_with(status={"containerStatuses": [{"name": "hold", "state": {}, "lastState": {}}]}),
    pod_with(
        {},
        {},
        {
            "phase": "Failed",
            "containerStatuses": [
                task(state={"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}})
            ],
        },
    ),
]


@pytest.mark.parametrize("raw", PODS_OF_ALL_KINDS)
def test_pod_is_the_same_as_of_its_json(raw):
    found = read_object(encode_object(raw))
    wanted = json.loads(json.dumps({key: raw[key] for key in ("metadata", "spec", "status")}))
    if "affinity" in wanted["spec"]:  # the node that it names is all that is read of it
        del terms_of(wanted)[0]["matchExpressions"]
    assert found == wanted
    assert parse_pod(found) == parse_pod(raw)


def test_terms_beyond_the_limit_are_read_neither_in_a_watch_nor_in_a_list():
    """A tenant stores 60,000 of them in a pod, and changes it again and again."""
    other = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}
    for count, node in ((NODE_TERMS_LIMIT - 1, "n1"), (NODE_TERMS_LIMIT, "")):
        raw = pod_with(spec={"affinity": affinity_to("n1")})
        terms_of(raw)[:0] = [other] * count
        assert parse_pod(raw).node_name == node
        assert parse_pod(read_object(encode_object(raw))).node_name == node


def test_every_field_that_is_read_of_a_pod_is_declared():
    """A field that `parse_pod` begins to read, and that a watch leaves out, is seen here."""
    parsed = [parse_pod(read_object(encode_object(raw))) for raw in PODS_OF_ALL_KINDS]
    empty = parse_pod({"metadata": {"name": ""}})
    for of in fields(Pod):
        values = {repr(getattr(found, of.name)) for found in parsed}
        assert values - {repr(getattr(empty, of.name))}, f"no pod here has a {of.name}"
    containers = [found.container for found in parsed if found.container is not None]
    for of in fields(Container):
        values = {repr(getattr(found, of.name)) for found in containers}
        assert values - {repr(getattr(Container(""), of.name))}, f"no container has a {of.name}"


# --- bytes of the format itself -------------------------------------------------------------


def test_fields_that_are_not_declared_are_skipped():
    meta = field(1, b"p") + field(17, b"managed fields") + field(10, 30) + field(14, b"finalizer")
    raw = field(1, meta) + field(2, field(2, b"container") + field(10, b"n1")) + field(9, b"new")
    assert read_object(written(raw=raw)) == {"metadata": {"name": "p"}, "spec": {"nodeName": "n1"}}


def test_negative_exit_code_is_read():
    ended = field(3, field(1, -1))
    status = field(8, field(1, b"t") + field(2, ended))
    found = read_object(written(raw=field(3, status)))
    (container,) = found["status"]["containerStatuses"]
    assert container["state"] == {"terminated": {"exitCode": -1}}


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (b"", None),
        (field(1, 0), "1970-01-01T00:00:00Z"),
        (field(1, 1793588645) + field(2, 999), "2026-11-02T03:04:05Z"),
        (field(1, -1), "1969-12-31T23:59:59Z"),
        (field(1, 253402300799), "9999-12-31T23:59:59Z"),
        (field(1, 253402300800), "10000-01-01T00:00:00Z"),
        (field(1, 2**63 - 1), "292277026596-12-04T15:30:07Z"),
    ],
)
def test_times(time, text):
    found = read_object(written(raw=field(1, field(8, time))))
    assert found == {"metadata": {"creationTimestamp": text}}


def test_text_that_is_not_utf8_is_read_as_its_json_shows_it():
    labels = field(11, field(1, b"k\xff") + field(2, b"v\xfe"))
    found = read_object(written(raw=field(1, field(1, b"\xff") + labels)))
    assert found == {"metadata": {"name": "\ufffd", "labels": {"k\ufffd": "v\ufffd"}}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "does not begin"),
        (b'{"kind": "Pod"}', "does not begin"),
        (MAGIC, "kind ''"),
        (written(kind=b"Secret"), "kind 'Secret' of API version 'v1'"),
        (written(raw=b"\x0a\x7f"), "Pod that cannot be parsed"),
        (MAGIC + b"\x0a\x7f", "Unknown that cannot be parsed"),
    ],
)
def test_what_is_no_pod_is_refused(body, words):
    with pytest.raises(ValueError, match=words):
        read_object(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_refused(frame):
    for each in (frame, field(1, b"ADDED") + field(2, field(1, written(raw=frame)))):
        try:
            event = read_event(each)
        except ValueError:
            continue
        assert set(event) == {"type", "object"}
        assert isinstance(event["object"], dict)


def test_numbers_of_a_message_differ():
    for name, declared in MESSAGES.items():
        numbers = [number for number, _ in declared.values()]
        assert len(set(numbers)) == len(numbers), name


# --- streams --------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 9)))
def test_splitter_finds_the_same_events_however_they_are_cut(events, sizes):
    data = b"".join(len(event).to_bytes(4, "big") + event for event in events)
    splitter, found, rest = FrameSplitter(40), [], data
    for size in [*sizes, len(data) or 1]:
        found += splitter.feed(rest[:size])
        rest = rest[size:]
    assert found + splitter.feed(rest) == events


def test_splitter_holds_no_more_than_one_event():
    splitter = FrameSplitter(100)
    event = (100).to_bytes(4, "big") + bytes(100)
    for at in range(0, len(event) * 20, 7):
        splitter.feed((event * 20)[at : at + 7])
        assert sum(map(len, splitter._parts)) <= len(event) + 7


async def events_of(*chunks, limit_bytes=1000):
    async def arriving():
        for chunk in chunks:
            yield chunk

    stream = ProtobufEventStream(arriving(), request="GET /pods", limit_bytes=limit_bytes)
    return [event async for event in stream]


async def test_event_that_is_cut_off_is_dropped():
    frame = event_frame("ADDED", pod_with())
    assert [event["type"] for event in await events_of(frame, frame[:-1])] == ["ADDED"]


@pytest.mark.parametrize("frame", [b"\x00\x00\x00\x01\xff", b"\x00\x00\x00\x00", b"\xff" * 8])
async def test_what_is_no_event_raises(frame):
    with pytest.raises(Unavailable) as caught:
        await events_of(frame)
    assert caught.value.reason == MALFORMED_EVENT


async def test_event_beyond_the_limit_raises():
    big = event_frame("ADDED", pod_with({"annotations": {"a": "x" * 1000}}))
    with pytest.raises(Unavailable, match="more than 1000"):
        await events_of(big[:100], big[100:])


async def test_pods_are_watched_in_this_format_and_others_in_json(server, client):
    stored = server.put(PODS, pod("a"))
    node = server.put(NODES, {"metadata": {"name": "n"}})
    for resource, wanted in ((PODS, stored), (NODES, node)):
        async with client.watch(Selection(resource), resource_version="0") as events:
            event = await anext(events)
        assert isinstance(events, ProtobufEventStream) == (resource == PODS)
        assert event["type"] == "ADDED"
        assert event["object"]["metadata"]["name"] == wanted["metadata"]["name"]


async def test_server_without_this_format_is_watched_in_json(server, client):
    server.protobuf = False
    server.put(PODS, pod("a"))
    async with client.watch(Selection(PODS), resource_version="0") as events:
        assert (await anext(events))["object"]["metadata"]["name"] == "a"
    assert not isinstance(events, ProtobufEventStream)


async def test_events_of_a_server_are_the_same_in_both_formats(server, follow):
    found = []
    for server.protobuf in (True, False):
        server.put(PODS, pod("a"))
        follower = await follow()
        server.put(PODS, pod("b"))
        server.put(PODS, pod("a", "2", owner="other"))
        server.remove(PODS, "b")
        await asyncio.sleep(0.1)
        found.append(follower.take())
        follower.task.cancel()
    assert found[0] == found[1]
    assert found[0] == [("a", "-", "1"), ("b", "-", "1"), ("a", "1", "2"), ("b", "1", "-")]


@pytest.mark.looptime(end=20_000)
@pytest.mark.parametrize("frame", [b"\x00\x00\x00\x01\xff", b"\xff" * 8])
async def test_event_that_cannot_be_read_leads_to_a_list(server, follow, frame):
    follower = await follow()
    await asyncio.sleep(5)
    server.silence_watches()
    server.put(PODS, pod("a"))
    server.send_raw(PODS, frame)
    await asyncio.sleep(2)
    assert follower.values() == {"a": "1"}
    assert server.count("GET", "limit=") == 2


async def test_expired_history_is_said_in_an_event(server, client):
    server.expire(as_event=True)
    async with client.watch(Selection(PODS), resource_version="1") as events:
        event = await anext(events)
    assert event["type"] == "ERROR"
    assert event["object"]["code"] == Gone("").status or event["object"]["reason"] == "Expired"


def test_refusal_in_this_format_is_read():
    cause = {"field": "metadata.name", "message": "m", "reason": "FieldValueInvalid"}
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "message": "not there",
        "reason": "NotFound",
        "details": {"name": "p", "kind": "pods", "retryAfterSeconds": 3, "causes": [cause]},
        "code": 404,
    }
    body = encode_object(status)
    assert is_protobuf(body)
    error = error_from_response(404, body)
    assert isinstance(error, NotFound)
    assert error.message == "not there"
    assert error.retry_after_seconds == 3
    assert error.details["causes"] == [cause]
    assert error_from_response(404, body[:-3]).status == 404
