"""The state of a container as decisions need it: frozen, parsed from the status of its pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import (
    NUMBER,
    STRING,
    TIME,
    fields,
    list_of,
)
from daemonset_job.api.times import parse_time

# What a kubelet counts may be forged. What is made of it has to fit into a number of 32 bits.
_RESTARTS_LIMIT: Final = 10**9
# The longest message of a kubelet (k8s.io/kubernetes pkg/kubelet/container,
# MaxContainerTerminationMessageLength). The cause is at the end of a longer one.
_MESSAGE_LIMIT: Final = 4096

_ENDED: Final = fields(
    exitCode=NUMBER, reason=STRING, message=STRING, startedAt=TIME, finishedAt=TIME
)
_STATE: Final = fields(
    running=fields(startedAt=TIME),
    terminated=_ENDED,
    waiting=fields(reason=STRING, message=STRING),
)
CONTAINERS_SHAPE: Final = list_of(
    fields(name=STRING, containerID=STRING, restartCount=NUMBER, state=_STATE, lastState=_STATE)
)

# Reasons of a container that the kubelet has not tried to start yet. The restart count may already
# include the next start.
_NOT_STARTED_REASONS: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
# The end of a container that the kubelet cannot find any more. It raises the restart count with it
# (kubernetes pkg/kubelet/kubelet_pods.go, convertToAPIContainerStatuses).
STATUS_UNKNOWN: Final = "ContainerStatusUnknown"


@dataclass(frozen=True, slots=True)
class Container:
    """The state of the task container: `state` is waiting, running, terminated or unknown."""

    state: str
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restart_count: int = 0
    # The instance before this one, after a restart.
    last_exit_code: int | None = None
    last_reason: str = ""
    last_message: str = ""
    last_finished_at: datetime | None = None
    # It is reported as terminated, and has never been created: its pod ended before that.
    was_never_created: bool = False


def parse_container(raw: Mapping[str, Any]) -> Container:
    """Return the state in a raw container status. Never raises for CONTAINERS_SHAPE."""
    states = raw.get("state") or {}
    kind = next((k for k in ("running", "terminated", "waiting") if k in states), "unknown")
    state = states.get(kind) or {}
    last = (raw.get("lastState") or {}).get("terminated") or {}
    return Container(
        state=kind,
        reason=state.get("reason") or "",
        message=(state.get("message") or "")[-_MESSAGE_LIMIT:],
        exit_code=state.get("exitCode"),
        started_at=parse_time(state.get("startedAt")),
        finished_at=parse_time(state.get("finishedAt")),
        restart_count=min(max(int(raw.get("restartCount") or 0), 0), _RESTARTS_LIMIT),
        last_exit_code=last.get("exitCode"),
        last_reason=last.get("reason") or "",
        last_message=(last.get("message") or "")[-_MESSAGE_LIMIT:],
        last_finished_at=parse_time(last.get("finishedAt")),
        was_never_created=kind == "terminated" and not was_created(raw),
    )


def was_created(raw: Mapping[str, Any]) -> bool:
    """Return whether the container of a raw status was created.

    The last status of a pod has its containers as terminated (ContainerStatusUnknown) that were
    never created, without an ID and a start (kubernetes pkg/kubelet/status/status_manager.go,
    TerminatePod).
    """
    state = raw.get("state") or {}
    ended = state.get("terminated") or {}
    if raw.get("containerID") or raw.get("restartCount") or raw.get("lastState"):
        return True
    if "running" in state or ended.get("startedAt"):
        return True
    return bool(ended) and ended.get("reason") != STATUS_UNKNOWN


def ended_count(container: Container) -> int:
    """Return how many starts of the task in this pod have ended.

    A kubelet raises the restart count with the next start only. Until then the newest end shows as
    the state of the container, or, when it has tried to start it again, as the one before it.
    """
    if container.state == "terminated":
        return container.restart_count + (container.reason != STATUS_UNKNOWN)
    has_newest = (
        container.state == "waiting"
        and container.reason not in _NOT_STARTED_REASONS
        and container.last_exit_code is not None
        and container.last_reason != STATUS_UNKNOWN
    )
    return container.restart_count + has_newest
