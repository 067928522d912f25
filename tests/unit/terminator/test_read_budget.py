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
