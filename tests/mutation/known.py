"""Findings that are known defects of the product, by the finding that they belong to.

Each line goes away with its defect: what it matched then fails. They are counted apart, so that
they hide nothing else.
"""

import re

# Finding, and what its violation says.
KNOWN: tuple[tuple[str, str], ...] = (
    ("C5 retry annotation over 256 characters", r"\.retry: (\d+ char|Too long)"),
    ("C5 seconds beyond what a timedelta takes", r"OverflowError"),
    ("N1 a template's item whose name is no text", r"TypeError: unhashable type"),
    ("N2 scheduling gates that are no objects", r"has no attribute 'get'"),
    ("N4 an affinity that is no object", r"(?s)decide raised.*in _place\n"),
    ("N6 null in a template's list", r"got null for schema with nullable=false"),
    ("N7 a token of nothing but edge characters", r"(?s)silent.*token must not be blank"),
    ("D8 a pattern that CEL takes and RE2 with 1 MiB does not", r"(?s)silent.*pattern too large"),
    ("N3 a runtime's reason is not cut", r"\.message: \d+ characters.*'exit -?\d+ \(R{20}"),
    ("B2 a failed node's message grows", r"nodeStates\[[^\]]+\]\.message: \d+ characters"),
)


def finding(words: str) -> str:
    """Return the finding that a violation is known by, "" for a new one."""
    return next((name for name, pattern in KNOWN if re.search(pattern, words)), "")
