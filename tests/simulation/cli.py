"""The command line: run many schedules, or show one; shrink what fails to a trace to be read."""

# ruff: noqa: T201 - a command-line tool prints
import argparse
import os
import sys
import time
from argparse import Namespace
from contextlib import suppress

from tests.simulation.generator import generate_schedule
from tests.simulation.parallel_runs import Findings, run_many
from tests.simulation.run import simulate
from tests.simulation.schedule import Schedule
from tests.simulation.shrink import shrink

PROGRESS_SECONDS = 5.0


def main(arguments: list[str]) -> int:
    """Return 0 when every schedule held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many schedules to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="processes (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happened")
    parser.add_argument("--no-shrink", action="store_true", help="show a failure as it was drawn")
    parser.add_argument("--keep-going", action="store_true", help="count failures, do not stop")
    parser.add_argument("--digests", action="store_true", help="show a hash of each trace instead")
    options = parser.parse_args(arguments)
    if options.digests:
        return _show_digests(range(options.start, options.start + options.seeds))
    if options.seed is not None:
        return _show(
            generate_schedule(options.seed), is_whole=options.trace, shrinks=not options.no_shrink
        )
    return _run_many(options)


def _run_many(options: Namespace) -> int:
    found, began = Findings(), time.perf_counter()
    printed = began
    seeds = range(options.start, options.start + options.seeds)
    with suppress(KeyboardInterrupt):  # what was found by then is shown
        for findings in run_many(
            seeds,
            workers=options.workers,
            keeps_going=options.keep_going,
        ):
            found.add(findings)
            if time.perf_counter() - printed > PROGRESS_SECONDS:
                printed = time.perf_counter()
                rate = found.count / (printed - began)
                failed = f"failed {len(found.failures)} {found.failures[:5] or ''}"
                print(f"{found.count}/{len(seeds)}  {rate:.0f}/s  {failed}", file=sys.stderr)
    _print_summary(found, time.perf_counter() - began)
    if not found.failures:
        return 0
    print(f"failing seeds: {' '.join(map(str, found.failures[:50]))}")
    print()
    return _show(
        generate_schedule(found.failures[0]), is_whole=False, shrinks=not options.no_shrink
    )


def _show_digests(seeds: range) -> int:
    """Print what shows that a change of the model's speed changed nothing else: to be compared."""
    for seed in seeds:
        outcome = simulate(generate_schedule(seed), is_tracing=True)
        kinds = " ".join(sorted(outcome.kinds))
        print(seed, outcome.digest()[:32], outcome.steps, kinds)
    return 0


def _print_summary(found: Findings, seconds: float) -> None:
    cpu = sum(os.times()[:4])  # the workers', which have ended, included
    print(f"{found.count} schedules in {seconds:.1f} s ({found.count / seconds:.0f}/s)")
    print(f"{cpu:.1f} s of CPU, {found.steps / max(found.count, 1):.0f} events each")
    for title, counts in (
        ("excused (see oracle)", found.excused),
        ("VIOLATED", found.kinds),
    ):
        for what, number in counts.most_common():
            print(f"{title}: {what}: {number}")


def _show(schedule: Schedule, *, is_whole: bool, shrinks: bool) -> int:
    outcome = simulate(schedule, is_tracing=True)
    if outcome.violations and shrinks and not is_whole:
        schedule, outcome = shrink(schedule, outcome)
        print(f"shrunk to {len(schedule.disturbances)} disturbances:")
    print("\n".join(schedule.describe()))
    print()
    for at, actor, words in outcome.trace:
        print(f"{at:9.3f} {actor:22} {words if is_whole else words[:180]}")
    print()
    for at, invariant, words in outcome.violations:
        print(f"{at:9.3f} {invariant}: {words}")
    print(f"excused {outcome.excused}, digest {outcome.digest()[:16]}")
    return 1 if outcome.violations else 0
