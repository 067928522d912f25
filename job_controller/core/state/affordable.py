"""How many nodes one reconcile may check against a node selection.

A selection may have thousands of requirements, and a cluster thousands of nodes. One Job must not
keep the controller from the others.
"""

from __future__ import annotations

from typing import Final

from daemonset_job.api.affinity import NodeAffinity

# Requirements that are checked, about 10 ms.
REQUIREMENTS_LIMIT: Final = 40_000


def affordable_nodes(affinity: NodeAffinity) -> int:
    """Return how many nodes may be checked."""
    return REQUIREMENTS_LIMIT // (1 + affinity.requirements)
