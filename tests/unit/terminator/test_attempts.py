"""Which attempt the end of a log is of."""

import pytest

from daemonset_job.api.container import Container
from terminator.logs.attempts import ended_attempt
from terminator.logs.read_policy import ShortRead
from tests.unit.terminator.builders import NOW, running, waiting

ENDED = Container("terminated", exit_code=1, finished_at=NOW)
AT, AFTER, LONG_AFTER = (f"2026-01-02T03:04:0{second}.000000000Z" for second in (5, 6, 7))


def test_the_number_of_the_start_whose_end_was_read():
    assert ended_attempt(ShortRead(), ENDED, ENDED, AT) == 1
    assert ended_attempt(ShortRead(), waiting(3), waiting(3), AT) == 4
    assert ended_attempt(ShortRead(previous=True), running(2), running(2), AT) == 2
    # Its last lines may be stamped after its end, and no read shows what was before it.
    assert ended_attempt(ShortRead(previous=True), running(2), running(2), AFTER) == 2
    assert ended_attempt(ShortRead(previous=True), running(2), running(2), "") == 2


def test_a_read_that_a_restart_may_have_overtaken_has_no_number():
    assert ended_attempt(ShortRead(), ENDED, running(1), AT) == 0
    assert ended_attempt(ShortRead(previous=True), running(1), running(2), AT) == 0
    assert ended_attempt(ShortRead(), ENDED, None, AT) == 0
    # The task printed this after its end.
    assert ended_attempt(ShortRead(), ENDED, ENDED, AFTER) == 0
    assert ended_attempt(ShortRead(previous=True), running(2), running(2), LONG_AFTER) == 0
    unknown = Container("terminated", exit_code=1)
    assert ended_attempt(ShortRead(), unknown, unknown, LONG_AFTER) == 0


def test_a_task_that_has_succeeded_may_have_lines_stamped_after_its_end():
    for moment, attempt in ((AT, 1), (AFTER, 1), (LONG_AFTER, 0)):
        assert ended_attempt(ShortRead(), ENDED, ENDED, moment, has_succeeded=True) == attempt
    assert ended_attempt(ShortRead(), ENDED, running(1), AFTER, has_succeeded=True) == 0


@pytest.mark.parametrize(("container", "attempt"), [(ENDED, 1), (waiting(0), 1), (waiting(3), 4)])
def test_an_empty_log_is_that_of_the_end(container, attempt):
    """Most tasks that fail say nothing: they are not made to wait."""
    assert ended_attempt(ShortRead(), container, container, "") == attempt
