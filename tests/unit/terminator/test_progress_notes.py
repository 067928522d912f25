"""When the progress of tasks is written: late, together, and at a bounded rate."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.task_progress import TaskProgress
from terminator.ledger.progress_notes import MAX_PAUSE_SECONDS, NOTE_SECONDS, ProgressNotes


def progress(done, attempt=1, pod="p"):
    return TaskProgress(pod, attempt, done, 1000)


def test_progress_is_due_after_ten_seconds_and_then_the_newest():
    notes = ProgressNotes()
    assert notes.remaining_seconds(0) is None
    for second in range(10):
        notes.add("a", "a-uid", progress(second), float(second))
        assert notes.remaining_seconds(second) == NOTE_SECONDS - second
        assert notes.take_due(1, second) == {}
    (taken,) = notes.take_due(1, 10.0).values()
    assert (taken.node_uid, taken.progress, taken.is_only_progress) == ("a-uid", progress(9), True)
    assert not notes
    assert notes.remaining_seconds(10.0) is None


def test_another_attempt_waits_anew():
    notes = ProgressNotes()
    notes.add("a", "a-uid", progress(1), 0.0)
    notes.add("a", "a-uid", progress(1, attempt=2), 9.0)
    assert notes.take_due(1, 10.0) == {}
    assert notes.remaining_seconds(10.0) == 9.0


@pytest.mark.parametrize(("nodes", "pause"), [(1, 10.0), (1000, 30.0), (5000, 60.0), (10**6, 60.0)])
def test_the_pause_grows_with_the_run(nodes, pause):
    notes = ProgressNotes()
    notes.add("a", "a-uid", progress(1), 0.0)
    assert notes.take_due(nodes, 10.0)
    notes.add("a", "a-uid", progress(2), 10.0)
    assert notes.remaining_seconds(10.0) == pause


@given(
    st.lists(st.tuples(st.floats(0, 5), st.sampled_from("abc")), max_size=200),
    st.integers(1, 3000),
)
def test_writes_are_rare_whatever_is_printed(prints, nodes):
    notes, now, writes = ProgressNotes(), 0.0, []
    for number, (seconds, node) in enumerate(prints):
        now += seconds
        notes.add(node, f"{node}-uid", progress(number), now)
        if notes.take_due(nodes, now):
            writes.append(now)
    # Sums of floats differ in their last digits.
    pauses = [later - at for at, later in itertools.pairwise(writes)]
    assert all(pause >= NOTE_SECONDS - 1e-6 for pause in pauses)
    left = notes.remaining_seconds(now)
    assert left is None or left <= MAX_PAUSE_SECONDS + 1e-6
    if left is not None:
        assert notes.take_due(nodes, now + left + 0.001) or left > 0
