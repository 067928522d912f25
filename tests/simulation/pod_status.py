"""The containers of a pod that the simulation plays: its task, and what holds the pod.

A Job of mode Log has the task as its one container. In mode Exit the task is an init container,
and the pod is Pending until that has ended with 0 and the container that holds the pod runs.
"""

from collections.abc import Mapping

from daemonset_job.api.names import CONTAINER_NAME, PAUSE_CONTAINER_NAME
from tests.fakekube.containers import Container
from tests.fakekube.pod_status import container_statuses, phase_of
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


def with_init(pod: Raw, name: str) -> Raw:
    """Return the pod with another init container, right before the task if that is one as well."""
    spec, inits = pod["spec"], pod["spec"].get("initContainers") or ()
    tasks = [container for container in inits if container["name"] == CONTAINER_NAME]
    others = [container for container in inits if container["name"] != CONTAINER_NAME]
    return {**pod, "spec": {**spec, "initContainers": [*others, {"name": name}, *tasks]}}


def with_containers(
    pod: Raw, status: Raw, task: Container, hold: Raw, inits: Mapping[str, Raw]
) -> dict[str, object]:
    """Return a pod's status with its containers and its phase.

    `hold` is the state of what holds the pod, `inits` are those of other init containers by name.
    """
    known = {name: Container(state) for name, state in inits.items()}
    known |= {CONTAINER_NAME: task, PAUSE_CONTAINER_NAME: Container(hold)}
    shown = {**status, **container_statuses(pod, known, status.get("startTime", ""))}
    return {**shown, "phase": phase_of(pod, shown)}
