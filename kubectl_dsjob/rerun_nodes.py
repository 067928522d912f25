"""Which nodes a rerun may name: those that the reports of the run have, and those of the cluster.

A node that has just joined is in no report yet, but it can be read. One that is in neither is a
mistake, and the controller would follow the request on no node.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.states import NodeState
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden, NotFound
from daemonset_job.kube.client.resource import NODES
from kubectl_dsjob.cluster import read_run
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import at_job

# Bytes of node names in a sentence.
_NAMES_LIMIT = 200


async def check_nodes(client: KubeClient, job: Job, nodes: Sequence[str]) -> str:
    """Return what to say of the nodes of a rerun, "" for nothing; CliError if one is unknown."""
    if not nodes:
        return ""
    view = await read_run(client, job.namespace, job.name, job.uid)
    found = view.nodes if view is not None else ()
    reported = [node.name for node in found if node.state != NodeState.REMOVED]
    others = [node for node in dict.fromkeys(nodes) if node not in reported]
    unknown = [node for node in others if not await _exists(client, node, is_readable=not reported)]
    if unknown:
        near = get_close_matches(unknown[0], reported, n=3)
        see = f"See its nodes: kubectl dsjob report {at_job(job.name, job.namespace)}"
        way = f"Did you mean {' or '.join(near)}?" if near else see
        what = "no such node" if len(unknown) == 1 else "no such nodes"
        words = f"{job.name} has {what}: {fold(unknown, limit=_NAMES_LIMIT)}"
        raise CliError(words, way, ExitCode.USAGE)
    if not others:
        return ""
    return (
        f"not among the nodes of {job.name} so far: {fold(others, limit=_NAMES_LIMIT)}. The event "
        "RerunIgnored of the Job names those that it does not choose"
    )


async def _exists(client: KubeClient, node: str, *, is_readable: bool) -> bool:
    """Return whether the cluster has the node; `is_readable` if the user may not read nodes."""
    try:
        await client.get(NODES, node)
    except (NotFound, ValueError):  # ValueError: no object can have such a name
        return False
    except Forbidden:
        return is_readable
    return True
