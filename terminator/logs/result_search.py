"""Searches logs backwards for missing results: a few logs at a time, the Jobs in rotation.

``backward_read`` decides on the requests and evaluates the answers.
"""

import asyncio

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.errors import BadRequest, KubeError, NotFound
from daemonset_job.kube.client.pod_logs import PodLogOptions
from terminator.logs.backward_read import BackwardRead
from terminator.logs.context import ScannerContext
from terminator.logs.fair_semaphore import FairSemaphore
from terminator.logs.findings import Findings
from terminator.logs.targets import ScannedPod

# How many logs are searched at a time, how long each may take without its pauses, and the pauses
# between attempts.
# A node whose task has completed is recorded only after the search.
SEARCHES = 16
SEARCH_TIMEOUT_SECONDS = 10.0
SEARCH_RETRY_SECONDS = (0.25, 1.0, 2.0, 4.0, 0.0)


class ResultSearch:
    """Looks for results that are missing in findings."""

    def __init__(self, context: ScannerContext) -> None:
        self._context = context
        self._semaphore = FairSemaphore(SEARCHES)

    async def run(
        self, scanned: ScannedPod, findings: Findings, until: str, previous: bool
    ) -> None:
        """Read the log backwards for results, within bounds of bytes and time; never fails."""
        left, clock = SEARCH_TIMEOUT_SECONDS, self._context.clock
        for pause in SEARCH_RETRY_SECONDS:
            async with self._semaphore.slot(scanned.job):
                began = clock.monotonic()
                try:
                    async with asyncio.timeout(left):
                        if await self._try(scanned, findings, until, previous):
                            return
                except TimeoutError:
                    self._context.metrics.read_errors.labels("timeout").inc()
                    return
                left -= clock.monotonic() - began
            # Without a slot: a kubelet that does not answer is not to hold up other searches.
            await asyncio.sleep(pause)

    async def _try(
        self, scanned: ScannedPod, findings: Findings, until: str, previous: bool
    ) -> bool:
        """Search once; return False if another search may help."""
        try:
            is_elsewhere = await self._read_back(scanned, findings, until, previous)
            if is_elsewhere and not previous:
                # The task was started again meanwhile.
                await self._read_back(scanned, findings, until, True)
        except KubeError as error:
            self._context.read_errors.record_error(scanned, error)
            return isinstance(error, BadRequest | NotFound)
        except Exception as error:  # noqa: BLE001 - one log's failure affects no other
            self._context.read_errors.record_defect(scanned, error)
        return True

    async def _read_back(
        self, scanned: ScannedPod, findings: Findings, until: str, previous: bool
    ) -> bool:
        """Search the log of one instance; return whether it is that of another instance."""
        pod = scanned.target.pod
        search = BackwardRead(scanned.target.matcher, findings, until)
        while search.request is not None:
            asked = search.request
            options = PodLogOptions(CONTAINER_NAME, previous, tail_lines=asked.lines)
            async with self._context.client.stream_pod_log(
                pod.namespace, pod.name, options, limit_bytes=asked.max_bytes
            ) as chunks:
                search.begin()
                async for chunk in chunks:
                    self._context.metrics.log_bytes.inc(len(chunk))
                    work = search.feed_in_portions(chunk)
                    await self._context.parse(scanned, work, len(chunk))
                    if search.is_enough:
                        break
            search.end()
        return search.is_elsewhere
