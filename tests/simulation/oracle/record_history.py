"""What a report has recorded of the past stays in it: failures of nodes.

A failure stays while its node, by UID, is in the reports of the run. It may be left out of a list
that is full, and is counted then.
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
        seed=37,
    ),
)


def judge_history(world: World, oracle: Oracle, old: Raw, new: Raw) -> None:
    """Judge what a report that replaces another says of the past."""
    if not old:
        return
    uid, name = new["spec"]["job"]["uid"], new["metadata"]["name"]
    others = [raw for raw in reports_of(world, uid) if raw["metadata"]["name"] != name]
    for words in forgotten_failures(records_of((old, *others)), records_of((new, *others))):
        oracle.violate("forgotten failure", words)


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
        if new["uid"] != old["uid"]:
            continue
        holds = (new["state"], _retry(new)) == ("Failed", _retry(old))
        expected = _count(old) + (old["state"] == "Failed" and not holds)
        if _count(new) != expected:
            yield f"{name} has failed {expected} times before, and has {_count(new)} on record"
        kept, listed = old.get("failures") or [], new.get("failures") or []
        added = _count(new) - _count(old)
        known = listed[: len(listed) - added] if added else listed
        if known != kept[len(kept) - len(known) :]:
            yield f"earlier failures of {name} were changed"


def _retry(record: Raw) -> str:
    return str(record.get("observedRetry", ""))


def _count(record: Raw) -> int:
    return len(record.get("failures") or ()) + int(record.get("omittedFailures") or 0)
