"""Where the output of each node is: in its pod, or in the report. The choice is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from daemonset_job.api import names
from daemonset_job.api.owners import controller_uid
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.states import NodeState
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.messages import clean_text
from daemonset_job.kube.client.resource import DAEMON_SETS, PODS
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.paging import list_objects
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.run_view import NAME_LIMIT, RunView


@dataclass(frozen=True, slots=True)
class LogWish:
    """Which logs a user wants: of all nodes, or of those whose names match a pattern of `nodes`.

    `tail` is the number of lines of each node, None for all. `at_once` is how many are read at a
    time.
    """

    nodes: tuple[str, ...] = ()
    only_failed: bool = False
    is_followed: bool = False
    is_grouped: bool = False
    is_previous: bool = False
    has_times: bool = False
    has_prefix: bool = True
    tail: int | None = None
    at_once: int = 16


@dataclass(frozen=True, slots=True)
class LogSource:
    """The output of one node: in the log of a pod that has started, else what the report kept."""

    node: str
    pod: Pod | None = None
    kept: tuple[str, ...] = ()
    is_final: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether there is no output of this node to be read."""
        return self.pod is None and not self.kept


async def read_pods(client: KubeClient, view: RunView) -> dict[str, Pod]:
    """Return the pod of each node: of the Job's own DaemonSet, by the UIDs of owners."""
    if not view.exists:
        return {}
    try:
        daemon_set = await client.get(DAEMON_SETS, names.daemon_set_name(view.name), view.namespace)
    except NotFound:
        return {}
    meta: Mapping[str, Any] = daemon_set["metadata"]
    if controller_uid(meta) != view.uid:
        return {}
    selector = f"{names.LABEL_JOB_UID}={view.uid}"
    what = Selection(PODS, view.namespace, selector)
    found: dict[str, Pod] = {}
    async for raw in list_objects(client, what):
        try:
            pod = parse_pod(raw)
        except (KeyError, ValueError):
            continue
        if pod.owner_uid != meta["uid"] or not pod.node_name:
            continue
        known = found.get(pod.node_name)
        if known is None or _rank(pod) > _rank(known):
            found[pod.node_name] = pod
    return found


def _rank(pod: Pod) -> tuple[bool, bool, str]:
    return (has_started(pod), not pod.is_terminating, pod.uid)


def has_started(pod: Pod) -> bool:
    """Return whether the task's container in this pod has been started, so that it has a log."""
    found = pod.container
    return found is not None and (
        found.state in ("running", "terminated") or found.last_exit_code is not None
    )


def choose_sources(view: RunView, pods: Mapping[str, Pod], wish: LogWish) -> list[LogSource]:
    """Return the output of each chosen node, by name. CliError if a pattern matches no node."""
    by_name = {node.name: node for node in view.nodes}
    nodes = sorted({*by_name, *(_clean(name) for name in pods)})
    pods = {_clean(name): pod for name, pod in pods.items()}
    chosen = choose_nodes(nodes, wish.nodes, at_job(view.name, view.namespace))
    found = []
    for name in chosen:
        node = by_name.get(name)
        state = node.state if node else NodeState.WAITING
        if wish.only_failed and state != NodeState.FAILED:
            continue
        pod = pods.get(name)
        found.append(
            LogSource(
                name,
                pod if pod is not None and has_started(pod) else None,
                node.last_lines if node else (),
                state in (NodeState.COMPLETED, NodeState.FAILED, NodeState.REMOVED),
            )
        )
    return found


def choose_nodes(nodes: Sequence[str], patterns: Sequence[str], run: str) -> list[str]:
    """Return the nodes that match a pattern such as `rack1-*`, all if there is none.

    CliError if a pattern matches none; its way out names `run`, the arguments of a command.
    """
    if not patterns:
        return list(nodes)
    chosen = set()
    for pattern in patterns:
        matching = {name for name in nodes if fnmatchcase(name, pattern)}
        if not matching:
            near = get_close_matches(pattern, nodes, n=3)
            see = f"See them: kubectl dsjob report {run}"
            way = f"Did you mean {' or '.join(near)}?" if near else see
            raise CliError(f"no node of this run matches {pattern!r}", way, ExitCode.USAGE)
        chosen |= matching
    return sorted(chosen)


def _clean(name: str) -> str:
    return clean_text(name, NAME_LIMIT)
