"""What devcluster says of the kernel's limit of inotify instances; no machine is looked at."""

import pytest

from hack.devcluster.inotify import FIX, needed, problem


@pytest.mark.parametrize(
    ("nodes", "limit", "used"), [(6, 128, 0), (3, 128, 56), (12, 512, 200), (12, 0, 500)]
)
def test_nodes_for_which_there_is_room_or_no_known_limit_are_no_problem(nodes, limit, used):
    assert problem(nodes, limit=limit, used=used) == ""


def test_six_nodes_beside_three_others_are_more_than_the_usual_limit():
    assert (needed(3), needed(6)) == (56, 98)
    words = problem(6, limit=128, used=56)
    assert "about 98 inotify instances, and about 72 of 128 are free" in words
    assert FIX in words
