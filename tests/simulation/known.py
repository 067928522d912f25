"""Violations that are known defects of the code under test, reported and not mended yet.

Each line goes away with its defect. They are counted apart, so that they hide nothing else.
"""

import re

KNOWN = (
    # The pod of a deleted node stays bound to a node of the same name that came soon after: the
    # DaemonSet controller is content with it, both counts pass it over, nobody removes it.
    ("former pod", ""),
    # A pod that is being deleted on a node that is down never ends, and no other is made: the node
    # counts as waiting, not as unreachable, and Progressing is True with the reason NodesActive.
    ("ending pod", ""),
    # A node that is in the ledger is not counted while it has no pod: its pod was deleted, or the
    # DaemonSet was, as it is when a completed Job is collected and the controller's watch of Jobs
    # lags behind the one of DaemonSets. The report of a deleted Job can be left that way.
    ("uncounted", ""),
    ("report", r"deleted as completed, the report says Succeeded"),
    # The answer to the write of Complete is lost: the next pass decides on the Job as it was then,
    # and may tell the report that the run goes on, while the terminator deletes the Job.
    ("report", r"the Job is deleted and its report says Running"),
    # A scanner that is told to stop opens the next stream in a task group that has ended.
    ("process", r"Scanner\._stream_closed"),
)


def is_known(invariant, words):
    """Return whether a violation is one of those."""
    return any(invariant == kind and re.search(pattern, words) for kind, pattern in KNOWN)
