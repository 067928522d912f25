"""The kinds of Jobs of a soak run, and how one is drawn. Nothing here talks to a cluster."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from benchmarks.soak_wish import EVERY_NODE, Place, Step, Wish, plain_spec
from benchmarks.workload import RESULTS

REAL = {"kubernetes.io/os": "linux"}
SIMULATED = {"type": "kwok"}
Draft = Callable[[Wish, random.Random, Place], Wish]


def _with(wish: Wish, **fields: Any) -> Wish:
    """Return the wish with other fields; `spec` is added to what it has."""
    spec = {**wish.spec, **fields.pop("spec", {})}
    return replace(wish, spec=spec, **fields)


def _behaves(wish: Wish, behaviour: str, node: str = EVERY_NODE, code: int = 143) -> Wish:
    args = [wish.file, str(wish.work_seconds), behaviour, node, str(code)]
    return _with(wish, spec={"args": args})


def _exit_mode(wish: Wish) -> Wish:
    template = wish.spec["template"]["spec"]
    tasks = template["containers"]
    others = {key: value for key, value in template.items() if key != "containers"}
    spec = {
        "completion": {"mode": "Exit"},
        "command": ["sh", "/task.d/task"],
        "template": {"spec": {**others, "initContainers": tasks}},
    }
    return _with(wish, spec=spec)


def _nodes(patch: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"spec": {"nodes": patch}}


def _log(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return wish


def _nightly(wish: Wish, rng: random.Random, _place: Place) -> Wish:
    return replace(wish, name=f"nightly-{rng.randrange(3)}")


def _exit(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _exit_mode(wish)


def _exit_zero_on_term(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    """Return a Job whose task ends with 0 on TERM, although its work is not done."""
    return _exit_mode(_behaves(replace(wish, work_seconds=20), "good", code=0))


def _results(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _with(_behaves(wish, "results"), spec={"results": [{"name": name} for name in RESULTS]})


def _noisy(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _behaves(wish, "noisy")


def _flaky(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _behaves(wish, "flaky")


_FAIL = {"failurePolicy": {"rules": [{"exitCodes": [3], "action": "Fail"}]}}


def _broken(wish: Wish, rng: random.Random, _place: Place) -> Wish:
    policy = {**_FAIL["failurePolicy"], "pods": rng.choice(["Keep", "Delete"])}
    return _with(
        _behaves(wish, "broken"),
        spec={"failurePolicy": policy},
        phase="Failed",
        leaves_by_itself=False,
        steps=(Step("Failed", 5, "delete"),),
    )


def _continue(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _with(
        _behaves(wish, "broken"),
        spec={"backoffLimit": 1, "failurePolicy": {"action": "Continue"}},
        phase="Failed",
        leaves_by_itself=False,
        steps=(Step("Failed", 5, "delete"),),
    )


def _retry(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    steps = (Step("Failed", 2, "fix"), Step("Failed", 0, "retry"))
    return _with(_behaves(wish, "broken"), spec=_FAIL, steps=steps)


def _tolerant(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _with(
        _behaves(wish, "broken"),
        spec={"backoffLimit": 0, "failurePolicy": {"maxFailedNodes": "100%"}},
        may_fail_on_nodes=True,
        leaves_by_itself=False,
        steps=(Step("Complete", 3, "delete"),),
    )


def _created_suspended(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    resume = Step("created", 6, "patch", {"spec": {"suspend": False}})
    return _with(wish, spec={"suspend": True}, steps=(resume,))


def _suspended(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    steps = (
        Step("started", 1, "patch", {"spec": {"suspend": True}}),
        Step("Suspended", 8, "patch", {"spec": {"suspend": False}}),
    )
    return _behaves(replace(wish, work_seconds=10, steps=steps), "good")


def _ttl(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    # On real nodes only: the log of simulated ones is dated years ago, and with it their end.
    spec = {"ttlSecondsAfterFinished": 20, "nodes": {"selector": {"matchLabels": REAL}}}
    return _with(wish, spec=spec)


def _widen_include(wish: Wish, rng: random.Random, place: Place) -> Wish:
    return _wider(wish, {"include": [rng.choice(place.real)]})


def _widen_exclude(wish: Wish, rng: random.Random, place: Place) -> Wish:
    return _wider(wish, {"exclude": [rng.choice(place.real)]})


def _widen_selector(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _wider(wish, {"selector": {"matchLabels": REAL}})


def _wider(wish: Wish, nodes: Mapping[str, Any]) -> Wish:
    widen = Step("started", 2, "patch", _nodes(None))
    slow = _behaves(replace(wish, work_seconds=15), "good")
    return _with(slow, spec={"nodes": nodes}, steps=(widen,))


def _narrow(wish: Wish, rng: random.Random, place: Place) -> Wish:
    node = rng.choice(place.real)
    narrow = Step("started", 5, "patch", _nodes({"exclude": [node]}))
    return _with(_behaves(wish, "hang", node), steps=(narrow,))


def _nobody(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    # A merge patch adds to the labels unless it removes the old one.
    labels = {"soak": None, **SIMULATED}
    widen = Step("created", 5, "patch", _nodes({"selector": {"matchLabels": labels}}))
    nobody = {"nodes": {"selector": {"matchLabels": {"soak": "no-such-node"}}}}
    return _with(wish, spec=nobody, steps=(widen,))


def _simulated(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _with(wish, spec={"nodes": {"selector": {"matchLabels": SIMULATED}}})


def _cancelled(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    cancel = Step("started", 3, "delete")
    return _with(_behaves(wish, "hang"), phase="Cancelled", leaves_by_itself=False, steps=(cancel,))


def _deadline(wish: Wish, _rng: random.Random, _place: Place) -> Wish:
    return _with(
        _behaves(wish, "hang"),
        spec={"activeDeadlineSeconds": 15},
        phase="Failed",
        leaves_by_itself=False,
        steps=(Step("Failed", 5, "delete"),),
    )


KINDS: Mapping[str, tuple[float, Draft]] = {
    "log": (4, _log),
    "nightly": (3, _nightly),
    "exit": (3, _exit),
    "exit-zero-on-term": (2, _exit_zero_on_term),
    "results": (2, _results),
    "noisy": (1, _noisy),
    "flaky": (1, _flaky),
    "broken": (1, _broken),
    "continue": (1, _continue),
    "retry": (1.5, _retry),
    "tolerant": (1, _tolerant),
    "created-suspended": (1, _created_suspended),
    "suspended": (1.5, _suspended),
    "ttl": (1, _ttl),
    "widen-include": (1, _widen_include),
    "widen-exclude": (1, _widen_exclude),
    "widen-selector": (1, _widen_selector),
    "narrow": (1.5, _narrow),
    "nobody": (0.5, _nobody),
    "simulated": (3, _simulated),
    "cancelled": (1, _cancelled),
    "deadline": (1, _deadline),
}
"""Each kind's weight, and what makes it of a plain Job."""


def draw_wish(rng: random.Random, place: Place, number: int, *, kind: str = "") -> Wish:
    """Return a Job of that kind, or of one drawn by weight; the same for the same generator."""
    chosen = kind or rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
    seconds = rng.choice([1, 2, 4, 8])
    file = f"{chosen}-{number}"
    plain = Wish(
        kind=chosen,
        namespace=rng.choice(place.namespaces),
        name=file,
        file=file,
        spec=plain_spec(file, seconds),
        work_seconds=seconds,
    )
    return KINDS[chosen][1](plain, rng, place)


def draw_burst(rng: random.Random, place: Place, number: int, size: int) -> list[Wish]:
    """Return many Jobs for a few simulated nodes, to be created at once."""
    wishes = []
    for offset in range(size):
        few = rng.sample(list(place.simulated), min(3, len(place.simulated)))
        wish = draw_wish(rng, place, number + offset, kind="log")
        wishes.append(_with(wish, kind="burst", spec={"nodes": {"include": few}}))
    return wishes
