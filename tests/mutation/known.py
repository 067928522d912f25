"""Findings that are known defects of the product, by the finding that they belong to.

Each line goes away with its defect: what it matched then fails. They are counted apart, so that
they hide nothing else.
"""

import re

# Finding, and what its violation says.
KNOWN: tuple[tuple[str, str], ...] = ()


def finding(words: str) -> str:
    """Return the finding that a violation is known by, "" for a new one."""
    return next((name for name, pattern in KNOWN if re.search(pattern, words)), "")
