"""Whatever the order, the limits and which tasks end first: the nodes start in their order."""

from collections import Counter
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.rollout import Order, Rollout, Step
from tests.unit.core.rollouts import RolloutWorld

NODES = tuple("abcdef")
ZONES = ("x", "y", "z")
SHARES = st.integers(1, 7) | st.sampled_from(["1%", "34%", "50%"])
STEPS = st.lists(st.builds(Step, nodes=SHARES, soak_seconds=st.sampled_from([0, 2])), max_size=3)
# In each pass, which of the nodes at work complete.
ENDS = st.lists(st.integers(1, 63), min_size=1, max_size=8)


def roll_out(order, max_parallel, steps, ends):
    """Run a rollout to its end; return the nodes that started, by pass."""
    rollout = Rollout(max_parallel=max_parallel, steps=tuple(steps), order=order)
    world = RolloutWorld(*NODES, rollout=rollout)
    for number, name in enumerate(NODES):
        world.label(name, zone=ZONES[number % 3])
    passes = []
    for number in range(150):
        before = len(world.started)
        world.step()
        passes.append(world.started[before:])
        mask = ends[number % len(ends)] | (number > 30) * 63
        world.complete(*(name for name in world.at_work if mask >> NODES.index(name) & 1))
        if world.phase == "Succeeded":
            break
    assert world.phase == "Succeeded"
    return passes


@settings(max_examples=25, deadline=None)
@given(SHARES, STEPS, ENDS)
def test_nodes_start_by_name_each_once(max_parallel, steps, ends):
    started = roll_out(Order.NAME, max_parallel, steps, ends)
    assert list(chain(*started)) == list(NODES)


@settings(max_examples=20, deadline=None)
@given(SHARES, STEPS, ENDS)
def test_spread_takes_the_zones_in_turn(max_parallel, steps, ends):
    started = list(chain(*roll_out(Order.SPREAD, max_parallel, steps, ends)))
    assert sorted(started) == list(NODES)
    for count in range(1, len(NODES) + 1):
        zones = Counter(ZONES[NODES.index(name) % 3] for name in started[:count])
        assert max(zones.values()) - min(zones[zone] for zone in ZONES) <= 1


@settings(max_examples=15, deadline=None)
@given(SHARES, STEPS, ENDS)
def test_a_random_order_is_that_of_the_run_whatever_the_limits(max_parallel, steps, ends):
    one_by_one = list(chain(*roll_out(Order.RANDOM, 1, [], [63])))
    assert sorted(one_by_one) == list(NODES) != one_by_one
    started = roll_out(Order.RANDOM, max_parallel, steps, ends)
    # Those of one pass start together.
    assert [n for each in started for n in sorted(each, key=one_by_one.index)] == one_by_one
