"""A machine that is installed again while its Node object stays."""

import pytest

from tests.e2e.cluster import SYSTEM, WAIT, eventually, make_job
from tests.e2e.jobs import reasons
from tests.e2e.kubelets import wait_ready, worker
from tests.e2e.system_metrics import TERMINATOR_PORT, metrics

TASK = f"""
echo $$ >> /basetarget/runs
test $(wc -l < /basetarget/runs) -gt 1 || sleep 600
sleep 10
echo done; {WAIT}
"""
# What is left of a pod on its machine: containers, volumes and logs. containerd learns of removed
# containers when it starts.
FORGET = """
systemctl stop kubelet
for id in $(ctr -n k8s.io containers ls -q 'labels."io.kubernetes.pod.uid"=={uid}'); do
  ctr -n k8s.io tasks rm -f $id; ctr -n k8s.io containers rm $id
done
systemctl restart containerd
grep -o ' /var/lib/kubelet/pods/{uid}[^ ]*' /proc/mounts | xargs -r umount -l
rm -rf /var/lib/kubelet/pods/{uid} /var/log/pods/*{uid}*
systemctl start kubelet
"""
# With the pauses that the terminator makes, it reads a log about once a second.
READS = 40


def short_reads(cluster):
    """Return how many reads of logs the terminators have made."""
    pods = cluster.get("pods", "-n", SYSTEM)["items"]
    found = [metrics(cluster, pod["metadata"]["name"], TERMINATOR_PORT) for pod in pods]
    return sum(
        float(value)
        for each in found
        for name, value in each.items()
        if name.startswith("dsj_log_short_reads_total")
    )


def status(cluster, namespace):
    (pod,) = cluster.pods(namespace, "reimaged")
    (row,) = (pod.get("status") or {}).get("containerStatuses") or ({},)
    return row


def is_other(row, container):
    return row.get("containerID", container) != container and "running" in row["state"]


@pytest.mark.alone
def test_a_task_whose_container_its_kubelet_has_lost_runs_again_and_its_log_is_read(
    cluster, namespace, folder
):
    node = worker(cluster)
    job = make_job("reimaged", namespace, command=["bash", "-c"], args=[TASK], mountPath=folder)
    # The kubelet reports 137 for the container that it has lost: no rule applies to that.
    rules = [{"exitCodes": [137], "action": "Fail"}]
    job["spec"] |= {"nodes": {"include": [node]}, "failurePolicy": {"rules": rules}}
    cluster.apply(job)
    eventually(lambda: cluster.runs(folder)[node] == 1, 60, "the task is at work")
    first = eventually(lambda: status(cluster, namespace).get("containerID"), 10, "it is shown")
    (pod,) = cluster.pods(namespace, "reimaged")
    before = short_reads(cluster)

    cluster.on_node(node, FORGET.format(uid=pod["metadata"]["uid"]))
    wait_ready(cluster, node)
    eventually(lambda: cluster.runs(folder)[node] == 2, 60, "it runs again")
    # Before that the kubelet has reported the lost container as ended, with restartCount 1.
    eventually(lambda: is_other(status(cluster, namespace), first), 10, "it is shown")
    assert status(cluster, namespace)["restartCount"] == 0

    cluster.wait_gone(namespace, "reimaged")
    assert short_reads(cluster) - before < READS
    assert cluster.runs(folder)[node] == 2
    assert cluster.report(namespace, "reimaged")["status"]["phase"] == "Succeeded"
    assert "Failed" not in reasons(cluster, namespace, "reimaged")
