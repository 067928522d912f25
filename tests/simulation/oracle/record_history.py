"""What a report has recorded of the past stays in it: failures of nodes, and the run's history.

A failure stays, also if another node gets the name of its node. It may be left out of a list
that is full, and is counted then. The same holds for the entries of a history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.oracle.invariant import Invariant
from tests.simulation.oracle.shards import reports_of
from tests.simulation.server import Raw

if TYPE_CHECKING:
    from tests.simulation.oracle.core import Oracle
    from tests.simulation.world import World

INVARIANTS = (
    Invariant(
        "forgotten failure",
        "A failure of a node that is in the report stays there, whatever becomes of the node.",
        mutant="forgets_failures",
        seed=47,
    ),
    Invariant(
        "forgotten event",
        "A retry, a pause or an end of the run that is in the report's history stays there, and "
        "its times never go back. A run that has ended has that in its history.",
        mutant="begins_history_again",
        seed=1,
    ),
)


# Entries that stay at the beginning of a long history.
_FIRST = 10
# The reasons of which an entry goes with a phase.
_ENDS = {
    "Succeeded": {"Completed"},
    "Failed": {"Failed"},
    "Cancelled": {"Cancelled"},
    "Paused": {"Paused", "WaitingForApproval"},
}


def judge_history(world: World, oracle: Oracle, old: Raw, new: Raw) -> None:
    """Judge what a report that replaces another says of the past."""
    if not old:
        return
    uid, name = new["spec"]["job"]["uid"], new["metadata"]["name"]
    others = [raw for raw in reports_of(world, uid) if raw["metadata"]["name"] != name]
    for words in forgotten_failures(records_of((old, *others)), records_of((new, *others))):
        oracle.violate("forgotten failure", words)
    for words in forgotten_events(old.get("status") or {}, new.get("status") or {}):
        oracle.violate("forgotten event", words)


def records_of(reports: Iterable[Raw]) -> Raw:
    """Return the records of a run; of a node in two shards the one with more failures."""
    found: dict[str, Any] = {}
    for report in reports:
        for node, record in ((report.get("status") or {}).get("nodeStates") or {}).items():
            if node not in found or _count(record) > _count(found[node]):
                found[node] = record
    return found


def forgotten_failures(before: Raw, after: Raw) -> Iterator[str]:
    """Yield what is missing in the records of a run's nodes that replace others."""
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            if old["state"] == "Failed" or _count(old):
                yield f"the failures of {name} are gone"
            continue
        holds = _try_of(new) == ("Failed", *_try_of(old)[1:])
        expected = _count(old) + (old["state"] == "Failed" and not holds)
        if _count(new) != expected:
            yield f"{name} has failed {expected} times before, and has {_count(new)} on record"
        kept, listed = old.get("failures") or [], new.get("failures") or []
        added = _count(new) - _count(old)
        known = listed[: len(listed) - added] if added else listed
        if known != kept[len(kept) - len(known) :]:
            yield f"earlier failures of {name} were changed"


def forgotten_events(before: Raw, after: Raw) -> Iterator[str]:
    """Yield what is wrong with a report's history that replaces another."""
    old, new = before.get("history") or [], after.get("history") or []
    left_out = after.get("omittedHistory", 0) - before.get("omittedHistory", 0)
    if left_out < 0 or new[:_FIRST] != old[:_FIRST] + new[len(old[:_FIRST]) : _FIRST]:
        yield "the beginning of the history was changed"
    rest = old[_FIRST + left_out :]
    if new[_FIRST:][: len(rest)] != rest:
        yield "entries of the history are gone"
    times = [entry["time"] for entry in new]
    if times != sorted(times):
        yield f"times of the history go back: {times}"
    expected = _ENDS.get(after.get("phase", ""))
    if expected is not None and expected.isdisjoint(entry["reason"] for entry in new):
        words = " or ".join(sorted(expected))
        yield f"the phase is {after['phase']}, and the history lacks {words}"


def _try_of(record: Raw) -> tuple[str, str, str]:
    return record["state"], record["uid"], str(record.get("observedRetry", ""))


def _count(record: Raw) -> int:
    return len(record.get("failures") or ()) + int(record.get("omittedFailures") or 0)
