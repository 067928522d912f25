"""Findings that are known defects of the product, by the finding that they belong to.

Each line goes away with its defect: what it matched then fails. They are counted apart, so that
they hide nothing else.
"""

import re

# Finding, and what its violation says.
KNOWN: tuple[tuple[str, str], ...] = (
    ("C5 retry annotation over 256 characters", r"\.retry: (\d+ char|Too long)"),
    ("C5 seconds beyond what a timedelta takes", r"OverflowError"),
    (
        "A1 or A3 a wider selection that the DaemonSet does not have",
        r"it (completed without|says that no node)",
    ),
    ("B5 observedGeneration stands still", r"phase Failed, generation (\d+)\nobserved (?!\1,)"),
    ("B5 a complete Job whose nodes went out stays", r"(?s)phase Succeeded.*'desired': 0"),
    ("C1 include times exclude", r"(?s)silent.*(request is too large|larger than max)|413 Req"),
    ("N1 a template's item whose name is no text", r"TypeError: unhashable type"),
    ("N2 scheduling gates that are no objects", r"has no attribute 'get'"),
    ("N4 an affinity that is no object", r"in _place\n"),
    ("N6 null in a template's list", r"got null for schema with nullable=false"),
    ("D8 a token that the CRD takes and the terminator does not", r"(?s)silent.*cannot be used"),
    ("N8 a 500 that is a refusal", r"(?s)silent.*failed to convert new object"),
    ("N10 a node's name that only the DaemonSet refuses", r"does not name (in|ex)clude"),
    ("N9 a gate of the user's own", r"(?s)silent.*'waiting': 3.*schedulingGates"),
    ("N3 a runtime's reason is not cut", r"\.message: \d+ characters.*'exit -?\d+ \(R{20}"),
    ("B2 a failed node's message grows", r"nodeStates\[[^\]]+\]\.message: \d+ characters"),
)


def finding(words: str) -> str:
    """Return the finding that a violation is known by, "" for a new one."""
    return next((name for name, pattern in KNOWN if re.search(pattern, words)), "")
