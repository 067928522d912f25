"""Deletion: at once, after a grace period, or when the last finalizer goes."""

import pytest

from tests.fakekube.deletion import deleted, is_gone
from tests.fakekube.kinds import kind_of
from tests.fakekube.refusals import Refused

JOBS, PODS = kind_of("example.com", "jobs"), kind_of("", "pods")
STAMP = "2030-01-01T00:00:50Z"
FINALIZERS = {"finalizers": ["example.com/x"]}


def stored(spec=None, phase="Running", **meta):
    base = {"name": "x", "uid": "u", "resourceVersion": "7", "generation": 1}
    return {"metadata": {**base, **meta}, "spec": spec or {}, "status": {"phase": phase}}


def marks(raw):
    meta = raw["metadata"]
    return (
        meta.get("deletionTimestamp"),
        meta.get("deletionGracePeriodSeconds"),
        meta["generation"],
    )


def test_an_object_that_nothing_keeps_is_removed_at_once():
    assert deleted(JOBS, stored(), {}, STAMP) is None
    assert deleted(PODS, stored(), {}, STAMP) is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_removed_at_once(phase):
    assert deleted(PODS, stored({"nodeName": "n"}, phase), {}, STAMP) is None


def test_a_finalizer_keeps_an_object_until_it_is_removed():
    old = stored(**FINALIZERS)
    new = deleted(JOBS, old, {}, STAMP)
    assert marks(new) == (STAMP, 0, 2)
    assert "deletionTimestamp" not in old["metadata"]
    assert deleted(JOBS, new, {}, "2030-01-01T00:01:50Z") is new
    assert not is_gone(new)
    assert is_gone({**new, "metadata": {**new["metadata"], "finalizers": []}})
    assert not is_gone(stored())


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ({}, {}, ("2030-01-01T00:01:20Z", 30, 2)),
        ({"terminationGracePeriodSeconds": 5}, {}, ("2030-01-01T00:00:55Z", 5, 2)),
        ({}, {"gracePeriodSeconds": 100}, ("2030-01-01T00:02:30Z", 100, 2)),
    ],
)
def test_a_bound_pod_gets_a_grace_period(spec, options, expected):
    assert marks(deleted(PODS, stored({"nodeName": "n", **spec}), options, STAMP)) == expected


def test_a_bound_pod_lives_until_its_kubelet_deletes_it():
    ending = deleted(PODS, stored({"nodeName": "n"}), {}, STAMP)
    assert not is_gone(ending)
    # Even when it has ended: another client's delete changes nothing.
    ended = {**ending, "status": {"phase": "Failed"}}
    assert deleted(PODS, ended, {}, STAMP) is ended
    assert deleted(PODS, ended, {"gracePeriodSeconds": 0}, STAMP) is None


def test_a_grace_period_can_only_become_shorter():
    ending = deleted(PODS, stored({"nodeName": "n"}, **FINALIZERS), {}, STAMP)
    assert deleted(PODS, ending, {"gracePeriodSeconds": 30}, STAMP) is ending
    shorter = deleted(PODS, ending, {"gracePeriodSeconds": 10}, STAMP)
    assert marks(shorter) == ("2030-01-01T00:01:00Z", 10, 2)
    over = deleted(PODS, shorter, {"gracePeriodSeconds": 0}, STAMP)
    assert marks(over) == (STAMP, 0, 2)
    assert not is_gone(over)


@pytest.mark.parametrize("expected", [{"uid": "other"}, {"resourceVersion": "6"}])
def test_preconditions_are_checked(expected):
    with pytest.raises(Refused) as caught:
        deleted(JOBS, stored(), {"preconditions": expected}, STAMP)
    assert caught.value.status == 409
    assert deleted(JOBS, stored(), {"preconditions": {"uid": "u"}}, STAMP) is None
