"""How much of the logs of failed nodes one shard of a report takes.

Pure. The terminator writes lines and progress within these limits, and the controller leaves room
for them. They are bytes of JSON as etcd stores it (see json_bytes).
"""

from __future__ import annotations

from typing import Final

# With 1,000 nodes to a report, all of them and the controller's part stay below etcd's 1.5 MiB per
# object. So only the first failing nodes of a report have LAST_LINES_BYTES. Any other one has its
# last line. LONG_LINE_NODES of them have one of up to LAST_LINE_BYTES, all others SHORT_LINE_BYTES.
# The message of a failed node quotes as much.
LAST_LINES_BYTES: Final = 4096
LAST_LINES_NODES: Final = 20
LAST_LINE_BYTES: Final = 300
# No fewer than a shard without a rollout has nodes.
LONG_LINE_NODES: Final = 250
SHORT_LINE_BYTES: Final = 120
# How many nodes of a report have both a last line and the progress of the next attempt.
PROGRESS_NODES: Final = 200
# The field's name, brackets and quotes; with several lines also what separates them.
_LINE_FRAME: Final = 18
_LINES_FRAME: Final = 164
# The largest progress: its names, the UID of a pod, an attempt and two numbers of 15 digits.
_PROGRESS_BYTES: Final = 130


def most_line_bytes(nodes: int) -> int:
    """Return how many bytes the lines and the progress of that many nodes take at most."""
    several = min(nodes, LAST_LINES_NODES)
    long = min(nodes - several, LONG_LINE_NODES)
    return (
        several * (LAST_LINES_BYTES + _LINES_FRAME)
        + long * (LAST_LINE_BYTES + _LINE_FRAME)
        + (nodes - several - long) * (SHORT_LINE_BYTES + _LINE_FRAME)
        + min(nodes, PROGRESS_NODES) * _PROGRESS_BYTES
    )
