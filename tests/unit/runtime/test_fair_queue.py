import pytest

from daemonset_job.runtime.fair_queue import FairQueue


def test_groups_of_every_level_are_served_in_turn():
    line: FairQueue[str] = FairQueue()
    for path, item in (
        (("big", "first"), "1"),
        (("big", "first"), "2"),
        (("big", "first"), "3"),
        (("big", "second"), "4"),
        (("small", "only"), "5"),
        (("small", "only"), "6"),
    ):
        line.push(path, item)
    assert len(line) == 6
    assert [line.pop() for _ in range(6)] == ["1", "5", "4", "6", "2", "3"]
    assert not line
    with pytest.raises(IndexError):
        line.pop()


def test_an_empty_line_is_used_again():
    line: FairQueue[int] = FairQueue()
    for item in range(3):
        line.push(("a",), item)
        assert line.pop() == item
