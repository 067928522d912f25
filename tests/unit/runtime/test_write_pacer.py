import pytest

from daemonset_job.runtime.write_pacer import WritePacer


@pytest.fixture
def pacer() -> WritePacer:
    return WritePacer(factor=40.0, seconds_per_item=0.01, max_seconds=10.0)


def test_the_first_write_does_not_wait(pacer):
    assert pacer.remaining_seconds(now=0.0) == 0.0


@pytest.mark.parametrize(
    ("duration", "items", "pause"),
    [
        pytest.param(0.1, 1000, 4.0, id="a multiple of the duration"),
        pytest.param(0.1, 20, 0.2, id="little for an object of few items"),
        pytest.param(9.0, 5000, 10.0, id="never more than the limit"),
        pytest.param(0.1, 0, 0.0, id="nothing for an object without items"),
    ],
)
def test_the_pause_after_a_write_is_the_least_of_three_limits(pacer, duration, items, pause):
    pacer.record(duration, items, now=100.0)
    assert pacer.remaining_seconds(now=100.0) == pytest.approx(pause)


def test_the_pause_ends(pacer):
    pacer.record(0.1, 1000, now=100.0)
    assert pacer.remaining_seconds(now=103.0) == pytest.approx(1.0)
    assert pacer.remaining_seconds(now=104.5) == 0.0


def test_each_write_begins_a_new_pause(pacer):
    pacer.record(9.0, 5000, now=100.0)
    pacer.record(0.05, 5000, now=101.0)
    assert pacer.remaining_seconds(now=101.0) == pytest.approx(2.0)
