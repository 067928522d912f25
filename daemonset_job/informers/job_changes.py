"""Which changes of a Job are a client's.

The system writes nothing of a Job but its status. All else is written by clients, at any rate.
"""

from __future__ import annotations

from daemonset_job.api.job import Job


def is_by_client(old: Job | None, new: Job | None) -> bool:
    """Return whether a change of a Job that stays leaves its status as it was."""
    if old is None or new is None or old.uid != new.uid or old.is_terminating != new.is_terminating:
        return False
    return old.status == new.status
