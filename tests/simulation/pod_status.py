"""The part of a pod's status about its containers, as the kubelet writes it.

A Job of mode Log has the task as its one container. In mode Exit the task is an init container,
and the pod is Pending until that has ended with 0 and the container that holds the pod runs.
"""

from collections.abc import Sequence

from daemonset_job.api.names import CONTAINER_NAME, PAUSE_CONTAINER_NAME
from tests.simulation.server import Raw


def has_init_task(pod: Raw) -> bool:
    """Return whether the task is an init container of the pod."""
    containers = pod["spec"].get("initContainers") or ()
    return any(container["name"] == CONTAINER_NAME for container in containers)


def task_status(pod: Raw) -> Raw:
    """Return the status of the task's container in a raw pod, empty if it has none yet."""
    group = "initContainerStatuses" if has_init_task(pod) else "containerStatuses"
    found = (pod.get("status") or {}).get(group) or ()
    return next((status for status in found if status["name"] == CONTAINER_NAME), {})


def sidecars(pod: Raw) -> list[str]:
    """Return the names of the pod's init containers that run as long as it does."""
    containers = pod["spec"].get("initContainers") or ()
    return [found["name"] for found in containers if found.get("restartPolicy") == "Always"]


def with_containers(pod: Raw, status: Raw, task: Raw, hold: Raw, inits: Sequence[Raw] = ()) -> Raw:
    """Return a pod's status with that of its task, and of what holds the pod (a state).

    `inits` are the statuses of init containers that come before the task.
    """
    if not has_init_task(pod):
        more = {"initContainerStatuses": list(inits)} if inits else {}
        return {**status, **more, "containerStatuses": [task]}
    holding = {"name": PAUSE_CONTAINER_NAME, "state": hold, "restartCount": 0}
    return {**status, "initContainerStatuses": [*inits, task], "containerStatuses": [holding]}
