from terminator.logs.read_budget import (
    BUDGET_BYTES,
    BUDGET_BYTES_PER_SECOND,
    INTERVAL_SECONDS,
    READS_PER_SECOND,
    ReadBudget,
)


def test_budget_refills_over_time_up_to_its_limit():
    budget = ReadBudget()
    assert budget.take(BUDGET_BYTES, 100.0)
    assert not budget.take(1, 100.0)
    assert not budget.take(BUDGET_BYTES_PER_SECOND + 1, 101.0)
    assert budget.take(BUDGET_BYTES_PER_SECOND, 101.0)
    assert not budget.take(BUDGET_BYTES + 1, 1e6)
    assert budget.take(BUDGET_BYTES, 1e6)


def test_a_clock_that_is_read_late_gives_nothing_twice():
    budget = ReadBudget()
    assert budget.take(BUDGET_BYTES, 100.0)
    assert not budget.take(1, 50.0)
    assert not budget.take(1, 100.0)


def test_all_noisy_logs_together_share_one_rate_of_reads():
    budget = ReadBudget()
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[0]
    for number in range(100):
        budget.set_noisy("a", str(number), is_noisy=True)
    assert budget.interval_seconds("a") == 100 / READS_PER_SECOND
    for number in range(5000):
        budget.set_noisy("a", str(number), is_noisy=True)
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[1]
    for number in range(5000):
        budget.set_noisy("a", str(number), is_noisy=False)
    assert budget.interval_seconds("a") == INTERVAL_SECONDS[0]


def test_noisy_logs_of_one_namespace_do_not_slow_another():
    budget = ReadBudget()
    for number in range(5000):
        budget.set_noisy("many", str(number), is_noisy=True)
    for number in range(3):
        budget.set_noisy("few", str(number), is_noisy=True)
    assert budget.interval_seconds("few") == INTERVAL_SECONDS[0]
    assert budget.interval_seconds("many") == INTERVAL_SECONDS[1]
    # Together they are not read oftener than that.
    for number in range(100):
        budget.set_noisy("few", str(number), is_noisy=True)
    assert budget.interval_seconds("few") == 100 / (READS_PER_SECOND / 2)
