"""The back-off of the modelled DaemonSet controller for failed pods."""

from tests.fakekube.daemon_sets import sync
from tests.fakekube.failed_pods import FailedPods

SET = {"metadata": {"uid": "set"}, "spec": {"template": {"spec": {}}}}
OTHER = {"metadata": {"uid": "other"}}


def pod(node="a", phase="Failed"):
    return {
        "metadata": {"name": "p", "uid": "p", "creationTimestamp": "1"},
        "spec": {"nodeName": node},
        "status": {"phase": phase},
    }


def node(*effects):
    taints = [{"key": "k", "effect": effect} for effect in effects]
    return {"metadata": {"name": "a", "uid": "a"}, "spec": {"taints": taints}}


def test_the_first_failed_pod_goes_at_once_and_the_next_ones_ever_later():
    found = FailedPods()
    assert found.pause(SET, pod(), 100.0) == 0
    assert found.pause(SET, pod(), 100.9) == 1
    assert found.pause(SET, pod(), 101.0) == 0
    assert found.pause(SET, pod(), 102.9) == 2
    assert found.pause(SET, pod(), 103.0) == 0
    assert found.pause(SET, pod(), 103.0) == 4


def test_the_pause_has_a_limit_and_is_forgotten_after_twice_that():
    found, now = FailedPods(), 0.0
    for _ in range(20):
        assert found.pause(SET, pod(), now) == 0
        now += 900.0
    assert found.pause(SET, pod(), now - 1) == 900
    assert found.pause(SET, pod(), now) == 0
    assert found.pause(SET, pod(), now + 1800.1) == 0
    assert found.pause(SET, pod(), now + 1800.2) == 1


def test_each_node_and_daemon_set_has_its_own_pause():
    found = FailedPods()
    assert found.pause(SET, pod(), 0.0) == 0
    assert found.pause(SET, pod("b"), 0.0) == 0
    assert found.pause(OTHER, pod(), 0.0) == 0
    assert found.pause(SET, pod(), 0.0) == 1


def asked(*pods, on):
    """Return the phases of the pods that a sync asks about, and those of the pods it deletes."""
    seen = []
    outcome = sync(SET, [on], pods, lambda raw: seen.append(raw["status"]["phase"]) or True)
    return seen, [raw["status"]["phase"] for raw in outcome.delete]


def test_only_failed_pods_where_pods_may_stay_are_held_back():
    pods = [pod(), pod(phase="Succeeded"), pod(phase="Running")]
    assert asked(*pods, on=node()) == (["Failed"], ["Succeeded"])
    assert asked(*pods, on=node("NoSchedule")) == (["Failed"], ["Succeeded"])
    assert asked(*pods, on=node("NoExecute")) == ([], ["Failed", "Succeeded", "Running"])


def test_without_a_back_off_failed_pods_go_at_once():
    assert [raw["status"]["phase"] for raw in sync(SET, [node()], [pod()]).delete] == ["Failed"]
