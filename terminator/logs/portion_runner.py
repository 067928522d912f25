"""Work on what logs say, in portions: the event loop goes round between any two of them.

Shell. Comparing lines is the one thing here that takes processor time by what tasks print. All of
it shares one event loop with the renewal of the lease, the watches and the probes. So at most one
portion, some ten milliseconds, is worked off in each pass of the event loop, and the namespaces
that have some take turns, and the Jobs of each.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from daemonset_job.runtime.fair_queue import Path
from terminator.logs.fair_semaphore import FairSemaphore
from terminator.logs.matcher import Matcher

_END: Final = object()
# An answer of less than this share of a portion, about a millisecond, waits for no turn: most logs
# have a line or two.
_SMALL_SHARE = 8


class PortionRunner:
    """Lets one portion of work be done at a time."""

    def __init__(self) -> None:
        self._semaphore = FairSemaphore(1)

    async def run(self, job: Path, work: Iterator[None], size_bytes: int, matcher: Matcher) -> None:
        """Do all of a Job's `work`, which yields between portions of `size_bytes` of a log.

        Nothing is awaited after its last portion: what was found can be told at once.
        """
        if size_bytes * _SMALL_SHARE <= matcher.portion_bytes:
            for _ in work:
                pass
            return
        while True:
            async with self._semaphore.slot(job):
                await asyncio.sleep(0)  # while it is held, so that nobody else works in this pass
                if next(work, _END) is _END:
                    return
