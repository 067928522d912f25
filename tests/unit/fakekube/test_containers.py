"""States of containers in the model, and the pause before a restart."""

import pytest

from tests.fakekube.containers import (
    backs_off,
    died_with_machine,
    is_success,
    restart_back_off,
    running,
    terminated,
    waiting,
)


@pytest.mark.parametrize(("code", "reason"), [(0, "Completed"), (1, "Error"), (137, "Error")])
def test_the_reason_of_an_end_follows_from_its_exit_code(code, reason):
    ended = terminated(code, "begin", "end")["terminated"]
    assert ended == {"exitCode": code, "reason": reason, "startedAt": "begin", "finishedAt": "end"}


def test_an_end_without_a_start_has_no_times():
    assert terminated(137) == {"terminated": {"exitCode": 137, "reason": "Error"}}


def test_a_container_that_died_with_its_machine_ended_unseen():
    ended = died_with_machine(running("begin"), "end")["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
    assert (ended["startedAt"], ended["finishedAt"]) == ("begin", "end")


def test_only_an_end_with_zero_is_a_success():
    assert is_success(terminated(0))
    for state in (terminated(1), running("begin"), waiting("x"), backs_off(), {}):
        assert not is_success(state)


def test_the_pause_before_a_restart_doubles_up_to_five_minutes():
    pauses = [restart_back_off(restarts) for restarts in (0, 1, 2, 5, 6, 10**6)]
    assert pauses == [10, 20, 40, 300, 300, 300]


def test_a_ring_may_run_the_pauses_faster():
    assert [restart_back_off(n, 1, 16) for n in range(7)] == [1, 2, 4, 8, 16, 16, 16]
