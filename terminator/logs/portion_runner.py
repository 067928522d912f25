"""Parses logs in portions, at most one in each iteration of the event loop.

Tasks control how much processor time the comparison of their lines takes. It shares one
event loop with the renewal of the lease, the watches and the probes. So each iteration of the loop
runs at most one portion, which takes about 10 ms. The namespaces are served in rotation, and so are
the Jobs of each.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from daemonset_job.runtime.fair_queue import Path
from terminator.logs.fair_semaphore import FairSemaphore
from terminator.logs.matcher import Matcher

_END: Final = object()
# An answer smaller than 1/8 of a portion, about a millisecond, is parsed at once: most logs have a
# line or two.
_SMALL_SHARE = 8


class PortionRunner:
    """Runs one portion of work at a time."""

    def __init__(self) -> None:
        self._semaphore = FairSemaphore(1)

    async def run(self, job: Path, work: Iterator[None], size_bytes: int, matcher: Matcher) -> None:
        """Do all of a Job's `work`, which yields between portions of `size_bytes` of a log.

        Nothing is awaited after the last portion, so the caller can report the findings at once.
        """
        if size_bytes * _SMALL_SHARE <= matcher.portion_bytes:
            for _ in work:
                pass
            return
        while True:
            async with self._semaphore.slot(job):
                await asyncio.sleep(0)  # while the slot is held: one portion in an iteration
                if next(work, _END) is _END:
                    return
