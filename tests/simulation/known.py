"""Violations that are known defects of the code under test, reported and not mended yet.

Each line goes away with its defect: its name, the invariant, and a pattern for what is said of it.
They are counted apart, so that they hide nothing else.
"""

import re

KNOWN: tuple[tuple[str, str, str], ...] = ()


def finding_of(invariant: str, words: str) -> str:
    """Return the name of the known defect that a violation is one of, "" for none."""
    for name, invariants, pattern in KNOWN:
        if re.fullmatch(invariants, invariant) and re.search(pattern, words):
            return name
    return ""
