"""Names of time zones, from the data that is installed with the program.

The list is that of the package tzdata, and not that of the machine, so that a name is valid in
each image, or in none.
"""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

# The longest name has 32 characters (America/Argentina/ComodRivadavia).
NAME_LIMIT = 64
# Zones that one cluster uses; a name that a tenant invents is not in the list, and takes no room.
_KEPT_ZONES = 256


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all time zones, such as Europe/Berlin and UTC."""
    text = resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(text.split())


def time_zone_problem(name: str) -> str:
    """Return why a text names no time zone, with a name that may have been meant; "" if it does."""
    if len(name) > NAME_LIMIT:
        return f"the name has more than {NAME_LIMIT} characters; write one such as Europe/Berlin"
    if name in zone_names():
        return ""
    near = difflib.get_close_matches(name, sorted(zone_names()), n=1)
    meant = near[0] if near else "Europe/Berlin or UTC"
    return f'there is no time zone "{printable(name)}"; write a name such as {meant}'


def printable(text: str) -> str:
    """Return a tenant's text for a message: no character in it controls a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


@lru_cache(maxsize=_KEPT_ZONES)
def find_zone(name: str) -> ZoneInfo:
    """Return the time zone of a name in `zone_names`; ValueError for any other text."""
    if name not in zone_names():
        raise ValueError(f"there is no time zone {name[:NAME_LIMIT]!r}")
    return ZoneInfo(name)
