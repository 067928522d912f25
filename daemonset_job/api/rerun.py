"""A request to run the task of a Job again on nodes: an annotation of the Job.

Its value is `NODE,NODE@TEXT`, or `*@TEXT` for every node. Any other value is a new request, so the
text, such as a time, asks for the same nodes once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from daemonset_job.api.json_text import json_hash

_EVERY: Final = "*"
# Characters of a request. A longer one is not acted on, and not cached.
REQUEST_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A request: its identity, and the names of the nodes; without a request "" and none."""

    id: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)
    is_for_all: bool = False

    def names(self, node: str) -> bool:
        """Return whether the request is about the node of that name."""
        return bool(self.id) and (self.is_for_all or node in self.nodes)


def parse_rerun(value: str) -> RerunRequest:
    """Return the request in a value of the annotation."""
    if not value:
        return RerunRequest()
    words = value.partition("@")[0].split(",")
    nodes = frozenset(word.strip() for word in words) - {""}
    return RerunRequest(json_hash(value), nodes - {_EVERY}, _EVERY in nodes)
