"""The command line: run edges and mutations on a cluster of its own; show what fails."""

# ruff: noqa: T201 - a command-line tool prints
import argparse
import asyncio
import logging
import sys
import time
from random import Random

from loguru import logger

from tests.integration.kube_env import ROOT, KubeEnv, kube_env
from tests.mutation import known
from tests.mutation.cases import Case, change_cases, edge_cases, mutation
from tests.mutation.cluster import open_cluster
from tests.mutation.results import Result, summary
from tests.mutation.runner import Runner
from tests.mutation.schedules import run_schedules, schedule_cases

PROGRESS_SECONDS = 10.0
# So that onSuccess, cordon and drain are tried to their end.
COMPONENTS = ("deploy/components/node-changes", "deploy/components/drain")


def main(arguments: list[str]) -> int:
    """Return 0 when every case held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutations", type=int, default=500, help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (%(default)s)")
    parser.add_argument("--number", type=int, help="this one only of the mutations")
    parser.add_argument("--edges", action="store_true", help="the edges of every field as well")
    parser.add_argument("--only", default="", help="cases whose label has this text")
    parser.add_argument("--at-once", type=int, default=30, help="Jobs side by side (%(default)s)")
    parser.add_argument("--part", default="1/1", help="a share of the cases, such as 2/5")
    parser.add_argument(
        "--patience", type=float, default=1, help="times a minute; more for a busy machine"
    )
    parser.add_argument("--strict", action="store_true", help="known defects fail as well")
    options = parser.parse_args(arguments)
    logger.remove()  # what matters of the programs' logs is in the results
    # The played kubelets' log server minds that a program hangs up.
    logging.getLogger("aiohttp.server").disabled = True
    if options.strict:
        known.KNOWN = ()
    cases = [*edge_cases(), *change_cases()] if options.edges else []
    cases = [case for case in cases if options.only in case.label]
    # The large cases of a field follow each other. Spread, they delay the others less.
    Random(0).shuffle(cases)
    numbers = range(options.mutations) if options.number is None else [options.number]
    cases += [
        case
        for case in (mutation(options.seed, number) for number in numbers)
        if options.only in case.label
    ]
    cases = _share(cases, options.part)
    with kube_env(controllers=["clusterrole-aggregation-controller"]) as env:
        for folder in ("deploy", *COMPONENTS):
            env.kubectl("apply", "--server-side", "-k", str(ROOT / folder))
        env.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        return asyncio.run(_run(env, cases, options))


def _share(cases: list[Case], part: str) -> list[Case]:
    """Return the cases of a part, such as 2/5: every fifth one, from the second."""
    number, _, parts = part.partition("/")
    return cases[int(number) - 1 :: int(parts)]


async def _run(env: KubeEnv, cases: list[Case], options: argparse.Namespace) -> int:
    began = shown_at = time.perf_counter()
    done = failed = 0
    schedules = [case for case in schedule_cases() if options.only in case.label]
    schedules = _share(schedules, options.part) if options.edges else []
    total = len(schedules) + len(cases)

    def show(result: Result) -> None:
        nonlocal shown_at, done, failed
        done += 1
        if result.new:
            failed += 1
            print(result.describe(), flush=True)
        if time.perf_counter() - shown_at > PROGRESS_SECONDS:
            shown_at = time.perf_counter()
            print(f"{done}/{total}, {failed} failed, {shown_at - began:.0f} s", file=sys.stderr)

    async with open_cluster(env, options.patience) as cluster:
        runner = Runner(cluster, options.at_once, options.patience)
        for result in await run_schedules(cluster, schedules):
            runner.others.append(result)
            show(result)
        await runner.run(cases, show)
        for result in runner.controls:
            if result.new:
                failed += 1
                print(result.describe())
        print(f"{total} cases in {time.perf_counter() - began:.0f} s, {failed} failed")
        print("\n".join(summary(runner)))
    return 1 if failed else 0
