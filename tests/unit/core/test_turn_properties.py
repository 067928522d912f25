"""Whatever nodes, limits and events: the turns keep to the limits, and never get stuck."""

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api import names
from daemonset_job.api.rollout import Order, Rollout, Step
from job_controller.core.rollout.turns import Limits, Place, choose
from tests.unit.core.rollouts import WITHIN_ONE, RolloutWorld

ZONES = ("x", "y", "z")
PLACES = st.lists(
    st.builds(Place, st.sampled_from("abcdefghij"), st.sampled_from(ZONES)),
    unique_by=lambda place: place.name,
)
LIMITS = st.builds(
    Limits,
    st.none() | st.integers(1, 6),
    st.none() | st.fixed_dictionaries({zone: st.integers(1, 3) for zone in ZONES}),
)


@given(PLACES, st.integers(0, 9), LIMITS)
def test_the_policy_never_gives_more_than_allowed_and_all_that_is(places, split, limits):
    at_work, waiting = places[:split], places[split:]
    chosen = choose(waiting, at_work, limits)
    assert [place for place in waiting if place in chosen] == chosen, "in their order"
    before, by_zone = Counter(p.zone for p in at_work), Counter(p.zone for p in at_work)
    by_zone.update(place.zone for place in chosen)
    count = len(at_work) + len(chosen)
    if limits.total is not None:
        assert count <= max(limits.total, len(at_work))
    if limits.by_zone is not None:
        assert all(by_zone[z] <= max(limits.by_zone[z], before[z]) for z in ZONES)
    # Never stuck: each node that was left out had no room, in all or in its zone.
    for place in waiting:
        if place in chosen:
            continue
        is_full = limits.total is not None and count >= limits.total
        is_zone_full = (
            limits.by_zone is not None and by_zone[place.zone] >= limits.by_zone[place.zone]
        )
        assert is_full or is_zone_full


NODES = tuple("abcdef")
SHARES = st.integers(1, 7) | st.sampled_from(["1%", "34%", "50%", "100%"])
STEPS = st.lists(st.builds(Step, nodes=SHARES, soak_seconds=st.sampled_from([0, 3])), max_size=3)
ROLLOUTS = st.builds(
    Rollout,
    max_parallel=st.none() | SHARES,
    max_parallel_per_zone=st.none() | SHARES,
    steps=STEPS.map(tuple),
    order=st.sampled_from(list(Order)),
)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["complete", "fail", "lose", "find", "step"]), st.integers(0, 9)),
    max_size=25,
)


def limit_of(share, count):
    if share is None:
        return count
    return share if isinstance(share, int) else max(int(share[:-1]) * count // 100, 1)


def check_limits(world, rollout):
    zones = Counter(world.cluster.nodes[name].labels["zone-of-test"] for name in world.at_work)
    assert len(world.at_work) <= limit_of(rollout.max_parallel, len(NODES))
    for count in zones.values():
        assert count <= limit_of(rollout.max_parallel_per_zone, 2)


def happen(world, event, number):
    """Let something happen to one of the nodes that are at work, or to a lost one."""
    at_work = world.at_work
    if event == "find":
        for name, node in world.cluster.nodes.items():
            world.cluster.nodes[name] = replace(node, ready=True)
    elif event != "step" and at_work:
        name = at_work[number % len(at_work)]
        if event == "complete":
            world.complete(name)
        elif event == "fail" and not world.cluster.evidence:
            world.fail(name)
        elif event == "lose":
            world.lose(name)


@settings(max_examples=80, deadline=None)
@given(ROLLOUTS, EVENTS)
def test_a_rollout_keeps_its_limits_through_all_events_and_ends(rollout, events):
    world = RolloutWorld(*NODES, rollout=rollout, failure_policy=WITHIN_ONE)
    for number, name in enumerate(NODES):
        zone = ZONES[number % 3]
        world.label(name, zone=zone, **{"zone-of-test": zone})
    for event, number in events:
        world.step()
        check_limits(world, rollout)
        happen(world, event, number)
        check_limits(world, rollout)
    happen(world, "find", 0)
    for _ in range(120):
        world.step()
        check_limits(world, rollout)
        waiting = world.cluster.job.status.rollout
        if waiting is not None and waiting.waits_for:
            world.request(approved_step=waiting.step)
        world.complete(*world.at_work)
        if world.phase in {"Succeeded", "Failed"}:
            break
    assert world.phase in {"Succeeded", "Failed"}, world.condition("Progressing")
    if world.phase == "Succeeded":
        assert len(world.cluster.evidence) >= len(NODES) - 1


@settings(max_examples=40, deadline=None)
@given(ROLLOUTS, st.integers(0, 12))
def test_an_abort_is_final(rollout, passes):
    world = RolloutWorld(*NODES, rollout=rollout)
    for number, name in enumerate(NODES):
        world.label(name, zone=ZONES[number % 3])
    world.step(passes)
    world.request(abort="stop")
    world.step()
    started = list(world.started)
    for number in range(20):
        if number == 10:
            # Neither a retry nor another request of a rollout revives the run.
            retry = {names.ANNOTATION_RETRY: "again"}
            world.cluster.job = replace(world.cluster.job, annotations=retry)
            world.request(abort="stop", is_promoted=True, approved_step=3)
        world.step()
        world.complete(*world.at_work)
    assert world.started == started
    assert world.phase == "Failed" or passes == 0
