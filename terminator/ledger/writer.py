"""Writes evidence about nodes into the JobReports in batches, each node once.

Shell: ``assignment`` decides which report gets which node. Evidence waits in memory until a patch
has succeeded. The process may die at any point, since the logs are read again. Evidence that is
recorded already, in the cache or in the answer to our own last patch, is not written again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loguru import logger

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.report import (
    NODES_PER_SHARD,
    JobReport,
    find_evidence,
    merge_evidence,
    parse_report,
)
from daemonset_job.informers.full_reports import INCOMPLETE_RETRY_SECONDS
from daemonset_job.kube.cache.resource_version import is_newer
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, Forbidden, KubeError, NotFound, TooLarge
from daemonset_job.kube.client.resource import JOB_REPORTS
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue
from daemonset_job.runtime.write_pacer import WritePacer
from terminator.ledger.assignment import (
    assign_to_shards,
    build_patch,
    combine_evidence,
    is_recorded,
)
from terminator.metrics import Metrics

WRITERS = 4
BACKOFF_SECONDS = (0.25, 10.0)
# Delay while no report has room. The controller creates one, whose arrival ends the delay sooner.
SHARD_FULL_RETRY_SECONDS = 5.0
# Delay before evidence is sent again that the server refused for its content or for the size of its
# report.
REFUSED_SECONDS = 60.0
# A refused patch is sent again in two halves. After this many refusals, four times those needed to
# find one node among a thousand, the rest of the patch is postponed.
REFUSALS_LIMIT = 40
# How long the answer to our own patch takes precedence over the cache. The cache usually catches up
# in a moment, and within 70 s if its watch is dead. It never does if etcd was restored from a
# backup: then the evidence is lost, and the logs have to be read again.
WRITTEN_SECONDS = 120.0

ReportsOf = Callable[[Job], Iterable[JobReport]]
ReadRecords = Callable[[Job], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Written:
    """A report after our own patches, and until when it takes precedence over the cache.

    `base_version` is the version in the cache before them.
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
            # Older than the report that was patched: etcd was restored.
            or is_newer(self.base_version, cached.resource_version)
        )


@dataclass(slots=True)
class _RunBuffer:
    """One run: the evidence to write, and its reports after our own patches."""

    job: Job
    pending: dict[str, Evidence] = field(default_factory=dict)
    written: dict[str, _Written] = field(default_factory=dict)
    # By node, the report that a patch without an answer was sent to.
    unconfirmed: dict[str, str] = field(default_factory=dict)
    # By node, when refused evidence may be sent again, in the loop's time.
    refused: dict[str, float] = field(default_factory=dict)
    # Nodes whose evidence was refused in a patch of its own. They are sent after all others.
    refused_alone: set[str] = field(default_factory=set)
    # By report, until when it takes no more nodes, in the loop's time.
    full: dict[str, float] = field(default_factory=dict)
    pacer: WritePacer = field(default_factory=WritePacer)
    is_urgent: bool = False  # skips the pacer's pause


class Ledger:
    """Collects the evidence of all runs and writes it into their reports.

    `reports_of(job)` returns the cached reports of a run, and `has_job(uid)` whether its Job is in
    the caches. `read_records(job)` reads the reports again of which the cache has only a summary.
    `flush_seconds` is how long evidence may wait for more; it can be changed at any time.
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
        """Return how many runs have a buffer."""
        return len(self._buffers)

    def __contains__(self, job_uid: str) -> bool:
        """Return whether the run of that Job has a buffer."""
        return job_uid in self._buffers

    def record(self, job: Job, node: str, evidence: Evidence) -> bool:
        """Queue `evidence` about `node` for writing; return whether it is new.

        It is written after the flush interval, or later if writing takes long. Evidence without a
        completion never replaces evidence with one.
        """
        buffer = self._buffers.setdefault(job.uid, _RunBuffer(job))
        # Looks up one node in each shard instead of merging the shards, because this is called for
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
        """Return all evidence of a run: cached, written but not cached yet, and pending."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return merge_evidence(self._reports(job))
        ledger = self._current(buffer)
        for node, evidence in buffer.pending.items():
            if not is_recorded(ledger.get(node), evidence):
                ledger[node] = combine_evidence(ledger.get(node), evidence)
        return ledger

    def evidence_of(self, job: Job, node: str) -> Evidence | None:
        """Return the evidence about one node of a run, as `evidence` does but faster."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return find_evidence(self._reports(job), node)
        recorded, pending = find_evidence(self._shards(buffer), node), buffer.pending.get(node)
        return recorded if pending is None else combine_evidence(recorded, pending)

    def has_pending(self, job: Job) -> bool:
        """Return whether evidence of this run is pending."""
        buffer = self._buffers.get(job.uid)
        return buffer is not None and bool(buffer.pending)

    def may_complete(self, job: Job, nodes: int) -> bool:
        """Return whether evidence is pending and `nodes` nodes or more may have evidence."""
        buffer = self._buffers.get(job.uid)
        if buffer is None or not buffer.pending:
            return False
        recorded = sum(len(report.evidence) for report in self._shards(buffer))
        return recorded + len(buffer.pending) >= nodes

    def pending(self, job: Job) -> Mapping[str, Evidence]:
        """Return the pending evidence of this run, by node."""
        buffer = self._buffers.get(job.uid)
        return {} if buffer is None else dict(buffer.pending)

    def flush_soon(self, job: Job) -> None:
        """Write a run's pending evidence within the flush interval, however long writing takes."""
        if self.has_pending(job):
            self._buffers[job.uid].is_urgent = True
            self._queue.add_after(job.uid, self.flush_seconds)

    def flush_now(self, job: Job) -> None:
        """Write a run's pending evidence now, unless it is backing off after a failure."""
        if self.has_pending(job) and not self._queue.failures(job.uid):
            self._buffers[job.uid].is_urgent = True
            self._queue.add(job.uid)

    def report_changed(self, job_uid: str) -> None:
        """Schedule a write for a run of which a report was created or has changed."""
        buffer = self._buffers.get(job_uid)
        if buffer is None:
            return
        if self._is_run_gone(buffer) or (not buffer.pending and not self._prune(buffer)):
            del self._buffers[job_uid]
        elif buffer.pending:
            self._queue.add_after(job_uid, self._delay(buffer))

    def drop_idle_runs(self) -> None:
        """Drop the runs without pending evidence whose writes are all in the cache."""
        for uid, buffer in list(self._buffers.items()):
            if not buffer.pending and not self._prune(buffer):
                del self._buffers[uid]

    def drop_run(self, job_uid: str) -> None:
        """Drop a run whose Job and reports are deleted."""
        self._buffers.pop(job_uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers(
            self._queue, self._flush_key, count=WRITERS + 1, on_error=lambda *_error: None
        )

    async def flush(self) -> None:
        """Try once to write all pending evidence, before the process ends."""
        buffers = [buffer for buffer in self._buffers.values() if buffer.pending]
        await asyncio.gather(*map(self._flush, buffers), return_exceptions=True)

    # --- writing -------------------------------------------------------------------------

    def _namespace(self, uid: str) -> str:
        buffer = self._buffers.get(uid)
        return buffer.job.namespace if buffer is not None else ""

    def _delay(self, buffer: _RunBuffer) -> float:
        now = asyncio.get_running_loop().time()
        return max(self.flush_seconds, buffer.pacer.remaining_seconds(now))

    async def _flush_key(self, uid: str) -> float | None:
        """Write one run's pending evidence unless it pauses; return the seconds until the next try.

        Evidence that arrived during a write is due after the flush interval. Only here does it get
        the pause that follows the write.
        """
        buffer = self._buffers.get(uid)
        if buffer is None or not buffer.pending:
            return None
        if self._is_run_gone(buffer):
            del self._buffers[uid]
            return None
        pause_seconds = buffer.pacer.remaining_seconds(asyncio.get_running_loop().time())
        if pause_seconds > 0 and not buffer.is_urgent:
            return pause_seconds
        return await self._flush(buffer)

    async def _flush(self, buffer: _RunBuffer) -> float | None:
        """Write one run's pending evidence; raises the first error after trying all reports."""
        if not all(report.is_whole for report in self._shards(buffer)):
            # A Job missing from the cache is back, and the cache has only summaries of its reports.
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
            sent, shards.values(), NODES_PER_SHARD, unconfirmed=buffer.unconfirmed, full=buffer.full
        )
        assigned = {node for entries in plan.values() for node in entries}
        recorded = {node for report in shards.values() for node in report.evidence}
        for node in (sent.keys() - assigned) & recorded:
            del buffer.pending[node]  # it is recorded already
        unplaced = sent.keys() - assigned
        results = await asyncio.gather(
            *(self._write(buffer, shards[name], entries) for name, entries in plan.items()),
            return_exceptions=True,
        )
        took = loop.time() - started
        # The controller's half counts too: it has all nodes on record before they complete.
        nodes = sum(
            max(len(report.evidence), len(report.records)) for report in self._shards(buffer)
        )
        buffer.pacer.record(took, nodes, loop.time())
        for result in results:
            if isinstance(result, BaseException):
                buffer.is_urgent |= was_urgent
                raise result
        if not self._has_job(buffer.job.uid):
            # The Job is deleted: no further shard will be created for them.
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
        """Write evidence into one report: in one patch or, if the server refuses it, in parts.

        Evidence that the server refuses must not block that of other nodes.
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
        """Send one patch; return the error if the server refuses its content, raise any other."""
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
                # Evidence that was never sent before is not in that report. Nor is evidence refused
                # in a patch of its own: if it were there, the patch would change nothing.
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
        """Postpone the evidence of these nodes; it goes to another report if this one is full."""
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

    # --- recorded evidence ---------------------------------------------------------------

    def _current(self, buffer: _RunBuffer) -> dict[str, Evidence]:
        return merge_evidence(self._shards(buffer))

    def _shards(self, buffer: _RunBuffer) -> list[JobReport]:
        """Return the run's reports, each from the cache or from our own patch if that is newer."""
        self._prune(buffer)
        own = {name: written.report for name, written in buffer.written.items()}
        return [own.get(report.name, report) for report in self._reports(buffer.job)]

    def _reports(self, job: Job) -> list[JobReport]:
        """Return the run's cached reports, in the namespace of its Job only."""
        return [
            report
            for report in self._reports_of(job)
            if report.job_uid == job.uid and report.namespace == job.namespace
        ]

    def _is_run_gone(self, buffer: _RunBuffer) -> bool:
        """Return whether Job and reports are deleted, so that evidence cannot be written."""
        return not self._has_job(buffer.job.uid) and not self._reports(buffer.job)

    def _prune(self, buffer: _RunBuffer) -> bool:
        """Drop our own writes that the cache has caught up with; return whether some are left."""
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
    """Return whether the server refused the content of the patch."""
    return not error.is_retryable and not isinstance(error, NotFound | Conflict | Forbidden)
