"""States of containers as the kubelet writes them, and the pause before it restarts one.

A state is a raw `state` of a container status: waiting, running or terminated. Times are texts of
the API.
"""

from dataclasses import dataclass, field

from tests.fakekube.daemon_sets import Raw

# Exit codes of a process that SIGKILL and SIGTERM end: 128 and the signal's number.
KILLED_EXIT_CODE = 137
TERMINATED_EXIT_CODE = 143
# What the runtime reports of a container that ended unseen, as with its machine
# (pkg/cri of containerd: unknownExitCode, unknownExitReason).
UNSEEN_EXIT_CODE = 255
UNSEEN_REASON = "Unknown"
# MaxContainerBackOff and the base of crashLoopBackOff in pkg/kubelet/kubelet.go.
RESTART_BACK_OFF_SECONDS = 10.0
RESTART_BACK_OFF_MAX_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Container:
    """What the kubelet knows of one container: its state, the end before it, how often restarted.

    `last` is a raw `lastState`, empty before the first restart.
    """

    state: Raw
    last: Raw = field(default_factory=dict)
    restarts: int = 0


def waiting(reason: str, message: str = "") -> Raw:
    """Return the state of a container that is not there (yet)."""
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def running(since: str) -> Raw:
    """Return the state of a container that runs."""
    return {"running": {"startedAt": since}}


def terminated(
    exit_code: int, began: str = "", ended: str = "", *, reason: str = "", message: str = ""
) -> Raw:
    """Return the state of a container that has ended.

    The reason follows from the exit code, as containerd gives it, unless there is another.
    """
    texts = {"message": message, "startedAt": began, "finishedAt": ended}
    found = {"exitCode": exit_code, "reason": reason or ("Error" if exit_code else "Completed")}
    return {"terminated": {**found, **{key: text for key, text in texts.items() if text}}}


def died_with_machine(state: Raw, ended: str) -> Raw:
    """Return the state of a running container whose machine went down, as seen after a reboot."""
    began = state["running"]["startedAt"]
    return terminated(UNSEEN_EXIT_CODE, began, ended, reason=UNSEEN_REASON)


def backs_off(message: str = "") -> Raw:
    """Return the state between the end of a container and its restart (doBackOff).

    The kubelet writes it in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
    """
    return waiting("CrashLoopBackOff", message)


def is_success(state: Raw) -> bool:
    """Return whether a container has ended with 0."""
    ended = state.get("terminated")
    return ended is not None and ended["exitCode"] == 0


def restart_back_off(
    restarts: int,
    first_seconds: float = RESTART_BACK_OFF_SECONDS,
    longest_seconds: float = RESTART_BACK_OFF_MAX_SECONDS,
) -> float:
    """Return the seconds for which a container that failed again stays down: doubled each time.

    `restarts` are those since the first pause. Next in client-go's util/flowcontrol/backoff.go. Not
    modelled: the kubelet forgets the pause after a long run.
    """
    doublings = min(restarts, 32)  # more are beyond any limit, and beyond what a float holds
    return min(first_seconds * 2.0**doublings, longest_seconds)
