"""Errors in a Job's spec that the CRD cannot find at apply."""

from __future__ import annotations

from daemonset_job.api.tokens import check_tokens
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import single_line

# A pattern of the CRD's largest size fits, with the words about it.
_ERROR_LIMIT = 1024


def find_token_error(snapshot: Snapshot) -> str:
    """Return why the Job's completion tokens cannot be used, for its status, "" if they can.

    The terminator compares lines in the same way, and could never complete a node by such a token.
    """
    job = snapshot.job
    error = check_tokens(job.spec.completion, job.completion_token or snapshot.settings.token)
    return single_line(error, _ERROR_LIMIT) if error else ""
