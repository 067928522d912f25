"""Runs many schedules on all processors, in blocks of seeds.

The result does not depend on the number of workers. Blocks are collected in order, so a run that
ends at its first failure ends with the lowest failing seed.
"""

import gc
import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.generator import generate_schedule
from tests.simulation.run import simulate

# Large enough that handing it over costs nothing, small enough that progress can be shown.
BLOCK_SEEDS = 100
# Objects that a process has more than after the last collection: measured, a few megabytes.
_COLLECTED_AFTER = 5000


@dataclass
class Findings:
    """What became of a range of seeds: counts of what happened, and which seeds failed."""

    count: int = 0
    steps: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    failures: list[int] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Take in what became of the next range."""
        self.count += other.count
        self.steps += other.steps
        self.kinds.update(other.kinds)
        self.excused.update(other.excused)
        self.failures += other.failures


def run_many(
    seeds: range,
    *,
    workers: int,
    keeps_going: bool,
    block: int = BLOCK_SEEDS,
) -> Iterator[Findings]:
    """Yield the findings of each block of seeds; without `keeps_going` to the first failure."""
    blocks = [seeds[i : i + block] for i in range(0, len(seeds), block)]
    run = partial(_run_block, keeps_going=keeps_going)
    if workers == 1:
        yield from _up_to_failure(map(run, blocks), keeps_going)
        return
    # Not forked: the caller may have threads.
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, initializer=_begin) as pool:
        yield from _up_to_failure(pool.imap(run, blocks), keeps_going)


def _begin() -> None:
    """Make a process ready to work: only the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The modules stay; what a run leaves behind is all in cycles, and few times is often enough.
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)


def _up_to_failure(results: Iterable[Findings], keeps_going: bool) -> Iterator[Findings]:
    for findings in results:
        yield findings
        if findings.failures and not keeps_going:
            return


def _run_block(seeds: range, *, keeps_going: bool) -> Findings:
    found = Findings()
    for seed in seeds:
        outcome = simulate(generate_schedule(seed))
        found.count += 1
        found.steps += outcome.steps
        found.excused.update(outcome.excused)
        if outcome.violations:
            found.kinds.update(outcome.kinds)
            found.failures.append(seed)
            if not keeps_going:
                break
    return found
