"""Reports how far the tasks at work have come, as the reads of their logs show it.

No log is read for that. So the progress of a pod without a follow stream is as late as its reads.
"""

from collections.abc import Callable

from daemonset_job.api.job import JobKey
from daemonset_job.api.task_progress import TaskProgress
from terminator.logs.instance_log import InstanceLog
from terminator.logs.targets import ScannedPod, Target

OnProgress = Callable[[JobKey, Target, TaskProgress], None]


class ProgressReport:
    """Calls `on_progress(job, target, progress)` if a read has changed the progress of a pod."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress

    def report(self, scanned: ScannedPod, log: InstanceLog) -> None:
        """Report the progress in a log that was just read, if it is of a task at work."""
        read_state, container, found = scanned.read_state, scanned.container, log.findings.progress
        if found is None or log is not read_state.log or read_state.findings.is_final:
            return
        if container is None or container.state != "running" or not read_state.is_live:
            return
        noted = (read_state.attempt, found)
        if container.restart_count + 1 != read_state.attempt or scanned.noted_progress == noted:
            return
        scanned.noted_progress = noted
        progress = TaskProgress(scanned.target.pod.uid, read_state.attempt, found.done, found.total)
        self._on_progress(scanned.job, scanned.target, progress)
