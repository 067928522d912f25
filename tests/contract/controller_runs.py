"""How a run under test ends, whatever went wrong before."""

import asyncio

from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, NODES, PODS
from tests.contract.controller_cluster import FakeCluster, until


def now() -> float:
    """Return the time of the loop, in seconds."""
    return asyncio.get_running_loop().time()


async def finish(cluster: FakeCluster, *besides: str) -> None:
    """Complete both nodes and see that the run ends as it should, with nothing made twice."""
    for node in ("a", "b"):
        await until(lambda: cluster.status().get("nodes", {}).get("desired") == 2)
        cluster.complete(node)
    await until(lambda: cluster.condition("Complete").get("status") == "True")
    (report,) = cluster.server.list(JOB_REPORTS)
    assert report["status"]["phase"] == "Succeeded"
    assert set(report["status"]["nodeStates"]) == {"a", "b"}
    assert len(cluster.server.list(DAEMON_SETS)) == 1
    assert len(cluster.server.list(PODS)) == 2
    # An event follows a write that is known to have succeeded: one may be lost, none is doubled.
    await asyncio.sleep(60)
    reported = [event for event in cluster.events() if event not in besides]
    assert set(reported) <= {"Completed", "Started"}
    assert len(reported) <= 2


async def finish_after_faults(cluster: FakeCluster) -> None:
    """Complete all nodes of a run that has recovered, and see that it completes."""
    await until(cluster.is_settled)
    assert cluster.condition("Progressing")["status"] == "True"
    for raw in cluster.server.list(NODES):
        cluster.complete(raw["metadata"]["name"])
    await until(lambda: cluster.condition("Complete").get("status") == "True")
    assert len(cluster.server.list(JOB_REPORTS)) == 1


def put_ended_report(
    cluster: FakeCluster, namespace: str, name: str, receiver: str = "ops"
) -> None:
    """Have the report of a run that has just succeeded, and whose Job is deleted."""
    moment = cluster.stamp()
    cluster.server.put(
        JOB_REPORTS,
        {
            "metadata": {"name": f"{name}-0", "namespace": namespace},
            "spec": {"job": {"name": name, "uid": f"uid-{namespace}-{name}"}},
            "status": {
                "phase": "Succeeded",
                "completionTime": moment,
                "history": [{"time": moment, "reason": "Completed", "message": "done"}],
                "notifications": {receiver: {"events": ["Succeeded"]}},
            },
        },
    )
