"""Completed nodes get labels and annotations, results among them, and lose taints.

A taint keeps the new pods of all tests off, so these tests need their nodes for themselves.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import WAIT, RealCluster, eventually, make_job
from tests.e2e.jobs import shell, state, wait_condition

pytestmark = pytest.mark.alone

KEY = "e2e.example.com/prepared"
KERNEL = "e2e.example.com/kernel"
UNAME = "e2e.example.com/uname"
TAINT = "e2e.example.com/not-prepared"
COMPONENT = "deploy/components/node-changes"
BINDING = ("clusterrolebinding", "daemonset-job-node-changes")


@pytest.fixture
def changes(cluster: RealCluster) -> Iterator[RealCluster]:
    """The cluster with the component; afterwards the component and all changes are gone."""
    folder = str(cluster.root / COMPONENT)
    cluster.kubectl("apply", "--server-side", "-k", folder)
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "-k", folder, "--ignore-not-found")
        for node in cluster.nodes:
            cluster.kubectl("label", "node", node, f"{KEY}-", f"{KERNEL}-")
            cluster.kubectl("annotate", "node", node, f"{KEY}-", f"{UNAME}-")
            left = cluster.get("node", node)["spec"].get("taints") or ()
            if any(taint["key"] == TAINT for taint in left):
                cluster.kubectl("taint", "node", node, f"{TAINT}-")


def job(namespace: str) -> dict[str, object]:
    script = f'echo "dsjob:result kernel=$(uname -r)"; echo done; {WAIT}'
    return make_job(
        "prepare",
        namespace,
        **shell(script),
        onSuccess={
            "labels": {KEY: "true"},
            "annotations": {KEY: "by the tests"},
            "removeTaints": [TAINT],
        },
        results=[
            {"name": "kernel", "label": KERNEL, "annotation": UNAME},
            {"name": "never", "label": "e2e.example.com/never"},
        ],
        nodes={"selector": {"matchExpressions": [{"key": KEY, "operator": "DoesNotExist"}]}},
        template={"spec": {"tolerations": [{"key": TAINT, "operator": "Exists"}]}},
    )


def test_completed_nodes_are_labelled_and_lose_their_taints(changes, namespace):
    cluster, tainted = changes, changes.nodes[-1]
    cluster.kubectl("taint", "node", tainted, f"{TAINT}=:NoSchedule")
    cluster.kubectl("taint", "node", tainted, f"{TAINT}=:PreferNoSchedule")
    before = {node: cluster.get("node", node) for node in cluster.nodes}
    cluster.apply(job(namespace))
    cluster.kubectl("wait", "--for=delete", "dsj/prepare", "-n", namespace, "--timeout=90s")
    for node in cluster.nodes:
        found = cluster.get("node", node)
        kernel = cluster.on_node(node, "uname -r").strip()
        labels, annotations = found["metadata"]["labels"], found["metadata"]["annotations"]
        assert labels == before[node]["metadata"]["labels"] | {KEY: "true", KERNEL: kernel}
        assert (annotations[KEY], annotations[UNAME]) == ("by the tests", kernel)
        expected = [t for t in before[node]["spec"].get("taints") or () if t["key"] != TAINT]
        assert (found["spec"].get("taints") or []) == expected
        record = state(cluster, namespace, "prepare", node)
        assert record["nodeChangedAt"]
        assert (record["state"], record["reason"]) == ("Completed", "ResultNotSet")
        assert "never, which the task did not print" in record["message"]
    assert cluster.report(namespace, "prepare")["status"]["nodes"]["completed"] == len(before)


def test_without_the_component_a_job_says_what_to_apply_and_starts_then(changes, namespace):
    cluster = changes
    cluster.kubectl("delete", *BINDING)
    cluster.apply(job(namespace))
    words = "kubectl apply --server-side -k deploy/components/node-changes"

    def is_shown() -> bool:
        found = cluster.condition(namespace, "prepare", "Progressing")
        return found.get("reason") == "NodeChangeRefused" and words in found["message"]

    eventually(is_shown, 60, "the Job says what is missing")
    assert "startTime" not in cluster.get("dsj", "prepare", "-n", namespace)["status"]
    cluster.kubectl("apply", "--server-side", "-k", str(cluster.root / COMPONENT))
    keep = '{"spec": {"ttlSecondsAfterFinished": 600}}'  # a change of the spec is tried at once
    cluster.kubectl("patch", "dsj", "prepare", "-n", namespace, "--type=merge", "-p", keep)
    wait_condition(cluster, namespace, "prepare", "Complete")
