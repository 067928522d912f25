"""Enters what the scanner found into the JobReports, in batches: nothing lost, nothing twice.

Shell: ``assignment`` decides which report gets what. Evidence waits in memory until a patch has
succeeded; the process may die at any point, since the logs are read again. Written at most once
per node: what stands there already, in the cache or in the answer to our own last patch, is not
written again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loguru import logger

from daemonset_job.api.job import Job
from daemonset_job.api.report import (
    Evidence,
    JobReport,
    find_evidence,
    merge_evidence,
    parse_report,
)
from daemonset_job.informers.full_reports import INCOMPLETE_RETRY_SECONDS
from daemonset_job.kube.cache.reflector import is_newer
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, Forbidden, KubeError, NotFound, TooLarge
from daemonset_job.kube.client.resource import JOB_REPORTS
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue
from terminator.ledger.assignment import (
    SHARD_NODES,
    assign_to_shards,
    build_patch,
    combine_evidence,
    is_recorded,
)
from terminator.metrics import Metrics

WRITERS = 4
BACKOFF_SECONDS = (0.25, 10.0)
# While no report has room: the controller makes one, and its arrival wakes us sooner.
SHARD_FULL_RETRY_SECONDS = 5.0
# Before an entry that the server refused for what it says, or for the size of its report, is sent
# again: somebody has to change something first.
REFUSED_SECONDS = 60.0
# A patch that is refused is sent again in two halves. So many refusals, four times what it takes to
# find one entry among a thousand, are enough for once: what was not tried by then rests as well.
REFUSALS_LIMIT = 40
# How long the answer to our own patch counts for more than the cache. The cache comes to it as a
# rule in a moment, and within 70 s if its watch is dead. It never does when etcd was restored from
# a backup meanwhile: then what was written is lost, and has to be read and entered again.
WRITTEN_SECONDS = 120.0
# The larger a report, the longer the API server takes to change it: half a second for a thousand
# nodes on two busy cores, and as long for the watches of it. Evidence that nobody waits for rests
# for so many times what the last write took, up to so many seconds for each node. Measured: 25
# writes of one run cost the server nearly as much as the run's thousand pods.
WRITE_DUTY_FACTOR = 40.0
WRITE_PAUSE_SECONDS_PER_NODE = 0.01
MAX_WRITE_PAUSE_SECONDS = 10.0

ReportsOf = Callable[[Job], Iterable[JobReport]]
ReadRecords = Callable[[Job], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Written:
    """A report as our own patches left it, and until when it counts for more than the cache.

    `base_version` is the version that the cache had before them.
    """

    report: JobReport
    base_version: str
    until: float  # in the loop's time

    def is_superseded(self, cached: JobReport, now: float) -> bool:
        """Return whether the cached report counts: it has caught up, is another one, or older."""
        return (
            now >= self.until
            or cached.uid != self.report.uid
            or not is_newer(self.report.resource_version, cached.resource_version)
            # Older than what was patched: the server has gone back.
            or is_newer(self.base_version, cached.resource_version)
        )


@dataclass(slots=True)
class _RunBuffer:
    """One run: what waits to be entered, and the reports as our own patches left them."""

    job: Job
    pending: dict[str, Evidence] = field(default_factory=dict)
    written: dict[str, _Written] = field(default_factory=dict)
    # By node, the report that a patch without an answer was to enter it in.
    unconfirmed: dict[str, str] = field(default_factory=dict)
    # By node, when an entry that was refused may be sent again, in the loop's time.
    refused: dict[str, float] = field(default_factory=dict)
    # Nodes of which the entry was refused by itself. They are sent after all others.
    refused_alone: set[str] = field(default_factory=set)
    # By report, until when it takes no more nodes, in the loop's time.
    full: dict[str, float] = field(default_factory=dict)
    next_write_at: float = 0.0  # in the loop's time
    is_urgent: bool = False  # somebody waits for what is pending: no rest


class Ledger:
    """The evidence of all runs on its way into their reports.

    `reports_of(job)` returns the cached reports of a run, and `has_job(uid)` whether the caches
    have its Job; `read_records(job)` reads those again of which there is a summary only.
    `flush_seconds` is how long evidence may wait for more; it can be changed at any
    time.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: Metrics,
        *,
        reports_of: ReportsOf,
        has_job: Callable[[str], bool],
        read_records: ReadRecords,
        flush_seconds: float,
    ) -> None:
        self.flush_seconds = flush_seconds
        self._client = client
        self._metrics = metrics
        self._reports_of = reports_of
        self._has_job = has_job
        self._read_records = read_records
        self._buffers: dict[str, _RunBuffer] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            base_seconds=BACKOFF_SECONDS[0],
            max_seconds=BACKOFF_SECONDS[1],
            group_of=self._namespace,
            group_limit=WRITERS,
        )
        metrics.ledger_pending.set_function(self._count_pending)

    def __len__(self) -> int:
        """Return how many runs have something kept about them here."""
        return len(self._buffers)

    def __contains__(self, job_uid: str) -> bool:
        """Return whether something is kept about the run of that Job."""
        return job_uid in self._buffers

    def record(self, job: Job, node: str, evidence: Evidence) -> bool:
        """Have `evidence` entered for `node` soon; returns whether it is new.

        Soon is the flush interval, or more where writing takes long. What completes a node is never
        replaced by what does not.
        """
        buffer = self._buffers.setdefault(job.uid, _RunBuffer(job))
        # One node of each shard is looked up, and the shards are not merged: this is called for
        # every node of a run.
        if is_recorded(buffer.pending.get(node), evidence) or is_recorded(
            find_evidence(self._shards(buffer), node), evidence
        ):
            return False
        buffer.pending[node] = combine_evidence(buffer.pending.get(node), evidence)
        buffer.refused.pop(node, None)
        buffer.refused_alone.discard(node)
        self._queue.add_after(job.uid, self._delay(buffer))
        return True

    def evidence(self, job: Job) -> dict[str, Evidence]:
        """Return all that is known of a run: entered, written but not yet seen back, pending."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return merge_evidence(self._reports(job))
        ledger = self._current(buffer)
        for node, evidence in buffer.pending.items():
            if not is_recorded(ledger.get(node), evidence):
                ledger[node] = combine_evidence(ledger.get(node), evidence)
        return ledger

    def evidence_of(self, job: Job, node: str) -> Evidence | None:
        """Return what is known of one node of a run, without looking at any other."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return find_evidence(self._reports(job), node)
        recorded, pending = find_evidence(self._shards(buffer), node), buffer.pending.get(node)
        return recorded if pending is None else combine_evidence(recorded, pending)

    def has_pending(self, job: Job) -> bool:
        """Whether something of this run waits to be entered."""
        buffer = self._buffers.get(job.uid)
        return buffer is not None and bool(buffer.pending)

    def may_complete(self, job: Job, nodes: int) -> bool:
        """Whether something is pending and with it at least `nodes` nodes may stand: cheap."""
        buffer = self._buffers.get(job.uid)
        if buffer is None or not buffer.pending:
            return False
        recorded = sum(len(report.evidence) for report in self._shards(buffer))
        return recorded + len(buffer.pending) >= nodes

    def pending(self, job: Job) -> Mapping[str, Evidence]:
        """Return what of this run waits to be entered, by node."""
        buffer = self._buffers.get(job.uid)
        return {} if buffer is None else dict(buffer.pending)

    def flush_soon(self, job: Job) -> None:
        """Write what is pending of a run within the flush interval, however long writing takes."""
        if self.has_pending(job):
            self._buffers[job.uid].is_urgent = True
            self._queue.add_after(job.uid, self.flush_seconds)

    def flush_now(self, job: Job) -> None:
        """Write what is pending of a run now, unless a failure has just asked for patience."""
        if self.has_pending(job) and not self._queue.failures(job.uid):
            self._buffers[job.uid].is_urgent = True
            self._queue.add(job.uid)

    def report_changed(self, job_uid: str) -> None:
        """Look again at a run, one of whose reports is new or has changed."""
        buffer = self._buffers.get(job_uid)
        if buffer is None:
            return
        if self._is_run_gone(buffer) or (not buffer.pending and not self._prune(buffer)):
            del self._buffers[job_uid]
        elif buffer.pending:
            self._queue.add_after(job_uid, self._delay(buffer))

    def drop_idle_runs(self) -> None:
        """Drop the runs of which nothing is pending and all that was written has been seen."""
        for uid, buffer in list(self._buffers.items()):
            if not buffer.pending and not self._prune(buffer):
                del self._buffers[uid]

    def drop_run(self, job_uid: str) -> None:
        """Drop what is known of a run whose Job and reports are gone."""
        self._buffers.pop(job_uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers(
            self._queue, self._flush_key, count=WRITERS + 1, on_error=lambda *_error: None
        )

    async def flush(self) -> None:
        """Try once to write everything that is pending, for a process that is about to end."""
        buffers = [buffer for buffer in self._buffers.values() if buffer.pending]
        await asyncio.gather(*map(self._flush, buffers), return_exceptions=True)

    # --- writing -------------------------------------------------------------------------

    def _namespace(self, uid: str) -> str:
        buffer = self._buffers.get(uid)
        return buffer.job.namespace if buffer is not None else ""

    def _delay(self, buffer: _RunBuffer) -> float:
        pause_seconds = buffer.next_write_at - asyncio.get_running_loop().time()
        return max(self.flush_seconds, pause_seconds)

    async def _flush_key(self, uid: str) -> float | None:
        """Write what is pending of one run, unless it rests; return when to look again.

        What came in while something was written is due after the flush interval, and learns only
        here for how long there is to rest.
        """
        buffer = self._buffers.get(uid)
        if buffer is None or not buffer.pending:
            return None
        if self._is_run_gone(buffer):
            del self._buffers[uid]
            return None
        pause_seconds = buffer.next_write_at - asyncio.get_running_loop().time()
        if pause_seconds > 0 and not buffer.is_urgent:
            return pause_seconds
        return await self._flush(buffer)

    async def _flush(self, buffer: _RunBuffer) -> float | None:
        """Write what is pending of one run; raises the first error once all was tried."""
        if not all(report.is_whole for report in self._shards(buffer)):
            # A Job that was gone from the cache is back: what stands in the report is not known.
            await self._read_records(buffer.job)
        if not all(report.is_whole for report in self._shards(buffer)):
            return INCOMPLETE_RETRY_SECONDS
        was_urgent, buffer.is_urgent = buffer.is_urgent, False
        loop = asyncio.get_running_loop()
        started = loop.time()
        shards = {report.name: report for report in self._shards(buffer)}
        sent = {
            n: e for n, e in buffer.pending.items() if buffer.refused.get(n, started) <= started
        }
        buffer.full = {name: until for name, until in buffer.full.items() if until > started}
        plan = assign_to_shards(
            sent, shards.values(), SHARD_NODES, unconfirmed=buffer.unconfirmed, full=buffer.full
        )
        assigned = {node for entries in plan.values() for node in entries}
        recorded = {node for report in shards.values() for node in report.evidence}
        for node in (sent.keys() - assigned) & recorded:
            del buffer.pending[node]  # it stands there already
        unplaced = sent.keys() - assigned
        results = await asyncio.gather(
            *(self._write(buffer, shards[name], entries) for name, entries in plan.items()),
            return_exceptions=True,
        )
        took = loop.time() - started
        # The controller's half counts too: it has all nodes on record before they complete.
        nodes = sum(
            max(len(report.evidence), len(report.status.get("nodeStates") or ()))
            for report in self._shards(buffer)
        )
        pause_seconds = min(
            WRITE_DUTY_FACTOR * took, WRITE_PAUSE_SECONDS_PER_NODE * nodes, MAX_WRITE_PAUSE_SECONDS
        )
        buffer.next_write_at = loop.time() + pause_seconds
        for result in results:
            if isinstance(result, BaseException):
                buffer.is_urgent |= was_urgent
                raise result
        if not self._has_job(buffer.job.uid):
            # Nobody makes room for them any more.
            for node in unplaced:
                buffer.pending.pop(node, None)
        now = loop.time()
        buffer.refused = {
            n: until for n, until in buffer.refused.items() if n in buffer.pending and until > now
        }
        buffer.refused_alone &= buffer.pending.keys()
        if buffer.refused.keys() == buffer.pending.keys():
            return min((until - loop.time() for until in buffer.refused.values()), default=None)
        return SHARD_FULL_RETRY_SECONDS

    async def _write(
        self, buffer: _RunBuffer, report: JobReport, entries: Mapping[str, Evidence]
    ) -> None:
        """Enter evidence in one report: together or, where the server refuses that, in parts.

        One entry that the server refuses must not keep the others out.
        """
        parts = [sorted(entries, key=lambda node: (node in buffer.refused_alone, node))]
        refusals = 0
        while parts:
            part = parts.pop()
            error = await self._patch(buffer, report, {node: entries[node] for node in part})
            if error is None:
                continue
            refusals += 1
            middle = len(part) // 2
            if middle and refusals < REFUSALS_LIMIT:
                parts += [part[middle:], part[:middle]]
                continue
            self._postpone(buffer, report, part, error)
            if isinstance(error, TooLarge) or refusals >= REFUSALS_LIMIT:
                for unsent_part in parts:
                    self._postpone(buffer, report, unsent_part, error)
                return

    async def _patch(
        self, buffer: _RunBuffer, report: JobReport, entries: Mapping[str, Evidence]
    ) -> KubeError | None:
        """Send one patch; return the error if the server refuses what it says, raise any other."""
        log = logger.bind(namespace=report.namespace, job=report.job_name, report=report.name)
        unsent = entries.keys() - buffer.unconfirmed.keys()
        buffer.unconfirmed.update(dict.fromkeys(entries, report.name))
        try:
            answer = await self._client.merge_patch(
                JOB_REPORTS, report.name, build_patch(report, entries), report.namespace
            )
        except KubeError as error:
            self._metrics.ledger_writes.labels("failed").inc()
            if _is_about_content(error):
                # What was never sent before is not in that report. Nor is what is refused alone: if
                # it were there, there would be nothing to refuse.
                for node in unsent if len(entries) > 1 else entries:
                    buffer.unconfirmed.pop(node, None)
                return error
            level = "DEBUG" if error.is_retryable else "WARNING"
            log.bind(nodes=len(entries), error=str(error)).log(
                level, "cannot write evidence to the JobReport, retrying"
            )
            raise
        self._metrics.ledger_writes.labels("done").inc()
        self._metrics.ledger_entries.inc(len(entries))
        until = asyncio.get_running_loop().time() + WRITTEN_SECONDS
        former = buffer.written.get(report.name)
        base_version = report.resource_version if former is None else former.base_version
        buffer.written[report.name] = _Written(parse_report(answer), base_version, until)
        for node, evidence in entries.items():
            buffer.unconfirmed.pop(node, None)
            if buffer.pending.get(node) == evidence:
                del buffer.pending[node]
        log.info("evidence recorded", nodes=len(entries), first=min(entries))
        return None

    def _postpone(
        self, buffer: _RunBuffer, report: JobReport, nodes: Sequence[str], error: KubeError
    ) -> None:
        """Send these nodes' entries again in a while; to another report if this one is full."""
        until = asyncio.get_running_loop().time() + REFUSED_SECONDS
        if len(nodes) == 1:
            buffer.refused_alone.update(nodes)
            logger.bind(
                namespace=report.namespace, job=report.job_name, report=report.name
            ).warning(
                "the API server refused evidence, retrying", nodes=list(nodes), error=str(error)
            )
        if isinstance(error, TooLarge):
            buffer.full[report.name] = until
            nodes = [node for node in nodes if node in report.evidence]
        buffer.refused.update(dict.fromkeys(nodes, until))

    # --- what stands ---------------------------------------------------------------------

    def _current(self, buffer: _RunBuffer) -> dict[str, Evidence]:
        return merge_evidence(self._shards(buffer))

    def _shards(self, buffer: _RunBuffer) -> list[JobReport]:
        """Return the run's reports, each as the cache has it or as we left it, if that is newer."""
        self._prune(buffer)
        own = {name: written.report for name, written in buffer.written.items()}
        return [own.get(report.name, report) for report in self._reports(buffer.job)]

    def _reports(self, job: Job) -> list[JobReport]:
        """Return the run's cached reports: one in another namespace is nobody's business."""
        return [
            report
            for report in self._reports_of(job)
            if report.job_uid == job.uid and report.namespace == job.namespace
        ]

    def _is_run_gone(self, buffer: _RunBuffer) -> bool:
        """Return whether neither Job nor report is left: what is pending has nowhere to go."""
        return not self._has_job(buffer.job.uid) and not self._reports(buffer.job)

    def _prune(self, buffer: _RunBuffer) -> bool:
        """Forget our own writes that the cache has caught up with; return whether some are left."""
        if buffer.written:
            now = asyncio.get_running_loop().time()
            cached = {report.name: report for report in self._reports_of(buffer.job)}
            for name, own in list(buffer.written.items()):
                seen = cached.get(name)
                if seen is not None and own.is_superseded(seen, now):
                    del buffer.written[name]
        return bool(buffer.written)

    def _count_pending(self) -> float:
        return float(sum(len(buffer.pending) for buffer in self._buffers.values()))


def _is_about_content(error: KubeError) -> bool:
    """Whether the server refused what the patch says, rather than the patch as such."""
    return not error.is_retryable and not isinstance(error, NotFound | Conflict | Forbidden)
