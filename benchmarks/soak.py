"""A long run with the disturbances that clusters bring, watched for growth and for wrong ends.

    make soak HOURS=8
    python -m benchmarks.soak --hours 0.2 --seed 7 --without node-stop,taint-real

Needs the devcluster of a clone ($KUBECONFIG, else this one's) with simulated nodes and the project
deployed. It writes one line of JSON for everything that happens into `build/soak-…/soak.jsonl`, and
at the end `soak.html` (every series as a curve) and `summary.json`. The exit code is 0 when every
Job became what its user asked for and nothing grew.

The time is divided into cycles. Each one ends with an idle time: no Job, no disturbance.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.soak_cluster import CommandError, SoakCluster, patiently, write_lines
from benchmarks.soak_disturbances import Disturber
from benchmarks.soak_driver import Driver
from benchmarks.soak_jobs import KINDS as JOB_KINDS
from benchmarks.soak_jobs import draw_burst, draw_wish
from benchmarks.soak_plot import page, read_lines, summarise
from benchmarks.soak_samples import SYSTEM, take_sample
from benchmarks.soak_schedule import KINDS, Disturbance, draw_disturbances
from benchmarks.soak_verdict import PROGRAMS
from benchmarks.soak_wish import Place, Wish, task_config_map
from benchmarks.workload import fake_log
from daemonset_job.kube.client.errors import AlreadyExists, KubeError, NotFound
from daemonset_job.kube.client.resource import (
    CONFIG_MAPS,
    DAEMON_SETS,
    JOB_REPORTS,
    NAMESPACES,
    PODS,
)

ROOT = Path(__file__).resolve().parent.parent
CYCLE_SECONDS = 1800.0
# The share of a cycle in which Jobs are created; then they end, and the idle time follows.
BUSY_SHARE = 0.85
IDLE_SECONDS = 45.0
MIN_DELAY_SECONDS = 0.25
IDLE_SAMPLES = 3
BURST_EVERY = 300.0
BURST_SIZE = 20
# What no running Job can have met is forgotten; no Job lives longer than this.
MEMORY_SECONDS = 1800.0


class SoakError(Exception):
    """The run cannot begin; the message says why."""


class Soak:
    """One run."""

    def __init__(self, cluster: SoakCluster, options: argparse.Namespace, folder: Path) -> None:
        self._cluster = cluster
        self._options = options
        self._file = folder / "soak.jsonl"
        self._rng = random.Random(options.seed)  # noqa: S311 - repeatable, no secret
        self._started = time.time()
        self._duration = options.hours * 3600
        self._idle = False
        self._idle_times = 0
        self._number = 0
        self._jobs: set[asyncio.Task[None]] = set()
        self._names: dict[tuple[str, str], asyncio.Lock] = {}
        self._disturber = Disturber(cluster, self._log)

    def _log(self, line: Mapping[str, Any]) -> None:
        write_lines(self._file, [line])
        if line["type"] == "disturbance":
            print(f"{self._clock()} {line['kind']}: {line['words']}", flush=True)
        for problem in line.get("problems", ()):
            print(f"{self._clock()} PROBLEM {line.get('job', '')}: {problem}", flush=True)

    def _clock(self) -> str:
        return f"{(time.time() - self._started) / 60:7.1f} min"

    async def run(self) -> None:
        """Run to the end; everything that was done to the cluster is taken back."""
        options = self._options
        self._log(
            {
                "type": "start",
                "at": self._started,
                "hours": options.hours,
                "seed": options.seed,
                "real": len(self._cluster.real_nodes()),
                "simulated": len(self._cluster.simulated_nodes()),
            }
        )
        disturbances = draw_disturbances(
            options.seed,
            self._duration * BUSY_SHARE,
            only=options.only,
            without=options.without,
        )
        background = [
            asyncio.create_task(self._sample_for_ever()),
            asyncio.create_task(self._disturb(disturbances)),
        ]
        try:
            cycles = max(2, round(self._duration / CYCLE_SECONDS))
            for _ in range(cycles):
                # Short cycles take longer than their share: the last Jobs need a minute or two.
                begin = time.time()
                await self._create_jobs(until=begin + self._duration / cycles * BUSY_SHARE)
                await self._be_idle(until=begin + self._duration / cycles)
        finally:
            for task in background:
                task.cancel()
            ends = await asyncio.gather(*background, return_exceptions=True)
            failures = [f"the harness: {end!r}" for end in ends if isinstance(end, Exception)]
            self._log({"type": "check", "at": time.time(), "problems": failures})
            for task in self._jobs:
                task.cancel()
            await asyncio.gather(*self._jobs, return_exceptions=True)
            await self._disturber.restore()
        await self._look_for_leftovers()

    # --- Jobs --------------------------------------------------------------------------

    async def _create_jobs(self, until: float) -> None:
        place = Place(
            self._cluster.namespaces,
            self._cluster.real_nodes(),
            [n for n in self._cluster.simulated_nodes() if not n.startswith("fake-soak-")],
        )
        burst_at = time.time() + self._rng.expovariate(1 / BURST_EVERY)
        while time.time() < until:
            wishes: list[Wish] = []
            if time.time() >= burst_at and not self._options.kinds:
                wishes = draw_burst(self._rng, place, self._number, BURST_SIZE)
                burst_at = time.time() + self._rng.expovariate(1 / BURST_EVERY)
            if not wishes and len(self._jobs) < self._options.jobs:
                kind = self._rng.choice(self._options.kinds) if self._options.kinds else ""
                wishes = [draw_wish(self._rng, place, self._number, kind=kind)]
            self._number += len(wishes)
            for wish in wishes:
                task = asyncio.create_task(self._one_job(wish))
                self._jobs.add(task)
                task.add_done_callback(self._jobs.discard)
            await asyncio.sleep(self._rng.expovariate(1 / self._options.interval))

    async def _one_job(self, wish: Wish) -> None:
        lock = self._names.setdefault((wish.namespace, wish.name), asyncio.Lock())
        async with lock:
            driver = Driver(self._cluster, wish)
            try:
                problems = await driver.drive()
            except Exception as error:  # noqa: BLE001 - one Job must not end a run of hours
                problems = [f"the harness could not go on: {error!r}"]
        if wish.has_unique_name:
            del self._names[wish.namespace, wish.name]
        run = driver.run
        line: dict[str, Any] = {
            "type": "job",
            "at": time.time(),
            "job": f"{wish.namespace}/{wish.name}",
            "kind": wish.kind,
            "seconds": round((run.ended_at or time.time()) - run.created_at, 1),
        }
        if problems:
            line |= {"problems": problems, "explanation": driver.explain()}
        self._log(line)

    async def _be_idle(self, until: float) -> None:
        """Let every Job end, then take samples while nothing happens."""
        if self._jobs:
            await asyncio.wait(self._jobs)
        self._idle = True
        self._idle_times += 1
        await asyncio.sleep(max(IDLE_SECONDS, until - time.time()))
        for _ in range(IDLE_SAMPLES):
            await self._sample(idle=True)
            await asyncio.sleep(2)
        await self._check_history()
        self._idle = False

    # --- samples and disturbances --------------------------------------------------------

    async def _sample_for_ever(self) -> None:
        period = min(60.0, max(5.0, self._duration / 60))
        while True:
            if not self._idle:
                await self._sample(idle=False)
            before = time.time() - MEMORY_SECONDS
            self._cluster.history.forget_before(before)
            while self._cluster.touches and self._cluster.touches[0].at < before:
                self._cluster.touches.popleft()
            await asyncio.sleep(period)

    async def _sample(self, *, idle: bool) -> None:
        try:
            line = await take_sample(self._cluster, time.time(), self._cluster.namespaces)
        except (KubeError, CommandError) as error:  # the API server is stopped; there is a next one
            self._log({"type": "no sample", "at": time.time(), "words": str(error)})
            return
        # With Jobs of other users it is no idle time.
        line["idle"] = self._idle_times if idle and not line["cluster"]["foreign Jobs"] else 0
        line["active"] = len(self._jobs)
        self._log(line)

    async def _disturb(self, disturbances: Sequence[Disturbance]) -> None:
        """Start each disturbance at its time, by a clock that stops during idle times."""
        busy_seconds = 0.0
        async with asyncio.TaskGroup() as group:
            for what in disturbances:
                while self._idle or busy_seconds < what.at:
                    await asyncio.sleep(MIN_DELAY_SECONDS)
                    busy_seconds += 0 if self._idle else MIN_DELAY_SECONDS
                group.create_task(self._disturber.disturb(what))

    # --- what must hold beside the single Jobs -------------------------------------------

    async def _check_history(self) -> None:
        """Look whether the reports of a name that runs again and again are limited in number."""
        settings = await patiently(
            lambda: self._cluster.client.get(CONFIG_MAPS, "daemonset-job-controller", SYSTEM)
        )
        limit = int(settings["data"].get("HISTORY_LIMIT", "10"))
        for namespace in self._cluster.namespaces:
            page_ = await patiently(partial(self._cluster.client.list, JOB_REPORTS, namespace))
            counts = Counter(report["spec"]["job"]["name"] for report in page_["items"])
            problems = [f"{c} reports of {name}" for name, c in counts.items() if c > limit]
            if problems:
                self._log({"type": "check", "at": time.time(), "problems": problems})

    async def _look_for_leftovers(self) -> None:
        """Look for pods and DaemonSets without a Job, starts after the end, and restarts."""
        problems = []
        for resource in (PODS, DAEMON_SETS):
            for namespace in self._cluster.namespaces:
                left = (await self._cluster.client.list(resource, namespace))["items"]
                problems += [
                    f"left: {resource.kind} {namespace}/{item['metadata']['name']}" for item in left
                ]
        for node, text in (await self._cluster.left_files()).items():
            if text.strip():
                problems.append(f"{node}: started after the end of its Job: {text.strip()[:500]}")
        samples = [line for line in read_lines(self._file) if line["type"] == "sample"]
        for program in PROGRAMS:
            lives = {p["life"] for s in samples for p in s["processes"] if p["program"] == program}
            if len(lives) - 1 > self._disturber.ended:
                problems.append(f"{program}: {len(lives)} lives, {self._disturber.ended} ended")
        reasons = {
            f"{pod} {container} {last['last']}"
            for sample in samples
            for pod, containers in sample["restarts"].items()
            for container, last in containers.items()
            if last["last"] == "OOMKilled"
        }
        self._log({"type": "check", "at": time.time(), "problems": problems + sorted(reasons)})


async def soak(options: argparse.Namespace, folder: Path) -> None:
    """Prepare the cluster, run, and clean up."""
    word = f"soak-{options.seed}"
    cluster = await SoakCluster.connect([f"{word}-{letter}" for letter in "abc"])
    background = [asyncio.create_task(cluster.look())]
    try:
        async with asyncio.timeout(60):
            await cluster.looked()
        if len(cluster.real_nodes()) < 2 or not cluster.simulated_nodes():
            raise SoakError("needs real and simulated nodes: make cluster FAKE_NODES=20 deploy")
        if cluster.kwok_log.exists():  # KWOK opens it each time
            cluster.kwok_log.write_text(fake_log("results"))
        await cluster.prepare_files()
        for name in cluster.namespaces:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            try:
                await cluster.client.create(NAMESPACES, body)
            except AlreadyExists as error:
                raise SoakError(f"namespace {name} is left from another run: delete it") from error
            await cluster.client.create(CONFIG_MAPS, task_config_map(name), name)
        background.append(asyncio.create_task(cluster.collect_files()))
        await Soak(cluster, options, folder).run()
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        with suppress(CommandError):
            await cluster.left_files()
        for name in cluster.namespaces:
            with suppress(KubeError, NotFound):
                await cluster.client.delete(NAMESPACES, name)
        await cluster.client.close()


def main() -> int:
    """Run the soak; 0 when it ran and everything was good."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8, help="fractions are allowed")
    parser.add_argument("--seed", type=int, default=1, help="of Jobs and disturbances")
    parser.add_argument("--jobs", type=int, default=10, help="Jobs at a time, but for bursts")
    parser.add_argument("--interval", type=float, default=5, help="mean seconds between two Jobs")
    kinds = ", ".join(KINDS)
    parser.add_argument("--kinds", default="", help=f"of these Jobs only: {', '.join(JOB_KINDS)}")
    parser.add_argument("--calm", action="store_true", help="no disturbances at all")
    parser.add_argument("--only", default="", help=f"of these disturbances only: {kinds}")
    parser.add_argument("--without", default="", help="leave these disturbances out")
    parser.add_argument("--with-node-stop", action="store_true", help="stop real nodes, too")
    parser.add_argument("--out", type=Path, help="where to write the summary as well")
    options = parser.parse_args()
    for name, known in (("kinds", JOB_KINDS), ("only", KINDS), ("without", KINDS)):
        chosen = [kind for kind in getattr(options, name).split(",") if kind]
        if unknown := set(chosen) - set(known):
            parser.error(f"--{name} {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
        setattr(options, name, chosen)
    if options.calm:
        options.without = list(KINDS)
    if options.with_node_stop:
        options.only = options.only or list(KINDS)
    folder = ROOT / "build" / f"soak-{time.strftime('%Y%m%d-%H%M%S')}"
    folder.mkdir(parents=True)
    has_finished = False
    try:
        asyncio.run(soak(options, folder))
        has_finished = True
    except (SoakError, KubeError, CommandError) as error:
        print(f"soak: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("soak: interrupted", file=sys.stderr)
    finally:
        is_good = _write_results(folder, options.out)
    return 0 if has_finished and is_good else 1


def _write_results(folder: Path, out: Path | None) -> bool:
    """Write the summary and the curves of what there is; return whether all of it is good."""
    lines = read_lines(folder / "soak.jsonl")
    if not lines:
        return False
    summary = summarise(lines)
    text = json.dumps(summary, indent=1) + "\n"
    (folder / "soak.html").write_text(page(lines))
    for file in filter(None, (folder / "summary.json", out)):
        file.write_text(text)
    print(f"{text}{folder}/soak.html")
    return bool(summary["good"])


if __name__ == "__main__":
    sys.exit(main())
