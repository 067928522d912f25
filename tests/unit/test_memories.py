"""What is remembered of a Job is forgotten with it, all of it."""

from datetime import UTC, datetime
from unittest.mock import MagicMock

from daemonset_job.runtime.expectations import VersionExpectations
from job_controller.dependencies import Dependencies
from job_controller.memories import Memories, ProgressPacers
from tests.clocks import FakeClock

KEY, OTHER = ("default", "gone"), ("default", "stays")


def make_memories():
    clock = FakeClock(datetime(2026, 1, 2, tzinfo=UTC))
    needed = Dependencies(MagicMock(), MagicMock(), clock, MagicMock(), MagicMock())
    return Memories(needed, VersionExpectations(clock))


def test_every_memory_forgets_a_deleted_job():
    memories = make_memories()
    kinds = list(vars(memories))
    assert {"written", "sightings", "refusal_backoff", "event_causes"} < set(kinds)
    for kind in kinds:
        setattr(memories, kind, MagicMock())
    memories.forget(KEY)
    for kind in kinds:
        getattr(memories, kind).forget.assert_called_once_with(KEY)


def test_memories_can_forget_a_job_that_they_do_not_know():
    make_memories().forget(KEY)


def test_a_pause_is_of_one_job_and_is_forgotten_with_it():
    pacers = ProgressPacers()
    pacers.record(KEY, 1.0, 100, now=5.0)
    assert pacers.remaining_seconds(KEY, 5.0) > 0.0
    assert pacers.remaining_seconds(OTHER, 5.0) == 0.0
    pacers.forget(KEY)
    assert pacers.remaining_seconds(KEY, 5.0) == 0.0
