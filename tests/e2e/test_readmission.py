"""A kubelet that is restarted, and then does not admit a pod whose task is at work."""

import pytest

from tests.e2e.cluster import eventually, make_job
from tests.e2e.jobs import reasons
from tests.e2e.kubelets import kubelet_setting, worker

# As images do whose process handles TERM: it ends with 0, although the work is not done.
TASK = """
trap 'exit 0' TERM
echo $$ >> /basetarget/runs
test $(wc -l < /basetarget/runs) -gt 1 || { sleep 600 & wait; }
"""


def pods_on(cluster, node):
    """Return the UIDs of the pods on a node."""
    pods = cluster.get("pods", "-A")["items"]
    return [pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") == node]


@pytest.mark.alone
def test_a_pod_that_a_restarted_kubelet_rejects_neither_fails_nor_completes_its_node(
    cluster, namespace, folder
):
    node = worker(cluster)
    job = make_job("readmitted", namespace, command=["bash", "-c"], args=[TASK], mountPath=folder)
    job["spec"] |= {"backoffLimit": 0, "completion": {"mode": "Exit"}, "nodes": {"include": [node]}}
    cluster.apply(job)
    eventually(lambda: cluster.runs(folder)[node] == 1, 60, "the task is at work")
    (pod,) = cluster.pods(namespace, "readmitted")

    # The kubelet admits the oldest pods first.
    with kubelet_setting(cluster, node, maxPods=len(pods_on(cluster, node)) - 1):
        eventually(lambda: pod["metadata"]["uid"] not in pods_on(cluster, node), 60, "it is gone")
        assert not cluster.completed(namespace, "readmitted")

    cluster.wait_gone(namespace, "readmitted")
    assert cluster.runs(folder)[node] == 2
    assert cluster.report(namespace, "readmitted")["status"]["phase"] == "Succeeded"
    assert "Failed" not in reasons(cluster, namespace, "readmitted")
