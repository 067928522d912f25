"""Violations that are known defects of the code under test, reported and not mended yet.

Each line goes away with its defect: its name, the invariant, and a pattern for what is said of it.
They are counted apart, so that they hide nothing else.
"""

import re

KNOWN = (
    ("A1", "complete|deletion|stuck|counts", r"its DaemonSet does not ask for it"),
    ("A2", "complete|deletion|stuck|counts|gate", r"there were taints"),
    ("A3", "complete|deletion", r"its DaemonSet is refused|spec.nodes was changed"),
    ("A4", "evidence", r"its task was told to end"),
    ("B1", "deadline", r"resumed and failed|a retry was taken up"),
    ("B2", "message", r"characters"),
    ("B4", "hasty", r"\(Unschedulable\)"),
    ("B5.1", "observed", r"is not on record"),
    ("B5.1", "lifetime", r"Failed and still there"),
    ("B5", "lifetime", r"Complete and still there"),
    ("B6", "untold", r"\((mount|init|reject)\): not started"),
    ("B6", "stuck", r"a task has not started"),
    ("D12", "untold", r"is refused, and"),
    ("D2", "results", r"much was printed"),
    ("D13", "pod deletion", r"clocks differ"),
    # A report's completionTime moves with every try to write the Job's status.
    ("N1", "restless", r"writes are refused"),
    # In mode Exit, a task that a reboot has started again replaces the results of the first time.
    ("N2", "restless", r"after a reboot"),
    ("B3", "hasty|conventions|innocent|lifetime|stuck|untold|restless", r"clocks differ"),
)


def finding_of(invariant, words):
    """Return the name of the known defect that a violation is one of, "" for none."""
    for name, invariants, pattern in KNOWN:
        if re.fullmatch(invariants, invariant) and re.search(pattern, words):
            return name
    return ""
