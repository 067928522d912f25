"""Windows are open when a person with a clock says so, also when the clocks are moved."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from job_controller.core.cron.cron_schedule import TEXT_LIMIT, CronSchedule, cron_problem
from job_controller.core.cron.time_zones import time_zone_problem
from job_controller.core.rollout.window import Window, WindowState, read_window, window_state
from tests.unit.core.cron_reader import MINUTE, Field, Schedule

FIELD = "spec.rollout.window"
HOUR = timedelta(hours=1)
# A day before each change of the clocks: forward, back, at midnight, by half an hour, by two hours.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 24, 12, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 7, 18, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 10, 31, 18, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 3, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 3, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 28, 12, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 24, 12, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 4, 23, 8, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2026, 10, 29, 8, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 5, 14, tzinfo=UTC)),
    ("Africa/Casablanca", datetime(2026, 2, 14, 12, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 29, 0, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 3, 28, 12, tzinfo=UTC)),
    ("UTC", datetime(2026, 2, 27, 12, tzinfo=UTC)),
]


def local(zone, *parts, fold=0):
    return datetime(*parts, tzinfo=ZoneInfo(zone), fold=fold)


def window(start="0 22 * * 6", duration="6h", zone="Europe/Berlin"):
    read = read_window(start, duration, zone, field=FIELD)
    assert isinstance(read, Window), read
    return read


def state(opened, *parts, zone="Europe/Berlin", fold=0):
    """Return the state of a window, with the change as the clock of the zone shows it."""
    found = window_state(opened, local(zone, *parts, fold=fold))
    change = found.changes_at and found.changes_at.astimezone(ZoneInfo(zone))
    return found.is_open, change and f"{change:%a %d %H:%M%z}"


def test_names_of_schedules_are_those_of_cron_jobs_by_the_clocks_of_the_zone():
    daily = window("@daily", "4h")
    assert state(daily, 2026, 11, 21, 1) == (True, "Sat 21 04:00+0100")
    assert state(daily, 2026, 11, 21, 5) == (False, "Sun 22 00:00+0100")
    assert read_window("@every 1h", "4h", "UTC", field=FIELD).startswith(f"{FIELD}.start: ")


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((2026, 11, 21, 21, 59, 59), (False, "Sat 21 22:00+0100")),
        ((2026, 11, 21, 22), (True, "Sun 22 04:00+0100")),
        ((2026, 11, 22, 3, 59, 59), (True, "Sun 22 04:00+0100")),
        ((2026, 11, 22, 4), (False, "Sat 28 22:00+0100")),
        # Not the night before: Saturday morning does not belong to a window of Saturday night.
        ((2026, 11, 21, 2), (False, "Sat 21 22:00+0100")),
    ],
)
def test_a_window_goes_past_midnight(parts, expected):
    assert state(window(), *parts) == expected


def test_a_duration_is_time_that_passes():
    # The clocks skip an hour in the first night, and repeat one in the second.
    assert state(window(), 2026, 3, 28, 23) == (True, "Sun 29 05:00+0200")
    assert state(window(), 2026, 10, 24, 23) == (True, "Sun 25 03:00+0100")


def test_a_start_that_the_clocks_skip_is_when_they_are_moved():
    nightly = window("30 2 * * *", "1h")
    assert state(nightly, 2026, 3, 29, 1, 59) == (False, "Sun 29 03:00+0200")
    assert state(nightly, 2026, 3, 29, 3, 59) == (True, "Sun 29 04:00+0200")
    assert state(nightly, 2026, 3, 29, 4) == (False, "Mon 30 02:30+0200")


def test_a_start_that_comes_twice_is_the_first_one():
    nightly = window("30 2 * * *", "90m")
    assert state(nightly, 2026, 10, 25, 2, 29) == (False, "Sun 25 02:30+0200")
    assert state(nightly, 2026, 10, 25, 2, 30) == (True, "Sun 25 03:00+0100")
    # The clock shows 02:10 again: the window that began at the first 02:30 is open.
    assert state(nightly, 2026, 10, 25, 2, 10, fold=1) == (True, "Sun 25 03:00+0100")
    assert state(nightly, 2026, 10, 25, 2, 30, fold=1) == (True, "Sun 25 03:00+0100")
    assert state(nightly, 2026, 10, 25, 3) == (False, "Mon 26 02:30+0100")


def test_a_schedule_that_follows_the_clock_starts_in_both_equal_hours():
    each_hour = window("15 * * * *", "10m")
    assert state(each_hour, 2026, 10, 25, 2, 20) == (True, "Sun 25 02:25+0200")
    assert state(each_hour, 2026, 10, 25, 2, 25) == (False, "Sun 25 02:15+0100")
    assert state(each_hour, 2026, 10, 25, 2, 20, fold=1) == (True, "Sun 25 02:25+0100")
    assert state(each_hour, 2026, 3, 29, 1, 30) == (False, "Sun 29 03:15+0200")


def test_windows_that_touch_are_one():
    assert state(window("0 */4 * * 1-5", "4h"), 2026, 11, 23, 1) == (True, "Sat 28 00:00+0100")
    assert state(window("0 20 * * *", "30h"), 2026, 11, 23, 1) == (True, None)


@pytest.mark.parametrize(
    ("start", "part"),
    [
        ("0 22 * *", "does not have 5 fields"),
        ("0 0 22 * * 6", "does not have 5 fields"),
        ("", "does not have 5 fields"),
        ("@every 1h", "does not have 5 fields"),
        ("60 22 * * 6", "the field minute is wrong"),
        ("0 22 * * 8", "the field day-of-week is wrong"),
        ("0 22 30 2 *", "the field day-of-month is wrong"),
        ("* * */20 * 1L", "has no start within ten years"),
        ("0 " * 100, f"more than {TEXT_LIMIT} characters"),
    ],
)
def test_a_start_that_never_comes_is_refused_with_its_field(start, part):
    problem = read_window(start, "1h", "UTC", field=FIELD)
    assert isinstance(problem, str)
    assert problem.startswith("spec.rollout.window.start: ")
    assert part in problem


@pytest.mark.parametrize(
    "duration",
    ["", "4", "4 h", "59s", "-1h", "0h", "8785h", "4d", "1e5h", "h", "9" * 31 + "h", "1h" * 40],
)
def test_a_duration_out_of_range_is_refused_with_its_field(duration):
    problem = read_window("0 22 * * 6", duration, "UTC", field=FIELD)
    assert isinstance(problem, str)
    assert problem.startswith("spec.rollout.window.duration: ")
    assert "4h, 90m" in problem


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("utc", "Europe/Berlin or UTC"),
        ("Local", ""),
        ("", "Europe/Berlin or UTC"),
        ("Europe", ""),
        ("../etc/passwd", ""),
        ("/etc/localtime", ""),
        ("Europe/Berlin\0", "Europe/Berlin"),
        ("x" * 100_000, "Europe/Berlin"),
    ],
)
def test_a_time_zone_that_does_not_exist_is_refused_with_its_field(zone, meant):
    problem = read_window("0 22 * * 6", "1h", zone, field=FIELD)
    assert isinstance(problem, str)
    assert problem.startswith("spec.rollout.window.timeZone: ")
    assert meant in problem
    assert len(problem) < 300


@given(st.text("0123456789*/-,#LW ?@SUNMONJAFEB", max_size=40))
def test_any_text_is_a_schedule_or_has_a_problem(text):
    if not cron_problem(text):
        assert CronSchedule(text, "Europe/Berlin").next_start(CHANGES[0][1]) is not None


@given(st.text(max_size=80))
def test_any_text_is_a_time_zone_or_has_a_problem(text):
    assert time_zone_problem(text)


@pytest.mark.parametrize(
    ("text", "stars"),
    [("0 0 ? * 1", "0 0 * * 1"), ("? 2 * * ?", "* 2 * * *"), ("?/10 * * * *", "*/10 * * * *")],
)
def test_a_question_mark_is_a_star_as_for_a_cronjob(text, stars):
    assert cron_problem(text) == ""
    for zone, moment in CHANGES:
        found = CronSchedule(text, zone).next_start(moment)
        assert found == CronSchedule(stars, zone).next_start(moment)


def test_the_search_has_a_bound():
    """The worst texts that are accepted take a few milliseconds, not one for each minute."""
    moment = datetime(2026, 3, 28, 23, tzinfo=UTC)
    worst = [
        Window("* * * * *", 60.0, "Europe/Berlin"),
        Window("0-59 0-23 * * *", 3600.0, "Europe/Berlin"),
        Window("0 0 29 2 *", 60.0, "Europe/Berlin"),
        Window("* * */20 * 1L", 60.0, "Europe/Berlin"),
    ]
    for each in worst:
        begun = time.process_time()
        window_state(each, moment)
        assert time.process_time() - begun < 1.0
    assert window_state(worst[0], moment) == WindowState(is_open=True, changes_at=None)
    assert window_state(worst[3], moment) == WindowState(is_open=False, changes_at=None)


# --- against a reader that looks at the clock each minute ----------------------------------


@st.composite
def fields(draw, low, high):
    every = frozenset(range(low, high + 1))
    kind = draw(st.sampled_from(["star", "step", "list", "range"]))
    if kind == "star":
        return Field("*", every)
    if kind == "step":
        step = draw(st.sampled_from([2, 3, 5, 7, 10, 15, 20, 30]))
        return Field(f"*/{step}", frozenset(range(low, high + 1, step)))
    if kind == "list":
        chosen = sorted(draw(st.sets(st.integers(low, high), min_size=1, max_size=4)))
        return Field(",".join(map(str, chosen)), frozenset(chosen))
    first, last = sorted(draw(st.tuples(st.integers(low, high), st.integers(low, high))))
    return Field(f"{first}-{last}", frozenset(range(first, last + 1)))


# Hours near those in which clocks are moved, more often than others.
NIGHT = st.sets(st.sampled_from([0, 1, 2, 3, 4, 23]), min_size=1, max_size=3).map(
    lambda hours: Field(",".join(map(str, sorted(hours))), frozenset(hours))
)
EACH = {"day": Field("*", frozenset(range(1, 32))), "month": Field("*", frozenset(range(1, 13)))}
SCHEDULES = st.builds(
    Schedule,
    minute=fields(0, 59),
    hour=NIGHT | fields(0, 23),
    day=st.just(EACH["day"]) | fields(1, 31),
    month=st.just(EACH["month"]),
    weekday=st.just(Field("*", frozenset(range(7)))) | fields(0, 6),
)


def changed_at(zone, moment):
    """Return when the clocks are moved in the day after a moment; the moment itself if never."""
    minutes = (moment + each * MINUTE for each in range(26 * 60))
    offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
    moved = (each for each in minutes if each.astimezone(ZoneInfo(zone)).utcoffset() != offset)
    return next(moved, moment)


# Each zone, and a moment some hours before its clocks are moved.
NEAR = st.sampled_from([(zone, changed_at(zone, before) - 5 * HOUR) for zone, before in CHANGES])
# Most moments are near the change, and some are a day after it.
MINUTES_AFTER = st.integers(3 * 60, 9 * 60) | st.integers(0, 24 * 60)


@settings(max_examples=150)
@given(SCHEDULES, NEAR, MINUTES_AFTER)
def test_starts_are_those_that_a_clock_shows(schedule, near, after):
    zone, begin = near
    end = begin + timedelta(hours=30)
    expected = schedule.starts(ZoneInfo(zone), begin, end)
    cron = CronSchedule(schedule.text, zone)

    found = []
    for start in cron.starts_after(begin - MINUTE):
        if start >= end:
            break
        found.append(start)
    assert found == expected

    # Each ten minutes around the change, and one more moment.
    for minutes in (after, *range(4 * 60, 8 * 60, 10)):
        moment = begin + minutes * MINUTE
        before = [start for start in expected if start <= moment]
        if before:
            assert cron.latest_start(moment) == before[-1]
            assert cron.latest_start(moment + timedelta(seconds=59.5)) == before[-1]
        later = [start for start in expected if start > moment]
        if later:
            assert cron.next_start(moment) == later[0]


@settings(max_examples=150)
@given(SCHEDULES, st.integers(1, 600), NEAR, MINUTES_AFTER)
def test_a_window_is_open_when_a_clock_says_so(schedule, minutes, near, after):
    zone, begin = near
    end = begin + timedelta(hours=30)
    duration = minutes * MINUTE
    starts = schedule.starts(ZoneInfo(zone), begin - 10 * HOUR, end)

    def is_open(moment):
        return any(start <= moment < start + duration for start in starts)

    moment = begin + after * MINUTE
    found = window_state(Window(schedule.text, duration.total_seconds(), zone), moment)
    assert found.is_open == is_open(moment)

    step = moment
    while step < end and is_open(step) == found.is_open:
        step += MINUTE
    if step < end:
        assume(found.changes_at is not None or not found.is_open)
        assert found.changes_at == step
    elif found.changes_at is not None:
        assert found.changes_at >= end


HOSTILE = "\x1b]0;owned\x07\x1b[2J"


@pytest.mark.parametrize(
    "texts",
    [
        (HOSTILE, "1h", "UTC"),
        (f"{HOSTILE} * * * *", "1h", "UTC"),
        ("0 0 * * *", "\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}", "UTC"),
        ("0 0 * * *", "1h", HOSTILE),
    ],
)
def test_no_text_of_a_window_controls_the_terminal_of_who_reads_its_problem(texts):
    problem = read_window(*texts, field="spec.rollout.window")
    assert isinstance(problem, str)
    assert problem.isprintable(), problem
