"""The command line: run many schedules, or show one; shrink what fails to a trace to be read."""

# ruff: noqa: T201 - a command-line tool prints
import argparse
import os
import sys
import time
from collections import Counter

from tests.simulation import known
from tests.simulation.draw import draw
from tests.simulation.run import simulate
from tests.simulation.shrink import shrink

PROGRESS_SECONDS = 5.0


def main(arguments):
    """Return 0 when every schedule held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happened")
    parser.add_argument("--no-shrink", action="store_true", help="show a failure as it was drawn")
    parser.add_argument("--keep-going", action="store_true", help="count failures, do not stop")
    parser.add_argument("--strict", action="store_true", help="known defects fail as well")
    options = parser.parse_args(arguments)
    if options.strict:
        known.KNOWN = ()
    if options.seed is not None:
        return _show(draw(options.seed), is_whole=options.trace, shrinks=not options.no_shrink)
    return _run_many(options)


def _run_many(options):
    kinds, known_kinds, excused, failures = Counter(), Counter(), Counter(), []
    steps, began, told = 0, time.perf_counter(), time.perf_counter()
    end = options.start + options.seeds
    for seed in range(options.start, end):
        outcome = simulate(draw(seed))
        steps += outcome.steps
        excused.update(outcome.excused)
        known_kinds.update({kind for _, kind, _ in outcome.known})
        if outcome.violations:
            kinds.update(outcome.kinds)
            failures.append(seed)
            if not options.keep_going:
                end = seed + 1
                break
        if time.perf_counter() - told > PROGRESS_SECONDS:
            told = time.perf_counter()
            done = seed - options.start + 1
            rate = done / (told - began)
            print(f"{done}/{options.seeds}  {rate:.0f}/s  failed {len(failures)}", file=sys.stderr)
    count = end - options.start
    seconds = time.perf_counter() - began
    cpu = sum(os.times()[:2])
    print(f"{count} schedules in {seconds:.1f} s ({count / seconds:.0f}/s, {cpu:.1f} s of CPU)")
    print(f"{steps / max(count, 1):.0f} requests and disturbances each")
    _print_counts("excused (see oracle)", excused)
    _print_counts("known (see known)", known_kinds)
    _print_counts("VIOLATED", kinds)
    if not failures:
        return 0
    print(f"failing seeds: {' '.join(map(str, failures[:50]))}")
    print()
    return _show(draw(failures[0]), is_whole=False, shrinks=not options.no_shrink)


def _print_counts(title, counts):
    for what, number in counts.most_common():
        print(f"{title}: {what}: {number}")


def _show(schedule, *, is_whole, shrinks):
    outcome = simulate(schedule, is_tracing=True)
    if outcome.violations and shrinks and not is_whole:
        schedule, outcome = shrink(schedule, outcome)
        print(f"shrunk to {len(schedule.disturbances)} disturbances:")
    print("\n".join(schedule.describe()))
    print()
    for at, actor, words in outcome.trace:
        print(f"{at:9.3f} {actor:22} {words if is_whole else words[:180]}")
    print()
    for at, invariant, words in (*outcome.known, *outcome.violations):
        print(f"{at:9.3f} {invariant}: {words}")
    print(f"excused {outcome.excused}, digest {outcome.digest()[:16]}")
    return 1 if outcome.violations else 0
