"""What caches keep of an object has a bound, whatever a tenant has written into it."""

import json
import tracemalloc

import pytest

from daemonset_job.api import names
from daemonset_job.api.affinity import LABELS_LIMIT, REQUIRED
from daemonset_job.api.compact import (
    compact_daemon_set,
    compact_daemon_set_placement,
    compact_job,
    compact_job_placement,
)
from daemonset_job.api.job import parse_job
from daemonset_job.api.node import parse_node
from daemonset_job.api.pod import GATES_LIMIT, parse_pod
from daemonset_job.informers.daemon_sets import daemon_set_kind, selecting_by_changed_label
from daemonset_job.kube.cache.store import Store

# About as much as the API server stores of one object, and of its annotations.
LARGE = "x" * 1_400_000
LONG = "x" * 250_000


def raw(spec=None, status=None, **meta):
    return {
        "metadata": {"name": "a", "namespace": "tenant", "uid": "u", **meta},
        "spec": spec or {},
        "status": status or {},
    }


def owned_by(**owner):
    return raw(ownerReferences=[{"apiVersion": "apps/v1", "kind": "DaemonSet", **owner}])


def kept_bytes(make):
    make()  # what is made once for the process
    tracemalloc.start()
    kept = make()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept
    return size


PODS = {
    "UID of an owner": owned_by(uid=LARGE, name="a", controller=True),
    "name of an owner": owned_by(uid="b", name=LARGE, controller=True),
    "revision": raw(annotations={names.ANNOTATION_REVISION: LONG}),
    "message": raw(status={"message": LARGE}),
    "condition": raw(
        status={
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": LARGE,
                }
            ]
        }
    ),
}


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_a_pod_takes_little_memory(pod):
    text = json.dumps(pod)

    def put():
        store = Store({"owner": lambda found: (f"{found.namespace}/{found.owner_uid}",)})
        store.put(parse_pod(json.loads(text)))
        return store

    assert kept_bytes(put) < 16 * 1024


def test_a_long_uid_of_an_owner_is_that_of_no_object():
    found = parse_pod(owned_by(uid=LARGE, name="a", controller=True))
    assert len(found.owner_uid) > 64
    assert found.orphan_labels is None


@pytest.mark.parametrize("count", [GATES_LIMIT, GATES_LIMIT + 1])
def test_a_pod_with_very_many_gates_is_not_read(count):
    gates = [{"name": f"a/{number}"} for number in range(count)]
    if count <= GATES_LIMIT:
        assert len(parse_pod(raw({"schedulingGates": gates})).gates) == count
        return
    with pytest.raises(ValueError, match="more than 64 gates"):
        parse_pod(raw({"schedulingGates": gates}))


def daemon_set(labels):
    rules = [{"key": label, "operator": "DoesNotExist"} for label in labels]
    terms = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    pod_spec = {"affinity": {"nodeAffinity": {REQUIRED: terms}}}
    marks = {names.ANNOTATION_SPEC_HASH: LONG}
    return raw({"template": {"spec": pod_spec}}, annotations=marks)


def cached(compact, labels):
    kind = daemon_set_kind(compact)
    store = Store(kind.indexers)
    store.put(kind.parse(json.loads(json.dumps(daemon_set(labels)))))
    return store


@pytest.mark.parametrize("compact", [compact_daemon_set, compact_daemon_set_placement])
def test_a_daemon_set_that_selects_by_many_labels_takes_little_memory(compact):
    labels = [f"label-{number}" for number in range(20_000)]
    # Its spec, compressed.
    assert kept_bytes(lambda: cached(compact, labels)) < 128 * 1024


@pytest.mark.parametrize("count", [1, LABELS_LIMIT, LABELS_LIMIT + 1, 1000])
def test_a_daemon_set_is_found_by_each_label_that_it_selects_by(count):
    store = cached(compact_daemon_set, [f"label-{number}" for number in range(count)])

    def found(labels):
        old, new = (
            parse_node({"metadata": {"name": "n", "uid": "n", "labels": each}})
            for each in ({}, labels)
        )
        return len(list(selecting_by_changed_label(store, old, new)))

    assert found({f"label-{count - 1}": ""}) == 1
    assert found({}) == 0
    # It may be woken for nothing, but not for each heartbeat.
    assert found({"another": ""}) == (count > LABELS_LIMIT)


@pytest.mark.parametrize("compact", [compact_job, compact_job_placement])
def test_a_long_retry_request_is_kept_as_it_is_compared(compact):
    whole = parse_job(raw({"image": "a"}, annotations={names.ANNOTATION_RETRY: LONG}))
    found = compact(whole)
    assert found.retry_request == whole.retry_request
    assert len(found.annotations[names.ANNOTATION_RETRY]) <= names.RETRY_LIMIT
