"""A request to run the task of a Job again on nodes: an annotation of the Job.

Its value is `NODE,NODE@TEXT`, or `*@TEXT` for every node. Each change of the value is a new
request. So another text, such as a time, requests the same nodes once more. A value from before
another one, or from before the annotation was removed, is a new request, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from daemonset_job.api.json_text import json_hash
from daemonset_job.api.numbered import next_numbered

_EVERY: Final = "*"
# Characters of a request. A longer one is not acted on, and not cached. A policy in
# deploy/admission.yaml refuses it.
REQUEST_LIMIT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class RerunRequest:
    """A request: its number and hash, and the names of the nodes; without a request none.

    Without a request, `id` is the number of the last one, "" if there was none. `characters` is the
    length of a request that is too long and has no nodes for that reason, 0 for any other.
    """

    id: str = ""
    nodes: frozenset[str] = field(default_factory=frozenset)
    is_for_all: bool = False
    characters: int = 0

    def names(self, node: str) -> bool:
        """Return whether the request is about the node of that name."""
        return self.is_for_all or node in self.nodes


@dataclass(frozen=True, slots=True)
class LongRequest:
    """What is kept of a request that is too long: its hash, and how many characters it has."""

    digest: str
    characters: int

    def numbered(self, recorded: str) -> RerunRequest:
        """Return the request; `recorded` is the last one in the status."""
        return RerunRequest(next_numbered(recorded, self.digest), characters=self.characters)


def find_long_request(value: str) -> LongRequest | None:
    """Return what is kept of a value of the annotation that is too long, None for any other."""
    return LongRequest(json_hash(value), len(value)) if len(value) > REQUEST_LIMIT else None


def parse_rerun(value: str, recorded: str = "") -> RerunRequest:
    """Return the request in a value of the annotation; `recorded` is the last one in the status."""
    if not value:
        return RerunRequest(next_numbered(recorded, ""))
    words = value.partition("@")[0].split(",")
    nodes = frozenset(word.strip() for word in words) - {""}
    found = next_numbered(recorded, json_hash(value))
    return RerunRequest(found, nodes - {_EVERY}, _EVERY in nodes)
