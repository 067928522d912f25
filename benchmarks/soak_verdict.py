"""Does anything grow? Robust statistics over the samples of a soak run; nothing here reads a clock.

Two kinds of series are judged. Those with a `growth` limit are compared over the longest life of a
process, without its first fifth, which is the warm-up. Two numbers count: the Theil-Sen slope,
extended over that time, and the median of the last quarter compared with that of the second. Those
with an `idle` limit are compared at the idle times, when no Job exists: the last with the first.
"""

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PROGRAMS = ("controller", "terminator")
# Fewer samples say nothing: a quarter of them is then less than five.
MINIMUM_SAMPLES = 20
_POINTS = 400
"""Theil-Sen looks at every pair: of longer series, this many points evenly chosen."""

Result = Literal["good", "bad", "too short"]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity of a program, and what it may do."""

    key: str
    title: str
    growth: float | None = None
    """The share by which it may grow over a run."""
    floor: float = 0
    """The growth in its own unit that is noise, whatever its share."""
    idle_share: float | None = None
    """The share by which it may be higher at the last idle time than at the first."""
    idle_slack: float = 0
    """And the amount by which it may be, in its own unit."""


SERIES = (
    Series("rss_mib", "resident memory, MiB", 0.10, 4.0, 0.10, 4.0),
    Series("cpu", "CPU, seconds per minute", 0.30, 1.0),
    Series("threads", "threads", idle_share=0.0, idle_slack=1),
    Series("fds", "open file descriptors", idle_share=0.0, idle_slack=4),
    Series("sockets", "open sockets", idle_share=0.0, idle_slack=4),
    Series("asyncio_tasks", "asyncio tasks", idle_share=0.0, idle_slack=2),
    Series("log_streams", "open log streams", idle_share=0.0),
    Series("log_targets", "pods whose log is read", idle_share=0.0),
    Series("ledger_pending_nodes", "evidence not yet entered", idle_share=0.0),
    Series("ledger_runs", "runs that the ledger keeps", idle_share=0.0, idle_slack=1),
    Series("queue_ready", "work queue: due", idle_share=0.0),
    Series("queue_delayed", "work queue: waiting for their time", idle_share=0.10, idle_slack=5),
    Series("queue_failures", "work queue: keys with failures", idle_share=0.0),
    Series("cache_jobs", "cached Jobs", idle_share=0.0),
    Series("cache_daemonsets", "cached DaemonSets", idle_share=0.0),
    Series("cache_pods", "cached pods", idle_share=0.0),
    Series("cache_jobreports", "cached reports", idle_share=0.10, idle_slack=40),
    Series("cache_events", "cached events", idle_share=0.50, idle_slack=50),
    Series("unsatisfied_expectations", "unsatisfied expectations", idle_share=0.10, idle_slack=5),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one series of one program."""

    program: str
    series: str
    result: Result
    words: str


def theil_sen(points: Sequence[Point]) -> float:
    """Return the median of the slopes between all pairs of points; 0 for fewer than two times."""
    chosen = points[:: max(1, -(-len(points) // _POINTS))]
    slopes = [
        (y2 - y1) / (x2 - x1)
        for (x1, y1), (x2, y2) in itertools.combinations(chosen, 2)
        if x1 != x2
    ]
    return statistics.median(slopes) if slopes else 0.0


def quarters(points: Sequence[Point]) -> tuple[float, float]:
    """Return the medians of the second and of the last quarter of the time."""
    start, end = points[0][0], points[-1][0]
    quarter = (end - start) / 4
    second = [y for x, y in points if start + quarter <= x < start + 2 * quarter]
    last = [y for x, y in points if x >= end - quarter]
    return statistics.median(second or [points[0][1]]), statistics.median(last)


def judge_growth(points: Sequence[Point], share: float, floor: float = 0) -> tuple[Result, str]:
    """Return whether a series stays within `share` of growth (or `floor` in its unit), and why."""
    warm = points[len(points) // 5 :]
    if len(warm) < MINIMUM_SAMPLES:
        return "too short", f"{len(warm)} samples of one life after the warm-up"
    second, last = quarters(warm)
    middle = statistics.median(y for _, y in warm)
    sloped = theil_sen(warm) * (warm[-1][0] - warm[0][0])
    hours = (warm[-1][0] - warm[0][0]) / 3600
    words = (
        f"slope {sloped:+.2f} in {hours:.1f} h, "
        f"quarters {second:.2f} -> {last:.2f} (median {middle:.2f})"
    )
    # A leak moves both; a late step up that stays moves the quarters only.
    limit = max(share * middle, floor)
    return ("bad" if max(sloped, last - second) > limit else "good"), words


def judge_idle(values: Sequence[float], share: float, slack: float) -> tuple[Result, str]:
    """Return whether the last idle value is as low as the first one, but for share and slack."""
    if len(values) < 2:
        return "too short", f"{len(values)} idle times"
    words = " -> ".join(f"{value:g}" for value in _thinned(values))
    return ("bad" if values[-1] > values[0] * (1 + share) + slack else "good"), words


def longest_life(samples: Iterable[Mapping[str, Any]], program: str) -> list[Mapping[str, Any]]:
    """Return the samples of that process of a program that was seen most often, in order."""
    lives: dict[Any, list[Mapping[str, Any]]] = {}
    for sample in samples:
        for process in sample["processes"]:
            if process["program"] == program:
                lives.setdefault(process["life"], []).append(
                    {**process, "at": sample["at"], "idle": sample["idle"]}
                )
    return max(lives.values(), key=len, default=[])


def series_points(life: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """Return (time, value) of a series; `cpu` is per minute, between two samples."""
    if key != "cpu":
        return [(sample["at"], sample[key]) for sample in life if sample.get(key) is not None]
    return [
        (
            later["at"],
            60 * (later["cpu_seconds"] - sooner["cpu_seconds"]) / (later["at"] - sooner["at"]),
        )
        for sooner, later in itertools.pairwise(life)
        if later["at"] > sooner["at"]
    ]


def judge_programs(samples: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return what is found about every series that the samples hold.

    Idle times count from the last restart on, and only those without Jobs of other people.
    """
    findings = []
    for program, series in itertools.product(PROGRAMS, SERIES):
        life = longest_life(samples, program)
        busy = [sample for sample in life if not sample.get("idle")]
        points = series_points(life if series.key == "cpu" else busy, series.key)
        if series.growth is not None and points:
            result, words = judge_growth(points, series.growth, series.floor)
            findings.append(Finding(program, series.title, result, words))
        idle = _idle_values(life, series.key)
        if series.idle_share is not None and series_points(life, series.key):
            result, words = judge_idle(idle, series.idle_share, series.idle_slack)
            findings.append(Finding(program, f"{series.title}, idle", result, words))
    return findings


def _idle_values(life: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Return the least value of each idle time, which the samples have by number."""
    values: dict[int, list[float]] = {}
    for sample in life:
        if sample.get("idle") and sample.get(key) is not None:
            values.setdefault(sample["idle"], []).append(sample[key])
    return [min(found) for found in values.values()]


def _thinned(values: Sequence[float], limit: int = 8) -> list[float]:
    if len(values) <= limit:
        return list(values)
    return [values[round(number * (len(values) - 1) / (limit - 1))] for number in range(limit)]
