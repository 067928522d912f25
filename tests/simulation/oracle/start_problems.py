"""How long something has kept a task from starting; it is recorded, and fails its node, in time.

Only the time counts in which the pod shows it and its node is Ready. It counts apart for each kind
(see KINDS), from the newest try that a user asked for, and over the pods of a node that its kubelet
rejects. After a long pause the controller may begin again, so `least` does. The controller counts
from when it saw it: what began while its watches were behind may fail its node that much `late`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import find_job, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import node_states
from tests.simulation.server import JOBS, NODES, Raw
from tests.simulation.settings import POD_START_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "not reported",
        "What keeps a task from starting is on record in time and then fails its node, and a Job "
        "says when one of its writes is refused.",
        mutant="never_fails_unstarted_tasks",
        seed=12,
    ),
)

BLOCKED, UNEXPLAINED, REJECTED = KINDS = ("blocked", "silent", "rejected")
# If no cause is known, a task that does not start fails its node after three pod start timeouts.
# A large image that is being pulled looks like that.
UNEXPLAINED_FACTOR = 3
# The time between when something must be recorded and when it is.
RECORDING_SECONDS = 20.0
# After a pause that is longer than this the controller may begin to count again.
PAUSE_SECONDS = 50.0
# A controller whose watches are well by then has seen what begins now.
SEEN_SECONDS = 2.0

REASONS = {
    BLOCKED: {"ImagePullFailed", "ContainerStartFailed"},
    UNEXPLAINED: {"TaskNotStarted"},
    REJECTED: {"PodRejected"},
}
LIMIT_SECONDS = {
    BLOCKED: POD_START_TIMEOUT_SECONDS,
    UNEXPLAINED: UNEXPLAINED_FACTOR * POD_START_TIMEOUT_SECONDS,
    REJECTED: POD_START_TIMEOUT_SECONDS,
}


@dataclass(slots=True)
class Count:
    """Seconds that count: all of them (`most`), and those since the last long pause (`least`).

    Up to `late` seconds of the latter the controller may not have seen, as its watches were behind
    when it began to count. It may have counted up to `slack` seconds too many, as it was behind
    when a pause began.
    """

    most: float = 0.0
    least: float = 0.0
    late: float = 0.0
    slack: float = 0.0
    since: float | None = None
    paused_at: float = 0.0

    def go(self, now: float) -> None:
        """Count from now on."""
        if self.since is None:
            if now - self.paused_at >= PAUSE_SECONDS:
                self.least = self.late = 0.0
            self.since = now

    def stop(self, now: float, behind_until: float) -> None:
        """Stop counting now; the controller is behind until then, now if it is not behind."""
        if self.since is not None:
            self.slack += behind_until - now
            self.most += now - self.since
            self.least += now - self.since
            self.since, self.paused_at = None, now

    def running(self, now: float) -> float:
        """Return the seconds since it began to count the last time, 0 while it does not count."""
        return now - self.since if self.since is not None else 0.0


@dataclass(slots=True)
class StartProblems:
    """Receives what pods show; `key` is the UIDs of a Job and of a node."""

    world: World
    oracle: Oracle
    counts: dict[tuple[str, str, str], Count] = field(default_factory=dict)
    # By key: what the node's pod shows, the node's name, and the UID of the pod.
    shown: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    violated: set[tuple[str, str, str, str]] = field(default_factory=set)
    # By the Job's UID: when a user asked for another try the last time.
    retried_at: dict[str, float] = field(default_factory=dict)

    # --- what happens ----------------------------------------------------------------------

    def shows(self, key: tuple[str, str], kind: str, node: str, pod_uid: str) -> None:
        """Note what the pod of a node shows from now on, "" for nothing that keeps its task."""
        self._pause(key)
        if key in self.shown and self.shown[key][2] != pod_uid:
            # Another pod begins again; that of a DaemonSet that was deleted may still be there.
            for other in (BLOCKED, UNEXPLAINED):
                self.counts.pop((*key, other), None)
        self.shown[key] = kind, node, pod_uid
        if kind and self._is_ready(node):
            self.counts.setdefault((*key, kind), Count()).go(self.world.loop.moment)
            self._watch(key, kind)

    def gone(self, key: tuple[str, str], pod_uid: str) -> None:
        """Note that a pod goes: the next one begins again, unless this one was rejected."""
        if key not in self.shown or self.shown[key][2] != pod_uid:
            return
        self._pause(key)
        self.shown.pop(key, None)
        for kind in (BLOCKED, UNEXPLAINED):
            self.counts.pop((*key, kind), None)

    def adopted(self, key: tuple[str, str]) -> None:
        """Note that a pod has another owner, so that the controller may begin to count again."""
        self._pause(key)
        for kind in KINDS:
            if count := self.counts.get((*key, kind)):
                count.least = count.late = 0.0
        if key in self.shown:
            self.shows(key, *self.shown[key])

    def started(self, key: tuple[str, str]) -> None:
        """Note the start of a task."""
        self.shown.pop(key, None)
        for kind in KINDS:
            self.counts.pop((*key, kind), None)

    def node_ready(self, name: str, *, is_ready: bool) -> None:
        """Note that a node is Ready from now on, or no longer so."""
        for key, (kind, node, _) in list(self.shown.items()):
            if node == name and not is_ready:
                self._pause(key)
            elif node == name and kind:
                self.counts.setdefault((*key, kind), Count()).go(self.world.loop.moment)
                self._watch(key, kind)

    def retried(self, job_uid: str) -> None:
        """Note that a user asked for another try."""
        self.retried_at[job_uid] = self.world.loop.moment
        for counted in [counted for counted in self.counts if counted[0] == job_uid]:
            del self.counts[counted]
        for key, shown in list(self.shown.items()):
            if key[0] == job_uid:
                self.shows(key, *shown)
        self.violated = {found for found in self.violated if found[0] != job_uid}

    def changed(self, job_uid: str) -> None:
        """Note that a user changes what runs: the controller may begin to count again.

        It does once the status has the new revision.
        """
        self.retried_at[job_uid] = self.world.loop.moment
        for node_uid in {key[1] for key in self.counts if key[0] == job_uid}:
            self.rerun(job_uid, node_uid)

    def rerun(self, job_uid: str, node_uid: str) -> None:
        """Note that a user asked for a node to run again: the controller may begin to count again.

        It does if the node has completed or failed.
        """
        key, now = (job_uid, node_uid), self.world.loop.moment
        for kind in KINDS:
            if count := self.counts.get((*key, kind)):
                is_counting = count.since is not None
                self._stop(count)
                count.least = count.late = 0.0
                if is_counting:
                    count.go(now)
                    self._watch(key, kind)

    def _pause(self, key: tuple[str, str]) -> None:
        for kind in KINDS:
            if count := self.counts.get((*key, kind)):
                self._stop(count)

    def _stop(self, count: Count) -> None:
        """Stop counting; how long the controller does not see that may grow meanwhile.

        Its watches may also fall behind just after this, before it has seen it.
        """
        if count.since is not None:
            now = self.world.loop.moment
            until = max(self.world.undisturbed_from["controller"], now)
            count.stop(now, until)
            at = max(until, now + SEEN_SECONDS)
            self.world.loop.call_at(at, self._note_slack, count, now, until)

    def _note_slack(self, count: Count, paused_at: float, until: float) -> None:
        """Note that the controller is behind for longer, before it has seen a pause that lasts."""
        again = self.world.undisturbed_from["controller"]
        if count.since is None and count.paused_at == paused_at and again > until:
            count.slack += again - until
            self.world.loop.call_at(again, self._note_slack, count, paused_at, again)

    def _is_ready(self, node: str) -> bool:
        raw = self.world.server.get(NODES, node, "")
        return raw is not None and raw["status"]["conditions"][0]["status"] == "True"

    # --- too early -------------------------------------------------------------------------

    def passed(self, key: tuple[str, str], record: Raw) -> tuple[float, float] | None:
        """Return how long what failed a node has held, and how long it has to; None if unknown."""
        if record.get("reason") == "PodRejected":
            kind = REJECTED
        elif "has not started" in str(record.get("message")):
            kind = UNEXPLAINED
        elif record.get("reason") in REASONS[BLOCKED]:
            kind = BLOCKED
        else:
            return None
        now, count = self.world.loop.moment, self.counts.get((*key, kind))
        clear = max(now - LIMIT_SECONDS[kind] - 10.0, 0.0)
        if count is None or self.world.undisturbed_from["controller"] > clear:
            return None
        if self._has_unheard_retry(key[0]):
            return None
        return count.most + count.slack + count.running(now), LIMIT_SECONDS[kind]

    def _has_unheard_retry(self, job_uid: str) -> bool:
        """Return whether the controller decided before it saw the newest retry of a Job."""
        world = self.world
        retried_at = self.retried_at.get(job_uid)
        decided_at = world.decided_at.get(job_uid)
        if retried_at is None or decided_at is None:
            return False
        metas = (job["metadata"] for job in world.server.all(JOBS))
        meta = next((meta for meta in metas if meta["uid"] == job_uid), None)
        if meta is None:
            return False
        watch = world.processes["controller"].watches[JOBS]
        heard_at = watch.delivered_at.get((meta["namespace"], meta["name"]), 0.0)
        return heard_at < retried_at or heard_at >= decided_at

    # --- too late --------------------------------------------------------------------------

    def _watch(self, key: tuple[str, str], kind: str) -> None:
        """Check again when it must be on record, and when it must have failed the node."""
        count, now = self.counts[*key, kind], self.world.loop.moment
        assert count.since is not None
        self.world.loop.call_later(SEEN_SECONDS, self._note_late, count, count.since)
        for what in ("recorded", "failed"):
            at = now + _left(count, kind, what) + RECORDING_SECONDS
            self.world.loop.call_at(at, self._check, key, kind, what, count.since)

    def _note_late(self, count: Count, since: float) -> None:
        """Note how much later than it began the controller has seen it."""
        if count.since == since:
            count.late += max(self.world.undisturbed_from["controller"] - since, 0.0)

    def _check(self, key: tuple[str, str], kind: str, what: str, since: float) -> None:
        """Judge that by now it is on record, if it has held all the time."""
        world, now = self.world, self.world.loop.moment
        count, controller = self.counts.get((*key, kind)), world.processes["controller"]
        if (
            world.is_over
            or count is None
            or count.since != since
            or (*key, kind, what) in self.violated
        ):
            return
        # The patience counts again from a start of the controller (docs/reference/status.md).
        due = max(controller.started_at + LIMIT_SECONDS[kind], world.undisturbed_from["controller"])
        if count.late:
            due = max(due, since + _left(count, kind, what) + count.late)
        if due + RECORDING_SECONDS > now or not controller.is_up:
            at = max(due, now) + RECORDING_SECONDS
            world.loop.call_at(at, self._check, key, kind, what, since)
            return
        job = find_job(world.server, key[0])
        ends = ("Complete", "Failed", "Suspended")
        if job is None or job["spec"].get("suspend") or any(is_true(job, end) for end in ends):
            return
        node = self.shown[key][1]
        machine = world.machines.get(node)
        if machine is None or machine.uid != key[1] or not machine.is_up:
            return
        record = node_states(world, key[0]).get(node) or {}
        if self.oracle.has_failed(job, node, key[1]) or (
            what == "recorded" and record.get("reason") in REASONS[kind]
        ):
            return
        self.violated.add((*key, kind, what))
        words = f"{node} ({machine.task.kind}): {kind} for {count.least + now - since:.0f} s, "
        words += f"not {what}: {record.get('state')} {record.get('reason')}"
        self.oracle.violate("not reported", words + self.oracle.timeouts.skews())


def _left(count: Count, kind: str, what: str) -> float:
    """Return how much longer something must hold until it must be on record, or have failed."""
    if what == "failed":
        return max(LIMIT_SECONDS[kind] - count.least, 0.0)
    return max(POD_START_TIMEOUT_SECONDS - count.least, 0.0) if kind == UNEXPLAINED else 0.0
