"""A node fails by time, or becomes unreachable, only when that time has passed, by one clock.

The clock is the programs' own; those of kubelets and API servers may be hours away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from daemonset_job.api.names import ANNOTATION_RERUN, ANNOTATION_RETRY
from tests.fakekube import daemon_sets
from tests.simulation.oracle.facts import is_continuous
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.reboots import allowed_seconds
from tests.simulation.oracle.start_problems import StartProblems
from tests.simulation.server import PODS, Raw, controller_of
from tests.simulation.settings import POD_START_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from tests.simulation.kubelet import PodRun
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "too early",
        "A node fails by time, or becomes unreachable, only when that time has passed by the "
        "programs' own clock.",
        mutant="uses_node_clocks",
        seed=182,
    ),
)

# API times are whole seconds, and two of them are compared.
TOLERANCE_SECONDS = 3.0
# These cannot change while the pod exists, so there is no timeout for them.
HOPELESS = ("InvalidImageName", "ErrImageNeverPull")
# A node that is Ready for less than this may count as not Ready all the time (guarantees.md).
BRIEFLY_SECONDS = 1.0
CONDITIONS = {
    f"node.kubernetes.io/{it}" for it in ("not-ready", "unreachable", "network-unavailable")
}
BY_TIME = {"ImagePullFailed", "ContainerStartFailed", "Unschedulable"}


@dataclass(slots=True)
class Timeouts:
    """Receives pods, tasks and nodes; times are moments of the programs' clock."""

    world: World
    oracle: Oracle
    # By Job and node UID: since when there has been a pod whose task could start and has not.
    unstarted: dict[tuple[str, str], float] = field(default_factory=dict)
    # The same times of the pods that went without a start of their task, each with its end. Until
    # the controller has seen that end, it counts the time of that pod (guarantees.md, Failures).
    ended: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=dict)
    # By Job and node UID: when each pod of the current try was taken up, by its UID and in order.
    taken_up: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    # The pods that are gone without a start of their task: their time counts for no deadline.
    never_started: set[str] = field(default_factory=set)
    # The pods whose task has been started.
    begun: set[str] = field(default_factory=set)
    # By node: when it was last not Ready any more, or had no network any more.
    not_ready: dict[str, float] = field(default_factory=dict)
    # By node: since when it has been not Ready, or has had a taint of its condition.
    away: dict[str, float] = field(default_factory=dict)
    # By node: the last time that it was so, from and to.
    was_not_ready: dict[str, tuple[float, float]] = field(default_factory=dict)
    was_away: dict[str, tuple[float, float]] = field(default_factory=dict)
    start_problems: StartProblems = field(init=False)

    def __post_init__(self) -> None:
        self.start_problems = StartProblems(self.world, self.oracle)

    def pod_written(self, old: Raw | None, new: Raw | None) -> None:
        """Note a pod that may start from now on: it has no gate, or has it no longer."""
        self._note_owner(old, new)
        if old is not None and (new is None or "deletionTimestamp" in new["metadata"]):
            meta, machine = old["metadata"], self.world.machines.get(old["spec"]["meant_for"])
            if machine is not None:
                self.start_problems.gone(
                    (self.oracle.job_of.get(meta["uid"], ""), machine.uid), meta["uid"]
                )
        if new is None and old is not None and not daemon_sets.is_terminal(old):
            # What had kept it from starting went with it; of a rejected pod it stays.
            job_uid = self.oracle.job_of.get(old["metadata"]["uid"])
            for key in [key for key in self.unstarted if key[0] == job_uid]:
                machine = self.world.machines.get(old["spec"]["meant_for"])
                if machine is not None and machine.uid == key[1]:
                    times = self.unstarted.pop(key), self.world.loop.moment
                    self.ended.setdefault(key, []).append(times)
        if new is None or new["spec"].get("schedulingGates"):
            return
        if old is None or old["spec"].get("schedulingGates"):
            # The successor of a pod that went has waited at its gate, and the time begins again.
            name = new["spec"]["meant_for"]
            machine = self.world.machines.get(name)
            if machine is not None:
                key = (self.oracle.job_of[new["metadata"]["uid"]], machine.uid)
                if old is not None:
                    self.unstarted.pop(key, None)
                self.unstarted.setdefault(key, self.world.loop.moment)

    def _note_owner(self, old: Raw | None, new: Raw | None) -> None:
        """Note that a pod has lost its owner, has another one, or is gone."""
        if new is None and old is not None and old["metadata"]["uid"] not in self.begun:
            self.never_started.add(old["metadata"]["uid"])
        if old is None or new is None or controller_of(old) == controller_of(new):
            return
        machine = self.world.machines.get(new["spec"]["meant_for"])
        if machine is not None:
            job_uid = self.oracle.job_of.get(new["metadata"]["uid"], "")
            self.start_problems.adopted((job_uid, machine.uid))

    def admitted(self, run: PodRun) -> None:
        """Note a pod that its kubelet has taken up."""
        if key := self._key(run):
            self.taken_up.setdefault(key, {}).setdefault(run.pod_uid, self.world.loop.moment)

    def started(self, run: PodRun) -> None:
        """Note the start of a task."""
        self.begun.add(run.pod_uid)
        if key := self._key(run):
            self.unstarted.pop(key, None)
            self.start_problems.started(key)

    def shows(self, run: PodRun, kind: str) -> None:
        """Note what keeps the task of a pod from starting as far as it says, "" for nothing.

        A pod that was deleted without a grace period is gone before its kubelet ends it.
        """
        if (key := self._key(run)) and self.world.server.now(PODS, run.raw) is not None:
            self.start_problems.shows(key, kind, run.machine.name, run.pod_uid)

    def gone(self, run: PodRun) -> None:
        """Note that nothing of a pod runs any more."""
        if key := self._key(run):
            self.start_problems.gone(key, run.pod_uid)

    def job_written(self, old: Raw, new: Raw) -> None:
        """Note that a user asks for another try, or changes what runs."""
        before, after = (raw["metadata"].get("annotations") or {} for raw in (old, new))
        uid, revisions = new["metadata"]["uid"], {_revision(old), _revision(new)}
        # A change that is undone before the status has its number is none.
        is_revised = len(revisions) > 1 and "" not in revisions
        if before.get(ANNOTATION_RETRY) != after.get(ANNOTATION_RETRY) or is_revised:
            self.start_problems.retried(uid)
        elif is_continuous(new) and old["spec"]["image"] != new["spec"]["image"]:
            self.start_problems.changed(uid)
        if is_continuous(new) and before.get(ANNOTATION_RERUN) != after.get(ANNOTATION_RERUN):
            for node_uid in self.oracle.demands.reruns[uid][-1].nodes.values():
                self.start_problems.rerun(uid, node_uid)

    def node_ready(self, name: str, *, is_ready: bool) -> None:
        """Note that a node is Ready or no longer so."""
        self.start_problems.node_ready(name, is_ready=is_ready)

    def node_reachable(self, name: str, *, is_reachable: bool) -> None:
        """Note that a node is Ready and has a network, or no longer so."""
        if is_reachable and name in self.not_ready:
            self.was_not_ready[name] = self.not_ready.pop(name), self.world.loop.moment
        elif not is_reachable:
            self.not_ready.setdefault(name, self._begins(self.was_not_ready.get(name)))

    def node_written(self, raw: Raw) -> None:
        """Note what a node says of its condition, by the one word and by the other."""
        keys = {taint["key"] for taint in (raw.get("spec") or {}).get("taints") or ()}
        is_well = raw["status"]["conditions"][0]["status"] == "True" and not keys & CONDITIONS
        name = raw["metadata"]["name"]
        if is_well and name in self.away:
            self.was_away[name] = self.away.pop(name), self.world.loop.moment
        elif not is_well:
            self.away.setdefault(name, self._begins(self.was_away.get(name)))

    def _begins(self, last: tuple[float, float] | None) -> float:
        """Return since when it is so again: since the last time if it was not only briefly."""
        now = self.world.loop.moment
        return last[0] if last is not None and now - last[1] < BRIEFLY_SECONDS else now

    def _key(self, run: PodRun) -> tuple[str, str] | None:
        job_uid = self.oracle.job_of.get(run.pod_uid)
        return (job_uid, run.machine.uid) if job_uid else None

    # --- too early -------------------------------------------------------------------------

    def judge(self, job_uid: str, node: str, old: Raw, record: Raw) -> None:
        """Judge what a report says of a node that it said otherwise of before."""
        key, now = (job_uid, record.get("uid") or ""), self.world.loop.moment
        is_same = old.get("uid") == record.get("uid")
        if is_same and old.get("state") == "Failed" and record.get("state") != "Failed":
            self._tries_again(key, old.get("podUID"), record.get("podUID"))
        reason, since, seconds = record.get("reason"), -1e9, 0.0
        if record.get("state") == "Unreachable":
            # The time has to have passed when that was decided; the write may take long.
            (since, seconds), now = self._away(job_uid, node), self._decided_at(job_uid)
        elif record.get("state") != "Failed":
            return
        elif reason == "DeadlineExceeded":
            specs = self.oracle.completion.known(job_uid, self.world.seen_until[job_uid])
            seconds = min(float(spec.get("nodeDeadlineSeconds") or 0) for spec in specs)
            since = self.taken_up_at(key)
            # A program that has not seen the new node yet takes its pod for the old one's.
            since = min(since, self._pod_taken_up(job_uid, record.get("podUID")))
        elif reason in BY_TIME and not any(h in str(record.get("message")) for h in HOPELESS):
            seconds, since = POD_START_TIMEOUT_SECONDS, self._not_started_since(key)
        is_deadline = reason == "DeadlineExceeded"  # its message may name what has held it up
        if (
            record.get("state") == "Failed"
            and not is_deadline
            and (held := self._held(key, record))
        ):
            since, seconds = now - held[0], held[1]
        if now - since < seconds - TOLERANCE_SECONDS:
            passed = max(now - since, 0.0)
            words = f"{node} is called {record.get('state')} ({reason}) after {passed:.1f} s"
            self.oracle.violate("too early", f"{words} and not {seconds:g} s{self.skews()}")

    def _not_started_since(self, key: tuple[str, str]) -> float:
        """Return since when the controller may have seen a pod that does not start.

        A pod that went counts if the controller had not seen that when it decided.
        """
        job_uid = key[0]
        known_until = self.world.pods_seen_until.get(job_uid, 0.0)
        if self._decided_at(job_uid) < self.world.decided_at.get(job_uid, 0.0):
            known_until = 0.0  # another process has decided since then
        times = [since for since, end in self.ended.get(key, ()) if end >= known_until]
        if key in self.unstarted:
            times.append(self.unstarted[key])
        return min(times, default=-1e9)

    def has_been_away(self, node: str, job_uid: str) -> bool:
        """Return whether a node has been away for as long as its Job allows."""
        (since, seconds), now = self._away(job_uid, node), self.world.loop.moment
        return since < now and now - since >= seconds - TOLERANCE_SECONDS

    def _away(self, job_uid: str, node: str) -> tuple[float, float]:
        """Return since when a node is away, now for not at all, and how long it may be."""
        now = self.world.loop.moment
        # Who decided it may not have received yet that the node is back (guarantees.md).
        began, ended = self.was_not_ready.get(node, (now, now))
        began = began if self._decided_at(job_uid) - ended < TOLERANCE_SECONDS else now
        specs = self.oracle.completion.known(job_uid, self.world.seen_until[job_uid])
        since = self.not_ready.get(node, began)
        # Its taint may outlast a moment in which it is Ready.
        return min(since, self.away.get(node, since)), min(map(allowed_seconds, specs))

    def _decided_at(self, job_uid: str) -> float:
        """Return when the controller decided what it writes now of a Job.

        Another process may have decided since then if the one that sent the write has died.
        """
        now = self.world.loop.moment
        sent_at = self.world.sent_at if self.world.sent_at is not None else now
        return min(self.world.decided_at.get(job_uid, now), sent_at)

    def taken_up_at(self, key: tuple[str, str]) -> float:
        """Return when the first pod that counts of the current try was taken up, now for none."""
        pods = self.taken_up.get(key, {}).items()
        counting = (moment for uid, moment in pods if uid not in self.never_started)
        return min(counting, default=self.world.loop.moment)

    def _pod_taken_up(self, job_uid: str, pod_uid: str | None) -> float:
        """Return when a pod was taken up, on whatever node, now for never."""
        moments = (
            pods.get(pod_uid or "") for key, pods in self.taken_up.items() if key[0] == job_uid
        )
        known = [moment for moment in moments if moment is not None]
        return min(known, default=self.world.loop.moment)

    def _tries_again(self, key: tuple[str, str], failed: str | None, next_: str | None) -> None:
        """Forget the pods up to the failed one: its successor may be there by now.

        Forget nothing if it was the pod of a former node of that name. The pod goes on if a change
        ended its try, and is undone.
        """
        moments = self.taken_up.get(key, {})
        uids = list(moments)
        if failed in uids:
            for pod_uid in uids[: uids.index(failed) + 1]:
                del moments[pod_uid]
            if failed == next_:
                moments[failed] = self.world.loop.moment

    def is_late(self, job_uid: str) -> bool:
        """Return whether a node that has not completed is past its deadline, on record or not."""
        spec, now = self.oracle.completion.newest(job_uid), self.world.loop.moment
        seconds = spec.get("nodeDeadlineSeconds")
        return seconds is not None and any(
            not self.oracle.is_entered(job_uid, machine.name, machine.uid)
            and now - self.taken_up_at((job_uid, machine.uid)) >= seconds - TOLERANCE_SECONDS
            for machine in self.world.machines.values()
        )

    def _held(self, key: tuple[str, str], record: Raw) -> tuple[float, float] | None:
        is_hopeless = any(h in str(record.get("message")) for h in HOPELESS)
        return None if is_hopeless else self.start_problems.passed(key, record)

    def skews(self) -> str:
        """Return in words whether clocks differ in this schedule."""
        schedule = self.world.schedule
        is_off = any(node.skew for node in schedule.nodes) or any(schedule.api_skews)
        return ", clocks differ" if is_off else ""


def _revision(job: Raw) -> str:
    """Return the revision that the status of a raw Job has, "" for none."""
    return str((job.get("status") or {}).get("revision") or "")
