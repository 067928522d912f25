"""Tasks that hold, fail or end on each node, and the Jobs of which they are."""

from datetime import timedelta
from typing import Any

from daemonset_job.kube.client.resource import JOBS
from tests.integration.harness import Harness
from tests.integration.simulated_nodes import Behaviour, TaskRun

DAEMON_SET = "sample-daemonset-job"
# Neither done nor failed: it stays.
HOLD = TaskRun(lines=("still at it",))
# The kubelet reports an exit as it happens.
FAST = timedelta(0)
# In mode Exit a failure is judged at once: no log has to be read first.
EXIT = {"completion": {"mode": "Exit"}}
FAILS = TaskRun(lines=("no luck",), exit_code=1, back_off=60)
SUCCEEDS = TaskRun(lines=(), exit_code=0)
# Enough for whatever the programs do at once, and for the grace that a log is given.
SOON = 8.0


def script(**runs: list[TaskRun]) -> Behaviour:
    """Return a task that does on each node one Run after the other, and done on nodes unnamed."""

    def behaviour(node: str, start: int) -> TaskRun:
        here = runs.get(node) or [TaskRun()]
        return here[min(start, len(here)) - 1]

    return behaviour


def fails(code: int, *lines: str, **how: Any) -> TaskRun:
    """Return the run of a task that ends with a code."""
    return TaskRun(lines=lines or ("no luck",), exit_code=code, **how)


def spec(**fields: Any) -> dict[str, Any]:
    """Return the spec of a Job, the shortest with these fields."""
    return {"image": "example/task:v1", **fields}


async def failed(harness: Harness, reason: str = "MaxFailedNodesExceeded") -> dict[str, Any]:
    """Return the Failed condition of the Job, which is still there with all it has."""
    found = await harness.wait_reason("Failed", reason)
    assert found["status"] == "True"
    job = await harness.find(JOBS, "sample")
    assert job is not None
    assert job["status"]["phase"] == "Failed"
    assert job["status"]["completionTime"]
    await harness.wait_events("Failed")
    report = await harness.report()
    assert report is not None
    assert report["status"]["phase"] == "Failed"
    assert report["status"]["message"] == found["message"]
    return found
