"""Enters what the scanner found into the JobReports, in batches: nothing lost, nothing twice.

Shell: which report gets what is decided in ``entries``. Evidence waits in memory until a patch has
succeeded; the process may die at any point, since the logs are read again. Written at most once
per node: what stands there already, in the cache or in the answer to our own last patch, is not
written again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from loguru import logger

from job_controller.api.job import Job
from job_controller.api.report import (
    Evidence,
    JobReport,
    find_evidence,
    merge_evidence,
    parse_report,
)
from job_controller.kube.client import KubeClient
from job_controller.kube.errors import Conflict, Forbidden, KubeError, NotFound, TooLarge
from job_controller.kube.reflector import is_newer
from job_controller.kube.resources import JOB_REPORTS
from job_controller.runtime.queue import WorkQueue
from job_controller.runtime.worker import run_workers
from terminator.entries import assign, joined, patch_body, stands
from terminator.metrics import Metrics

WRITERS = 4
BACKOFF_SECONDS = (0.25, 10.0)
# While no report has room: the controller makes one, and its arrival wakes us sooner.
ROOMLESS_SECONDS = 5.0
# Before an entry that the server refused for what it says, or for the size of its report, is sent
# again: somebody has to change something first.
REFUSED_SECONDS = 60.0
# The larger a report, the longer the API server takes to change it: half a second for a thousand
# nodes on two busy cores, and as long for the watches of it. Evidence that nobody waits for rests
# for so many times what the last write took, up to so many seconds for each node. Measured: 25
# writes of one run cost the server nearly as much as the run's thousand pods.
WRITE_SHARE = 40.0
REST_SECONDS_PER_NODE = 0.01
REST_SECONDS = 10.0

ReportsOf = Callable[[Job], Iterable[JobReport]]


@dataclass(slots=True)
class _Book:
    """One run: what waits to be entered, and the reports as our own patches left them."""

    job: Job
    pending: dict[str, Evidence] = field(default_factory=dict)
    written: dict[str, JobReport] = field(default_factory=dict)
    # By node, the report that a patch without an answer was to enter it in.
    tried: dict[str, str] = field(default_factory=dict)
    # By node, when an entry that was refused may be sent again, in the loop's time.
    refused: dict[str, float] = field(default_factory=dict)
    rests_until: float = 0.0  # in the loop's time
    is_awaited: bool = False  # somebody waits for what is pending: no rest


class Ledger:
    """The evidence of all runs on its way into their reports.

    `reports_of(job)` returns the cached reports of a run, and `has_job(uid)` whether the caches
    have its Job. `flush_seconds` is how long evidence may wait for more; it can be changed at any
    time.
    """

    def __init__(
        self,
        client: KubeClient,
        metrics: Metrics,
        *,
        reports_of: ReportsOf,
        has_job: Callable[[str], bool],
        flush_seconds: float,
    ) -> None:
        self.flush_seconds = flush_seconds
        self._client = client
        self._metrics = metrics
        self._reports_of = reports_of
        self._has_job = has_job
        self._books: dict[str, _Book] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            base_seconds=BACKOFF_SECONDS[0], max_seconds=BACKOFF_SECONDS[1]
        )
        metrics.ledger_pending.set_function(self._count_pending)

    def __len__(self) -> int:
        """Return how many runs have something kept about them here."""
        return len(self._books)

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

    def forget(self, job_uid: str) -> None:
        """Drop what is known of a run whose Job and reports are gone."""
        self._books.pop(job_uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        await run_workers(
            self._queue, self._flush_key, count=WRITERS, on_error=lambda *_error: None
        )

    async def flush(self) -> None:
        """Try once to write everything that is pending, for a process that is about to end."""
        books = [book for book in self._books.values() if book.pending]
        await asyncio.gather(*map(self._flush, books), return_exceptions=True)

    # --- writing -------------------------------------------------------------------------

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
        was_awaited, book.is_awaited = book.is_awaited, False
        loop = asyncio.get_running_loop()
        started = loop.time()
        shards = {report.name: report for report in self._shards(book)}
        sent = {n: e for n, e in book.pending.items() if book.refused.get(n, started) <= started}
        plan = assign(sent, shards.values(), tried=book.tried)
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
        if book.refused.keys() == book.pending.keys():
            return min((until - loop.time() for until in book.refused.values()), default=None)
        return ROOMLESS_SECONDS

    async def _write(self, book: _Book, report: JobReport, entries: Mapping[str, Evidence]) -> bool:
        """Enter evidence in one report; return whether the report takes no more."""
        log = logger.bind(namespace=report.namespace, job=report.job_name, report=report.name)
        book.tried.update(dict.fromkeys(entries, report.name))
        try:
            answer = await self._client.merge_patch(
                JOB_REPORTS, report.name, patch_body(report, entries), report.namespace
            )
        except KubeError as error:
            self._metrics.ledger_writes.labels("failed").inc()
            if _is_about_content(error):
                if len(entries) > 1:
                    # One entry that the server refuses must not keep the others out.
                    return await self._write_halves(book, report, entries)
                self._refuse(book, entries)
                log.warning("evidence was refused", nodes=sorted(entries), error=str(error))
                return isinstance(error, TooLarge)
            level = "DEBUG" if error.is_retryable else "WARNING"
            log.bind(nodes=len(entries), error=str(error)).log(
                level, "evidence could not be entered, trying again"
            )
            raise
        self._metrics.ledger_writes.labels("done").inc()
        self._metrics.ledger_entries.inc(len(entries))
        book.written[report.name] = parse_report(answer)
        for node, evidence in entries.items():
            book.tried.pop(node, None)
            if book.pending.get(node) == evidence:
                del book.pending[node]
        log.info("evidence entered", nodes=len(entries), first=min(entries))
        return False

    async def _write_halves(
        self, book: _Book, report: JobReport, entries: Mapping[str, Evidence]
    ) -> bool:
        names = list(entries)
        middle = len(names) // 2
        is_full, errors = False, []
        for half in (names[:middle], names[middle:]):
            if is_full:
                self._refuse(book, half)
                continue
            try:
                is_full = await self._write(book, report, {name: entries[name] for name in half})
            except KubeError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return is_full

    def _refuse(self, book: _Book, nodes: Iterable[str]) -> None:
        """Send these nodes' entries again in a while."""
        until = asyncio.get_running_loop().time() + REFUSED_SECONDS
        book.refused.update(dict.fromkeys(nodes, until))

    # --- what stands ---------------------------------------------------------------------

    def _current(self, book: _Book) -> dict[str, Evidence]:
        return merge_evidence(self._shards(book))

    def _shards(self, book: _Book) -> list[JobReport]:
        """Return the run's reports, each as the cache has it or as we left it, if that is newer."""
        self._prune(book)
        return [book.written.get(report.name, report) for report in self._reports(book.job)]

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
            cached = {report.name: report for report in self._reports_of(book.job)}
            for name, own in list(book.written.items()):
                seen = cached.get(name)
                if seen is not None and (
                    seen.uid != own.uid or not is_newer(own.resource_version, seen.resource_version)
                ):
                    del book.written[name]
        return bool(book.written)

    def _count_pending(self) -> float:
        return float(sum(len(book.pending) for book in self._books.values()))


def _is_about_content(error: KubeError) -> bool:
    """Whether the server refused what the patch says, rather than the patch as such."""
    return not error.is_retryable and not isinstance(error, NotFound | Conflict | Forbidden)
