"""Logs and counts the reads of pods' logs that fail."""

from loguru import logger

from daemonset_job.kube.client.errors import KubeError
from terminator.logs.targets import ScannedPod
from terminator.metrics import Metrics, read_error_reason

# Consecutive failures before the log has a warning.
WARN_FAILURES = 5


class ReadErrors:
    """Records failed reads in log and metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def record_defect(self, scanned: ScannedPod, error: Exception) -> None:
        """Log an unexpected exception; the pod is read again with growing delays."""
        self._metrics.read_errors.labels("other").inc()
        logger.bind(
            namespace=scanned.job[0],
            job=scanned.job[1],
            pod=scanned.target.pod.name,
            node=scanned.target.pod.node_name,
        ).opt(exception=error).error("cannot read a pod's log")

    def record_error(self, scanned: ScannedPod, error: KubeError) -> None:
        """Log a read that failed: a warning after WARN_FAILURES consecutive failures."""
        reason = read_error_reason(error)
        self._metrics.read_errors.labels(reason).inc()
        failures = scanned.read_state.failures
        log = logger.bind(
            namespace=scanned.job[0],
            job=scanned.job[1],
            pod=scanned.target.pod.name,
            node=scanned.target.pod.node_name,
            reason=reason,
            failures=failures,
            error=str(error),
        )
        if failures >= WARN_FAILURES and not scanned.has_warned:
            scanned.has_warned = True
            log.warning("cannot read a pod's log, retrying")
        else:
            log.debug("cannot read a pod's log")
