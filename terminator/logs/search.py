"""Searches logs for results further back than their end: a few at a time, the Jobs in turn.

Shell: what to ask for, and what an answer shows, is decided in ``back``.
"""

import asyncio

from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import BadRequest, KubeError, NotFound
from terminator.logs.back import BackRead
from terminator.logs.pace import Pace
from terminator.logs.tail_read import Findings
from terminator.logs.targets import Entry
from terminator.logs.trouble import Trouble
from terminator.logs.turns import Turns
from terminator.metrics import Metrics

# How many logs are searched for results further back at a time, for how long each, and the pauses
# between the tries: a node whose task has completed is not entered before that.
SEARCHES = 16
SEARCH_TIMEOUT_SECONDS = 10.0
SEARCH_PAUSES_SECONDS = (0.25, 1.0, 0.0)


class Search:
    """Looks for the results that findings lack."""

    def __init__(self, client: KubeClient, metrics: Metrics, trouble: Trouble, pace: Pace) -> None:
        self._client = client
        self._metrics = metrics
        self._trouble = trouble
        self._pace = pace
        self._turns = Turns(SEARCHES)

    async def run(self, entry: Entry, found: Findings, until: str, previous: bool) -> None:
        """Read the log backwards for results, within bounds of bytes and time; never fails."""
        async with self._turns.of(entry.job):
            try:
                async with asyncio.timeout(SEARCH_TIMEOUT_SECONDS):
                    for pause in SEARCH_PAUSES_SECONDS:
                        if await self._try(entry, found, until, previous):
                            break
                        await asyncio.sleep(pause)
            except TimeoutError:
                self._metrics.read_errors.labels("timeout").inc()

    async def _try(self, entry: Entry, found: Findings, until: str, previous: bool) -> bool:
        """Search once; return False if that is worth another try."""
        try:
            is_elsewhere = await self._read_back(entry, found, until, previous)
            if is_elsewhere and not previous:
                # The task was started again meanwhile.
                await self._read_back(entry, found, until, True)
        except KubeError as error:
            self._trouble.note_error(entry, error)
            return isinstance(error, BadRequest | NotFound)
        except Exception as error:  # noqa: BLE001 - as above
            self._trouble.note_defect(entry, error)
        return True

    async def _read_back(self, entry: Entry, found: Findings, until: str, previous: bool) -> bool:
        """Search the log of one instance; return whether it is not the one that was meant."""
        pod, matcher = entry.target.pod, entry.target.matcher
        search = BackRead(matcher, found, until)
        while search.ask is not None:
            async with self._client.pod_log(
                pod.namespace,
                pod.name,
                container=CONTAINER_NAME,
                tail_lines=search.ask.lines,
                limit_bytes=search.ask.max_bytes,
                previous=previous,
                idle_timeout_seconds=SEARCH_TIMEOUT_SECONDS,
            ) as chunks:
                search.begin()
                async for chunk in chunks:
                    self._metrics.log_bytes.inc(len(chunk))
                    work = search.feed_in_portions(chunk)
                    await self._pace.run(entry.job, work, len(chunk), matcher)
                    if search.is_enough:
                        break
            search.end()
        return search.is_elsewhere
