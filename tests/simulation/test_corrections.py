"""Schedules with a Job that a user suspends, corrects and resumes: see `corrections`."""

import os
from collections import Counter

from tests.simulation import corrections
from tests.simulation.generator import generate_schedule
from tests.simulation.parallel_runs import Findings, run_many
from tests.simulation.run import simulate

SEEDS = range(corrections.FIRST_SEED, corrections.FIRST_SEED + 60)


def test_invariants_hold_in_every_schedule_with_corrections():
    findings = Findings()
    for found in run_many(SEEDS, workers=os.cpu_count(), keeps_going=True):
        findings.add(found)
    assert findings.count == len(SEEDS)
    seeds = findings.failures
    assert not seeds, f"{findings.kinds}, see python -m tests.simulation --seed {seeds[0]}"


def test_starts_are_taken_back_in_many_of_them_and_stay_in_others():
    counts: Counter[bool] = Counter()
    for schedule in map(generate_schedule, SEEDS[:60]):
        simulate(schedule, look=lambda world: counts.update([world.oracle.corrections.count > 0]))
    assert counts[True] >= 10, counts
    assert counts[False] >= 10, counts
