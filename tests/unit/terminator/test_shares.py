import random
from collections import Counter

import pytest

from terminator.logs.shares import Shares


def test_free_places_go_to_the_namespace_that_holds_fewest():
    shares: Shares[str] = Shares()
    for item in ("a1", "a2", "a3", "b1", "c1"):
        shares.wait(item[0], item)
    assert [shares.take() for _ in range(5)] == ["a1", "b1", "c1", "a2", "a3"]
    assert not shares
    shares.free("a", "a1")
    shares.free("a", "a1")
    shares.wait("b", "b2")
    assert shares.take() == "b2"


def test_who_left_the_line_gets_no_place():
    shares: Shares[str] = Shares()
    shares.wait("a", "a1")
    shares.wait("a", "a2")
    shares.leave("a", "a1")
    shares.leave("b", "b1")
    assert shares.take() == "a2"
    assert not shares


def test_a_namespace_with_more_than_its_share_gives_way_to_one_with_less():
    shares: Shares[str] = Shares()
    for number in range(20):
        shares.wait("many", str(number))
    for _ in range(8):
        shares.take()
    assert shares.give_way("many", 8) is None
    shares.wait("few", "x")
    assert shares.give_way("few", 8) == "0"  # the oldest
    assert shares.give_way("few", 8) is None  # a place for it is on its way
    assert shares.take() == "x"
    for number in range(9):
        shares.wait("few", f"y{number}")
        if shares.give_way("few", 8) is not None:
            shares.take()
    held = Counter(len(items) for items in shares._held.values())
    assert held == {4: 2}
    assert shares.give_way("few", 8) is None
    assert shares.give_way("many", 8) is None


def test_more_namespaces_than_places_take_none_from_each_other():
    shares: Shares[str] = Shares()
    for item in "abcdef":
        shares.wait(item, item)
    shares.take()
    shares.take()
    assert all(shares.give_way(item, 2) is None for item in "abcdef")


@pytest.mark.parametrize("seed", range(50))
def test_everybody_comes_to_an_equal_share_and_then_nobody_gives_way(seed):
    rng = random.Random(seed)
    shares: Shares[tuple[str, int]] = Shares()
    limit, used, given = 12, 0, 0
    wishes = [(name, number) for name in "abc" for number in range(rng.randint(4, 30))]
    rng.shuffle(wishes)
    for wish in wishes:
        shares.wait(wish[0], wish)
        if used < limit:
            shares.take()
            used += 1
        elif shares.give_way(wish[0], limit) is not None:
            given += 1
            shares.take()
    assert sum(map(len, shares._held.values())) == limit
    assert {name: len(items) for name, items in shares._held.items()} == dict.fromkeys("abc", 4)
    assert given <= limit
    assert all(shares.give_way(name, limit) is None for name in "abc")
