"""Writes evidence into one report: in one patch or, if the API server refuses that, in parts.

Evidence that the server refuses must not block that of other nodes.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from loguru import logger

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict, Forbidden, KubeError, NotFound, TooLarge
from daemonset_job.kube.client.resource import JOB_REPORTS
from terminator.ledger.assignment import build_patch
from terminator.ledger.run_buffer import RunBuffer
from terminator.ledger.unwritten import refusal_of
from terminator.metrics import Metrics

# A refused patch is sent again in two halves. After this many refusals, four times those needed to
# find one node among a thousand, the rest of the patch is postponed.
REFUSALS_LIMIT = 40
# The API server's words for a webhook and for a policy (apiserver, pkg/admission/plugin).
_ADMISSION_WORDS = ("denied the request", "denied request")
# Names of nodes in a line of the log; a name has 253 characters at most.
_NAMES_LIMIT = 5


class ReportPatches:
    """Sends evidence from the buffer of a run to its reports."""

    def __init__(self, client: KubeClient, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics

    async def write(
        self, buffer: RunBuffer, report: JobReport, entries: Mapping[str, Evidence]
    ) -> None:
        """Write pending `entries` into one report, and take them out of the buffer.

        What the server refuses stays pending and is postponed. Raises KubeError for any other
        failure.
        """
        refusals = await self._write_parts(buffer, report, entries)
        buffer.refusals = buffer.refusals + 1 if refusals else 0

    async def _write_parts(
        self, buffer: RunBuffer, report: JobReport, entries: Mapping[str, Evidence]
    ) -> int:
        """Write the entries in ever smaller parts; return how many patches were refused."""
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
            _postpone(buffer, report, part, error)
            if isinstance(error, TooLarge) or refusals >= REFUSALS_LIMIT:
                for unsent_part in parts:
                    _postpone(buffer, report, unsent_part, error)
                break
        return refusals

    async def _patch(
        self, buffer: RunBuffer, report: JobReport, entries: Mapping[str, Evidence]
    ) -> KubeError | None:
        """Send one patch; return the error if the server refuses its content, raise any other."""
        log = logger.bind(namespace=report.namespace, job=report.job_name, report=report.name)
        unsent = entries.keys() - buffer.unconfirmed.keys()
        buffer.unconfirmed.update(dict.fromkeys(entries, report.name))
        # Of some of it, the report has no room for lines, progress or results.
        sent = {node: buffer.pending.get(node) for node in entries}
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
        found = [node for node, entry in entries.items() if not entry.is_only_progress]
        self._metrics.ledger_entries.inc(len(found))
        buffer.written.add(report, parse_report(answer), asyncio.get_running_loop().time())
        buffer.accept(entries)
        for node, evidence in sent.items():
            buffer.unconfirmed.pop(node, None)
            if evidence is not None and buffer.pending.get(node) == evidence:
                del buffer.pending[node]
        log.log(
            "INFO" if found else "DEBUG",
            "recorded evidence" if found else "recorded progress",
            completed=sum(each.is_completed for each in entries.values()),
            failed=sum(bool(each.failed_at) for each in entries.values()),
            nodes=_some(found or entries),
        )
        return None


def _postpone(buffer: RunBuffer, report: JobReport, nodes: Sequence[str], error: KubeError) -> None:
    """Postpone the evidence of these nodes, with a warning about a single node."""
    if len(nodes) == 1:
        buffer.refused_alone.update(nodes)
        logger.bind(namespace=report.namespace, job=report.job_name, report=report.name).warning(
            "the API server refused evidence, retrying", nodes=list(nodes), error=str(error)
        )
    now = asyncio.get_running_loop().time()
    buffer.refused_with = refusal_of(error)
    buffer.postpone(nodes, report, now, is_full=isinstance(error, TooLarge))


def _some(nodes: Collection[str]) -> str:
    """Return the names of the first nodes, for the log."""
    first = sorted(nodes)[:_NAMES_LIMIT]
    more = len(nodes) - len(first)
    return ",".join(first) + (f" and {more} more" if more else "")


def _is_about_content(error: KubeError) -> bool:
    """Return whether the server refused the content of the patch.

    Many webhooks refuse with 403. In other words that is a lack of rights, which is not of a node.
    """
    if isinstance(error, Forbidden):
        return any(words in error.message for words in _ADMISSION_WORDS)
    return not error.is_retryable and not isinstance(error, NotFound | Conflict)
