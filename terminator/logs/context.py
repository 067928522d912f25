"""What the scanner and its helpers share: the client, the clock, metrics, budget, parser."""

from collections.abc import Iterator

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.runtime.clock import Clock
from terminator.logs.portion_runner import PortionRunner
from terminator.logs.progress_report import ProgressReport
from terminator.logs.read_budget import ReadBudget
from terminator.logs.read_errors import ReadErrors
from terminator.logs.targets import ScannedPod
from terminator.metrics import Metrics


class ScannerContext:
    """The objects that all reads of one scanner use, so that its limits hold for all of them."""

    def __init__(
        self, client: KubeClient, clock: Clock, metrics: Metrics, progress_report: ProgressReport
    ) -> None:
        self.client = client
        self.clock = clock
        self.metrics = metrics
        self.read_budget = ReadBudget()
        self.read_errors = ReadErrors(metrics)
        self.progress_report = progress_report
        self._portion_runner = PortionRunner()

    async def parse(self, scanned: ScannedPod, work: Iterator[None], size_bytes: int) -> None:
        """Do the `work` of parsing `size_bytes` of a pod's log, in turn with that of other pods.

        Nothing is awaited after the last portion, so the caller can report the findings at once.
        """
        await self._portion_runner.run(scanned.job, work, size_bytes, scanned.target.matcher)
