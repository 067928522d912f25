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
from terminator.ledger.assignment import SHARD_NODES, assign, joined, patch_body, stands
from terminator.metrics import Metrics

WRITERS = 4
BACKOFF_SECONDS = (0.25, 10.0)
# While no report has room: the controller makes one, and its arrival wakes us sooner.
ROOMLESS_SECONDS = 5.0
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
WRITE_SHARE = 40.0
REST_SECONDS_PER_NODE = 0.01
REST_SECONDS = 10.0

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

    def is_over(self, cached: JobReport, now: float) -> bool:
        """Return whether the cached report counts: it has caught up, is another one, or older."""
        return (
            now >= self.until
            or cached.uid != self.report.uid
            or not is_newer(self.report.resource_version, cached.resource_version)
            # Older than what was patched: the server has gone back.
            or is_newer(self.base_version, cached.resource_version)
        )


@dataclass(slots=True)
class _Book:
    """One run: what waits to be entered, and the reports as our own patches left them."""

    job: Job
    pending: dict[str, Evidence] = field(default_factory=dict)
    written: dict[str, _Written] = field(default_factory=dict)
    # By node, the report that a patch without an answer was to enter it in.
    tried: dict[str, str] = field(default_factory=dict)
    # By node, when an entry that was refused may be sent again, in the loop's time.
    refused: dict[str, float] = field(default_factory=dict)
    # Nodes of which the entry was refused by itself. They are sent after all others.
    suspects: set[str] = field(default_factory=set)
    # By report, until when it takes no more nodes, in the loop's time.
    full: dict[str, float] = field(default_factory=dict)
    rests_until: float = 0.0  # in the loop's time
    is_awaited: bool = False  # somebody waits for what is pending: no rest


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
        self._books: dict[str, _Book] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            base_seconds=BACKOFF_SECONDS[0],
            max_seconds=BACKOFF_SECONDS[1],
            group_of=self._namespace,
            group_limit=WRITERS,
        )
        metrics.ledger_pending.set_function(self._count_pending)

    def __len__(self) -> int:
        """Return how many runs have something kept about them here."""
        return len(self._books)

    def __contains__(self, job_uid: str) -> bool:
        """Return whether something is kept about the run of that Job."""
        return job_uid in self._books

    def enter(self, job: Job, node: str, evidence: Evidence) -> bool:
        """Have `evidence` entered for `node` soon; returns whether it is new.

        Soon is the flush interval, or more where writing takes long. What completes a node is never
        replaced by what does not.
        """
        book = self._books.setdefault(job.uid, _Book(job))
        # One node of each shard is looked up, and the shards are not merged: this is called for
        # every node of a run.
        if stands(book.pending.get(node), evidence) or stands(
            find_evidence(self._shards(book), node), evidence
        ):
            return False
        book.pending[node] = joined(book.pending.get(node), evidence)
        book.refused.pop(node, None)
        book.suspects.discard(node)
        self._queue.add_after(job.uid, self._delay(book))
        return True

    def view(self, job: Job) -> dict[str, Evidence]:
        """Return all that is known of a run: entered, written but not yet seen back, pending."""
        book = self._books.get(job.uid)
        if book is None:
            return merge_evidence(self._reports(job))
        ledger = self._current(book)
        for node, evidence in book.pending.items():
            if not stands(ledger.get(node), evidence):
                ledger[node] = joined(ledger.get(node), evidence)
        return ledger

    def entry(self, job: Job, node: str) -> Evidence | None:
        """Return what is known of one node of a run, without looking at any other."""
        book = self._books.get(job.uid)
        if book is None:
            return find_evidence(self._reports(job), node)
        standing, pending = find_evidence(self._shards(book), node), book.pending.get(node)
        return standing if pending is None else joined(standing, pending)

    def has_pending(self, job: Job) -> bool:
        """Whether something of this run waits to be entered."""
        book = self._books.get(job.uid)
        return book is not None and bool(book.pending)

    def could_complete(self, job: Job, nodes: int) -> bool:
        """Whether something is pending and with it at least `nodes` nodes may stand: cheap."""
        book = self._books.get(job.uid)
        if book is None or not book.pending:
            return False
        standing = sum(len(report.evidence) for report in self._shards(book))
        return standing + len(book.pending) >= nodes

    def pending(self, job: Job) -> Mapping[str, Evidence]:
        """Return what of this run waits to be entered, by node."""
        book = self._books.get(job.uid)
        return {} if book is None else dict(book.pending)

    def hasten(self, job: Job) -> None:
        """Write what is pending of a run within the flush interval, however long writing takes."""
        if self.has_pending(job):
            self._books[job.uid].is_awaited = True
            self._queue.add_after(job.uid, self.flush_seconds)

    def hurry(self, job: Job) -> None:
        """Write what is pending of a run now, unless a failure has just asked for patience."""
        if self.has_pending(job) and not self._queue.failures(job.uid):
            self._books[job.uid].is_awaited = True
            self._queue.add(job.uid)

    def report_changed(self, job_uid: str) -> None:
        """Look again at a run, one of whose reports is new or has changed."""
        book = self._books.get(job_uid)
        if book is None:
            return
        if self._is_over(book) or (not book.pending and not self._prune(book)):
            del self._books[job_uid]
        elif book.pending:
            self._queue.add_after(job_uid, self._delay(book))

    def sweep(self) -> None:
        """Drop the runs of which nothing is pending and all that was written has been seen."""
        for uid, book in list(self._books.items()):
            if not book.pending and not self._prune(book):
                del self._books[uid]

    def forget(self, job_uid: str) -> None:
        """Drop what is known of a run whose Job and reports are gone."""
        self._books.pop(job_uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers(
            self._queue, self._flush_key, count=WRITERS + 1, on_error=lambda *_error: None
        )

    async def flush(self) -> None:
        """Try once to write everything that is pending, for a process that is about to end."""
        books = [book for book in self._books.values() if book.pending]
        await asyncio.gather(*map(self._flush, books), return_exceptions=True)

    # --- writing -------------------------------------------------------------------------

    def _namespace(self, uid: str) -> str:
        book = self._books.get(uid)
        return book.job.namespace if book is not None else ""

    def _delay(self, book: _Book) -> float:
        rest = book.rests_until - asyncio.get_running_loop().time()
        return max(self.flush_seconds, rest)

    async def _flush_key(self, uid: str) -> float | None:
        """Write what is pending of one run, unless it rests; return when to look again.

        What came in while something was written is due after the flush interval, and learns only
        here for how long there is to rest.
        """
        book = self._books.get(uid)
        if book is None or not book.pending:
            return None
        if self._is_over(book):
            del self._books[uid]
            return None
        rest = book.rests_until - asyncio.get_running_loop().time()
        if rest > 0 and not book.is_awaited:
            return rest
        return await self._flush(book)

    async def _flush(self, book: _Book) -> float | None:
        """Write what is pending of one run; raises the first error once all was tried."""
        if not all(report.is_whole for report in self._shards(book)):
            # A Job that was gone from the cache is back: what stands in the report is not known.
            await self._read_records(book.job)
        if not all(report.is_whole for report in self._shards(book)):
            return INCOMPLETE_RETRY_SECONDS
        was_awaited, book.is_awaited = book.is_awaited, False
        loop = asyncio.get_running_loop()
        started = loop.time()
        shards = {report.name: report for report in self._shards(book)}
        sent = {n: e for n, e in book.pending.items() if book.refused.get(n, started) <= started}
        book.full = {name: until for name, until in book.full.items() if until > started}
        plan = assign(sent, shards.values(), SHARD_NODES, tried=book.tried, full=book.full)
        assigned = {node for entries in plan.values() for node in entries}
        standing = {node for report in shards.values() for node in report.evidence}
        for node in (sent.keys() - assigned) & standing:
            del book.pending[node]  # it stands there already
        roomless = sent.keys() - assigned
        results = await asyncio.gather(
            *(self._write(book, shards[name], entries) for name, entries in plan.items()),
            return_exceptions=True,
        )
        took = loop.time() - started
        # The controller's half counts too: it has all nodes on record before they complete.
        nodes = sum(
            max(len(report.evidence), len(report.status.get("nodeStates") or ()))
            for report in self._shards(book)
        )
        rest = min(WRITE_SHARE * took, REST_SECONDS_PER_NODE * nodes, REST_SECONDS)
        book.rests_until = loop.time() + rest
        for result in results:
            if isinstance(result, BaseException):
                book.is_awaited |= was_awaited
                raise result
        if not self._has_job(book.job.uid):
            # Nobody makes room for them any more.
            for node in roomless:
                book.pending.pop(node, None)
        now = loop.time()
        book.refused = {
            n: until for n, until in book.refused.items() if n in book.pending and until > now
        }
        book.suspects &= book.pending.keys()
        if book.refused.keys() == book.pending.keys():
            return min((until - loop.time() for until in book.refused.values()), default=None)
        return ROOMLESS_SECONDS

    async def _write(self, book: _Book, report: JobReport, entries: Mapping[str, Evidence]) -> None:
        """Enter evidence in one report: together or, where the server refuses that, in parts.

        One entry that the server refuses must not keep the others out.
        """
        parts = [sorted(entries, key=lambda node: (node in book.suspects, node))]
        refusals = 0
        while parts:
            part = parts.pop()
            error = await self._patch(book, report, {node: entries[node] for node in part})
            if error is None:
                continue
            refusals += 1
            middle = len(part) // 2
            if middle and refusals < REFUSALS_LIMIT:
                parts += [part[middle:], part[:middle]]
                continue
            self._refuse(book, report, part, error)
            if isinstance(error, TooLarge) or refusals >= REFUSALS_LIMIT:
                for rest in parts:
                    self._refuse(book, report, rest, error)
                return

    async def _patch(
        self, book: _Book, report: JobReport, entries: Mapping[str, Evidence]
    ) -> KubeError | None:
        """Send one patch; return the error if the server refuses what it says, raise any other."""
        log = logger.bind(namespace=report.namespace, job=report.job_name, report=report.name)
        unsent = entries.keys() - book.tried.keys()
        book.tried.update(dict.fromkeys(entries, report.name))
        try:
            answer = await self._client.merge_patch(
                JOB_REPORTS, report.name, patch_body(report, entries), report.namespace
            )
        except KubeError as error:
            self._metrics.ledger_writes.labels("failed").inc()
            if _is_about_content(error):
                # What was never sent before is not in that report. Nor is what is refused alone: if
                # it were there, there would be nothing to refuse.
                for node in unsent if len(entries) > 1 else entries:
                    book.tried.pop(node, None)
                return error
            level = "DEBUG" if error.is_retryable else "WARNING"
            log.bind(nodes=len(entries), error=str(error)).log(
                level, "cannot write evidence to the JobReport, retrying"
            )
            raise
        self._metrics.ledger_writes.labels("done").inc()
        self._metrics.ledger_entries.inc(len(entries))
        until = asyncio.get_running_loop().time() + WRITTEN_SECONDS
        former = book.written.get(report.name)
        base_version = report.resource_version if former is None else former.base_version
        book.written[report.name] = _Written(parse_report(answer), base_version, until)
        for node, evidence in entries.items():
            book.tried.pop(node, None)
            if book.pending.get(node) == evidence:
                del book.pending[node]
        log.info("evidence recorded", nodes=len(entries), first=min(entries))
        return None

    def _refuse(
        self, book: _Book, report: JobReport, nodes: Sequence[str], error: KubeError
    ) -> None:
        """Send these nodes' entries again in a while; to another report if this one is full."""
        until = asyncio.get_running_loop().time() + REFUSED_SECONDS
        if len(nodes) == 1:
            book.suspects.update(nodes)
            logger.bind(
                namespace=report.namespace, job=report.job_name, report=report.name
            ).warning(
                "the API server refused evidence, retrying", nodes=list(nodes), error=str(error)
            )
        if isinstance(error, TooLarge):
            book.full[report.name] = until
            nodes = [node for node in nodes if node in report.evidence]
        book.refused.update(dict.fromkeys(nodes, until))

    # --- what stands ---------------------------------------------------------------------

    def _current(self, book: _Book) -> dict[str, Evidence]:
        return merge_evidence(self._shards(book))

    def _shards(self, book: _Book) -> list[JobReport]:
        """Return the run's reports, each as the cache has it or as we left it, if that is newer."""
        self._prune(book)
        own = {name: written.report for name, written in book.written.items()}
        return [own.get(report.name, report) for report in self._reports(book.job)]

    def _reports(self, job: Job) -> list[JobReport]:
        """Return the run's cached reports: one in another namespace is nobody's business."""
        return [
            report
            for report in self._reports_of(job)
            if report.job_uid == job.uid and report.namespace == job.namespace
        ]

    def _is_over(self, book: _Book) -> bool:
        """Return whether neither Job nor report is left: what is pending has nowhere to go."""
        return not self._has_job(book.job.uid) and not self._reports(book.job)

    def _prune(self, book: _Book) -> bool:
        """Forget our own writes that the cache has caught up with; return whether some are left."""
        if book.written:
            now = asyncio.get_running_loop().time()
            cached = {report.name: report for report in self._reports_of(book.job)}
            for name, own in list(book.written.items()):
                seen = cached.get(name)
                if seen is not None and own.is_over(seen, now):
                    del book.written[name]
        return bool(book.written)

    def _count_pending(self) -> float:
        return float(sum(len(book.pending) for book in self._books.values()))


def _is_about_content(error: KubeError) -> bool:
    """Whether the server refused what the patch says, rather than the patch as such."""
    return not error.is_retryable and not isinstance(error, NotFound | Conflict | Forbidden)
