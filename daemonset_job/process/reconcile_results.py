"""How a reconcile ends, in both programs: its result in the metric, and its line in the log.

It counts and logs. The work queue decides when a key is reconciled again.
"""

from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

from loguru import logger
from prometheus_client import Counter

from daemonset_job.kube.client.errors import Conflict, Forbidden, KubeError, Unauthorized
from daemonset_job.runtime.worker import Reconcile

Key = tuple[str, str]
"""Namespace and name of what is reconciled."""


class Failure(NamedTuple):
    """How an exception of a reconcile is shown.

    `result` is the value of the metric's label, `level` and `message` are those of the log line.
    """

    result: str
    level: str
    message: str


def classify_error(error: BaseException) -> Failure:
    """Return how an exception is shown.

    `failed` is a defect. `forbidden` is a right that this program lacks, or credentials that the
    API server does not take: it lasts until an administrator acts. Any other KubeError is
    `retried`.
    """
    if not isinstance(error, KubeError):
        return Failure("failed", "ERROR", "reconcile failed, retrying")
    # Both happen while nothing is wrong, so that a warning would hide the others.
    if isinstance(error, Conflict):
        # Another client changed the object. The cache will have the change in a moment.
        return Failure("retried", "DEBUG", "conflict, reconciling again")
    if isinstance(error, Forbidden) and error.is_namespace_ending:
        # The Job is about to be deleted as well.
        return Failure("retried", "DEBUG", "the namespace is being deleted")
    if isinstance(error, Forbidden | Unauthorized):
        return Failure("forbidden", "WARNING", "the API server forbids a request, retrying")
    return Failure("retried", "WARNING", "API request failed, retrying")


class ReconcileResults:
    """Counts and logs the reconciles of a program; `count` returns the counter of a result."""

    def __init__(self, count: Callable[[str], Counter]) -> None:
        self._count = count

    def counted(self, reconcile: Reconcile[Key]) -> Reconcile[Key]:
        """Return `reconcile` with its Job in the context of the log; it counts as `done`.

        An exception passes through, and is for `on_error`.
        """

        async def counted(key: Key) -> float | None:
            namespace, name = key
            with logger.contextualize(namespace=namespace, job=name, reconcile_id=uuid4().hex[:8]):
                again_seconds = await reconcile(key)
            self._count("done").inc()
            return again_seconds

        return counted

    def on_error(self, key: Key, error: BaseException) -> float | None:
        """Count and log the exception of a reconcile; only a defect is logged with a traceback.

        Returns the seconds until the next try that the API server asked for. None asks for the
        growing delay of the work queue.
        """
        failure = classify_error(error)
        self._count(failure.result).inc()
        log = logger.bind(namespace=key[0], job=key[1], error=str(error))
        if isinstance(error, KubeError):
            log.log(failure.level, failure.message)
            return error.retry_after_seconds
        log.opt(exception=error).log(failure.level, failure.message)
        return None
