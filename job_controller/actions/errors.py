"""Which writes the API server refuses for their content, and the snapshot field of each."""

from __future__ import annotations

from collections.abc import Mapping

from daemonset_job.kube.client.answers import MALFORMED_ANSWER
from daemonset_job.kube.client.errors import BadRequest, Forbidden, Invalid, KubeError, TooLarge
from job_controller.core.plan import (
    ApplyDaemonSet,
    CreateReport,
    DeleteDaemonSet,
    DeletePods,
    DryRunDaemonSet,
    RemoveSchedulingGates,
    WriteReportStatus,
)

_ABOUT_CONTENT = (
    "failed to create typed patch object",
    "failed to convert new object",
)
# The field of a snapshot for the refusal of each kind of action.
REFUSAL_FIELDS: Mapping[type, str] = {
    DryRunDaemonSet: "daemon_set_refusal",
    ApplyDaemonSet: "daemon_set_refusal",
    CreateReport: "report_refusal",
    WriteReportStatus: "report_refusal",
    RemoveSchedulingGates: "gate_refusal",
    DeletePods: "deletion_refusal",
    DeleteDaemonSet: "deletion_refusal",
}


class RefusedError(Exception):
    """The API server refuses a write for its content, so that an immediate retry is no use.

    `field` is the field of a snapshot for this refusal.
    """

    def __init__(self, error: KubeError, field: str) -> None:
        super().__init__(error.message)
        self.message = error.message or error.reason
        if error.reason == MALFORMED_ANSWER:
            self.message = (
                f"the object that it answers with cannot be read ({self.message}): if its "
                "metadata.managedFields are nested too deep, delete the object"
            )
        self.field = field


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
