"""What the API server makes of objects that clients create and change."""

from copy import deepcopy

import pytest

from tests.fakekube.kinds import STATUS, kind_of
from tests.fakekube.objects import check_preconditions, created, patched, replaced, updated
from tests.fakekube.patches import merge_patch
from tests.fakekube.refusals import Refused

JOBS, PODS, NODES = kind_of("example.com", "jobs"), kind_of("", "pods"), kind_of("", "nodes")
SETS, LEASES = kind_of("apps", "daemonsets"), kind_of("coordination.k8s.io", "leases")
STAMP = "2030-01-01T00:00:00Z"
NEW = {"namespace": "n", "uid": "12345-678", "stamp": STAMP}


def stored(kind, **body):
    body = {"metadata": {"name": "x"}, "spec": {"a": 1}, **body}
    new = created(kind, body, **NEW)
    new["metadata"]["resourceVersion"] = "7"
    return new


def patch(kind, old, body, subresource=""):
    before = deepcopy(old)
    new = patched(kind, old, merge_patch(old, body), subresource)
    assert old == before
    return new


def refusal(act, *args, **kwargs):
    with pytest.raises(Refused) as caught:
        act(*args, **kwargs)
    return caught.value.status


def test_the_server_writes_its_part_of_the_metadata_of_a_new_object():
    given = {"name": "x", "labels": {"a": "b"}, "uid": "mine", "generation": 9}
    body = {"metadata": {**given, "deletionTimestamp": STAMP, "managedFields": [{}]}}
    assert created(JOBS, body, **NEW)["metadata"] == {
        "name": "x",
        "namespace": "n",
        "labels": {"a": "b"},
        "uid": "12345-678",
        "creationTimestamp": STAMP,
        "generation": 1,
    }


def test_a_name_is_generated():
    body = {"metadata": {"generateName": "x-"}}
    assert created(JOBS, body, **NEW)["metadata"]["name"] == "x-12345"


def test_an_object_without_namespace_gets_none():
    made = created(NODES, {"metadata": {"name": "x"}}, **{**NEW, "namespace": ""})
    assert "namespace" not in made["metadata"]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        *((JOBS, None), (SETS, None), (PODS, {"phase": "Pending"})),
        *((NODES, {"a": 1}), (kind_of("", "events"), {"a": 1})),
    ],
    ids=lambda value: getattr(value, "plural", ""),
)
def test_a_status_in_a_create_is_kept_by_few_kinds(kind, expected):
    assert stored(kind, status={"a": 1}).get("status") == expected


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"name": "x", "resourceVersion": "1"}, 500),
        ({"name": ""}, 422),
        ({"name": "x", "namespace": "other"}, 400),
    ],
)
def test_a_create_that_is_refused(meta, code):
    assert refusal(created, JOBS, {"metadata": meta}, **NEW) == code


@pytest.mark.parametrize(
    ("kind", "change", "generation"),
    [
        (JOBS, {"spec": {"a": 2}}, 2),
        (JOBS, {"evidence": {"n": 1}}, 2),
        (JOBS, {"metadata": {"labels": {"a": "b"}}}, 1),
        (SETS, {"spec": {"a": 2}}, 2),
        (SETS, {"evidence": {"n": 1}}, 1),
        (PODS, {"spec": {"a": 2}}, 2),
        (NODES, {"spec": {"a": 2}}, None),
        (LEASES, {"spec": {"a": 2}}, None),
    ],
    ids=lambda value: getattr(value, "plural", None),
)
def test_the_generation_counts_changes_of_the_spec(kind, change, generation):
    assert patch(kind, stored(kind), change)["metadata"].get("generation") == generation


@pytest.mark.parametrize("body", [{}, {"spec": {"a": 1}}, {"status": {"a": 1}}])
def test_a_change_that_changes_nothing_gives_the_same_object(body):
    old = stored(JOBS)
    assert patch(JOBS, old, body) is old


def test_what_does_not_change_is_shared():
    old = stored(JOBS, evidence={"n": 1})
    new = patch(JOBS, old, {"spec": {"a": 2}})
    assert new["evidence"] is old["evidence"]
    assert patch(JOBS, old, {"status": {"a": 1}}, STATUS)["metadata"] is old["metadata"]


def test_the_subresource_writes_the_status_and_the_main_resource_the_rest():
    both = {"spec": {"a": 2}, "status": {"b": 1}, "metadata": {"labels": {"a": "b"}}}
    old = stored(JOBS)
    main, status = patch(JOBS, old, both), patch(JOBS, old, both, STATUS)
    assert "status" not in main
    assert main["spec"] == {"a": 2}
    assert main["metadata"]["labels"] == {"a": "b"}
    assert status == {**old, "status": {"b": 1}}
    assert "status" not in patch(JOBS, status, {"status": None}, STATUS)
    # The status of a built-in kind takes metadata too.
    assert patch(SETS, stored(SETS), both, STATUS)["metadata"]["labels"] == {"a": "b"}


def test_a_kind_without_status_has_no_subresource():
    assert refusal(patch, LEASES, stored(LEASES), {}, STATUS) == 404


@pytest.mark.parametrize(
    ("meta", "kind", "subresource", "code"),
    [
        ({"resourceVersion": "6"}, JOBS, "", 409),
        ({"resourceVersion": "6"}, JOBS, STATUS, 409),
        ({"resourceVersion": None}, JOBS, "", 422),
        ({"uid": "other"}, JOBS, "", 422),
        ({"uid": "other"}, PODS, STATUS, 422),
        ({"name": "other"}, JOBS, "", 400),
        ({"namespace": "other"}, JOBS, "", 400),
        ({"deletionTimestamp": STAMP}, JOBS, "", 422),
    ],
)
def test_metadata_of_a_patch_that_is_refused(meta, kind, subresource, code):
    body = {"metadata": meta, "status": {"b": 1}}
    assert refusal(patch, kind, stored(kind), body, subresource) == code


def test_another_uid_says_which_field():
    with pytest.raises(Refused) as caught:
        patch(JOBS, stored(JOBS), {"metadata": {"uid": "other"}})
    assert caught.value.field == "metadata.uid"


def test_metadata_of_a_patch_that_is_ignored():
    old = stored(JOBS)
    meta = {"generation": 9, "creationTimestamp": None, "resourceVersion": "7", "uid": "12345-678"}
    assert patch(JOBS, old, {"metadata": meta}) is old
    assert patch(JOBS, old, {"metadata": {"managedFields": [{}]}}) is old
    body = {"metadata": {"uid": "other"}, "status": {"b": 1}}
    assert patch(JOBS, old, body, STATUS)["status"] == {"b": 1}


@pytest.mark.parametrize(
    ("kind", "meta", "code"),
    [
        (JOBS, {"resourceVersion": "6"}, 409),
        (JOBS, {"resourceVersion": "7", "uid": "other"}, 409),
        (JOBS, {"resourceVersion": "7", "name": "other"}, 400),
        (JOBS, {}, 422),
        (LEASES, {}, 422),
    ],
)
def test_a_put_that_is_refused(kind, meta, code):
    assert refusal(replaced, kind, stored(kind), {"metadata": meta, "spec": {}}) == code


def test_a_put_replaces_all_but_what_the_server_writes():
    old = stored(PODS, metadata={"name": "x", "labels": {"a": "b"}})
    old |= {"apiVersion": "v1", "kind": "Pod"}
    new = replaced(PODS, old, {"metadata": {}, "spec": {"b": 1}})
    meta = {key: value for key, value in old["metadata"].items() if key != "labels"}
    assert new == {**old, "metadata": {**meta, "generation": 2}, "spec": {"b": 1}}


def test_a_selector_is_immutable():
    old = stored(SETS, spec={"selector": {"a": "b"}})
    assert refusal(patch, SETS, old, {"spec": {"selector": {"a": "c"}}}) == 422
    assert patch(SETS, old, {"spec": {"selector": {"a": "b"}}}) is old


def test_an_object_that_is_being_deleted_gets_no_new_finalizer():
    old = stored(JOBS)
    old["metadata"] |= {"deletionTimestamp": STAMP, "finalizers": ["a", "b"]}
    assert refusal(patch, JOBS, old, {"metadata": {"finalizers": ["a", "c"]}}) == 422
    less = patch(JOBS, old, {"metadata": {"finalizers": ["a"], "deletionTimestamp": None}})
    assert less["metadata"]["finalizers"] == ["a"]
    assert less["metadata"]["deletionTimestamp"] == STAMP
    assert updated(JOBS, old, old) is old


def test_preconditions_are_of_the_uid_and_of_the_version():
    old = stored(JOBS)
    check_preconditions(old, "12345-678", "7")
    check_preconditions(old, None, None)
    assert refusal(check_preconditions, old, "other", None) == 409
    assert refusal(check_preconditions, old, None, "6") == 409
