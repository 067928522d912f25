"""The versions of each node that differ in what decides about its pods, with their times.

That is which pods the node takes, and whether it is Ready.

A program cannot know what its watch of the nodes has not delivered yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakekube.node_lifecycle import ready_status
from tests.simulation.server import Raw


@dataclass(slots=True)
class NodeVersions:
    """Receives raw nodes; by name, their versions in order, with the moments of their writes."""

    versions: dict[str, list[tuple[float, Raw]]] = field(default_factory=dict)

    def written(self, node: Raw, now: float) -> None:
        """Note a node as it is from now on."""
        known = self.versions.setdefault(node["metadata"]["name"], [])
        if not known or _deciding(known[-1][1]) != _deciding(node):
            known.append((now, node))

    def newest(self, name: str, until: float) -> Raw | None:
        """Return the newest version of a node that was written before a moment, None for none."""
        known = [raw for at, raw in self.versions.get(name, ()) if at < until]
        return known[-1] if known else None

    def since(self, name: str, moment: float) -> list[Raw]:
        """Return what a node has been from a moment on: the version of then, and all later ones."""
        before = self.newest(name, moment)
        later = [raw for at, raw in self.versions.get(name, ()) if at >= moment]
        return later if before is None else [before, *later]


def is_newer(first: Raw, second: Raw) -> bool:
    """Return whether the first of two versions of a raw node was written later."""
    versions = (int(raw["metadata"]["resourceVersion"]) for raw in (first, second))
    return next(versions) > next(versions)


def _deciding(node: Raw) -> tuple[object, ...]:
    """Return what decides which pods a raw node takes, its UID, and whether it is Ready."""
    meta, taints = node["metadata"], (node.get("spec") or {}).get("taints")
    return meta["uid"], meta.get("labels"), taints, ready_status(node)
