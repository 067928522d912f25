"""ScheduledJobs: which Jobs they create and when, and which of them they delete.

A reconcile reads all from the API server, and acts on it a moment later. So what was so for less
than READ_SECONDS may not be known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.loop import EPOCH
from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.schedule_edits import Specs
from tests.simulation.schedule import moments_of
from tests.simulation.server import JOBS, SCHEDULED_JOBS, Raw, Write, controller_of

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "starts once",
        "A start of a ScheduledJob creates one Job, not before its time, and not after a later "
        "start or after startingDeadlineSeconds. No start is from before the schedule.",
        mutant="starts_again",
        seed=4_000_000_003,
        excuses={
            "clock behind": "By the clock of the API server, the schedule was there before.",
            "undone": "The schedule was changed and changed back before the controller recorded "
            "the change.",
        },
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
        excuses={
            "clock ahead": "The start was due before the controller had read the schedule, and by "
            "the clock of the API server the schedule was not there yet.",
        },
    ),
    Invariant(
        "prompt start",
        "A start that nothing disturbs creates its Job within 20 s, also after an edit.",
        mutant="trusts_the_time_of_creation",
        seed=15_000_000_003,
    ),
)

# What was so for less is known to no reconcile for sure: a request may be late, and answered late.
READ_SECONDS = 12.0
PROMPT_SECONDS = 20.0
# By then, a start that was refused has been tried again, or its status says that it was missed.
REFUSED_SECONDS = 40.0
# An edit this many seconds before a start is read before it.
SETTLED_SECONDS = 5.0
# What waits for a request that it disturbs.
PENDING = {"crash_on", "fail"}
FINAL = {"Succeeded", "Failed"}
USER = "user"
WRITE_STATUS = "patch status scheduledjobs"
LIMITS = {
    "Succeeded": ("successfulJobsHistoryLimit", 3),
    "Failed": ("failedJobsHistoryLimit", 1),
}


class Schedules:
    """Receives ScheduledJobs, their Jobs, and the deletions of these."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self._world = world
        self._oracle = oracle
        # By UID of a ScheduledJob.
        self._specs: dict[str, Specs] = {}
        # By UID of a ScheduledJob: the minutes whose Jobs were created.
        self.made: dict[str, list[int]] = {}
        # The policies of ScheduledJobs of which a start was due while a Job had not ended.
        self.overlaps: set[str] = set()
        # How many starts were judged as undisturbed.
        self.undisturbed = 0
        for moment in world.schedule.start_moments:
            world.loop.call_at(moment, self._note_due, moment)

    def written(self, write: Write) -> None:
        """Note the spec of a ScheduledJob."""
        new = write.new
        if write.plural != SCHEDULED_JOBS or new is None:
            return
        skew = self._world.server.skew(USER)
        known = self._specs.setdefault(new["metadata"]["uid"], Specs(skew))
        known.note(self._world.loop.moment, new)

    def _note_due(self, moment: float) -> None:
        for uid, known in self._specs.items():
            spec = known.newest
            if self._open(uid):
                self.overlaps.add(spec["concurrencyPolicy"])
            is_free = spec["concurrencyPolicy"] != "Forbid" or not self._open(uid)
            is_settled = known.specs[-1][0] < moment - SETTLED_SECONDS
            number = len(known.specs) - 1
            is_due = moment in known.moments(number, after=known.begin(number))
            if is_due and is_free and is_settled and not spec.get("suspend"):
                self._world.loop.call_later(PROMPT_SECONDS, self._judge_prompt, uid, moment)

    def _judge_prompt(self, uid: str, moment: float) -> None:
        """Judge that a start was made by now, if nothing disturbed it."""
        is_edited = self._specs[uid].specs[-1][0] >= moment
        there = {each["metadata"]["uid"] for each in self._world.server.all(SCHEDULED_JOBS)}
        if is_edited or uid not in there or self._is_disturbed(moment):
            return
        self.undisturbed += 1
        if _minute(moment) not in self.made.get(uid, ()):
            self._oracle.violate("prompt start", f"the start at {moment:g} has no Job")

    def _is_disturbed(self, moment: float) -> bool:
        process = self._world.processes["controller"]
        if not process.is_up or process.started_at > moment - PROMPT_SECONDS:
            return True
        found = [
            d
            for d in self._world.schedule.disturbances
            if (d.who == "controller" or d.kind == "stop_all") and d.at < self._world.loop.moment
        ]
        return any(
            d.kind in PENDING or not d.seconds or d.at + d.seconds > moment - PROMPT_SECONDS
            for d in found
        )

    def is_refused_in_time(self) -> bool:
        """Return whether a start is refused whose deadline is yet to pass: the status follows."""
        for scheduled in self._world.server.all(SCHEDULED_JOBS):
            conditions = (scheduled.get("status") or {}).get("conditions") or ()
            limit = scheduled["spec"].get("startingDeadlineSeconds")
            is_refused = any(each["reason"] == "JobRefused" for each in conditions)
            if is_refused and limit is not None:
                since = self._world.loop.moment - limit - REFUSED_SECONDS
                return any(each > since for each in moments_of(scheduled["spec"]["schedule"]))
        return False

    # --- what the controller does ------------------------------------------------------------

    def job_made(self, job: Raw) -> None:
        """Judge a new Job that a ScheduledJob owns."""
        uid, name, now = controller_of(job), job["metadata"]["name"], self._world.loop.moment
        if uid not in self._specs:
            return
        minute, known = int(name.rpartition("-")[2]), self._known(uid)
        made, spec = self.made.setdefault(uid, []), self._specs[uid].newest
        moment = 60.0 * minute - EPOCH.timestamp()
        words = f"{name} is created at {now:.1f} for {moment:g}"
        limit = spec.get("startingDeadlineSeconds")
        if moment > now or not self._is_asked(uid, moment):
            self._oracle.violate("starts once", words)
        elif made and minute <= max(made):
            self._oracle.violate("starts once", f"{words}, after {max(made)}")
        elif limit is not None and now - moment > limit + READ_SECONDS:
            self._oracle.violate("starts once", f"{words}, and the deadline is {limit} s")
        made.append(minute)
        if all(each.get("suspend") for each in known):
            self._oracle.violate("suspended schedule", words)
        others = [each for each in self._open(uid) if each != name]
        if others and all(each["concurrencyPolicy"] in {"Forbid", "Replace"} for each in known):
            self._oracle.violate("concurrency", f"{words}, beside {others}")

    def _is_asked(self, uid: str, moment: float) -> bool:
        """Return whether a schedule that the controller may have read has that as newest start."""
        specs, now = self._specs[uid], self._world.loop.moment
        reasons: set[str] = set()
        for number in specs.known(now - READ_SECONDS):
            begin = specs.begin(number)
            found = specs.moments(number, after=0.0)
            if moment not in found or any(moment < m < now - READ_SECONDS for m in found):
                continue
            if moment in specs.moments(number, after=begin):
                return True
            if moment in specs.moments(number, after=begin + min(specs.skew, 0.0)):
                reasons.add("clock behind")
            elif moment in specs.moments(number, after=specs.origin(number) + min(specs.skew, 0.0)):
                reasons.add("undone")
        if "clock behind" in reasons:
            self._oracle.excuse("starts once", "clock behind")
        elif "undone" in reasons:
            self._oracle.excuse("starts once", "undone")
        return bool(reasons)

    def judge_deletion(self, job: Raw) -> None:
        """Judge that the controller deletes a Job that a ScheduledJob owns."""
        uid, name = controller_of(job), job["metadata"]["name"]
        if uid not in self._specs:
            return
        phase = (job.get("status") or {}).get("phase")
        if phase not in FINAL:
            mine = 60.0 * int(name.rpartition("-")[2]) - EPOCH.timestamp()
            if not any(
                each["concurrencyPolicy"] == "Replace"
                and any(mine < m <= self._world.loop.moment for m in moments_of(each["schedule"]))
                for each in self._known(uid)
            ):
                self._oracle.violate("concurrency", f"{name} is deleted, and has not ended")
            return
        spec = self._specs[uid].newest
        field, default = LIMITS[phase]
        if len(self._ended(uid, phase)) <= spec.get(field, default):
            self._oracle.violate("history limits", f"{name} is deleted, and is within the limit")

    # --- the end -----------------------------------------------------------------------------

    def judge_rest(self) -> None:
        """Judge the ScheduledJobs that are there at rest.

        What is refused for good may be undone; Jobs are deleted once the status is written.
        """
        refused = self._refused()
        for scheduled in self._world.server.all(SCHEDULED_JOBS):
            uid, spec = scheduled["metadata"]["uid"], scheduled["spec"]
            for phase, (field, default) in LIMITS.items():
                ended = self._ended(uid, phase)
                is_kept = refused & {"delete jobs", WRITE_STATUS}
                if len(ended) > spec.get(field, default) and not is_kept:
                    self._oracle.violate("history limits", f"{phase}: {ended} are there")
            self._judge_newest(scheduled)

    def _judge_newest(self, scheduled: Raw) -> None:
        uid, spec, status = (
            scheduled["metadata"]["uid"],
            scheduled["spec"],
            scheduled.get("status") or {},
        )
        reason = next((c["reason"] for c in status.get("conditions") or ()), "")
        keeps = {
            "Suspended": bool(spec.get("suspend")),
            "StartMissed": "startingDeadlineSeconds" in spec,
            "WaitingForRun": bool(self._open(uid)) and spec["concurrencyPolicy"] == "Forbid",
            "JobRefused": bool(self._refused() & {"create jobs", "delete jobs"}),
        }
        is_silent = WRITE_STATUS in self._refused()
        newest = self._newest(uid)
        is_done = newest is None or _minute(newest) in self.made.get(uid, ())
        is_kept = any(keeps.values()) if is_silent else keeps.get(reason, False)
        if not is_done and not is_kept:
            self._oracle.violate("missed start", f"the start at {newest:g} was not, for {reason}")
        active = [each["name"] for each in status.get("active") or ()]
        if active != sorted(self._open(uid)) and not is_silent:
            words = f"the status lists {active}, and {self._open(uid)} have not ended"
            self._oracle.violate("missed start", words)

    def _newest(self, uid: str) -> float | None:
        """Return the newest start that the schedule asks for, None for none."""
        specs = self._specs[uid]
        number = len(specs.specs) - 1
        since = specs.last_write(number)
        asked = specs.moments(number, after=since)
        if specs.skew <= 0 or not asked:
            return max(asked, default=None)
        found = specs.moments(number, after=specs.read_by(number))
        if not found and _minute(max(asked)) not in self.made.get(uid, ()):
            self._oracle.excuse("missed start", "clock ahead")
        return max(found, default=None)

    # --- facts -------------------------------------------------------------------------------

    def _refused(self) -> set[str]:
        """Return the writes of the controller that are refused for good."""
        return {what for who, what in self._world.refused_forever() if who == "controller"}

    def _known(self, uid: str) -> list[Raw]:
        """Return the specs of which one may be what a reconcile has read that acts now."""
        specs = self._specs[uid]
        return [specs.specs[i][1] for i in specs.known(self._world.loop.moment - READ_SECONDS)]

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


def _minute(moment: float) -> int:
    return int(moment + EPOCH.timestamp()) // 60
