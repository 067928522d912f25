"""Which writes the API server refuses for their content."""

from __future__ import annotations

from collections.abc import Sequence

from daemonset_job.kube.client.answers import MALFORMED_ANSWER
from daemonset_job.kube.client.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    TooLarge,
)
from job_controller.core.plan import RefusedWrite

# apiserver pkg/admission/plugin/webhook/errors, NewDryRunUnsupportedErr.
NO_DRY_RUN = "does not support dry run"
_ABOUT_CONTENT = (
    "failed to create typed patch object",
    "failed to convert new object",
)


class RefusedError(Exception):
    """The API server refuses a write for its content, so that an immediate retry is no use.

    `message` says why and is never empty.
    """

    def __init__(self, error: KubeError, write: RefusedWrite) -> None:
        super().__init__(error.message)
        self.message = error.message or error.reason
        if error.reason == MALFORMED_ANSWER:
            self.message = (
                f"the object that it answers with cannot be read ({self.message}): if its "
                "metadata.managedFields are nested too deep, delete the object"
            )
        self.write = write


def most_severe(errors: Sequence[Exception]) -> Exception:
    """Return the most severe of several errors; a conflict has the lowest severity."""
    return max(errors, key=_severity)


def _severity(error: Exception) -> int:
    if isinstance(error, Conflict):
        return 0
    return 1 if isinstance(error, KubeError) and error.is_retryable else 2


def is_refusal(error: KubeError) -> bool:
    """Return whether the object itself is at fault, so that an immediate retry is no use.

    A field that the schema does not know, or of another type, comes back as 500 from server-side
    apply, unlike from any other write (apiserver endpoints/handlers/patch.go, applyPatcher). An
    answer that cannot be read is the object's fault as well: its metadata is nested too deep.
    """
    if error.reason == MALFORMED_ANSWER:
        return True
    if isinstance(error, Forbidden) and error.is_namespace_ending:
        return False
    if isinstance(error, Invalid | BadRequest | Forbidden | TooLarge):
        return True
    return error.status == 500 and any(words in error.message for words in _ABOUT_CONTENT)
