"""Whatever is stored in a pod, a watch (Protocol Buffers) and a list (JSON) read the same of it."""

import orjson
import pytest
from hypothesis import given, settings

from daemonset_job.api.pod import parse_pod
from daemonset_job.kube.client.protobuf import MESSAGES, read_object
from tests.contract.fake_protobuf import encode_object
from tests.contract.pod_format import FIELDS, field, message_values, to_bytes, to_json, written

NODE_FIELD = {"key": b"metadata.name", "operator": b"In", "values": [b"n1"]}


def typed(read, *args):
    """Return the pod, or that it cannot be read."""
    try:
        return parse_pod(read(*args))
    except (ValueError, LookupError):
        return "unreadable"


def of_watch(**parts):
    """Return the pod that a watch reads, of fields of its parts as they are written."""
    meta = field(1, b"p") + parts.pop("metadata", b"")
    body = field(1, meta) + field(2, parts.get("spec", b"")) + field(3, parts.get("status", b""))
    return typed(read_object, written(raw=body))


def of_list(**parts):
    """Return the pod that a list reads, of its parts."""
    return typed(dict, {**parts, "metadata": {"name": "p", **parts.get("metadata", {})}})


@settings(max_examples=300)
@given(message_values("Pod"))
def test_any_pod_is_the_same_in_both_formats(pod):
    pod["metadata"]["name"] = pod["metadata"]["name"] or b"p"
    raw = orjson.loads(orjson.dumps(to_json("Pod", pod)))
    assert typed(read_object, written(raw=to_bytes("Pod", pod))) == typed(dict, raw)


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_numbers_are_those_of_kubernetes(name):
    numbers = {key: number for key, (number, _) in MESSAGES[name].items()}
    assert numbers.items() <= {key: number for key, (number, _) in FIELDS[name].items()}.items()


def test_fake_server_writes_what_go_writes():
    raw = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}]},
        "status": {"startTime": "1970-01-01T00:00:01Z"},
    }
    meta = field(1, b"p") + field(11, field(1, b"a") + field(2, b"b"))
    spec = field(10, b"n") + field(38, field(1, b"g"))
    body = field(1, meta) + field(2, spec) + field(3, field(7, field(1, 1)))
    assert encode_object(raw) == written(raw=body)


# --- what was read differently --------------------------------------------------------------


def test_start_of_1970_is_a_time():
    """A kubelet writes it for a container that could not be started."""
    ended = field(3, field(1, 128) + field(5, field(1, 0) + field(2, 0)))
    container = field(8, field(1, b"hold") + field(2, ended))
    state = {"terminated": {"exitCode": 128, "startedAt": "1970-01-01T00:00:00Z"}}
    pod = of_watch(status=container)
    assert pod.hold_started
    assert pod == of_list(status={"containerStatuses": [{"name": "hold", "state": state}]})


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (253_402_300_800, "10000-01-01T00:00:00Z"),
        (-62_135_596_801, "0000-12-31T23:59:59Z"),
        (-62_167_219_201, "-0001-12-31T23:59:59Z"),
        (2**63 - 1, "292277026596-12-04T15:30:07Z"),
    ],
)
def test_time_outside_of_the_calendar_makes_a_pod_unreadable(seconds, text):
    found = of_watch(status=field(7, field(1, seconds)))
    assert found == of_list(status={"startTime": text}) == "unreadable"


@pytest.mark.parametrize("seconds", [253_402_300_800, -62_135_596_801])
def test_times_of_conditions_are_not_looked_at(seconds):
    condition = field(1, b"Ready") + field(4, field(1, seconds))
    raw = {"conditions": [{"type": "Ready", "lastTransitionTime": "10000-01-01T00:00:00Z"}]}
    assert of_watch(status=field(2, condition)) == of_list(status=raw) != "unreadable"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"a\xe2\x82", "a\ufffd\ufffd"),
        (b"\xf0\x9f\x98!", "\ufffd\ufffd\ufffd!"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xff\xc3\xbc", "\ufffd\u00fc"),
    ],
)
def test_each_byte_that_is_no_utf8_is_one_mark(message, text):
    """A kubelet cuts messages at 4,096 bytes, which may be inside of a character."""
    assert of_watch(status=field(3, message)).message == text


def test_container_without_a_name_has_an_empty_one():
    waiting = field(1, field(1, b"ErrImagePull") + field(2, b""))
    pod = of_watch(status=field(10, field(1, b"") + field(2, waiting)))
    assert pod.init_failure == "init container : ErrImagePull"
    state = {"waiting": {"reason": "ErrImagePull"}}
    assert pod == of_list(status={"initContainerStatuses": [{"name": "", "state": state}]})


# --- what is costly to read -----------------------------------------------------------------


def affinity(*terms):
    return field(18, field(1, field(1, b"".join(terms))))


def test_terms_that_name_no_node_are_not_read():
    expression = field(1, field(1, b"a") + field(2, b"In") + field(3, b"") * 1000)
    other = field(2, field(1, b"metadata.name") + field(2, b"NotIn") + field(3, b"n2"))
    named = field(2, to_bytes("NodeSelectorRequirement", NODE_FIELD))
    terms = [field(1, b"")] * 10_000 + [field(1, expression)] + [field(1, other)] * 1000
    spec = affinity(*terms, field(1, expression + named))
    assert of_watch(spec=spec).node_name == "n1"
    nodes = read_object(written(raw=field(2, spec)))["spec"]["affinity"]["nodeAffinity"]
    (found,) = nodes["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert found == {
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
    }


def test_owners_that_control_nothing_are_not_read():
    owner = field(1, b"DaemonSet") + field(3, b"ds") + field(4, b"u") + field(5, b"apps/v1")
    owners = field(13, owner + field(6, 0)) * 1000 + field(13, owner) * 1000
    metadata = owners + field(13, owner + field(6, 1))
    pod = of_watch(metadata=metadata)
    assert (pod.owner_uid, pod.daemon_set) == ("u", "ds")
    found = read_object(written(raw=field(1, metadata)))["metadata"]["ownerReferences"]
    assert len(found) == 1
