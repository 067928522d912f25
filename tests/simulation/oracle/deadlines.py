"""A run fails by its deadline when that is over, and a retry or a resume gives it the time again.

The time counts from the decision that the run starts, and again from the one that it goes on,
however long it takes to write that down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.oracle.facts import is_true
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.timeouts import TOLERANCE_SECONDS
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "deadline",
        "A run fails by activeDeadlineSeconds when that time has passed, and not before. A retry "
        "or a resume gives it the time again.",
        mutant="ignores_deadlines",
        seed=63,
    ),
)

# From the deadline to the word of it, when nothing is in the controller's way.
TELLING_SECONDS = 20.0


@dataclass(slots=True)
class Deadlines:
    """Receives statuses; `began` by the UID of a Job.

    So is `retried`, the time of a retry while the run went on. It restarts the deadline once it is
    in the history of the report, which the API server may have refused.
    """

    world: World
    oracle: Oracle
    began: dict[str, float] = field(default_factory=dict)
    retried: dict[str, float] = field(default_factory=dict)

    def job_written(self, old: Raw, new: Raw) -> None:
        """Judge a status of a Job."""
        uid, now = new["metadata"]["uid"], self.world.loop.moment
        before, after = old.get("status") or {}, new.get("status") or {}
        starts = "startTime" in after and "startTime" not in before
        resumed = is_true(old, "Suspended") and not is_true(new, "Suspended")
        asked = before.get("observedRetry") != after.get("observedRetry")
        failed = is_true(new, "Failed", "DeadlineExceeded")
        # A suspended run that has failed may be resumed as it is.
        if failed and resumed and not is_true(old, "Failed"):
            self.oracle.violate("deadline", "resumed and failed by its deadline in one write")
        elif failed and asked and is_true(old, "Failed"):
            self.oracle.violate("deadline", "a retry was taken up and nothing was tried again")
        elif failed and not is_true(old, "Failed"):
            self._judge_end(new)
        if starts or resumed or (is_true(old, "Failed") and not is_true(new, "Failed")):
            self.began[uid] = min(now, self.world.decided_at.get(uid, now))
        elif asked:
            self.retried[uid] = now

    def _judge_end(self, job: Raw) -> None:
        uid, generation = job["metadata"]["uid"], job["status"]["observedGeneration"]
        seconds = self.oracle.completion.specs[uid][generation].get("activeDeadlineSeconds")
        passed = self.world.loop.moment - self.began[uid]
        if seconds is None:
            self.oracle.violate("deadline", "failed by a deadline that there is not")
        elif passed < seconds - TOLERANCE_SECONDS:
            self.oracle.violate("deadline", f"failed after {passed:.1f} s and not {seconds} s")

    def judge_rest(self, job: Raw) -> None:
        """Judge that a run at rest is not past its deadline."""
        seconds = job["spec"].get("activeDeadlineSeconds")
        began = self.began.get(job["metadata"]["uid"])
        if seconds is None or began is None or job["spec"].get("suspend"):
            return
        if any(is_true(job, type_) for type_ in ("Complete", "Failed", "Suspended")):
            return
        began = max(began, self.retried.get(job["metadata"]["uid"], began))
        passed = self.world.loop.moment - began
        if passed > seconds + TELLING_SECONDS:
            self.oracle.violate("deadline", f"not failed after {passed:.0f} s, {seconds} s may be")
