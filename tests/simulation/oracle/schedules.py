"""ScheduledJobs: which Jobs they create and when, and which of them they delete.

A reconcile reads all from the API server, and acts on it a moment later. So what was so for less
than READ_SECONDS may not be known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.loop import EPOCH
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.schedule import ScheduledPlan
from tests.simulation.server import JOBS, SCHEDULED_JOBS, Raw, Write, controller_of

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "starts once",
        "A start of a ScheduledJob creates one Job, not before its time, and not after a later "
        "start or after startingDeadlineSeconds.",
        mutant="starts_again",
        seed=4_000_000_003,
    ),
    Invariant(
        "concurrency",
        "With Forbid no Job is created while another one has not ended, and with Replace that one "
        "is deleted first. With the other policies no Job is deleted that has not ended.",
        mutant="ignores_running_jobs",
        seed=4_000_000_002,
    ),
    Invariant(
        "suspended schedule",
        "A ScheduledJob that is suspended creates no Job.",
        mutant="ignores_suspended_schedules",
        seed=4_000_000_001,
    ),
    Invariant(
        "history limits",
        "At rest there are no more ended Jobs than the limits of the history say, and none was "
        "deleted within them.",
        mutant="keeps_all_runs",
        seed=4_000_000_004,
    ),
    Invariant(
        "missed start",
        "At rest the newest start has its Job, unless something that the status names kept it.",
        mutant="forgets_starts",
        seed=4_000_000_000,
    ),
)

# What was so for less is known to no reconcile for sure: a request may be late, and answered late.
READ_SECONDS = 12.0
FINAL = {"Succeeded", "Failed"}
LIMITS = {
    "Succeeded": ("successfulJobsHistoryLimit", 3),
    "Failed": ("failedJobsHistoryLimit", 1),
}


class Schedules:
    """Receives ScheduledJobs, their Jobs, and the deletions of these."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By UID of a ScheduledJob: its specs, and since when.
        self._specs: dict[str, list[tuple[float, Raw]]] = {}
        # By UID of a ScheduledJob: the minutes whose Jobs were created.
        self.made: dict[str, list[int]] = {}
        # The policies of ScheduledJobs of which a start was due while a Job had not ended.
        self.overlaps: set[str] = set()
        for plan in world.schedule.scheduled:
            for moment in plan.moments:
                world.loop.call_at(moment, self._note_overlap)

    def written(self, write: Write) -> None:
        """Note the spec of a ScheduledJob."""
        new = write.new
        if write.plural != SCHEDULED_JOBS or new is None:
            return
        known = self._specs.setdefault(new["metadata"]["uid"], [])
        if not known or known[-1][1] != new["spec"]:
            known.append((self._world.loop.moment, new["spec"]))

    def _note_overlap(self) -> None:
        for uid, specs in self._specs.items():
            if self._open(uid):
                self.overlaps.add(specs[-1][1]["concurrencyPolicy"])

    # --- what the controller does ------------------------------------------------------------

    def job_made(self, job: Raw) -> None:
        """Judge a new Job that a ScheduledJob owns."""
        uid, name, now = controller_of(job), job["metadata"]["name"], self._world.loop.moment
        if uid not in self._specs:
            return
        plan, minute = self._plan(uid), int(name.rpartition("-")[2])
        made, spec = self.made.setdefault(uid, []), self._specs[uid][-1][1]
        moment = 60.0 * minute - EPOCH.timestamp()
        later = [each for each in plan.moments if moment < each < now - READ_SECONDS]
        words = f"{name} is created at {now:.1f} for {moment:g}"
        limit = spec.get("startingDeadlineSeconds")
        if moment not in plan.moments or moment > now or later:
            self._oracle.violate("starts once", words)
        elif made and minute <= max(made):
            self._oracle.violate("starts once", f"{words}, after {max(made)}")
        elif limit is not None and now - moment > limit + READ_SECONDS:
            self._oracle.violate("starts once", f"{words}, and the deadline is {limit} s")
        made.append(minute)
        if all(each.get("suspend") for each in self._known(uid)):
            self._oracle.violate("suspended schedule", words)
        others = [each for each in self._open(uid) if each != name]
        if others and spec.get("concurrencyPolicy") in {"Forbid", "Replace"}:
            self._oracle.violate("concurrency", f"{words}, beside {others}")

    def judge_deletion(self, job: Raw) -> None:
        """Judge that the controller deletes a Job that a ScheduledJob owns."""
        uid, name = controller_of(job), job["metadata"]["name"]
        if uid not in self._specs:
            return
        phase = (job.get("status") or {}).get("phase")
        spec = self._specs[uid][-1][1]
        if phase not in FINAL:
            minute, now = int(name.rpartition("-")[2]), self._world.loop.moment
            begun = [each for each in self._plan(uid).moments if each <= now]
            is_later = bool(begun) and max(begun) > 60.0 * minute - EPOCH.timestamp()
            if spec.get("concurrencyPolicy") != "Replace" or not is_later:
                self._oracle.violate("concurrency", f"{name} is deleted, and has not ended")
            return
        field, default = LIMITS[phase]
        if len(self._ended(uid, phase)) <= spec.get(field, default):
            self._oracle.violate("history limits", f"{name} is deleted, and is within the limit")

    # --- the end -----------------------------------------------------------------------------

    def judge_rest(self) -> None:
        """Judge the ScheduledJobs that are there at rest."""
        for scheduled in self._world.server.all(SCHEDULED_JOBS):
            uid, spec = scheduled["metadata"]["uid"], scheduled["spec"]
            for phase, (field, default) in LIMITS.items():
                ended = self._ended(uid, phase)
                if len(ended) > spec.get(field, default):
                    self._oracle.violate("history limits", f"{phase}: {ended} are there")
            self._judge_newest(scheduled)

    def _judge_newest(self, scheduled: Raw) -> None:
        uid, spec, status = (
            scheduled["metadata"]["uid"],
            scheduled["spec"],
            scheduled.get("status") or {},
        )
        reason = next((c["reason"] for c in status.get("conditions") or ()), "")
        newest = max(self._plan(uid).moments)
        minute = int(newest + EPOCH.timestamp()) // 60
        keeps = {
            "Suspended": bool(spec.get("suspend")),
            "StartMissed": "startingDeadlineSeconds" in spec,
            "WaitingForRun": bool(self._open(uid)) and spec["concurrencyPolicy"] == "Forbid",
        }
        is_done = minute in self.made.get(uid, ())
        if not is_done and not keeps.get(reason, False):
            self._oracle.violate("missed start", f"the start at {newest:g} was not, for {reason}")
        active = [each["name"] for each in status.get("active") or ()]
        if active != sorted(self._open(uid)):
            words = f"the status lists {active}, and {self._open(uid)} have not ended"
            self._oracle.violate("missed start", words)

    # --- facts -------------------------------------------------------------------------------

    def _plan(self, uid: str) -> ScheduledPlan:
        """Return the plan of the only ScheduledJob that there is."""
        assert uid in self._specs
        return self._world.schedule.scheduled[0]

    def _known(self, uid: str) -> list[Raw]:
        """Return the specs of which one may be what a reconcile has read that acts now."""
        since = self._world.loop.moment - READ_SECONDS
        known = self._specs[uid]
        older = [spec for at, spec in known if at <= since][-1:]
        return [*older, *(spec for at, spec in known if at > since)]

    def _open(self, uid: str) -> list[str]:
        return [
            job["metadata"]["name"]
            for job in self._jobs(uid)
            if (job.get("status") or {}).get("phase") not in FINAL
        ]

    def _ended(self, uid: str, phase: str) -> list[str]:
        return [
            job["metadata"]["name"]
            for job in self._jobs(uid)
            if (job.get("status") or {}).get("phase") == phase
        ]

    def _jobs(self, uid: str) -> list[Raw]:
        return [job for job in self._world.server.all(JOBS) if controller_of(job) == uid]
