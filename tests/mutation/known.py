"""Findings that are known defects of the product, by the finding that they belong to.

Each line goes away with its defect: what it matched then fails. They are counted apart, so that
they hide nothing else.
"""

import re

# Finding, and what its violation says.
KNOWN: tuple[tuple[str, str], ...] = (
    ("C5 retry annotation over 256 characters", r"(status|nodeStates\S*)\.retry: \d+ characters"),
    ("C5 seconds beyond what a timedelta takes", r"OverflowError"),
    ("N1 a template's item whose name is no text", r"TypeError: unhashable type"),
    ("N2 scheduling gates that are no objects", r"has no attribute 'get'"),
    ("N4 an affinity that is no object", r"(?s)decide raised.*in _place\n"),
    ("N3 a runtime's reason is not cut", r"\.message: \d+ characters.*'exit -?\d+ \(R{20}"),
    ("B2 a failed node's message grows", r"nodeStates\[[^\]]+\]\.message: \d+ characters"),
)


def finding(words: str) -> str:
    """Return the finding that a violation is known by, "" for a new one."""
    return next((name for name, pattern in KNOWN if re.search(pattern, words)), "")
