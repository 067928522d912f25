from terminator.logs.read_budget import (
    DISTANCE_SECONDS,
    READS_PER_SECOND,
    SPARE_BYTES,
    SPARE_BYTES_PER_SECOND,
    Spare,
)


def test_what_is_taken_comes_back_with_time_and_never_more_than_there_was():
    spare = Spare()
    assert spare.take(SPARE_BYTES, 100.0)
    assert not spare.take(1, 100.0)
    assert not spare.take(SPARE_BYTES_PER_SECOND + 1, 101.0)
    assert spare.take(SPARE_BYTES_PER_SECOND, 101.0)
    assert not spare.take(SPARE_BYTES + 1, 1e6)
    assert spare.take(SPARE_BYTES, 1e6)


def test_a_clock_that_is_read_late_gives_nothing_twice():
    spare = Spare()
    assert spare.take(SPARE_BYTES, 100.0)
    assert not spare.take(1, 50.0)
    assert not spare.take(1, 100.0)


def test_all_talkative_logs_together_are_read_so_often_and_no_oftener():
    spare = Spare()
    assert spare.distance_seconds("a") == DISTANCE_SECONDS[0]
    for number in range(100):
        spare.note("a", str(number), talkative=True)
    assert spare.distance_seconds("a") == 100 / READS_PER_SECOND
    for number in range(5000):
        spare.note("a", str(number), talkative=True)
    assert spare.distance_seconds("a") == DISTANCE_SECONDS[1]
    for number in range(5000):
        spare.note("a", str(number), talkative=False)
    assert spare.distance_seconds("a") == DISTANCE_SECONDS[0]


def test_one_namespace_with_many_talkative_logs_does_not_slow_down_another_one():
    spare = Spare()
    for number in range(5000):
        spare.note("many", str(number), talkative=True)
    for number in range(3):
        spare.note("few", str(number), talkative=True)
    assert spare.distance_seconds("few") == DISTANCE_SECONDS[0]
    assert spare.distance_seconds("many") == DISTANCE_SECONDS[1]
    # Together they are not read oftener than that.
    for number in range(100):
        spare.note("few", str(number), talkative=True)
    assert spare.distance_seconds("few") == 100 / (READS_PER_SECOND / 2)
