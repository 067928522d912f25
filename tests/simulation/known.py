"""Violations that are known defects of the code under test, reported and not mended yet.

Each line goes away with its defect. They are counted apart, so that they hide nothing else.
"""

import re

KNOWN = ()


def is_known(invariant, words):
    """Return whether a violation is one of those."""
    return any(invariant == kind and re.search(pattern, words) for kind, pattern in KNOWN)
