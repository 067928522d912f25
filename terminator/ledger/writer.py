"""Writes evidence about nodes into the JobReports in batches, each node once.

``assignment`` decides which report gets which node, ``report_patches`` sends. Evidence waits
in memory until a patch has succeeded. The process may die at any point, since the logs are read
again. Evidence that is recorded already, in the cache or in the answer to our own last patch, is
not written again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import Job
from daemonset_job.api.report import JobReport, find_evidence, merge_evidence
from daemonset_job.api.shard_room import NODES_PER_ROLLOUT_SHARD, NODES_PER_SHARD
from daemonset_job.api.task_progress import TaskProgress
from daemonset_job.informers.whole_reports import SUMMARY_RETRY_SECONDS
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.runtime.worker import run_workers
from daemonset_job.runtime.workqueue import WorkQueue
from terminator.ledger.assignment import Entries, ShardRule, assign_to_shards
from terminator.ledger.evidence import combine_evidence, is_recorded
from terminator.ledger.report_patches import ReportPatches
from terminator.ledger.run_buffer import RunBuffer
from terminator.ledger.run_reports import RunReports
from terminator.ledger.unwritten import refusal_of
from terminator.metrics import Metrics

WRITERS = 4
BACKOFF_SECONDS = (0.25, 10.0)
# Delay while no report has room. The controller creates one, whose arrival ends the delay sooner.
SHARD_FULL_RETRY_SECONDS = 5.0


class Ledger:
    """Collects the evidence of all runs and writes it into their reports.

    `on_refused(job, message)` reports evidence that the API server refuses. `flush_seconds` is how
    long evidence may wait for more; it can be changed at any time.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: Metrics,
        *,
        reports: RunReports,
        on_refused: Callable[[Job, str], None],
        flush_seconds: float,
    ) -> None:
        self.flush_seconds = flush_seconds
        self._on_refused = on_refused
        self._patches = ReportPatches(client, metrics)
        self._reports = reports
        self._buffers: dict[str, RunBuffer] = {}
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
        buffer = self._buffers.setdefault(job.uid, RunBuffer(job))
        buffer.job = job  # its spec may have changed
        # Looks up one node in each shard instead of merging the shards, because this is called for
        # every node of a run.
        if is_recorded(buffer.pending.get(node), evidence) or is_recorded(
            find_evidence(self._reports.newest(buffer), node), evidence
        ):
            return False
        buffer.add(node, evidence)
        self._queue.add_after(job.uid, self._delay(buffer))
        return True

    def note_progress(self, job: Job, node: str, node_uid: str, progress: TaskProgress) -> None:
        """Keep the progress on a node, which is written later and at a bounded rate."""
        buffer = self._buffers.setdefault(job.uid, RunBuffer(job))
        now = asyncio.get_running_loop().time()
        had_notes = bool(buffer.progress)
        buffer.progress.add(node, node_uid, progress, now)
        if not had_notes:
            self._queue.add_after(job.uid, buffer.progress.remaining_seconds(now) or 0.0)

    def evidence(self, job: Job) -> dict[str, Evidence]:
        """Return all evidence of a run: cached, written but not cached yet, and pending."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return merge_evidence(self._reports.cached(job))
        merged = merge_evidence(self._reports.newest(buffer))
        for node, evidence in buffer.pending.items():
            if not is_recorded(merged.get(node), evidence):
                merged[node] = combine_evidence(merged.get(node), evidence)
        return merged

    def evidence_of(self, job: Job, node: str) -> Evidence | None:
        """Return the evidence about one node of a run, as `evidence` does but faster."""
        buffer = self._buffers.get(job.uid)
        if buffer is None:
            return find_evidence(self._reports.cached(job), node)
        recorded = find_evidence(self._reports.newest(buffer), node)
        pending = buffer.pending.get(node)
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
        recorded = sum(len(report.evidence) for report in self._reports.newest(buffer))
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
        # Now: a record lists a bounded number of pods.
        buffer.drop_earlier_tries(self._reports.cached(buffer.job))
        if self._reports.is_gone(buffer) or self._reports.is_idle(buffer):
            del self._buffers[job_uid]
        elif buffer.pending:
            self._queue.add_after(job_uid, self._delay(buffer))

    def drop_idle_runs(self) -> None:
        """Drop the runs without pending evidence whose writes are all in the cache."""
        for uid, buffer in list(self._buffers.items()):
            if self._reports.is_idle(buffer):
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

    def _delay(self, buffer: RunBuffer) -> float:
        now = asyncio.get_running_loop().time()
        return max(self.flush_seconds, buffer.pacer.remaining_seconds(now))

    async def _flush_key(self, uid: str) -> float | None:
        """Write one run's pending evidence unless it pauses; return the seconds until the next try.

        Evidence that arrived during a write is due after the flush interval. Only here does it get
        the pause that follows the write.
        """
        buffer, now = self._buffers.get(uid), asyncio.get_running_loop().time()
        if buffer is None:
            return None
        progress_seconds = buffer.progress.remaining_seconds(now)
        if not buffer.pending and progress_seconds != 0:
            return progress_seconds
        if self._reports.is_gone(buffer):
            del self._buffers[uid]
            return None
        pause_seconds = buffer.pacer.remaining_seconds(now)
        if pause_seconds > 0 and not buffer.is_urgent:
            return pause_seconds
        return await self._flush(buffer)

    async def _flush(self, buffer: RunBuffer) -> float | None:
        """Write one run's pending evidence; return the seconds until the next try.

        Raises the first error after trying all reports.
        """
        if not await self._reports.make_whole(buffer):
            return SUMMARY_RETRY_SECONDS
        was_urgent, buffer.is_urgent = buffer.is_urgent, False
        loop = asyncio.get_running_loop()
        started = loop.time()
        if self._reports.has_job(buffer.job):
            buffer.add_due_progress(self._count_nodes(buffer), started)
        else:
            buffer.progress.clear()
        shards = {report.name: report for report in self._reports.newest(buffer)}
        buffer.drop_earlier_tries(shards.values())
        entries_by_report, unassigned = _assign(buffer, shards, started)
        results = await asyncio.gather(
            *(
                self._patches.write(buffer, shards[name], entries)
                for name, entries in entries_by_report.items()
            ),
            return_exceptions=True,
        )
        took_seconds = loop.time() - started
        buffer.pacer.record(took_seconds, self._count_nodes(buffer), loop.time())
        self._report_refusal(buffer, results, loop.time())
        for result in results:
            if isinstance(result, BaseException):
                buffer.is_urgent |= was_urgent
                raise result
        if not self._reports.has_job(buffer.job):
            # The Job is deleted: no further shard will be created for them.
            buffer.discard(unassigned)
        buffer.discard_progress()
        now = loop.time()
        progress_seconds = buffer.progress.remaining_seconds(now)
        if not buffer.pending:
            return progress_seconds
        buffer.drop_past_refusals(now)
        if buffer.sendable(now).keys() - unassigned:
            return self._delay(buffer)
        if buffer.refused.keys() == buffer.pending.keys():
            return min((until - now for until in buffer.refused.values()), default=None)
        return min(SHARD_FULL_RETRY_SECONDS, progress_seconds or SHARD_FULL_RETRY_SECONDS)

    def _report_refusal(
        self, buffer: RunBuffer, results: Iterable[BaseException | None], now: float
    ) -> None:
        """Report evidence that has been refused for a while: the Job shows no other sign of it.

        Beside a report that is full, another one may have room: then nothing is left pending.
        """
        refusal = next(filter(None, map(refusal_of, results)), "")
        if not refusal and (buffer.refused.keys() & buffer.pending.keys() or buffer.full):
            refusal = buffer.refused_with
        late = [node for node, entry in buffer.pending.items() if not entry.is_only_progress]
        if words := buffer.unwritten.note(refusal if late else "", late, now):
            self._on_refused(buffer.job, words)

    def _count_nodes(self, buffer: RunBuffer) -> int:
        """Return how many nodes the run's reports have, by which the pacer measures a run.

        The controller's half counts too: it has all nodes on record before they complete.
        """
        reports = self._reports.newest(buffer)
        return sum(max(len(report.evidence), len(report.records)) for report in reports)

    def _count_pending(self) -> float:
        return float(sum(len(buffer.pending) for buffer in self._buffers.values()))


def _assign(
    buffer: RunBuffer, shards: Mapping[str, JobReport], now: float
) -> tuple[dict[str, Entries], set[str]]:
    """Return the evidence to send by report, and the nodes whose evidence is not sent.

    Evidence that is recorded already is dropped.
    """
    sendable = buffer.sendable(now)
    entries_by_report = assign_to_shards(
        sendable,
        shards.values(),
        ShardRule.of(buffer.job.spec, NODES_PER_SHARD),
        otherwise=ShardRule.of(buffer.job.spec, NODES_PER_ROLLOUT_SHARD),
        unconfirmed=buffer.unconfirmed,
        full=buffer.find_full(now),
    )
    unassigned = set(sendable)
    for entries in entries_by_report.values():
        unassigned -= entries.keys()
    recorded = {node for report in shards.values() for node in report.evidence}
    buffer.discard(unassigned & recorded)
    return entries_by_report, unassigned
