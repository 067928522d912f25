import pytest

from terminator.logs.read_budget import (
    BUDGET_BYTES,
    BUDGET_BYTES_PER_SECOND,
    INTERVAL_SECONDS,
    NOISY_READ,
    READS_PER_SECOND,
    RESUMED_READ,
    ReadBudget,
)


def test_budget_refills_over_time_up_to_its_limit():
    budget = ReadBudget().of("a")
    assert budget.take(BUDGET_BYTES, 100.0)
    assert not budget.take(1, 100.0)
    assert not budget.take(BUDGET_BYTES_PER_SECOND + 1, 101.0)
    assert budget.take(BUDGET_BYTES_PER_SECOND, 101.0)
    assert not budget.take(BUDGET_BYTES + 1, 1e6)
    assert budget.take(BUDGET_BYTES, 1e6)


def test_a_clock_that_is_read_late_gives_nothing_twice():
    budget = ReadBudget().of("a")
    assert budget.take(BUDGET_BYTES, 100.0)
    assert not budget.take(1, 50.0)
    assert not budget.take(1, 100.0)


def test_a_namespace_that_takes_all_it_can_leaves_a_share_to_another():
    budget = ReadBudget()
    many, one = budget.of("many"), budget.of("one")
    moment = 0.0
    for _ in range(10_000):  # noisy for a long time, as fast as it may be
        moment += 0.1
        while many.take(65536, moment):
            pass
    taken = 0
    while one.take(65536, moment):
        taken += 65536
    assert taken > BUDGET_BYTES / 3
    # Later both get as much.
    assert not many.take(1, moment)
    both = {many: 0, one: 0}
    for _ in range(2000):
        moment += 0.1
        for each in both:
            while each.take(65536, moment):
                both[each] += 65536
    assert both[one] == pytest.approx(both[many], rel=0.2)


def test_small_amounts_of_many_namespaces_leave_most_of_it():
    budget = ReadBudget()
    assert all(budget.take(str(number), 65536, 0.0) for number in range(50))
    assert budget.take("a", 0.9 * BUDGET_BYTES, 0.0)


def test_all_namespaces_together_have_a_limit_and_one_refill():
    budget = ReadBudget()
    names = [str(number) for number in range(100)]
    taken = sum(65536 for name in names for _ in range(1000) if budget.take(name, 65536, 0.0))
    assert BUDGET_BYTES < taken <= 2 * BUDGET_BYTES
    again = sum(65536 for name in names for _ in range(1000) if budget.take(name, 65536, 10.0))
    assert again <= 10 * BUDGET_BYTES_PER_SECOND
    assert all(budget.take(name, 65536, 1000.0) for name in names)


def test_all_noisy_logs_together_share_one_rate_of_reads():
    budget = ReadBudget()
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[0]
    for number in range(100):
        budget.set_read("a", str(number), NOISY_READ)
    assert budget.interval_seconds("a") == 100 / READS_PER_SECOND
    for number in range(5000):
        budget.set_read("a", str(number), NOISY_READ)
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[1]
    for number in range(5000):
        budget.set_read("a", str(number), 0)
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[0]


def test_noisy_logs_of_one_namespace_do_not_slow_another():
    budget = ReadBudget()
    for number in range(5000):
        budget.set_read("many", str(number), NOISY_READ)
    for number in range(3):
        budget.set_read("few", str(number), NOISY_READ)
    assert budget.interval_seconds("few") == INTERVAL_SECONDS[0]
    assert budget.interval_seconds("many") == INTERVAL_SECONDS[1]
    # Together they are not read oftener than that.
    for number in range(100):
        budget.set_read("few", str(number), NOISY_READ)
    assert budget.interval_seconds("few") == 100 / (READS_PER_SECOND / 2)


def test_reads_that_resume_count_three_times_as_much():
    budget = ReadBudget()
    for number in range(50):
        budget.set_read("a", str(number), RESUMED_READ)
    assert budget.interval_seconds("a") == 150 / READS_PER_SECOND
    budget.set_read("a", "0", NOISY_READ)
    assert budget.interval_seconds("a") == 148 / READS_PER_SECOND
