"""Each start of a ScheduledJob happens once, whatever dies in between."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.job import parse_job
from daemonset_job.api.owners import owner_reference
from daemonset_job.api.schedule_reasons import ScheduleEventReason, SchedulingReason
from daemonset_job.api.scheduled_job import (
    ActiveRun,
    ConcurrencyPolicy,
    ScheduledJob,
    ScheduleSpec,
    ScheduleStatus,
    parse_scheduled_job,
)
from daemonset_job.api.states import Phase
from job_controller.core.scheduled.decide import (
    ACTIVE_LIMIT,
    DELETED_SECONDS,
    DELETIONS_AT_ONCE,
    READ_SECONDS,
    decide_schedule,
)
from job_controller.core.scheduled.run_manifest import build_run
from job_controller.core.scheduled.snapshot import (
    Run,
    ScheduleSnapshot,
    StartResult,
    StartRun,
    TriedStart,
)
from job_controller.core.scheduled.starts import run_name, scheduled_name

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)
CREATED = NOON - timedelta(minutes=10, seconds=30)


def scheduled(schedule="*/5 * * * *", status=None, **spec):
    return ScheduledJob(
        "ns", "sweep", "uid", "1", 1, ScheduleSpec(schedule, **spec), CREATED,
        status=status or ScheduleStatus(),
    )  # fmt: skip


def name(moment):
    return run_name("sweep", moment)


def reason(plan):
    return plan.status.scheduling.reason


def test_the_newest_start_is_done_and_has_its_minute_in_its_name():
    plan = decide_schedule(ScheduleSnapshot(scheduled()), NOON + timedelta(seconds=2))
    assert plan.start == StartRun(NOON, f"sweep-{int(NOON.timestamp()) // 60}")
    assert scheduled_name(plan.start.name) == "sweep"


def test_what_was_started_is_written_and_not_started_again():
    first = ScheduleSnapshot(scheduled(), (Run(name(NOON), "a"),))
    plan = decide_schedule(replace(first, tried=TriedStart(NOON, StartResult.STARTED)), NOON)
    assert plan.status.last_schedule_time == NOON
    assert plan.status.active == (ActiveRun(name(NOON), "a"),)
    assert plan.status.next_schedule_time == NOON + 5 * MINUTE
    assert [event.reason for event in plan.events] == [ScheduleEventReason.RUN_STARTED]
    after = decide_schedule(ScheduleSnapshot(scheduled(status=plan.status)), NOON + 4 * MINUTE)
    assert after.start is None
    assert after.requeue_after == 60


def test_the_time_of_the_last_start_never_goes_back():
    later = ScheduleStatus(last_schedule_time=NOON + 5 * MINUTE)
    tried = TriedStart(NOON, StartResult.WAS_STARTED)
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=later), tried=tried), NOON)
    assert plan.status.last_schedule_time == NOON + 5 * MINUTE
    # The clock was set back: a start that was done is not due again.
    assert decide_schedule(ScheduleSnapshot(scheduled(status=later)), NOON).start is None


@pytest.mark.parametrize(
    ("ahead", "next_start"),
    [(HOUR, NOON + HOUR + 5 * MINUTE), (3650 * 24 * HOUR, NOON + 3650 * 24 * HOUR + 5 * MINUTE)],
    ids=["an hour", "ten years"],
)
def test_after_a_clock_that_was_ahead_the_next_start_is_the_one_that_will_be_done(
    ahead, next_start
):
    later = ScheduleStatus(last_schedule_time=NOON + ahead)
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=later)), NOON)
    assert plan.status.next_schedule_time == next_start
    assert decide_schedule(ScheduleSnapshot(scheduled(status=later)), next_start).start is not None


def test_after_the_last_time_that_there_is_no_start_comes():
    last = ScheduleStatus(last_schedule_time=datetime.max.replace(microsecond=0, tzinfo=UTC))
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=last)), NOON)
    assert (plan.start, plan.status.next_schedule_time) == (None, None)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_run_that_ends_at_the_last_time_that_there_is_stays(phase):
    last = datetime.max.replace(microsecond=0, tzinfo=UTC)
    run = Run(name(NOON), "a", phase, last, deletes_itself=phase is Phase.SUCCEEDED)
    done = scheduled(failed_limit=0, successful_limit=0, status=ScheduleStatus((), 1, NOON))
    plan = decide_schedule(ScheduleSnapshot(done, (run,)), NOON)
    assert (plan.deletions, plan.requeue_after) == ((), 300)


def test_thousands_of_missed_starts_are_one():
    old = ScheduleStatus(last_schedule_time=NOON - timedelta(days=400))
    plan = decide_schedule(ScheduleSnapshot(scheduled("* * * * *", status=old)), NOON)
    assert plan.start.moment == NOON


def test_no_start_before_it_was_created():
    plan = decide_schedule(ScheduleSnapshot(scheduled("0 11 * * *")), NOON)
    assert plan.start is None
    assert reason(plan) == SchedulingReason.SCHEDULED


@pytest.mark.parametrize("ahead", [timedelta(), 7 * MINUTE, 24 * HOUR])
def test_an_api_server_whose_clock_is_ahead_delays_no_start(ahead):
    """It says that the ScheduledJob will be created in some minutes."""
    new = replace(scheduled(), created_at=NOON - MINUTE + ahead)
    status = decide_schedule(ScheduleSnapshot(new), NOON - MINUTE).status
    assert status.next_schedule_time == NOON
    plan = decide_schedule(ScheduleSnapshot(replace(new, status=status)), NOON)
    assert (plan.start, plan.deletions) == (StartRun(NOON, name(NOON)), ())


def test_a_start_that_is_too_late_is_left_out_and_told_once():
    old = ScheduleStatus(last_schedule_time=NOON - 5 * MINUTE)
    late = scheduled(status=old, starting_deadline_seconds=60)
    plan = decide_schedule(ScheduleSnapshot(late), NOON + 2 * MINUTE)
    assert plan.start is None
    assert reason(plan) == SchedulingReason.START_MISSED
    assert [event.is_warning for event in plan.events] == [True]
    again = replace(late, status=plan.status)
    assert decide_schedule(ScheduleSnapshot(again), NOON + 2 * MINUTE).events == ()
    assert decide_schedule(ScheduleSnapshot(late), NOON + MINUTE).start is not None


@pytest.mark.parametrize("limit", [0, 1, 60])
def test_a_deadline_is_counted_in_whole_seconds(limit):
    """A timer is late by some milliseconds, so a deadline of 0 would leave out each start."""
    old = ScheduleStatus(last_schedule_time=NOON - 5 * MINUTE)
    snapshot = ScheduleSnapshot(scheduled(status=old, starting_deadline_seconds=limit))
    last = NOON + timedelta(seconds=limit, microseconds=999_999)
    assert decide_schedule(snapshot, last).start is not None
    plan = decide_schedule(snapshot, last + timedelta(microseconds=1))
    assert (plan.start, reason(plan)) == (None, SchedulingReason.START_MISSED)


def test_a_start_whose_job_exists_was_not_missed():
    """A controller died between the creation and its record, and was away for long."""
    late = scheduled(starting_deadline_seconds=60)
    runs = (Run(name(NOON), "a"),)
    plan = decide_schedule(ScheduleSnapshot(late, runs), NOON + 2 * MINUTE)
    assert plan.start == StartRun(NOON, name(NOON))
    tried = TriedStart(NOON, StartResult.WAS_STARTED)
    plan = decide_schedule(ScheduleSnapshot(late, runs, tried=tried), NOON + 2 * MINUTE)
    assert (reason(plan), plan.status.last_schedule_time) == (SchedulingReason.SCHEDULED, NOON)


def test_a_changed_schedule_starts_nothing_in_the_past():
    old = decide_schedule(ScheduleSnapshot(scheduled("0 2 * * *")), NOON).status
    moved = scheduled("0 11 * * *", status=replace(old, last_schedule_time=NOON - 10 * HOUR))
    plan = decide_schedule(ScheduleSnapshot(moved), NOON)
    assert plan.start is None
    assert plan.status.schedule_time == NOON
    assert plan.status.next_schedule_time == NOON + 23 * HOUR


@pytest.mark.parametrize(
    ("changed_at", "starts"),
    [
        (timedelta(hours=10, minutes=59, seconds=59), True),
        (timedelta(hours=11), False),
        (timedelta(hours=11, minutes=30), False),
        (timedelta(hours=13), False),  # the clock of the API server is ahead
    ],
)
def test_a_start_after_the_change_that_no_controller_saw_is_made_up_for(changed_at, starts):
    old = decide_schedule(ScheduleSnapshot(scheduled("0 2 * * *")), NOON - 3 * HOUR).status
    moved = scheduled("0 11 * * *", status=replace(old, last_schedule_time=NOON - 10 * HOUR))
    midnight = NOON - 12 * HOUR
    moved = replace(moved, created_at=midnight, spec_time=midnight + changed_at)
    plan = decide_schedule(ScheduleSnapshot(moved), NOON)
    assert (plan.start is not None) == starts


@pytest.mark.parametrize(
    "mistake", [{"schedule": "0 61 * * *"}, {"schedule": "0 11 * * *", "time_zone": "Mars"}]
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_mistake_that_is_corrected_starts_nothing_in_the_past(mistake, is_first):
    """A start before the correction does not come at once, in the middle of a day."""
    status = ScheduleStatus()
    if not is_first:
        valid = replace(scheduled("0 11 * * *"), created_at=NOON - 3 * HOUR)
        status = decide_schedule(ScheduleSnapshot(valid), NOON - 2 * HOUR).status
    wrong = replace(scheduled(status=status, **mistake), created_at=NOON - 3 * HOUR)
    wrong = replace(wrong, spec_time=NOON - 2 * HOUR)
    status = decide_schedule(ScheduleSnapshot(wrong), NOON - 2 * HOUR).status
    corrected = scheduled("0 11 * * *", status=status)
    corrected = replace(corrected, created_at=NOON - 3 * HOUR, spec_time=NOON)
    plan = decide_schedule(ScheduleSnapshot(corrected), NOON + MINUTE)
    assert plan.start is None
    assert plan.status.next_schedule_time == NOON + 23 * HOUR


@pytest.mark.parametrize(("changed_at", "starts"), [(2 * HOUR, False), (3 * HOUR, True)])
def test_a_start_before_a_change_is_not_made_up_for_if_nothing_was_recorded(changed_at, starts):
    """The controller was away, or the API server refused the status."""
    changed = replace(scheduled("30 9 * * *"), created_at=NOON - 5 * HOUR, generation=2)
    changed = replace(changed, spec_time=NOON - changed_at)
    plan = decide_schedule(ScheduleSnapshot(changed), NOON)
    assert (plan.start is not None) == starts


def test_a_change_of_labels_alone_leaves_out_no_start_that_came_before():
    """A client that wrote the spec owns its fields, and writes labels: that has a new time."""
    labelled = replace(scheduled("30 9 * * *"), created_at=NOON - 5 * HOUR, generation=1)
    labelled = replace(labelled, spec_time=NOON - HOUR)
    plan = decide_schedule(ScheduleSnapshot(labelled), NOON)
    assert plan.start.moment == NOON - timedelta(hours=2, minutes=30)


@pytest.mark.parametrize("generation", [1, 2])
def test_no_start_before_the_creation_by_an_older_time_of_its_fields(generation):
    """A client may write managedFields: those of a saved object have the times of that one."""
    restored = replace(scheduled("30 9 * * *"), created_at=NOON - HOUR, generation=generation)
    restored = replace(restored, spec_time=NOON - 24 * HOUR)
    plan = decide_schedule(ScheduleSnapshot(restored), NOON)
    assert (plan.start, plan.status.schedule_time) == (None, NOON - HOUR)


def test_forbid_waits_for_the_run_before_and_then_starts_the_newest_one():
    policy = {"concurrency_policy": ConcurrencyPolicy.FORBID}
    before = Run(name(NOON - 5 * MINUTE), "a")
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), (before,)), NOON)
    assert plan.start is None
    assert reason(plan) == SchedulingReason.WAITING_FOR_RUN
    assert before.name in plan.status.scheduling.message
    ended = replace(before, phase=Phase.FAILED, ended_at=NOON)
    later = NOON + 7 * MINUTE
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), (ended,)), later)
    assert plan.start.moment == NOON + 5 * MINUTE


def test_a_start_that_waits_is_looked_at_when_its_deadline_has_passed():
    """Until then the status says that it waits, and from then on that it was missed."""
    policy = {"concurrency_policy": ConcurrencyPolicy.FORBID, "starting_deadline_seconds": 30}
    before = (Run(name(NOON - 5 * MINUTE), "a"),)
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), before), NOON)
    assert reason(plan) == SchedulingReason.WAITING_FOR_RUN
    later = NOON + timedelta(seconds=plan.requeue_after)
    assert timedelta(seconds=30) < later - NOON < MINUTE
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), before), later)
    assert reason(plan) == SchedulingReason.START_MISSED


def test_replace_deletes_the_run_before_and_not_the_one_that_it_starts():
    policy = {"concurrency_policy": ConcurrencyPolicy.REPLACE}
    runs = (Run(name(NOON - 5 * MINUTE), "a"), Run(name(NOON), "b"))
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), runs), NOON)
    assert [run.uid for run in plan.deletions] == ["a"]
    assert plan.start.moment == NOON


def test_replace_deletes_no_run_again_that_is_being_deleted():
    """A finalizer keeps it; each start would have the event that it was deleted."""
    stuck = Run(name(NOON - 5 * MINUTE), "a", is_being_deleted=True)
    policy = {"concurrency_policy": ConcurrencyPolicy.REPLACE}
    plan = decide_schedule(ScheduleSnapshot(scheduled(**policy), (stuck,)), NOON)
    assert (plan.deletions, plan.events) == ((), ())
    assert plan.start.moment == NOON


def test_a_schedule_that_is_suspended_or_stopped_starts_nothing_and_says_so():
    plan = decide_schedule(ScheduleSnapshot(scheduled(suspend=True)), NOON)
    assert (plan.start, reason(plan)) == (None, SchedulingReason.SUSPENDED)
    plan = decide_schedule(ScheduleSnapshot(scheduled(), stop_message="stopped: fire"), NOON)
    assert (plan.start, reason(plan)) == (None, SchedulingReason.CLUSTER_STOPPED)
    assert plan.status.scheduling.message == "stopped: fire"
    assert plan.status.next_schedule_time is None


@pytest.mark.parametrize(
    ("spec", "stop_message"),
    [({"suspend": True}, ""), ({"suspend": True, "starting_deadline_seconds": 9}, ""), ({}, "x")],
    ids=["suspended", "suspended, and its deadline has passed", "stopped"],
)
def test_a_start_that_was_not_recorded_before_a_suspension_does_not_happen_again(
    spec, stop_message
):
    """A controller died between the creation and its record. Job and report are deleted later."""
    runs = (Run(name(NOON), "a"),)
    snapshot = ScheduleSnapshot(scheduled(**spec), runs, stop_message=stop_message)
    plan = decide_schedule(snapshot, NOON + MINUTE)
    assert (plan.start, plan.status.last_schedule_time) == (None, NOON)
    assert reason(plan) in {SchedulingReason.SUSPENDED, SchedulingReason.CLUSTER_STOPPED}
    resumed = ScheduleSnapshot(scheduled(status=plan.status))
    assert decide_schedule(resumed, NOON + 2 * MINUTE).start is None
    assert decide_schedule(resumed, NOON + 5 * MINUTE).start is not None


@pytest.mark.parametrize(
    ("spec", "field"),
    [({"schedule": "61 * * * *"}, "spec.schedule: "), ({"time_zone": "Mars"}, "spec.timeZone: ")],
)
def test_a_mistake_is_told_with_its_field(spec, field):
    plan = decide_schedule(ScheduleSnapshot(scheduled(**spec)), NOON)
    assert (plan.start, reason(plan)) == (None, SchedulingReason.INVALID_SCHEDULE)
    assert plan.status.scheduling.message.startswith(field)
    assert plan.status.scheduling.status is False


def test_a_refused_job_is_told_and_tried_again():
    tried = TriedStart(NOON, StartResult.REFUSED, "no quota\x1b[31m")
    plan = decide_schedule(ScheduleSnapshot(scheduled(), tried=tried), NOON)
    assert reason(plan) == SchedulingReason.JOB_REFUSED
    assert "no quota [31m" in plan.status.scheduling.message
    assert plan.status.last_schedule_time is None
    assert plan.requeue_after == 30
    again = replace(scheduled(), status=plan.status)
    assert decide_schedule(ScheduleSnapshot(again), NOON).start is not None


def test_a_name_that_is_taken_is_told_and_not_tried_again():
    tried = TriedStart(NOON, StartResult.NAME_TAKEN)
    plan = decide_schedule(ScheduleSnapshot(scheduled(), tried=tried), NOON)
    assert reason(plan) == SchedulingReason.JOB_NAME_TAKEN
    assert plan.status.last_schedule_time == NOON
    # It is to be read until the next start, and not only until the next look.
    after = scheduled(status=plan.status)
    again = decide_schedule(ScheduleSnapshot(after), NOON + MINUTE)
    assert (again.status, again.events) == (plan.status, ())
    assert decide_schedule(ScheduleSnapshot(after), NOON + 5 * MINUTE).start is not None
    tried = TriedStart(NOON + 5 * MINUTE, StartResult.STARTED)
    plan = decide_schedule(ScheduleSnapshot(after, tried=tried), NOON + 5 * MINUTE)
    assert reason(plan) == SchedulingReason.SCHEDULED


def test_runs_that_do_not_end_have_a_bound():
    runs = tuple(Run(name(NOON - each * 5 * MINUTE), str(each)) for each in range(1, ACTIVE_LIMIT))
    assert decide_schedule(ScheduleSnapshot(scheduled(), runs), NOON).start is not None
    plan = decide_schedule(ScheduleSnapshot(scheduled(), (*runs, Run("sweep-1", "x"))), NOON)
    assert (plan.start, reason(plan)) == (None, SchedulingReason.TOO_MANY_RUNS)


def test_old_jobs_that_stay_are_deleted_a_few_at_a_time():
    def ended(count, phase):
        return tuple(
            Run(f"sweep-{each:03}", f"{phase}{each}", phase, CREATED - each * MINUTE)
            for each in range(count)
        )

    runs = (*ended(5, Phase.SUCCEEDED), *ended(3, Phase.FAILED))
    done = ScheduleStatus(last_schedule_time=NOON)
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=done), runs), NOON)
    assert [run.uid for run in plan.deletions] == ["Succeeded4", "Succeeded3", "Failed2", "Failed1"]
    assert plan.status.last_successful_time == CREATED.replace(microsecond=0)
    many = ended(200, Phase.SUCCEEDED)
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=done), many), NOON)
    assert len(plan.deletions) == DELETIONS_AT_ONCE


def test_a_job_of_which_a_person_wants_more_stays_and_does_not_count():
    done = ScheduleStatus(last_schedule_time=NOON)
    runs = tuple(
        Run(f"sweep-{each}", str(each), Phase.FAILED, NOON + each * MINUTE, resource_version="7")
        for each in range(3)
    )
    runs = (replace(runs[0], is_due_again=True), *runs[1:])
    plan = decide_schedule(ScheduleSnapshot(scheduled(status=done), runs), NOON + 4 * MINUTE)
    assert [(run.uid, run.resource_version) for run in plan.deletions] == [("1", "7")]


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_job_beyond_the_history_stays_while_its_results_may_be_read(phase):
    done = ScheduleStatus(last_schedule_time=NOON)
    found = scheduled(status=done, successful_limit=0, failed_limit=0)
    snapshot = ScheduleSnapshot(found, (Run("sweep-1", "1", phase, NOON),))
    plan = decide_schedule(snapshot, NOON + timedelta(seconds=5))
    assert (plan.deletions, plan.requeue_after) == ((), READ_SECONDS - 5)
    plan = decide_schedule(snapshot, NOON + timedelta(seconds=READ_SECONDS))
    assert [run.uid for run in plan.deletions] == ["1"]


def test_a_job_that_deletes_itself_is_left_to_the_terminator_and_does_not_count():
    done = ScheduleStatus(last_schedule_time=NOON)
    runs = tuple(
        Run(f"sweep-{each}", str(each), Phase.SUCCEEDED, CREATED, deletes_itself=each < 3)
        for each in range(5)
    )
    snapshot = ScheduleSnapshot(scheduled(status=done, successful_limit=1), runs)
    plan = decide_schedule(snapshot, CREATED + timedelta(seconds=DELETED_SECONDS - 1))
    assert [run.uid for run in plan.deletions] == ["3"]
    # The terminator has a reason for which they stay.
    plan = decide_schedule(snapshot, CREATED + timedelta(seconds=DELETED_SECONDS))
    assert [run.uid for run in plan.deletions] == ["0", "1", "2", "3"]


def test_the_success_of_a_deleted_run_is_known_by_its_report():
    status = ScheduleStatus(last_schedule_time=NOON, active=(ActiveRun(name(NOON), "a"),))
    snapshot = ScheduleSnapshot(scheduled(status=status), successes=(NOON + MINUTE,))
    plan = decide_schedule(snapshot, NOON + 2 * MINUTE)
    assert plan.status.last_successful_time == NOON + MINUTE
    assert plan.status.active == ()


def test_the_job_is_that_of_the_template_and_owned():
    template = {
        "metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}},
        "spec": {"image": "x"},
    }
    made = build_run(scheduled(template=template), StartRun(NOON, name(NOON)))
    assert made["spec"] == {"image": "x"}
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["annotations"]["b"] == "c"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("ScheduledJob", "uid", True)
    made["metadata"]["uid"] = "made"
    assert parse_job(made).scheduled_by == "sweep"


@pytest.mark.parametrize(
    ("job", "owner"),
    [("sweep-7", "other"), ("sweep", "sweep"), ("sweep-now", "sweep"), ("-7", "")],
)
def test_an_owner_whose_run_has_another_name_is_no_schedule(job, owner):
    """Any client may write an owner reference."""
    owners = [owner_reference("ScheduledJob", owner, "uid")]
    meta = {"name": job, "uid": "made", "ownerReferences": owners}
    assert parse_job({"metadata": meta, "spec": {"image": "x"}}).scheduled_by == ""


def test_a_status_is_read_as_it_was_written():
    plan = decide_schedule(ScheduleSnapshot(scheduled(), (Run(name(NOON), "a"),)), NOON)
    status = replace(plan.status, last_successful_time=NOON, last_schedule_time=NOON)
    raw = {"metadata": {"name": "sweep", "uid": "uid"}, "spec": {}, "status": status.to_raw()}
    assert parse_scheduled_job(raw).status == status


# --- any life of a ScheduledJob ------------------------------------------------------------


class CrashError(Exception):
    pass


@dataclass
class World:
    """What the API server has, and what a person saw: each creation of a Job."""

    spec: ScheduleSpec
    status: ScheduleStatus = field(default_factory=ScheduleStatus)
    jobs: dict[str, Run] = field(default_factory=dict)
    reports: set[str] = field(default_factory=set)
    created: list[str] = field(default_factory=list)
    most_at_once: int = 0
    writes: int = 0
    crash_at: int = -1

    def write(self):
        """Count a write; the process dies after the one that was chosen."""
        self.writes += 1
        return self.writes == self.crash_at

    def reconcile(self, now):
        found = ScheduledJob("ns", "sweep", "uid", "1", 1, self.spec, CREATED, status=self.status)
        snapshot = ScheduleSnapshot(found, tuple(self.jobs.values()))
        plan = decide_schedule(snapshot, now)
        if plan.start is not None:
            self.delete(plan)
            result = StartResult.WAS_STARTED
            if plan.start.name not in self.jobs and plan.start.name not in self.reports:
                result = StartResult.STARTED
                self.create(plan.start.name)
            tried = TriedStart(plan.start.moment, result)
            snapshot = replace(snapshot, runs=tuple(self.jobs.values()), tried=tried)
            plan = decide_schedule(snapshot, now)
        if plan.status != self.status:
            self.status = plan.status
            if self.write():
                raise CrashError
        self.delete(plan)

    def create(self, job):
        self.created.append(job)
        self.jobs[job] = Run(job, f"uid-{job}-{len(self.created)}")
        self.reports.add(job)
        active = [run for run in self.jobs.values() if not run.has_ended]
        self.most_at_once = max(self.most_at_once, len(active))
        if self.write():
            raise CrashError

    def delete(self, plan):
        for run in plan.deletions:
            self.jobs.pop(run.name, None)
            if self.write():
                raise CrashError

    def end(self, index, phase, now, *, stays):
        """End a run; a Job that succeeded deletes itself, unless it has a time to live."""
        active = sorted(run.name for run in self.jobs.values() if not run.has_ended)
        if not active:
            return
        run = self.jobs[active[index % len(active)]]
        if phase == Phase.SUCCEEDED and not stays:
            del self.jobs[run.name]
        else:
            self.jobs[run.name] = replace(run, phase=phase, ended_at=now)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 400),  # seconds until the step
        st.sampled_from(["nothing", "end", "end", "fail", "stay", "delete"]),
        st.integers(0, 5),
    ),
    max_size=25,
)
SPECS = st.builds(
    ScheduleSpec,
    schedule=st.sampled_from(["* * * * *", "*/2 * * * *", "1-59/3 * * * *"]),
    concurrency_policy=st.sampled_from(list(ConcurrencyPolicy)),
    starting_deadline_seconds=st.none() | st.integers(0, 200),
    successful_limit=st.integers(0, 2),
    failed_limit=st.integers(0, 2),
)


@settings(max_examples=200)
@given(SPECS, STEPS, st.integers(-1, 30))
def test_no_start_happens_twice_and_forbid_never_has_two(spec, steps, crash_at):
    world, now = World(spec, crash_at=crash_at), CREATED
    for seconds, action, index in steps:
        now += timedelta(seconds=seconds)
        match action:
            case "end":
                world.end(index, Phase.SUCCEEDED, now, stays=False)
            case "stay":
                world.end(index, Phase.SUCCEEDED, now, stays=True)
            case "fail":
                world.end(index, Phase.FAILED, now, stays=True)
            case "delete" if world.jobs:
                del world.jobs[sorted(world.jobs)[index % len(world.jobs)]]
        before = world.status.last_schedule_time
        # A process that dies is started again, and begins from what the API server has.
        for _ in range(3):
            try:
                world.reconcile(now)
            except CrashError:
                continue
        after = world.status.last_schedule_time
        assert before is None or (after is not None and after >= before)
    assert len(world.created) == len(set(world.created))
    if spec.concurrency_policy != ConcurrencyPolicy.ALLOW:
        assert world.most_at_once <= 1


@settings(max_examples=100)
@given(SPECS, st.integers(1, 8))
def test_a_crash_after_any_write_leads_to_the_same_end(spec, crash_at):
    def live(crash_at):
        world, now = World(spec, crash_at=crash_at), CREATED
        for _ in range(12):
            now += timedelta(seconds=61)
            for _ in range(3):
                try:
                    world.reconcile(now)
                except CrashError:
                    continue
            world.end(0, Phase.SUCCEEDED, now, stays=False)
        return world.created, world.status.last_schedule_time, set(world.jobs)

    assert live(crash_at) == live(-1)


def test_a_run_that_is_rolled_back_is_active_and_not_replaced():
    rolled = Run(name(NOON - 5 * MINUTE), "a", Phase.FAILED, None, is_rolling_back=True)
    for policy in (ConcurrencyPolicy.FORBID, ConcurrencyPolicy.REPLACE):
        snapshot = ScheduleSnapshot(scheduled(concurrency_policy=policy), (rolled,))
        plan = decide_schedule(snapshot, NOON)
        assert (plan.start, plan.deletions) == (None, ())
        assert reason(plan) == SchedulingReason.WAITING_FOR_RUN
        assert rolled.name in plan.status.scheduling.message
        assert [run.name for run in plan.status.active] == [rolled.name]
    done = replace(rolled, ended_at=NOON, is_rolling_back=False)
    snapshot = ScheduleSnapshot(scheduled(concurrency_policy=ConcurrencyPolicy.REPLACE), (done,))
    assert decide_schedule(snapshot, NOON).start is not None
