"""Conditions in the status of a raw pod or node: one of each type."""

from collections.abc import Iterable

from tests.fakekube.daemon_sets import Raw


def condition(type_: str, status: str, reason: str = "", message: str = "", at: str = "") -> Raw:
    """Return a raw condition; `at` is the time of its last transition. Empty texts are left out."""
    texts = {"reason": reason, "message": message, "lastTransitionTime": at}
    return {"type": type_, "status": status, **{key: text for key, text in texts.items() if text}}


def with_condition(conditions: Iterable[Raw] | None, new: Raw) -> list[Raw]:
    """Return the conditions with `new` in the place of the one of its type."""
    kept = [found for found in conditions or () if found["type"] != new["type"]]
    return [*kept, new]


def find_condition(status: Raw | None, type_: str) -> Raw:
    """Return the condition of that type in a raw status, empty if there is none."""
    found = (status or {}).get("conditions") or ()
    return next((condition for condition in found if condition["type"] == type_), {})
