"""Remembers one time for each Job, which is forgotten when another Job has its name."""

from daemonset_job.api.job import Job, JobKey


class JobTimes:
    """Times by Job, in seconds of the monotonic clock, since the wall clock can be set."""

    def __init__(self) -> None:
        self._by_key: dict[JobKey, tuple[str, float]] = {}

    def get(self, job: Job) -> float | None:
        """Return the time of the Job, None if it has none."""
        uid, moment = self._by_key.get((job.namespace, job.name), ("", 0.0))
        return moment if uid == job.uid else None

    def set(self, job: Job, moment: float) -> None:
        """Set the time of the Job."""
        self._by_key[job.namespace, job.name] = job.uid, moment

    def forget(self, key: JobKey) -> None:
        """Forget the time of the Job of that key, if there is one."""
        self._by_key.pop(key, None)
