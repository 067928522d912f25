"""The status of a pod as the kubelet writes it: all its containers, its phase, whether it is Ready.

A ring plays some containers of a pod and names their states. The others follow: an init container
succeeds at once, a sidecar and a main container run as soon as they may.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.fakekube.conditions import condition
from tests.fakekube.containers import Container, is_success, running, terminated, waiting
from tests.fakekube.daemon_sets import Raw

INITIALIZING = "PodInitializing"
CREATING = "ContainerCreating"


def is_sidecar(container: Raw) -> bool:
    """Return whether a raw init container runs as long as its pod does."""
    return bool(container.get("restartPolicy") == "Always")


def sidecars(pod: Raw) -> list[str]:
    """Return the names of a raw pod's sidecars."""
    found = pod["spec"].get("initContainers") or ()
    return [container["name"] for container in found if is_sidecar(container)]


def default_waiting_reason(pod: Raw) -> str:
    """Return why a container of a raw pod waits that nothing else is known of.

    convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go.
    """
    return INITIALIZING if pod["spec"].get("initContainers") else CREATING


def container_statuses(
    pod: Raw, known: Mapping[str, Container], since: str
) -> dict[str, list[dict[str, Any]]]:
    """Return `initContainerStatuses` (if there are any) and `containerStatuses` of a raw pod.

    `known` are the containers, by name, whose states are given. The others run since `since`, or
    wait for the init containers before them.
    """
    spec, inits = pod["spec"], []
    is_blocked = False
    for container in spec.get("initContainers") or ():
        may_run = running(since) if is_sidecar(container) else terminated(0, since, since)
        found = known.get(container["name"]) or _unknown(may_run, is_blocked=is_blocked)
        is_ready = "running" in found.state if is_sidecar(container) else is_success(found.state)
        inits.append(_row(container, found, is_ready=is_ready))
        is_blocked = is_blocked or not is_ready
    mains = []
    for container in spec.get("containers") or ():
        found = known.get(container["name"]) or _unknown(running(since), is_blocked=is_blocked)
        mains.append(_row(container, found, is_ready="running" in found.state))
    groups = {"initContainerStatuses": inits} if inits else {}
    return {**groups, "containerStatuses": mains}


def phase_of(pod: Raw, status: Raw, *, is_terminal: bool = False) -> str:
    """Return the phase of a raw pod with these container statuses.

    `is_terminal`: no container starts again, whatever the restart policy says. getPhase in
    pkg/kubelet/kubelet_pods.go, without restart rules of single containers.
    """
    spec = pod["spec"]
    policy = spec.get("restartPolicy") or "Always"
    inits = _by_name(status.get("initContainerStatuses"))
    mains = _by_name(status.get("containerStatuses"))
    main = [mains.get(container["name"], {}) for container in spec.get("containers") or ()]
    regular: list[Raw] = []
    beside: list[Raw] = []
    for container in spec.get("initContainers") or ():
        group = beside if is_sidecar(container) else regular
        group.append(inits.get(container["name"], {}))
    ends = [_end(found) for found in regular]
    if policy == "Never" and any(end is not None and end["exitCode"] for end in ends):
        return "Failed"
    is_waiting = any("waiting" in _state(found) and _end(found) is None for found in main)
    if any(end is None for end in ends) or is_waiting:
        return "Pending"
    if not all(_state(found) for found in (*main, *beside)):
        return "Pending"  # not all containers are known
    if any("running" in _state(found) for found in (*main, *beside)):
        return "Running"
    if not main:
        return "Pending"
    return _phase_of_stopped(main, policy, is_terminal=is_terminal)


def ready_condition(pod: Raw, status: Raw, phase: str) -> Raw:
    """Return the condition Ready that the kubelet writes with these container statuses.

    GeneratePodReadyCondition in pkg/kubelet/status/generate.go, without readiness gates.
    """
    ended = {"Failed": "PodFailed", "Succeeded": "PodCompleted"}
    if phase in ended:
        return condition("Ready", "False", ended[phase])
    beside = set(sidecars(pod))
    rows = [row for row in status.get("initContainerStatuses") or () if row["name"] in beside]
    rows += status.get("containerStatuses") or ()
    if rows and all(row["ready"] for row in rows):
        return condition("Ready", "True")
    return condition("Ready", "False", "ContainersNotReady")


def _unknown(may_run: Raw, *, is_blocked: bool) -> Container:
    return Container(waiting(INITIALIZING) if is_blocked else may_run)


def _row(container: Raw, found: Container, *, is_ready: bool) -> dict[str, Any]:
    row = {
        "name": container["name"],
        "state": found.state,
        "restartCount": found.restarts,
        "ready": is_ready,
    }
    return {**row, "lastState": found.last} if found.last else row


def _by_name(rows: Iterable[Raw] | None) -> dict[str, Raw]:
    return {row["name"]: row for row in rows or ()}


def _state(row: Raw) -> Raw:
    return row.get("state") or {}


def _end(row: Raw) -> Raw | None:
    """Return the end of a container that has ended, or that waits after an end."""
    state = _state(row)
    found: Raw | None = state.get("terminated")
    if found is None and "waiting" in state:
        found = (row.get("lastState") or {}).get("terminated")
    return found


def _phase_of_stopped(main: list[Raw], policy: str, *, is_terminal: bool) -> str:
    """Return the phase of a pod whose containers have all ended."""
    has_succeeded = all(is_success(_state(row)) for row in main)
    if is_terminal or policy == "Never":
        return "Succeeded" if has_succeeded else "Failed"
    return "Succeeded" if has_succeeded and policy == "OnFailure" else "Running"
