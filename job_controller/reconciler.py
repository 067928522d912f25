"""One pass over one Job: gather a snapshot, decide, carry the plan out.

The thin shell around the core. It holds nothing that a restart would miss: the high-water marks
only keep a pass from deciding on what it has itself just changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

from loguru import logger

from daemonset_job.api import names
from daemonset_job.api.job import Job, parse_spec
from daemonset_job.api.objects import DaemonSet, Node, Pod, parse_daemon_set
from daemonset_job.api.ownership import has_owner, take_over
from daemonset_job.api.past import PHASE_CANCELLED
from daemonset_job.api.report import JobReport, NodeRecord, parse_report, untracked
from daemonset_job.informers.records import INCOMPLETE_RETRY_SECONDS
from daemonset_job.kube.cache.reflector import UNSYNCED_SECONDS
from daemonset_job.kube.client.client import MALFORMED_ANSWER, KubeClient
from daemonset_job.kube.client.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooLarge,
)
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, PODS, Resource
from daemonset_job.kube.client.unreadable import Unreadable
from daemonset_job.kube.recorder import EventRecorder, ObjectReference
from daemonset_job.runtime.clock import Clock
from daemonset_job.runtime.expectations import HighWater
from job_controller.caches import Caches, Key, cache_name
from job_controller.core.decide import decide
from job_controller.core.desired.strategic_merge import merge_patch
from job_controller.core.plan import (
    Action,
    ApplyDaemonSet,
    CreateReport,
    DeleteDaemonSet,
    DeletePods,
    OpenGates,
    Plan,
    TryDaemonSet,
    WriteReportStatus,
    WriteStatus,
    without_progress,
)
from job_controller.core.render.job_status import unreadable_status
from job_controller.core.render.report_status import closed_status, excess_reports, expired_reports
from job_controller.core.settings import Settings
from job_controller.core.state.absence import find_held
from job_controller.core.state.node_counts import merge_records, standing_pods, stray_pods
from job_controller.core.state.node_state import COMPLETED, FAILED, UNREACHABLE
from job_controller.core.state.sightings import Scene, Sightings, long_away, look, shifted
from job_controller.core.state.snapshot import Snapshot
from job_controller.failed_creates import FailedCreates
from job_controller.metrics import Metrics
from job_controller.refusals import Refusals
from job_controller.repairs import Repairs
from job_controller.rereads import NodeRereads, Reread, with_rereads

# How many pods are written at a time: measured, 32 at once open 1,002 gates in 5.8 s on two cores.
PODS_AT_ONCE = 32
# A cache that is behind our own write catches up within milliseconds; this is for the case that
# the watch is broken, and then the reflector's own reconnection is what helps.
_STALE_RETRY_SECONDS = 0.1
# Two clocks that differ by less run at slightly different rates; by more, one of them was set.
_CLOCK_SET = timedelta(seconds=1)
# Progress is written again after so many times what the last writing of it took, and after so many
# seconds for each node at the latest: the record of a thousand nodes is nearly half a megabyte. The
# API server takes a quarter of a second and more for it, and everybody who watches has to read it.
PROGRESS_SHARE = 40.0
PROGRESS_SECONDS_PER_NODE = 0.01
PROGRESS_SECONDS = 10.0
# So many of the reports that a namespace has too many are removed by one pass, and after so many
# seconds more of them: it keeps no other Job waiting for long.
EXCESS_AT_ONCE = 20
EXCESS_SECONDS = 1.0
# When reports of ended runs are tried again that the API server does not let be closed or deleted.
HISTORY_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Shell:
    """What a reconciler acts with."""

    client: KubeClient
    events: EventRecorder
    clock: Clock
    metrics: Metrics
    settings: Callable[[], Settings]


class Reconciler:
    """Brings one Job at a time nearer to what it asks for. Level-triggered and idempotent."""

    def __init__(self, shell: Shell, caches: Caches, written: HighWater[Key]) -> None:
        self._shell = shell
        self._caches = caches
        self._written = written
        self._next_progress: dict[Key, float] = {}
        # With when that was, by the wall clock and by the monotonic one.
        self._seen: dict[Key, tuple[str, Sightings, datetime, float]] = {}
        self._refusals = Refusals()
        self._repairs = Repairs()
        self._failed_creates = FailedCreates(shell.client, shell.clock)
        self._rereads = NodeRereads(shell.client, shell.clock)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass; return the seconds after which to look again, None for no need to.

        Raises KubeError when a write failed in a way that only trying again can mend.
        """
        if not self._caches.has_synced(key[0]):
            return UNSYNCED_SECONDS
        if not self._written.is_ready(key):
            return _STALE_RETRY_SECONDS
        started = time.perf_counter()
        try:
            if (unread := self._caches.unreadable_job(key)) is not None:
                await self._tell_unreadable(key, unread)
                return None
            job = self._caches.job(key)
            if job is not None and not self._caches.records.is_complete(job.uid):
                await self._caches.records.complete(job.uid)
                job = self._caches.job(key)
                if job is None or not self._caches.records.is_complete(job.uid):
                    return INCOMPLETE_RETRY_SECONDS
            wait = await self._keep_history(key, job)
            if job is None:
                self._written.drop(key)
                self._next_progress.pop(key, None)
                self._seen.pop(key, None)
                self._refusals.forget(key)
                self._repairs.forget(key)
                self._failed_creates.forget(key)
                return wait
            waits = [
                seconds for seconds in (wait, await self._pass(key, job)) if seconds is not None
            ]
            return min(waits, default=None)
        finally:
            self._shell.metrics.reconcile_seconds.observe(time.perf_counter() - started)

    async def _pass(self, key: Key, job: Job) -> float | None:
        started = self._shell.clock.monotonic()
        snapshot = self._gather(key, job, {})
        if away := self._nearly_unreachable(snapshot):
            # The cache may not have heard that they are back, and the run would fail for it.
            read = await self._rereads.read(away)
            known = self._caches.job(key)
            if known is None or not self._caches.records.is_complete(known.uid):
                return _STALE_RETRY_SECONDS
            job, started = known, self._shell.clock.monotonic()
            snapshot = self._gather(key, job, read)
        plan = decide(snapshot, self._shell.clock.now())
        self._caches.took(key, self._shell.clock.monotonic() - started)
        plan = self._repairs.pace(key, plan, started)
        plan = self._paced(key, job, plan)
        done: list[Action] = []
        while True:
            try:
                await self._carry_out(key, snapshot, plan, done)
            except _RefusedError as refused:
                # What was refused or done is not asked for again: each round asks for less.
                after = await self._after_refusal(snapshot, refused)
                now = self._shell.clock.monotonic()
                snapshot = self._refusals.note(key, refused.field, snapshot, after, now)
                plan = decide(snapshot, self._shell.clock.now())
                left = tuple(action for action in plan.actions if action not in done)
                plan = self._repairs.pace(key, replace(plan, actions=left), now)
            else:
                if any(isinstance(action, TryDaemonSet) for action in plan.actions):
                    snapshot = replace(snapshot, is_tried=True)
                    plan = decide(snapshot, self._shell.clock.now())
                    continue
                self._refusals.settle(key, snapshot)
                waits = (plan.requeue_after, await self._find_refused(key, snapshot, plan))
                return min((seconds for seconds in waits if seconds is not None), default=None)

    async def _find_refused(self, key: Key, snapshot: Snapshot, plan: Plan) -> float | None:
        """Look for why pods are missing if they are; return when to look again, in seconds."""
        daemon_set = snapshot.owned_daemon_set
        if daemon_set is not None and plan.lacks_pods:
            return await self._failed_creates.look(key, daemon_set.uid)
        if daemon_set is None or daemon_set.is_observed:
            self._failed_creates.forget(key)
        return None

    def _look(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with when this process first saw what timers count from."""
        job = snapshot.job
        now, moment = self._shell.clock.now(), self._shell.clock.monotonic()
        uid, before, at, at_moment = self._seen.get(key, ("", {}, now, moment))
        step = (now - at) - timedelta(seconds=moment - at_moment)
        if abs(step) >= _CLOCK_SET:
            before = shifted(before, step)
        pods = standing_pods(snapshot)
        failed = frozenset(
            name for name, record in merge_records(snapshot).items() if record.state == FAILED
        )
        before = before if uid == job.uid else {}
        held = find_held(snapshot, pods)
        scene = Scene(pods, snapshot.nodes, failed, held, job.retry_token, stray_pods(snapshot))
        seen = look(before, scene, now)
        self._seen[key] = job.uid, seen, now, moment
        return replace(snapshot, seen=seen)

    def _gather(self, key: Key, job: Job, read: Mapping[str, Reread]) -> Snapshot:
        """Return the snapshot, with what the API server has just said of single nodes."""
        now = self._shell.clock.monotonic()
        snapshot = self._refusals.hold_back(key, self._snapshot(key, job), now)
        if read:
            snapshot = replace(snapshot, nodes=with_rereads(snapshot.nodes, read))
        return self._look(key, snapshot)

    def _nearly_unreachable(self, snapshot: Snapshot) -> list[Node]:
        """Return the nodes whose time is over before they are unreachable, and that are not yet."""
        limit = timedelta(seconds=snapshot.settings.patience.unreachable)
        nodes, now = snapshot.nodes.values(), self._shell.clock.now()
        away = long_away(snapshot.seen, nodes, limit, now)
        records = merge_records(snapshot) if away else {}
        return [node for node in away if not self._is_settled(snapshot.job, node, records)]

    @staticmethod
    def _is_settled(job: Job, node: Node, records: Mapping[str, NodeRecord]) -> bool:
        """Return whether the node is on record as what does not become unreachable any more."""
        record = records.get(node.name)
        return (
            record is not None
            and (record.uid, record.retry) == (node.uid, job.retry_token)
            and record.state in {COMPLETED, FAILED, UNREACHABLE}
        )

    async def _after_refusal(self, snapshot: Snapshot, refused: _RefusedError) -> Snapshot:
        """Return the snapshot that knows of a refused write; raises if it knew already."""
        if getattr(snapshot, refused.field):
            assert refused.__cause__ is not None
            raise refused.__cause__
        match refused.field:
            case "report_refusal":
                return replace(snapshot, report_refusal=refused.message)
            case "gates_refusal":
                return replace(snapshot, gates_refusal=refused.message)
            case "deletion_refusal":
                return replace(snapshot, deletion_refusal=refused.message)
        found = snapshot.daemon_set or await self._find_unlabelled(snapshot.job)
        return replace(snapshot, daemon_set=found, refusal=refused.message)

    def _paced(self, key: Key, job: Job, plan: Plan) -> Plan:
        """Return the plan, without what only tells progress if that was told a moment ago."""
        wait = self._next_progress.get(key, 0.0) - self._shell.clock.monotonic()
        return plan if wait <= 0 else without_progress(plan, job.status, wait)

    def _snapshot(self, key: Key, job: Job) -> Snapshot:
        daemon_set = self._caches.daemon_set(job.namespace, job.daemon_set_name)
        ours = daemon_set is not None and daemon_set.owner_uid == job.uid
        return Snapshot(
            job=job,
            daemon_set=daemon_set,
            pods=self._caches.pods_of(daemon_set) if daemon_set and ours else (),
            nodes=self._caches.nodes(),
            reports=tuple(r for r in self._caches.reports_of(key) if r.job_uid == job.uid),
            pods_refused=self._failed_creates.message(key, daemon_set.uid) if daemon_set else None,
            settings=self._shell.settings(),
        )

    async def _find_unlabelled(self, job: Job) -> DaemonSet | None:
        """Return the DaemonSet of the Job's DaemonSet name, read from the server.

        One without our label is in no cache. All that shows of it is that its selector cannot
        become ours, which tells nobody that the name is taken.
        """
        found = await self._find_raw(job)
        return parse_daemon_set(found) if found is not None else None

    async def _find_raw(self, job: Job) -> Mapping[str, Any] | None:
        page = await self._shell.client.list(
            DAEMON_SETS, job.namespace, field_selector=f"metadata.name={job.daemon_set_name}"
        )
        return next(iter(page.get("items") or ()), None)

    async def _carry_out(
        self, key: Key, snapshot: Snapshot, plan: Plan, done: list[Action]
    ) -> None:
        """Do the actions in order, adding them to `done`, then send the events.

        The first failure ends it.
        """
        clock, job = self._shell.clock, snapshot.job
        recording = 0.0
        for action in plan.actions:
            logger.info("doing", action=type(action).__name__)
            started = clock.monotonic()
            try:
                await self._do(key, snapshot, action)
            except KubeError as error:
                field = _REFUSAL_FIELDS.get(type(action))
                if field is None or not _is_refusal(error):
                    raise
                raise _RefusedError(error, field) from error
            done.append(action)
            if isinstance(action, WriteReportStatus | WriteStatus):
                recording += clock.monotonic() - started
        if recording:
            nodes = max(job.counted_nodes or 0, len(snapshot.pods))
            pause = min(
                PROGRESS_SHARE * recording, PROGRESS_SECONDS_PER_NODE * nodes, PROGRESS_SECONDS
            )
            self._next_progress[key] = clock.monotonic() + pause
        for event in plan.events:
            self._shell.events.emit(_reference(job), event.type, event.reason, event.message)

    async def _do(self, key: Key, snapshot: Snapshot, action: Action) -> None:
        job = snapshot.job
        match action:
            case WriteStatus():
                await self._write_status(key, job, action.status)
            case CreateReport():
                await self._create_report(key, job, action.body)
            case WriteReportStatus():
                report = self._report(key, snapshot, action.name)
                if report is not None:
                    await self._write_report_status(key, report, action.status)
            case TryDaemonSet():
                await self._try(job, action.body)
            case ApplyDaemonSet():
                await self._apply(key, job, action)
            case OpenGates():
                await self._open_gates(key, job, action)
            case DeletePods():
                await self._all(partial(self._delete_pod, key), action.pods)
            case DeleteDaemonSet():
                await self._delete_daemon_set(job, action.uid)
            case _ as unreachable:
                assert_never(unreachable)

    # --- the Job -----------------------------------------------------------------------

    async def _write_status(
        self, key: Key, job: Job, status: Mapping[str, Any], *, metadata_only: bool = False
    ) -> None:
        body = {
            "metadata": {"resourceVersion": job.resource_version, "uid": job.uid},
            "status": merge_patch(job.status, status),
        }
        try:
            written = await self._shell.client.merge_patch(
                JOBS,
                job.name,
                body,
                job.namespace,
                subresource="status",
                metadata_only=metadata_only,
            )
        except NotFound:
            # Deleted meanwhile: nothing is left to say about it.
            return
        self._note(key, JOBS, written)
        self._shell.metrics.count_end(job.status, status)

    async def _tell_unreadable(self, key: Key, unread: Unreadable) -> None:
        """Say in the status of a Job that cannot be read that nothing is done for it, and why."""
        job = Job(
            namespace=unread.namespace,
            name=unread.name,
            uid=unread.uid,
            resource_version=unread.resource_version,
            generation=unread.generation,
            spec=parse_spec({}),
            status=unread.status,
        )
        status = unreadable_status(job, unread.error, self._shell.clock.now())
        if status != job.status:
            # The answer would be as unreadable.
            await self._write_status(key, job, status, metadata_only=True)

    # --- the report --------------------------------------------------------------------

    def _report(self, key: Key, snapshot: Snapshot, name: str) -> JobReport | None:
        """Return the report of that name, as the snapshot has it if only a summary is left of it.

        The patch says what is to change, so it takes all that stands there.
        """
        found = next((r for r in self._caches.reports_of(key) if r.name == name), None)
        if found is None or found.is_whole:
            return found
        return next((r for r in snapshot.reports if r.uid == found.uid), None)

    async def _create_report(self, key: Key, job: Job, body: Mapping[str, Any]) -> None:
        try:
            written = await self._shell.client.create(JOB_REPORTS, body, job.namespace)
        except AlreadyExists:
            # Made by the pass before, whose cache had not caught up, or before a restart: the
            # name holds the start of the Job's UID, so it is this run's.
            return
        self._note(key, JOB_REPORTS, written)
        name, uid = written["metadata"]["name"], written["metadata"]["uid"]
        with suppress(NotFound):
            written = await self._shell.client.merge_patch(
                JOB_REPORTS, name, {"metadata": untracked(uid)}, job.namespace
            )
            self._note(key, JOB_REPORTS, written)

    async def _write_report_status(
        self, key: Key, report: JobReport, status: Mapping[str, Any]
    ) -> None:
        # A closing write must not overwrite what was said meanwhile of a run that has just ended:
        # a leader that has just begun may not have seen it yet.
        meta = {"uid": report.uid}
        if status.get("phase") == PHASE_CANCELLED:
            meta["resourceVersion"] = report.resource_version
        body = {"metadata": meta, "status": merge_patch(report.status, status)}
        try:
            written = await self._shell.client.merge_patch(
                JOB_REPORTS, report.name, body, report.namespace, subresource="status"
            )
        except NotFound:
            # Somebody deleted the record; the run goes on and CreateReport makes a new one.
            return
        self._note(key, JOB_REPORTS, written)

    async def _keep_history(self, key: Key, job: Job | None) -> float | None:
        """Close the reports of runs whose Job is gone and remove those history has no room for.

        Returns the seconds after which to look again, None for never. What the API server refuses
        here holds up nothing of the Job that has the name now.
        """
        settings, now = self._shell.settings(), self._shell.clock.now()
        living = {job.uid} if job is not None else set()
        known = self._caches.reports_of(key)
        reports = [r for r in known if r.job_uid not in living]
        closing = {r.name: status for r in reports if (status := closed_status(r)) is not None}
        expired, wake_at = expired_reports(
            list(known),
            living_uid=job.uid if job is not None else "",
            limit=settings.history_limit,
            max_age_seconds=settings.history_seconds,
            now=now,
        )
        # The cache of Jobs may be behind that of reports: a run that goes on is not of the past.
        found = await self._find_job(key) if closing or expired else None
        unheard = str(found["uid"]) if found is not None else ""
        is_late = unheard not in living and any(r.job_uid == unheard for r in reports)
        try:
            for report in reports:
                if report.name in closing and report.job_uid != unheard:
                    await self._write_report_status(key, report, closing[report.name])
            for report in expired:
                if report.job_uid != unheard:
                    await self._delete_report(report)
        except KubeError as error:
            if not _is_refusal(error):
                raise
            logger.warning("a report of the past cannot be changed", error=str(error))
            return HISTORY_RETRY_SECONDS
        if await self._thin_out(key[0], settings.history_namespace_limit):
            return EXCESS_SECONDS
        if is_late:
            return UNSYNCED_SECONDS
        return max((wake_at - now).total_seconds(), 0.0) if wake_at is not None else None

    async def _find_job(self, key: Key) -> Mapping[str, Any] | None:
        """Return the metadata of the Job of that key, read from the server, None if it is gone."""
        try:
            found = await self._shell.client.get(JOBS, key[1], key[0])
        except NotFound:
            return None
        meta: Mapping[str, Any] = found["metadata"]
        return meta

    async def _delete_report(self, report: JobReport) -> None:
        with suppress(NotFound):
            await self._shell.client.delete(
                JOB_REPORTS, report.name, report.namespace, uid=report.uid
            )

    async def _thin_out(self, namespace: str, limit: int | None) -> bool:
        """Remove reports that a namespace has beyond its limit; return whether some are left."""
        if limit is None:
            return False
        excess = self._caches.count_reports(namespace) - limit
        if excess <= 0:
            return False
        past = excess_reports(self._caches.past_reports(namespace), min(excess, EXCESS_AT_ONCE))
        for report in past:
            await self._delete_report(report)
        return bool(past) and excess > len(past)

    # --- DaemonSet and pods ------------------------------------------------------------

    async def _try(self, job: Job, body: Mapping[str, Any]) -> None:
        try:
            await self._shell.client.apply(
                DAEMON_SETS,
                job.daemon_set_name,
                body,
                job.namespace,
                field_manager=names.FIELD_MANAGER,
                dry_run=True,
            )
        except BadRequest as error:
            # An admission webhook with side effects cannot say; then the DaemonSet itself will.
            if _NO_DRY_RUN not in error.message:
                raise

    async def _apply(self, key: Key, job: Job, action: ApplyDaemonSet) -> None:
        body = dict(action.body)
        if action.uid:
            body["metadata"] = {**body["metadata"], "uid": action.uid}
        elif not await self._still_wanted(job):
            return
        if action.takes_over:
            await self._take_over(key, job, action)
        written = await self._shell.client.apply(
            DAEMON_SETS,
            job.daemon_set_name,
            body,
            job.namespace,
            field_manager=names.FIELD_MANAGER,
        )
        self._note(key, DAEMON_SETS, written)
        self._repairs.note(key, action, self._shell.clock.monotonic())

    async def _take_over(self, key: Key, job: Job, action: ApplyDaemonSet) -> None:
        """Have all fields of the DaemonSet's spec be ours, so that applying removes the others'.

        It loses the mark of what was applied last: should this process end in between, the next
        pass applies. Conflict if it was changed meanwhile.
        """
        found = await self._find_raw(job)
        if found is None or found["metadata"].get("uid") != action.uid:
            return
        meta = found["metadata"]
        version = {"uid": action.uid, "resourceVersion": meta["resourceVersion"]}
        body: dict[str, Any] = {
            "metadata": {
                **version,
                "annotations": {names.ANNOTATION_SPEC_HASH: None},
                "managedFields": take_over(meta.get("managedFields") or ()),
            }
        }
        if not has_owner(meta):
            # Somebody removed us as the owner: nothing tells their fields from defaults, all go.
            body["spec"] = merge_patch(found.get("spec") or {}, action.body["spec"])
        written = await self._shell.client.merge_patch(
            DAEMON_SETS, job.daemon_set_name, body, job.namespace
        )
        self._note(key, DAEMON_SETS, written)

    async def _still_wanted(self, job: Job) -> bool:
        """Return whether the Job is there, read from the server, before its DaemonSet is made.

        The garbage collector removes the DaemonSet of a deleted Job. When the cache of Jobs is
        behind the cache of DaemonSets, that looks like a DaemonSet which somebody has deleted.
        """
        meta = await self._find_job((job.namespace, job.name))
        return meta is not None and meta["uid"] == job.uid and not meta.get("deletionTimestamp")

    async def _open_gates(self, key: Key, job: Job, action: OpenGates) -> None:
        """Open the gates of those nodes that the ledger, read afresh, does not hold.

        The cache of reports can be behind the cache of pods: it is then not known yet that the
        node of a new pod has completed. A read that starts after the pod was seen cannot be.
        """
        done = await self._completed_nodes(job)
        due = [
            pod for pod in action.pods if done.get(pod.node_name) != action.node_uids[pod.node_name]
        ]
        await self._all(partial(self._open_gate, key), due)

    async def _all(self, act: Callable[[Pod], Awaitable[None]], pods: Iterable[Pod]) -> None:
        """Act on all pods, a bounded number at a time; one that fails does not stop the others.

        Raises the gravest of their errors. A conflict is one too: it may be that somebody else
        changed the pod all the while, and what they did may have been seen already, so that nothing
        else would wake us.
        """
        room = asyncio.Semaphore(PODS_AT_ONCE)

        async def one(pod: Pod) -> None:
            async with room:
                await act(pod)

        results = await asyncio.gather(*map(one, pods), return_exceptions=True)
        errors = [result for result in results if isinstance(result, Exception)]
        if errors:
            raise max(errors, key=_gravity)

    async def _completed_nodes(self, job: Job) -> dict[str, str]:
        """Return the node UIDs by node name that the ledger holds now, read from the server."""
        page = await self._shell.client.list(
            JOB_REPORTS, job.namespace, label_selector=f"{names.LABEL_JOB_UID}={job.uid}"
        )
        return {
            name: evidence.node_uid
            for raw in page.get("items") or ()
            for name, evidence in parse_report(raw).evidence.items()
            if evidence.is_completed
        }

    async def _open_gate(self, key: Key, pod: Pod) -> None:
        others = [{"name": gate} for gate in pod.gates if gate != names.TURN_GATE]
        body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": others or None}}
        # Gone: the DaemonSet controller makes the next one.
        with suppress(NotFound):
            written = await self._shell.client.merge_patch(PODS, pod.name, body, pod.namespace)
            self._note(key, PODS, written)

    async def _delete_pod(self, key: Key, pod: Pod) -> None:
        with suppress(NotFound):
            written = await self._shell.client.delete(
                PODS,
                pod.name,
                pod.namespace,
                uid=pod.uid,
                # One that waits to be scheduled goes only if that is still so.
                resource_version=None if pod.bound else pod.resource_version,
            )
            self._note(key, PODS, written)

    async def _delete_daemon_set(self, job: Job, uid: str) -> None:
        with suppress(NotFound):
            await self._shell.client.delete(
                DAEMON_SETS, job.daemon_set_name, job.namespace, uid=uid
            )

    def _note(self, key: Key, resource: Resource, written: Mapping[str, Any]) -> None:
        watch = cache_name(resource.plural, self._caches.watched_as(key[0]))
        # A deletion answers with the object as it stands while it ends, or else with a Status,
        # which has no version: there is nothing to wait for then.
        version = (written.get("metadata") or {}).get("resourceVersion") or ""
        self._written.wrote(key, watch, version)


_ABOUT_CONTENT = (
    "failed to create typed patch object",
    "failed to convert new object",
)
# apiserver pkg/admission/plugin/webhook/errors, NewDryRunUnsupportedErr.
_NO_DRY_RUN = "does not support dry run"
# Which field of a snapshot says that such an action was refused.
_REFUSAL_FIELDS: Mapping[type, str] = {
    TryDaemonSet: "refusal",
    ApplyDaemonSet: "refusal",
    CreateReport: "report_refusal",
    WriteReportStatus: "report_refusal",
    OpenGates: "gates_refusal",
    DeletePods: "deletion_refusal",
    DeleteDaemonSet: "deletion_refusal",
}


class _RefusedError(Exception):
    """The API server will not take a write as it is; to try it again at once is no use.

    `field` is the field of a snapshot that says so.
    """

    def __init__(self, error: KubeError, field: str) -> None:
        super().__init__(error.message)
        self.message = error.message or error.reason
        if error.reason == MALFORMED_ANSWER:
            self.message = (
                f"the object that it answers with cannot be read ({self.message}): if its "
                "metadata.managedFields are nested too deep, delete the object"
            )
        self.field = field


def _is_refusal(error: KubeError) -> bool:
    """Return whether the object itself is at fault, so that trying it again at once is no use.

    A field that the schema does not know, or of another type, comes back as 500 from server-side
    apply, unlike from any other write (apiserver endpoints/handlers/patch.go, applyPatcher). An
    answer that cannot be read is the object's fault as well: somebody nested its metadata too deep.
    """
    if error.reason == MALFORMED_ANSWER:
        return True
    if isinstance(error, Forbidden) and error.is_namespace_ending:
        return False
    if isinstance(error, Invalid | BadRequest | Forbidden | TooLarge):
        return True
    return error.status == 500 and any(words in error.message for words in _ABOUT_CONTENT)


def _gravity(error: Exception) -> int:
    """Return how much an error says that something is wrong; a conflict says least."""
    if isinstance(error, Conflict):
        return 0
    return 1 if isinstance(error, KubeError) and error.is_retryable else 2


def _reference(job: Job) -> ObjectReference:
    return ObjectReference(
        api_version=names.API_VERSION,
        kind=names.JOB_KIND,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        resource_version=job.resource_version,
    )
