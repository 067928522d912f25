"""How long `kubectl dsjob` takes to start: its help, and a completion that asks no cluster.

The goal is 300 ms. The floor is a Python that does nothing, started in the same round; the ratio to
it depends less on the machine than seconds do. `python -m benchmarks.start_up --rounds 30`.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

GOAL_SECONDS: Final = 0.3
FLOOR: Final = "python that does nothing"
_PROGRAMS: Final = Path(sys.executable).parent
COMMANDS: Final[Mapping[str, Sequence[str]]] = {
    FLOOR: (sys.executable, "-c", "pass"),
    "kubectl-dsjob --help": (f"{_PROGRAMS}/kubectl-dsjob", "--help"),
    "kubectl-dsjob run --help": (f"{_PROGRAMS}/kubectl-dsjob", "run", "--help"),
    "completion of a verb": (f"{_PROGRAMS}/kubectl_complete-dsjob", "st"),
    "completion of an option": (f"{_PROGRAMS}/kubectl_complete-dsjob", "run", "x", "--"),
}


@dataclass(frozen=True, slots=True)
class Start:
    """One start: wall clock and CPU (user and system) in seconds."""

    seconds: float
    cpu_seconds: float


def measure(command: Sequence[str]) -> Start:
    """Start a command, wait for its end, and return what it took."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command}: exit code {process.returncode}")
    return Start(took, usage.ru_utime + usage.ru_stime)


def measure_rounds(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Start]]:
    """Return the starts of each command, in turns, after one round that only warms up."""
    found: dict[str, list[Start]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, command in commands.items():
            start = measure(command)
            if number:
                found[name].append(start)
    return found


def main() -> int:
    """Print a table in Markdown; return 1 if a median is above the goal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    found = measure_rounds(COMMANDS, parser.parse_args().rounds)
    floor = median(start.seconds for start in found[FLOOR])
    print("| what starts | median | least | CPU, median | ratio to the floor |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for name, starts in found.items():
        middle = median(start.seconds for start in starts)
        least = min(start.seconds for start in starts)
        cpu = median(start.cpu_seconds for start in starts)
        cells = [name, *(f"{1000 * each:.0f} ms" for each in (middle, least, cpu))]
        print(f"| {' | '.join(cells)} | {middle / floor:.1f} |")
        worst = max(worst, middle)
    return int(worst > GOAL_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
