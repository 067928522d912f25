"""The completion token that is recorded for a Job whose spec names none."""

from __future__ import annotations

from daemonset_job.api.choices import CompletionMode
from daemonset_job.api.job import Job


def default_token(job: Job, configured: str) -> str:
    """Return the token to record for what the Job runs; "" if its spec has one, or none is printed.

    For a script it is a unique one. The task image prints it after the script, and a line of the
    script is not taken for it. For an image it is the `configured` one.
    """
    spec = job.spec
    if spec.completion.token:
        return ""
    if spec.has_script:
        return f"completed-{job.uid}"
    return configured if spec.completion.mode == CompletionMode.LOG else ""
