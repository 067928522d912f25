"""The back-off of the DaemonSet controller: how long a failed pod keeps its node."""

from dataclasses import dataclass, field

from tests.fakekube.daemon_sets import Raw, node_of

# startDaemonSetController in cmd/kube-controller-manager/app/apps.go.
FIRST_SECONDS = 1.0
LONGEST_SECONDS = 900.0


@dataclass(slots=True)
class _Entry:
    seconds: float
    since: float


@dataclass(eq=False, slots=True)
class FailedPods:
    """The pauses by DaemonSet and node: after a failed pod is deleted, the next one stays longer.

    podsShouldBeOnNode in pkg/controller/daemon/daemon_controller.go, and client-go's
    util/flowcontrol/backoff.go. The first failed pod of a node goes at once, the next ones after a
    second, two, four, until there was none for twice the longest pause. Times are seconds of any
    clock.
    """

    _entries: dict[tuple[str, str], _Entry] = field(default_factory=dict)

    def pause(self, daemon_set: Raw, pod: Raw, now: float) -> float:
        """Return how long a failed raw pod stays, in seconds; 0 if it is deleted now.

        0 begins the next pause. The pause is as long as it is in all, not as long as is left of it:
        so the controller looks at its DaemonSet again after that.
        """
        key = daemon_set["metadata"]["uid"], node_of(pod)
        entry = self._entries.get(key)
        if entry is None or now - entry.since > 2 * LONGEST_SECONDS:
            self._entries[key] = _Entry(FIRST_SECONDS, now)
            return 0.0
        if now - entry.since < entry.seconds:
            return entry.seconds
        entry.seconds, entry.since = min(2 * entry.seconds, LONGEST_SECONDS), now
        return 0.0
