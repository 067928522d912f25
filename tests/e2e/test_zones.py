"""Rollouts over zones, which are labels of real nodes; when tasks began is read from the nodes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.e2e.cluster import RealCluster, consistently, eventually, make_job
from tests.e2e.jobs import GO, in_turn, one_at_a_time, shell, wait_condition
from tests.e2e.test_rollout import BEGAN, ENDED, EXIT, begun, overlaps, timed, times

ZONE = "topology.kubernetes.io/zone"


@contextmanager
def zoned(cluster: RealCluster, zones: Mapping[str, str]) -> Iterator[None]:
    """Have each node in a zone while the block runs; the tests of zones take turns."""
    with one_at_a_time("zones"):
        try:
            for node, zone in zones.items():
                cluster.kubectl("label", "node", node, f"{ZONE}={zone}", "--overwrite")
            yield
        finally:
            cluster.kubectl("label", "node", *zones, f"{ZONE}-")


def test_the_order_spread_takes_one_node_of_each_zone_first(cluster, namespace, folder):
    """Of more than three nodes, three with that of the controller take part."""
    three = sorted(in_turn(cluster)[-3:])
    first, second, third = three
    with zoned(cluster, {first: "a", second: "a", third: "b"}):
        rollout = {"maxParallel": 1, "order": "Spread"}
        spec = {"rollout": rollout, "nodes": {"include": three}, **timed(0)}
        cluster.apply(make_job("spread", namespace, mountPath=folder, **spec))
        wait_condition(cluster, namespace, "spread", "Complete")
    order = list(times(cluster, folder))
    busy = {
        pod["spec"]["nodeName"]
        for pod in cluster.get("pods", "-n", "daemonset-job-system")["items"]
    }
    assert [n for n in order if n not in busy] == [
        n for n in (first, third, second) if n not in busy
    ]
    assert order[-1] in busy, "the node of the controller is the last"


def test_one_node_of_each_zone_is_at_work_at_a_time(cluster, namespace, folder):
    """The odd nodes are a zone, and the even ones: three nodes each if there are six."""
    zones = {node: "ab"[number % 2] for number, node in enumerate(sorted(cluster.nodes))}
    task = {**shell(f"{BEGAN}; {GO}; sleep 2; {ENDED}; exit 0"), **EXIT}
    rollout = {"maxParallelPerZone": 1}
    with zoned(cluster, zones):
        cluster.apply(make_job("zones", namespace, mountPath=folder, rollout=rollout, **task))
        eventually(lambda: len(begun(cluster, folder)) == 2, 60, "two nodes began")
        consistently(lambda: len(begun(cluster, folder)) == 2, 5, "no further node begins")
        cluster.on_all_nodes(f"touch {folder}/go")
        wait_condition(cluster, namespace, "zones", "Complete")
    found = times(cluster, folder)
    assert set(found) == set(cluster.nodes)
    first, second, *_ = found
    assert overlaps({node: found[node] for node in (first, second)}) == [(first, second)]
    assert zones[first] != zones[second]
    for zone in "ab":
        assert overlaps({node: found[node] for node in found if zones[node] == zone}) == []
