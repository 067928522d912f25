"""Violations that are known defects of the code under test, reported and not mended yet.

Each line goes away with its defect. They are counted apart, so that they hide nothing else.
"""

import re

KNOWN = (
    # The controller does not count evidence of nodes that left before it had them on record: these
    # fill a shard, and it makes no other one. Seed 656.
    ("stuck", r"^no shard has room for"),
    # Evidence goes to the first shard with room, wherever the node's record is, and the record
    # follows it: a shard can come to twice the records that it may hold. Seed 5.
    ("shards", r"nodes on record in"),
    # The answer to a write of the ledger is lost, and its effect not seen yet: the next write may
    # put the same node into another shard. Seed 16991.
    ("shards", r"after a lost answer$"),
    # A completed node that is no longer wanted is counted in the place of one whose pod is being
    # deleted: what keeps the run, that node, is not told. Seed 14083.
    ("ending pod", r"completed nodes are counted that are not wanted$"),
    # That pods were refused is told as long as the event stands and a pod is missing, for whatever
    # reason: here one that cannot end, on a node that is down. Seed 31368.
    ("ending pod", r"cannot end: .*'PodsRefused'"),
    # Mode Exit with results: the exit code completes the last node, and the Job is deleted, while
    # the log of that node is still to be read. Seed 320.
    ("results", r"the Job was deleted before"),
    # Mode Exit with results: the log of a second pod on a completed node (the first was deleted
    # before the gate went up) is read as well, and its results replace those of the first, in an
    # entry that goes on naming the first. Seed 656 as well.
    ("results", r"of another pod there"),
    ("evidence", r"^the results of \S+ changed"),
)


def is_known(invariant, words):
    """Return whether a violation is one of those."""
    return any(invariant == kind and re.search(pattern, words) for kind, pattern in KNOWN)
