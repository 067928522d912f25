import random
from collections import Counter

import pytest

from terminator.logs.stream_slots import StreamSlots


def test_free_places_go_to_the_namespace_that_holds_fewest():
    slots: StreamSlots[str] = StreamSlots()
    for item in ("a1", "a2", "a3", "b1", "c1"):
        slots.add_waiting(item[0], item)
    assert [slots.assign_next() for _ in range(5)] == ["a1", "b1", "c1", "a2", "a3"]
    assert not slots
    slots.release("a", "a1")
    slots.release("a", "a1")
    slots.add_waiting("b", "b2")
    assert slots.assign_next() == "b2"


def test_who_left_the_line_gets_no_place():
    slots: StreamSlots[str] = StreamSlots()
    slots.add_waiting("a", "a1")
    slots.add_waiting("a", "a2")
    slots.remove_waiting("a", "a1")
    slots.remove_waiting("b", "b1")
    assert slots.assign_next() == "a2"
    assert not slots


def test_namespace_above_its_share_gives_a_slot_to_one_below():
    slots: StreamSlots[str] = StreamSlots()
    for number in range(20):
        slots.add_waiting("many", str(number))
    for _ in range(8):
        slots.assign_next()
    assert slots.reclaim("many", 8) is None
    slots.add_waiting("few", "x")
    assert slots.reclaim("few", 8) == "0"  # the oldest
    assert slots.reclaim("few", 8) is None  # a place for it is on its way
    assert slots.assign_next() == "x"
    for number in range(9):
        slots.add_waiting("few", f"y{number}")
        if slots.reclaim("few", 8) is not None:
            slots.assign_next()
    held = Counter(len(items) for items in slots._held.values())
    assert held == {4: 2}
    assert slots.reclaim("few", 8) is None
    assert slots.reclaim("many", 8) is None


def test_more_namespaces_than_places_take_none_from_each_other():
    slots: StreamSlots[str] = StreamSlots()
    for item in "abcdef":
        slots.add_waiting(item, item)
    slots.assign_next()
    slots.assign_next()
    assert all(slots.reclaim(item, 2) is None for item in "abcdef")


@pytest.mark.parametrize("seed", range(50))
def test_all_get_an_equal_share_and_then_none_gives_a_slot_up(seed):
    rng = random.Random(seed)
    slots: StreamSlots[tuple[str, int]] = StreamSlots()
    limit, used, given = 12, 0, 0
    wishes = [(name, number) for name in "abc" for number in range(rng.randint(4, 30))]
    rng.shuffle(wishes)
    for wish in wishes:
        slots.add_waiting(wish[0], wish)
        if used < limit:
            slots.assign_next()
            used += 1
        elif slots.reclaim(wish[0], limit) is not None:
            given += 1
            slots.assign_next()
    assert sum(map(len, slots._held.values())) == limit
    assert {name: len(items) for name, items in slots._held.items()} == dict.fromkeys("abc", 4)
    assert given <= limit
    assert all(slots.reclaim(name, limit) is None for name in "abc")
