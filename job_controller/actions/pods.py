"""Pods: the removal of their scheduling gates, and their deletion."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.daemon_set import DaemonSet, parse_daemon_set
from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job, JobKey
from daemonset_job.api.node import parse_node
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.pod import Pod, parse_pod
from daemonset_job.api.report import JobReport, merge_records, parse_report
from daemonset_job.kube.cache.pager import Pager
from daemonset_job.kube.client.errors import Conflict, NotFound
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, NODES, PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.errors import most_severe
from job_controller.actions.exclusive_nodes import ExclusiveNodes
from job_controller.actions.writer import Writer
from job_controller.core.plan import CheckNoPodMayStart, DeletePods, RemoveSchedulingGates
from job_controller.core.state.causes import has_started
from job_controller.core.state.due_again import counts
from job_controller.core.state.ended_pods import is_orphan

# How many pods are written at a time: 32 at once removed 1,002 gates in 5.8 s on two cores.
PODS_AT_ONCE = 32
# Characters of names in a line of the log.
_NAMES_LIMIT = 400


class PodActions:
    """Acts on the pods of one Job at a time."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._exclusive = ExclusiveNodes(writer)

    async def execute(
        self, key: JobKey, job: Job, action: RemoveSchedulingGates | DeletePods | CheckNoPodMayStart
    ) -> None:
        """Execute an action; raises KubeError."""
        match action:
            case RemoveSchedulingGates():
                await self.remove_gates(key, job, action)
            case DeletePods():
                await self.delete(key, action)
            case CheckNoPodMayStart():
                await self.check_none_may_start(job, is_taken_back=action.is_taken_back)
            case _ as unreachable:
                assert_never(unreachable)

    async def remove_gates(self, key: JobKey, job: Job, action: RemoveSchedulingGates) -> None:
        """Remove the gates of pods whose nodes have not completed, by a new read of the ledger.

        The cache of reports can be behind the cache of pods, so that the completion of a new pod's
        node is not known yet. A read that starts after the pod was seen has it. If the ledger has a
        completion of the node's name under another UID, the cache of nodes may be the older one:
        such a node is read, too. In a rollout, the turn of the node has to be there.

        A node that had to be cordoned is read as well: another one of its name is not. Raises
        Conflict if it is gone, so that nothing else is recorded of it until the cache has that.
        """
        reports = await self._read_reports(job)
        done, records = self._completed_nodes(job, reports), merge_records(reports)
        due: list[Pod] = []
        doubtful: list[Pod] = []
        for pod in action.pods:
            if job.spec.rollout is not None and not _has_turn(
                job, records.get(pod.node_name), action.node_uids[pod.node_name]
            ):
                continue
            completed_uid = done.get(pod.node_name)
            if completed_uid is None:
                due.append(pod)
            elif completed_uid != action.node_uids[pod.node_name]:
                doubtful.append(pod)
        await self._for_each_pod(partial(self._add_if_registered_again, done, due), doubtful)
        others: list[Pod] = []
        if job.spec.cordons:
            due, prepared = [], due
            check = partial(self._add_if_prepared, action.node_uids, due, others)
            await self._for_each_pod(check, prepared)
        async with self._exclusive.reserved(job, due) as free:
            await self._for_each_pod(partial(self._remove_gate, key), free)
        _log_started(free)
        if others:
            nodes = fold(sorted(pod.node_name for pod in others), limit=_NAMES_LIMIT)
            raise Conflict(f"nodes that were cordoned are gone, or registered again: {nodes}")

    async def delete(self, key: JobKey, action: DeletePods) -> None:
        """Delete pods; one that has not started only if it has not changed since."""
        deleted: list[Pod] = []
        try:
            await self._for_each_pod(partial(self._delete, key, deleted), action.pods)
        finally:
            _log_deleted(deleted, action.why)

    async def check_none_may_start(self, job: Job, *, is_taken_back: bool) -> None:
        """Raise Conflict unless each pod of the Job waits at its gate, as the API server has them.

        The cache of pods can be behind the cache of DaemonSets, so that it lacks a pod. It can lack
        the DaemonSet, too, if the answer to its creation was lost. Nor may there be a pod without
        an owner, see `CheckNoPodMayStart`. If a task has begun, the next decision knows of it.
        """
        found = (
            await self._writer.client.find(DAEMON_SETS, job.daemon_set_name, job.namespace)
        ).item
        if found is not None and _may_create(parse_daemon_set(found), job, is_taken_back):
            raise Conflict(f"DaemonSet {job.daemon_set_name} of the run may create pods")
        selector = f"{names.LABEL_JOB_UID}={job.uid}"
        what = Selection(PODS, job.namespace, selector)
        async for page in Pager(self._writer.client, what).pages():
            for raw in page.items:
                if isinstance(raw, Unreadable):
                    raise Conflict(f"pod {raw.name} cannot be read, and may start")
                pod = parse_pod(raw)
                is_free = pod.daemon_set == job.daemon_set_name and not pod.is_gated
                is_adoptable = is_orphan(pod, job) and not (is_taken_back and pod.is_terminating)
                if is_free and pod.has_run:
                    # It may be gone before the cache of pods has it.
                    self._writer.caches.ended_pods.record_begin(job, pod)
                if is_free or is_adoptable:
                    raise Conflict(f"pod {pod.name} of the run may start")

    async def _read_reports(self, job: Job) -> list[JobReport]:
        """Return the reports of the run, read from the server."""
        page = await self._writer.client.list(
            JOB_REPORTS, job.namespace, label_selector=f"{names.LABEL_JOB_UID}={job.uid}"
        )
        return [parse_report(raw) for raw in page.get("items") or ()]

    def _completed_nodes(self, job: Job, reports: Sequence[JobReport]) -> dict[str, str]:
        """Return the UIDs of completed nodes by node name."""
        records = merge_records(reports)
        return {
            name: evidence.node_uid
            for report in reports
            for name, evidence in report.evidence.items()
            if evidence.is_completed and counts(job, evidence, records.get(name))
        }

    async def _add_if_registered_again(
        self, done: Mapping[str, str], due: list[Pod], pod: Pod
    ) -> None:
        """Add a pod to those that are due, unless its node is the very one that has completed."""
        uid = await self._find_node_uid(pod.node_name)
        if uid and uid != done[pod.node_name]:
            due.append(pod)

    async def _add_if_prepared(
        self, uids: Mapping[str, str], due: list[Pod], others: list[Pod], pod: Pod
    ) -> None:
        """Add a pod to those that are due, or to `others` if its node is not the prepared one.

        That node may be gone. Without a gate, the pod would start on the next one of that name.
        """
        uid = await self._find_node_uid(pod.node_name)
        (due if uid == uids[pod.node_name] else others).append(pod)

    async def _find_node_uid(self, name: str) -> str:
        """Return the UID of the node as the API server has it, "" if there is none."""
        found = await self._writer.client.find(NODES, name)
        return parse_node(found.item).uid if found.item is not None else ""

    async def _for_each_pod(
        self, act: Callable[[Pod], Awaitable[None]], pods: Iterable[Pod]
    ) -> None:
        """Act on all pods, a bounded number at a time; one that fails does not stop the others.

        Raises the most severe of their errors. A conflict is raised too. Another client may have
        changed the pod, and if the cache has that change already, no event causes a retry.
        """
        room = asyncio.Semaphore(PODS_AT_ONCE)

        async def one(pod: Pod) -> None:
            async with room:
                await act(pod)

        results = await asyncio.gather(*map(one, pods), return_exceptions=True)
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise most_severe(errors)

    async def _remove_gate(self, key: JobKey, pod: Pod) -> None:
        others = [{"name": gate} for gate in pod.gates if gate not in names.START_GATES]
        body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": others or None}}
        # Deleted: the DaemonSet controller creates the next one.
        with suppress(NotFound):
            written = await self._writer.client.merge_patch(PODS, pod.name, body, pod.namespace)
            self._writer.expect_version(key, PODS, written)

    async def _delete(self, key: JobKey, deleted: list[Pod], pod: Pod) -> None:
        with suppress(NotFound):
            written = await self._writer.client.delete(
                PODS,
                pod.name,
                pod.namespace,
                uid=pod.uid,
                # One that has not started is deleted only as it was seen: it may be about to.
                resource_version=None if has_started(pod) else pod.resource_version,
            )
            self._writer.expect_version(key, PODS, written)
            deleted.append(pod)


def _may_create(daemon_set: DaemonSet, job: Job, is_taken_back: bool) -> bool:
    """Return whether pods that may start can come of a DaemonSet; of a former start, any pods."""
    if daemon_set.owner_uid != job.uid:
        return False
    return is_taken_back or not (daemon_set.is_gated and daemon_set.is_observed)


def _has_turn(job: Job, record: NodeRecord | None, node_uid: str) -> bool:
    if record is None or record.uid != node_uid or record.revision != job.revision:
        return False
    return record.turn_at is not None


def _log_deleted(pods: Sequence[Pod], whys: Mapping[str, str]) -> None:
    """Log one line for each reason, not one for each pod: a retry may delete a thousand."""
    by_reason: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_reason[whys.get(pod.uid, "")].append(pod)
    for why, found in by_reason.items():
        logger.info(
            "deleted pods",
            count=len(found),
            pods=fold([pod.name for pod in found], limit=_NAMES_LIMIT),
            nodes=fold([pod.node_name for pod in found], limit=_NAMES_LIMIT),
            why=why,
        )


def _log_started(pods: Sequence[Pod]) -> None:
    if pods:
        nodes = [pod.node_name for pod in pods]
        logger.info(
            "removed the scheduling gates of pods",
            count=len(nodes),
            nodes=fold(nodes, limit=_NAMES_LIMIT),
            why="their nodes may start",
        )
