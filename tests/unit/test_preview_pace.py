"""Previews of suspended Jobs: those of one namespace take a share of the time."""

from job_controller.core.plan import Plan
from job_controller.preview_pace import LONGEST_SECONDS, PreviewPaces

PREVIEW = Plan(requeue_after=30.0, has_preview=True)


def waits(paces, count, namespace="crowded", seconds=0.04, now=100.0):
    keys = [(namespace, f"job-{n}") for n in range(count)]
    return [paces.defer(key, PREVIEW, seconds, now).requeue_after for key in keys]


def test_few_previews_keep_their_pace():
    assert waits(PreviewPaces(), 100) == [30.0] * 100


def test_the_previews_of_a_namespace_take_a_fifth_of_the_time():
    found = waits(PreviewPaces(), 1000)
    assert round(found[999] - found[499], 6) == 500 * 5 * 0.04
    long = waits(PreviewPaces(), 100, seconds=0.5)
    assert round(long[99] - long[49], 6) == 50 * 5 * 0.5


def test_another_namespace_does_not_wait():
    paces = PreviewPaces()
    waits(paces, 10_000)
    assert waits(paces, 1, "other") == [30.0]


def test_no_preview_waits_for_more_than_an_hour():
    assert max(waits(PreviewPaces(), 30_000)) <= LONGEST_SECONDS


def test_a_plan_without_a_preview_is_left_alone():
    plan = Plan(requeue_after=5.0)
    paces = PreviewPaces()
    waits(paces, 1000)
    assert paces.defer(("crowded", "a"), plan, 1.0, 100.0) is plan
