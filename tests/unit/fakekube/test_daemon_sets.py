"""The shared model of the DaemonSet controller keeps to the rules of Kubernetes 1.34."""

from typing import Any

import pytest

from tests.fakekube.daemon_sets import REQUIRED, Placement, node_of, placement, sync

RUN = Placement(should_run=True, should_continue=True)
STAY = Placement(should_run=False, should_continue=True)
LEAVE = Placement(should_run=False, should_continue=False)


def node(name: str = "n0", *taints: dict[str, str], **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"taints": list(taints)},
    }


def taint(effect: str, key: str = "example.com/t", value: str = "") -> dict[str, str]:
    return {"key": key, "effect": effect, "value": value}


def template(*terms: dict[str, Any], **spec: Any) -> dict[str, Any]:
    if terms:
        spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}
    return {"spec": spec}


def expressions(*rules: tuple[Any, ...]) -> dict[str, Any]:
    found = [{"key": k, "operator": o, "values": list(v)} for k, o, *v in rules]
    return {"matchExpressions": found}


def field(operator: str, name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


def pod(target: str, at: int = 1, *, bound: bool = True, **status: Any) -> dict[str, Any]:
    spec = (
        {"nodeName": target}
        if bound
        else {
            "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [field("In", target)]}}}
        }
    )
    meta: dict[str, Any] = {"name": f"{target}-{at}", "creationTimestamp": f"{at:04d}"}
    if status.pop("deleting", False):
        meta["deletionTimestamp"] = "9999"
    return {"metadata": meta, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("spec", "on", "expected"),
    [
        (template(), node(), RUN),
        (template(), node("n0", taint("PreferNoSchedule")), RUN),
        (template(), node("n0", taint("NoSchedule")), STAY),
        (template(), node("n0", taint("NoExecute")), LEAVE),
        (template(), node("n0", taint("NoSchedule"), taint("NoExecute")), LEAVE),
        (template(), node("n0", taint("NoSchedule", "node.kubernetes.io/unschedulable")), RUN),
        (template(), node("n0", taint("NoExecute", "node.kubernetes.io/unreachable")), RUN),
        (template(), node("n0", taint("NoSchedule", "node.kubernetes.io/not-ready")), STAY),
        (
            template(hostNetwork=True),
            node("n0", taint("NoSchedule", "node.kubernetes.io/network-unavailable")),
            RUN,
        ),
        (template(tolerations=[{"operator": "Exists"}]), node("n0", taint("NoExecute")), RUN),
        (
            template(tolerations=[{"key": "example.com/t", "operator": "Exists"}]),
            node("n0", taint("NoSchedule")),
            RUN,
        ),
        (
            template(tolerations=[{"key": "example.com/t", "value": "a"}]),
            node("n0", taint("NoSchedule", value="b")),
            STAY,
        ),
        (
            template(tolerations=[{"key": "example.com/t", "value": "b", "effect": "NoExecute"}]),
            node("n0", taint("NoSchedule", value="b")),
            STAY,
        ),
        (template(nodeSelector={"zone": "a"}), node("n0", zone="b"), LEAVE),
        (template(nodeName="n1"), node("n0"), LEAVE),
        (template(expressions(("zone", "In", "a", "b"))), node("n0", zone="b"), RUN),
        (template(expressions(("zone", "NotIn", "a"))), node("n0"), RUN),
        (template(expressions(("zone", "Exists"))), node("n0"), LEAVE),
        (template(expressions(("zone", "DoesNotExist"))), node("n0"), RUN),
        (template(expressions(("size", "Gt", "4"))), node("n0", size="5"), RUN),
        (template(expressions(("size", "Lt", "4"))), node("n0", size="5"), LEAVE),
        (template(field("In", "n1"), field("In", "n0")), node("n0"), RUN),
        (template(field("NotIn", "n0")), node("n0"), LEAVE),
        (template({}), node("n0"), LEAVE),
    ],
)
def test_placement(spec: Any, on: Any, expected: Placement) -> None:
    assert placement(spec, on) == expected


def run(nodes: list[Any], pods: list[Any], **spec: Any) -> Any:
    return sync({"spec": {"template": template(**spec)}}, nodes, pods)


def test_a_node_without_a_pod_gets_one() -> None:
    found = run([node("n0"), node("n1")], [pod("n0")])
    assert found.create == ("n1",)
    assert found.counts == {
        "desiredNumberScheduled": 2,
        "currentNumberScheduled": 1,
        "numberMisscheduled": 0,
    }


def test_a_pod_that_is_being_deleted_holds_its_node_until_it_is_gone() -> None:
    found = run([node("n0")], [pod("n0", deleting=True, phase="Running")])
    assert (found.create, found.delete) == ((), ())
    assert found.counts["currentNumberScheduled"] == 1


def test_terminated_pod_in_deletion_does_not_occupy_its_node() -> None:
    found = run([node("n0")], [pod("n0", deleting=True, phase="Failed")])
    assert found.create == ("n0",)
    assert found.counts["currentNumberScheduled"] == 0


def test_a_failed_pod_is_deleted_first_and_replaced_in_a_later_sync() -> None:
    failed = pod("n0", phase="Failed")
    found = run([node("n0")], [failed])
    assert (found.create, found.delete) == ((), (failed,))


def test_a_tainted_node_keeps_its_pod_and_counts_as_misscheduled() -> None:
    found = run([node("n0", taint("NoSchedule"))], [pod("n0")])
    assert (found.create, found.delete) == ((), ())
    assert found.counts == {
        "desiredNumberScheduled": 0,
        "currentNumberScheduled": 0,
        "numberMisscheduled": 1,
    }


def test_a_node_that_must_not_keep_its_pod_loses_it() -> None:
    found = run([node("n0", taint("NoExecute"))], [pod("n0")])
    assert [p["metadata"]["name"] for p in found.delete] == ["n0-1"]


def test_the_oldest_bound_pod_of_a_node_stays() -> None:
    pods = [pod("n0", 1, bound=False), pod("n0", 2), pod("n0", 3)]
    assert [p["metadata"]["name"] for p in run([node("n0")], pods).delete] == ["n0-3", "n0-1"]


def test_only_the_unbound_pod_of_a_deleted_node_is_deleted() -> None:
    pods = [pod("gone", 1, bound=False), pod("gone", 2)]
    assert [p["metadata"]["name"] for p in run([node("n0")], pods).delete] == ["gone-1"]


def test_the_node_of_an_unbound_pod_is_in_its_affinity() -> None:
    assert node_of(pod("n0", bound=False)) == "n0"
    assert node_of({"spec": {}}) == ""
