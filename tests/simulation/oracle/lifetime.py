"""A Job that has ended stays for its time to live, and goes after it.

The time counts from the completion of the last node that was desired at the end, or from the word
that the run has failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_continuous, is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.timeouts import TOLERANCE_SECONDS
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "lifetime",
        "A Job that has ended is deleted when its time to live has passed, and not before.",
        mutant="ignores_ttl",
        seed=25,
    ),
)

# From the end of its time to a Job's deletion, when nothing is in the terminator's way.
DELETING_SECONDS = 20.0


@dataclass(slots=True)
class Lifetime:
    """Receives ends and successes, by the UID of a Job."""

    world: World
    oracle: Oracle
    ended: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    edited: dict[str, float] = field(default_factory=dict)
    # By Job and node UID: when a task first succeeded.
    succeeded: dict[tuple[str, str], float] = field(default_factory=dict)

    def task_succeeds(self, job_uid: str, node_uid: str) -> None:
        """Note when the task of a Job succeeded on a node."""
        self.succeeded.setdefault((job_uid, node_uid), self.world.loop.moment)

    def claimed(self, job_uid: str, node_uids: Iterable[str]) -> None:
        """Note which nodes a Job was for when it was called complete."""
        moments = [self.succeeded.get((job_uid, uid), -1e9) for uid in node_uids]
        self.finished[job_uid] = max(moments, default=-1e9)

    def job_written(self, old: Raw, new: Raw) -> None:
        """Note when a Job ended, and when its spec was last changed."""
        uid, now = new["metadata"]["uid"], self.world.loop.moment
        if old["metadata"]["generation"] != new["metadata"]["generation"]:
            self.edited[uid] = now
        for type_ in ("Complete", "Failed"):
            if is_true(old, type_) and not is_true(new, type_):
                is_unasked = self.edited.get(uid, -1.0) < self.ended.get(uid, 0.0)
                if type_ == "Complete" and is_unasked and not is_continuous(new):
                    words = "Complete is taken back without a change of the spec"
                    self.oracle.violate("conventions", words)
                # Tried again: its next end has a time of its own.
                ends = self.world.ended_at
                self.world.ended_at = {end: at for end, at in ends.items() if end[0] != uid}
            if is_true(new, type_) and (not is_true(old, type_) or _is_retried(old, new)):
                # The end is what the controller has decided, however long the writes took. A retry
                # that fails at once, or finds all completed, is an end of its own.
                end = new["status"].get("completionTime")
                is_new = end != (old.get("status") or {}).get("completionTime")
                decided = self.world.ended_at.get((uid, end), now) if is_new else now
                self.ended[uid] = min(now, decided)

    def judge_deletion(self, job: Raw) -> None:
        """Judge that the deletion of an ended Job does not come too early."""
        uid, now = job["metadata"]["uid"], self.world.loop.moment
        seconds = job["spec"].get("ttlSecondsAfterFinished") or 0
        if is_true(job, "Failed"):
            since = self.ended.get(uid, now)
        else:
            since = self.finished.get(uid, -1e9)
        if now - since < seconds - TOLERANCE_SECONDS:
            words = f"deleted after {now - since:.1f} s, its time to live is {seconds} s"
            words += self.world.cluster.explain(uid)
            self.oracle.violate("lifetime", words + self.oracle.timeouts.skews())

    def judge_rest(self, job: Raw, *, is_at_work: bool) -> None:
        """Judge that a Job at rest is not one whose time is over."""
        uid, seconds = job["metadata"]["uid"], job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None or uid not in self.ended or is_at_work:
            return
        if not (is_true(job, "Complete") or is_true(job, "Failed")):
            return
        if "rollback" in job["status"] and uid not in self.oracle.rollbacks.ended:
            return  # it waits for its rollback
        undone = self.oracle.rollbacks.ended.get(uid, 0.0)
        since = max(self.ended[uid], self.edited.get(uid, 0.0), undone)
        passed = self.world.loop.moment - since
        if passed > seconds + DELETING_SECONDS:
            how = "Complete" if is_true(job, "Complete") else "Failed"
            words = f"{how} and still there after {passed:.0f} s, its time to live is {seconds} s"
            words += self.world.cluster.explain(uid)
            self.oracle.violate("lifetime", words)


def _is_retried(old: Raw, new: Raw) -> bool:
    """Return whether a failed Job took up a retry with that write."""
    before, after = (job.get("status") or {} for job in (old, new))
    return is_true(old, "Failed") and before.get("observedRetry", "") != after.get(
        "observedRetry", ""
    )
