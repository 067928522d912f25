"""Which disturbances a soak run has, and when. Nothing here talks to a cluster."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# Processes are ended in this first part of a run only: growth shows in the long life that follows.
KILLING_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of disturbance: how often it comes and how long it lasts, in seconds."""

    every: float
    shortest: float
    longest: float
    ends_processes: bool = False
    is_option: bool = False


KINDS: Mapping[str, Kind] = {
    "taint-simulated": Kind(60, 10, 45),
    "taint-real": Kind(120, 10, 45),
    "cordon": Kind(180, 10, 60),
    "drain": Kind(240, 10, 30),
    "evict-pod": Kind(45, 0, 0),
    "delete-pod": Kind(45, 0, 0),
    "delete-daemonset": Kind(120, 0, 0),
    "nodes-join": Kind(180, 30, 120),
    "node-leaves": Kind(180, 10, 60),
    "quota": Kind(240, 5, 25),
    "api-server-pause": Kind(600, 2, 8),
    # Shorter than the time after which a leader without a renewed Lease ends (10 s).
    "controller-manager-pause": Kind(600, 2, 7),
    "scheduler-pause": Kind(600, 2, 7),
    "controller-pause": Kind(240, 1, 5),
    "terminator-pause": Kind(240, 1, 5),
    "kubelet-pause": Kind(300, 2, 8),
    "kubelet-restart": Kind(600, 0, 0),
    "kill-controller": Kind(300, 0, 0, ends_processes=True),
    "kill-terminator": Kind(300, 0, 0, ends_processes=True),
    "delete-system-pod": Kind(600, 0, 0, ends_processes=True),
    "node-stop": Kind(1200, 20, 45, is_option=True),
    "node-reboot": Kind(1200, 0, 0, is_option=True),
}


@dataclass(frozen=True, slots=True)
class Disturbance:
    """One disturbance: seconds from the start of the run, how long, and a number to choose by."""

    at: float
    kind: str
    seconds: float
    pick: float


def draw_disturbances(
    seed: int, duration: float, *, only: Iterable[str] = (), without: Iterable[str] = ()
) -> list[Disturbance]:
    """Return the disturbances of a run in order; the same for the same seed and duration.

    Every kind has a generator of its own, so leaving one out does not change the others.
    """
    chosen = set(only) or {name for name, kind in KINDS.items() if not kind.is_option}
    drawn = []
    for name in sorted(chosen - set(without)):
        kind = KINDS[name]
        rng = random.Random(f"{seed} {name}")  # noqa: S311 - repeatable, no secret
        end = duration * (KILLING_SHARE if kind.ends_processes else 1)
        # Of a short run something should be seen: the first one comes in its first third.
        at = min(rng.expovariate(1 / kind.every), rng.uniform(0.02, 0.3) * end)
        while at < end:
            seconds = rng.uniform(kind.shortest, kind.longest)
            drawn.append(Disturbance(at, name, seconds, rng.random()))
            at += seconds + rng.expovariate(1 / kind.every)
    return sorted(drawn, key=lambda disturbance: disturbance.at)
