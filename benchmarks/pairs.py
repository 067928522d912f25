"""Rounds of a benchmark: the order of what is run, and each run beside the floor of its own round.

Pure. Machines change their speed within minutes, so only runs of one round are compared. The order
alternates: what comes after the floor in one round comes before it in the next. What remains of the
changes is divided out. A fixed piece of work is repeated beside each run (`benchmarks.speed`), and
its duration is the unit of all times that are compared.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

FLOOR: Final = "floor"
# What of a run is compared with the floor's: the number's name in the run, and in the summary.
_COMPARED: Final = {"seconds": "time", "cpu_seconds_all": "cpu"}


def order_of_round(kinds: Sequence[str], number: int) -> list[str]:
    """Return the kinds of runs of a round, the floor among them; odd rounds go backwards."""
    found = [FLOOR, *kinds]
    return found if number % 2 == 0 else found[::-1]


def compare_with_floor(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the summary of each kind of run, by its name; rounds that only warm up do not count.

    A run has `kind`, `round`, `seconds` and `cpu_seconds_all`. `work_milliseconds` is the duration
    of the fixed piece of work. Ratios are each run's to the floor of its round: the median, and the
    least and the greatest. Seconds are as they were measured.
    """
    counted = [run for run in runs if not run["warm_up"]]
    floors = {run["round"]: run for run in counted if run["kind"] == FLOOR}
    summary: dict[str, Any] = {}
    for kind in dict.fromkeys(run["kind"] for run in counted):
        of_kind = [run for run in counted if run["kind"] == kind]
        found: dict[str, Any] = {
            "rounds": len(of_kind),
            "seconds": round(median(run["seconds"] for run in of_kind), 2),
            "cpu_seconds_all": round(median(run["cpu_seconds_all"] for run in of_kind), 2),
            "cpu_seconds": _medians([run["cpu_seconds"] for run in of_kind]),
        }
        for name, word in _COMPARED.items() if kind != FLOOR else ():
            ratios = [
                _in_units(run, name) / _in_units(floors[run["round"]], name)
                for run in of_kind
                if run["round"] in floors
            ]
            found[f"{word}_ratio"] = _spread(ratios)
        summary[kind] = found
    return summary


def table(summary: Mapping[str, Any]) -> str:
    """Return the summary as a table in Markdown: ratios with their spread, and CPU by process."""
    processes = sorted({name for found in summary.values() for name in found["cpu_seconds"]})
    lines = [
        f"| what runs | time | CPU of everything | {' | '.join(processes)} |",
        f"|---|---|---|{'---|' * len(processes)}",
    ]
    for kind, found in summary.items():
        cells = [
            kind,
            _cell(found, "time_ratio", f"1 ({found['seconds']} s)"),
            _cell(found, "cpu_ratio", f"1 ({found['cpu_seconds_all']} s)"),
            *(f"{found['cpu_seconds'].get(name, 0):.1f} s" for name in processes),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Mapping[str, Any], name: str, floor: str) -> str:
    ratio = found.get(name)
    return floor if not ratio else f"{ratio['median']} ({ratio['least']} to {ratio['greatest']})"


def _in_units(run: Mapping[str, Any], name: str) -> float:
    """Return a duration of a run in units of the fixed piece of work."""
    return float(run[name]) / float(run["work_milliseconds"])


def _spread(ratios: Sequence[float]) -> dict[str, float] | None:
    if not ratios:
        return None
    return {
        "median": round(median(ratios), 2),
        "least": round(min(ratios), 2),
        "greatest": round(max(ratios), 2),
    }


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = sorted({name for run in runs for name in run})
    return {name: round(median(run.get(name, 0.0) for run in runs), 2) for name in names}
