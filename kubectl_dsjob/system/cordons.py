"""Nodes that Jobs have cordoned: only the controller uncordons them, so it must not go before."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from daemonset_job.api import names
from daemonset_job.api.drain import parse_mark
from daemonset_job.api.fold_names import fold
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import NODES
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.paging import list_objects
from kubectl_dsjob.proposals import CLUSTER

_POLL_SECONDS: Final = 0.5
_NAMES_LIMIT: Final = 160
LIFT: Final = (
    f"`kubectl uncordon NODE{CLUSTER}` and `kubectl annotate node NODE{CLUSTER} "
    f"{names.ANNOTATION_CORDONED_BY}-` lift a cordon without the controller"
)


async def wait_until_lifted(client: KubeClient, limit_seconds: float) -> None:
    """Wait until no node has a cordon of a Job; raises CliError after `limit_seconds`."""
    deadline = time.monotonic() + limit_seconds
    while cordoned := await list_cordoned(client):
        if time.monotonic() > deadline:
            text = f"the controller has not uncordoned nodes of deleted Jobs: {shown(cordoned)}"
            raise CliError(text, f"{LIFT}. Then repeat the command.", ExitCode.TIMEOUT)
        await asyncio.sleep(_POLL_SECONDS)


async def list_cordoned(client: KubeClient) -> list[str]:
    """Return the names of the nodes that have the mark of a cordon by a Job."""
    what = Selection(NODES, metadata_only=True)
    found: list[str] = []
    async for raw in list_objects(client, what):
        metadata = raw["metadata"]
        mark = (metadata.get("annotations") or {}).get(names.ANNOTATION_CORDONED_BY) or ""
        if parse_mark(mark) is not None:
            found.append(metadata["name"])
    return found


def shown(nodes: list[str]) -> str:
    """Return the names of nodes, folded and bounded."""
    return fold(nodes, limit=_NAMES_LIMIT)
