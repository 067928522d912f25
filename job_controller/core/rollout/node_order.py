"""The order in which the nodes of a rollout get their turns."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable

from daemonset_job.api import names
from daemonset_job.api.node import Node
from daemonset_job.api.rollout import Order


def zone_of(node: Node) -> str:
    """Return the zone of a node, "" if it has none: such nodes are one zone."""
    return node.labels.get(names.LABEL_ZONE) or ""


def sort_nodes(
    nodes: Iterable[Node],
    order: Order,
    *,
    run: str,
    last: Collection[str] = (),
    controller_node: str = "",
) -> list[Node]:
    """Return the nodes in their order; the same nodes always have the same one.

    `run` is the UID of the Job: another run has another random order. The nodes named in `last`
    come after all others, and the node that runs the controller after these.
    """
    found = sorted(nodes, key=lambda node: node.name)
    if order == Order.RANDOM:
        found.sort(key=lambda node: hashlib.sha256(f"{run}/{node.uid}".encode()).digest())
    elif order == Order.SPREAD:
        found = _spread(found)
    return sorted(found, key=lambda node: (node.name == controller_node, node.name in last))


def _spread(nodes: Iterable[Node]) -> list[Node]:
    """Return the first node of each zone, then the second of each, and so on."""
    ranks: dict[str, int] = defaultdict(int)
    keys = []
    for node in nodes:
        zone = zone_of(node)
        keys.append((ranks[zone], zone, node.name, node))
        ranks[zone] += 1
    return [node for *_, node in sorted(keys, key=lambda key: key[:3])]
