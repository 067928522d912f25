"""Names that Kubernetes takes, and its times."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.names import (
    daemon_set_name,
    first_version_report_name,
    job_label,
    report_name,
    report_time,
    shard_name,
    shorten,
)
from daemonset_job.api.times import add_seconds, format_time, parse_time

LABEL = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
JOB_NAMES = st.from_regex(rf"\A{LABEL}\Z").filter(lambda name: len(name) <= 253)
MOMENTS = st.datetimes(
    datetime(1970, 1, 1),  # noqa: DTZ001 - the zone is given beside
    datetime(2100, 1, 1),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)


@given(JOB_NAMES, MOMENTS)
def test_every_job_has_names_that_fit(name, created):
    report = report_name(name, "12345678-90ab", created)
    earlier = first_version_report_name(name, "12345678-90ab")
    for derived, limit in (
        (daemon_set_name(name), 63),
        (job_label(name), 63),
        (report, 253),
        (earlier, 253),
        *((shard_name(first, shard), 253) for first in (report, earlier) for shard in (1, 12)),
    ):
        assert len(derived) <= limit
        assert re.fullmatch(LABEL, derived)


@given(JOB_NAMES, JOB_NAMES)
def test_two_jobs_share_no_name(one, other):
    if one != other:
        assert daemon_set_name(one) != daemon_set_name(other)
        assert job_label(one) != job_label(other)


@given(JOB_NAMES, MOMENTS, MOMENTS)
def test_reports_of_one_name_are_listed_in_the_order_of_their_jobs(name, one, other):
    before, after = sorted(moment.replace(microsecond=0) for moment in (one, other))
    first = report_name(name, "ffffffff-90ab", before)
    assert (first < report_name(name, "00000000-90ab", after)) == (before != after)
    assert shard_name(first, 0) == first
    assert shard_name(first, 12) == f"{first}-12"


def test_report_name_has_the_time_of_the_job_in_utc():
    zone = timezone(timedelta(hours=5))
    created = datetime(2026, 11, 21, 3, 22, 40, 999, tzinfo=zone)
    assert report_name("a.b", "44b3ca9d-1", created) == "a.b-20261120222240-44b3c"
    assert first_version_report_name("a.b", "44b3ca9d-1") == "a.b-44b3ca9d"


def test_the_time_of_a_run_is_read_from_the_names_of_its_reports():
    name = report_name("nightly", "0123456789", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    expected = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert report_time(name) == expected
    assert report_time(shard_name(name, 12)) == expected
    assert report_time(first_version_report_name("nightly", "0123456789")) is None
    assert report_time("job-20261399000000-abcde") is None


def test_short_names_stay_as_the_seed_has_them():
    assert daemon_set_name("job-sample") == "job-sample-daemonset-job"
    assert job_label("job-sample") == "job-sample"


def test_long_names_of_one_beginning_stay_apart():
    names = {daemon_set_name("x" * 200 + end) for end in "abc"}
    assert len(names) == 3
    assert {len(name) for name in names} == {63}


@pytest.mark.parametrize("cut", [".", "-", "_", "..--"])
def test_a_cut_never_ends_in_punctuation(cut):
    shortened = shorten("a" * 10 + cut + "b" * 100, 20 + len(cut) - 1)
    assert re.fullmatch(r"a+-[0-9a-f]{8}", shortened)


@given(MOMENTS)
def test_a_time_survives_to_the_second(moment):
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-01-02T03:04:05Z", 0),
        ("2026-01-02T03:04:05.5Z", 500_000),
        ("2026-01-02T03:04:05.123456789Z", 123_456),
        ("2026-01-02T03:04:05.999999999Z", 999_999),
        ("2026-01-02T05:04:05.123456789+02:00", 123_456),
    ],
)
def test_the_times_that_kubelets_and_servers_write_are_read(text, micros):
    assert parse_time(text) == datetime(2026, 1, 2, 3, 4, 5, micros, tzinfo=UTC)


def test_no_time_is_none_and_nonsense_is_an_error():
    assert parse_time(None) is None
    assert parse_time("") is None
    with pytest.raises(ValueError, match="soon"):
        parse_time("soon")


def test_times_are_written_in_utc():
    moment = datetime(2026, 1, 2, 5, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:01Z", "0999-12-31T23:59:59Z"])
def test_a_time_of_any_year_can_be_written_and_read_again(text):
    # A node's clock may be as wrong as can be, and what it says is recorded.
    assert format_time(parse_time(text)) == text


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00"])
def test_a_time_beyond_all_years_is_nonsense(text):
    with pytest.raises(ValueError, match="outside of the years"):
        parse_time(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "9999-12-31T23:59:50Z"])
def test_there_is_no_time_after_the_year_9999(text):
    assert add_seconds(parse_time(text), 60) == parse_time("9999-12-31T23:59:59Z")
    assert add_seconds(parse_time(text), -60) == parse_time(text) - timedelta(seconds=60)
