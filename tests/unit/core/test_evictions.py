"""Which pods leave a node that is drained, which stay, and which must not be evicted."""

from dataclasses import replace

import pytest

from daemonset_job.api.drain import Drain
from daemonset_job.api.drained_pod import DrainedPod, parse_drained_pod
from job_controller.core.state.evictions import (
    NodeDrain,
    describe_left,
    describe_refused,
    judge_pods,
)

APP = "app.kubernetes.io/name"
SYSTEM = "daemonset-job-system"
WEB = DrainedPod("shop", "web-1", "1", {"app": "web"}, "ReplicaSet")


def judge(*pods, **drain):
    return judge_pods(pods, Drain(**drain), SYSTEM)


def test_a_managed_pod_leaves():
    found = judge(WEB)
    assert (found.leaving, found.refused, found.is_done) == ((WEB,), (), False)
    assert judge().is_done


@pytest.mark.parametrize(
    "pod",
    [
        replace(WEB, controller_kind="DaemonSet"),
        replace(WEB, is_mirror=True, controller_kind="Node"),
        replace(WEB, has_ended=True),
        replace(WEB, has_ended=True, controller_kind=""),
        replace(WEB, namespace=SYSTEM, labels={APP: "daemonset-job"}),
        replace(
            WEB, namespace=SYSTEM, labels={"app.kubernetes.io/name": "daemonset-job-terminator"}
        ),
    ],
)
def test_these_pods_stay(pod):
    assert judge(pod).is_done


def test_only_the_namespace_of_the_system_makes_a_pod_one_of_the_system():
    pod = replace(WEB, labels={APP: "daemonset-job"})
    other = replace(WEB, namespace=SYSTEM)
    assert judge(pod).leaving == (pod,)
    assert judge(other).leaving == (other,)


def test_pods_that_no_controller_creates_again_are_refused_unless_forced():
    alone = replace(WEB, controller_kind="")
    found = judge(alone)
    assert not found.leaving
    assert "shop/web-1: no controller creates them again (spec.drain.force" in describe_refused(
        found
    )
    assert judge(alone, force=True).leaving == (alone,)


def test_pods_with_an_empty_dir_are_refused_unless_their_data_may_go():
    pod = replace(WEB, has_empty_dir=True)
    assert "spec.drain.deleteEmptyDirData" in describe_refused(judge(pod))
    assert judge(pod, delete_empty_dir_data=True).leaving == (pod,)
    # Force is about another question.
    assert judge(pod, force=True).refused


def test_a_pod_that_is_leaving_already_is_waited_for():
    pod = replace(WEB, controller_kind="", has_empty_dir=True, is_terminating=True)
    assert judge(pod).leaving == (pod,)


def test_the_selector_chooses_pods_by_their_labels():
    db = replace(WEB, name="db-1", labels={"app": "db"})
    alone = replace(WEB, name="alone", labels={}, controller_kind="")
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}
    found = judge(WEB, db, alone, pod_selector=selector)
    assert (found.leaving, found.refused) == ((db,), ())


def test_a_pod_that_cannot_be_read_is_refused_whatever_the_selector():
    pod = DrainedPod("shop", "odd", "2", is_unreadable=True)
    found = judge(pod, force=True, pod_selector={"matchLabels": {"app": "db"}})
    assert "shop/odd: their JSON cannot be read (delete them)" in describe_refused(found)


def test_a_message_names_the_pods_and_what_the_api_server_says():
    second = replace(WEB, name="web-2", uid="2")
    words = "Cannot evict pod; the disruption budget web needs 2 healthy pods"
    found = NodeDrain((WEB, second), answers={"1": words, "2": words})
    assert describe_left(found) == (
        f"2 pods have not left it yet (shop/web-1, shop/web-2); shop/web-1: {words}"
    )
    assert found.is_blocked
    assert not NodeDrain((WEB,), answers={"2": words}).is_blocked


def test_a_message_says_why_pods_come_back():
    back = replace(WEB, tolerates_cordon=True)
    assert describe_left(NodeDrain((back,))).endswith(
        "(shop/web-1); pods that tolerate cordons may come back "
        "(spec.drain.podSelector can leave them out)"
    )
    for pod in (WEB, replace(back, controller_kind="")):
        assert describe_left(NodeDrain((pod,))).endswith("(shop/web-1)")


@pytest.mark.parametrize(
    ("toleration", "tolerates"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, True),
        ({"key": "node.kubernetes.io/unschedulable", "value": "x"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_pod_may_tolerate_cordons(toleration, tolerates):
    pod = parse_drained_pod({"metadata": {"name": "a"}, "spec": {"tolerations": [toleration]}})
    assert pod.tolerates_cordon is tolerates


def test_messages_are_bounded():
    pods = tuple(replace(WEB, name=f"web-{n:03}-{'x' * 240}", uid=str(n)) for n in range(500))
    found = NodeDrain(pods, answers={str(n): f"{n}" + "y" * 10_000 for n in range(500)})
    assert len(describe_left(found)) < 2_500
    assert "and 499 more" in describe_left(found)
    refused = NodeDrain(refused=tuple((pod, "why") for pod in pods))
    assert len(describe_refused(refused)) < 1_000


def test_a_pod_is_read_from_its_raw_form():
    raw = {
        "metadata": {
            "name": "web-1", "namespace": "shop", "uid": "1", "labels": {"app": "web"},
            "deletionTimestamp": "2026-01-02T03:04:05Z",
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [
                {"uid": "a", "kind": "Other"},
                {"uid": "b", "kind": "ReplicaSet", "controller": True},
            ],
        },
        "spec": {"volumes": [{"name": "a", "configMap": {}}, {"name": "b", "emptyDir": {}}]},
        "status": {"phase": "Failed"},
    }  # fmt: skip
    assert parse_drained_pod(raw) == DrainedPod(
        "shop", "web-1", "1", {"app": "web"}, "ReplicaSet",
        is_mirror=True, has_ended=True, is_terminating=True, has_empty_dir=True,
    )  # fmt: skip
    assert parse_drained_pod({"metadata": {"name": "a"}}) == DrainedPod("", "a", "")
    with pytest.raises(ValueError, match="volumes"):
        parse_drained_pod({"metadata": {"name": "a"}, "spec": {"volumes": 1}})
