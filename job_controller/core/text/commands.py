"""The commands of the plugin that a message names: what a person types to answer it."""

from __future__ import annotations

from daemonset_job.api.job import Job


def plugin_command(verb: str, job: Job) -> str:
    """Return the command about a Job in backquotes; `verb` may have options."""
    return f"`kubectl dsjob {verb} {job.name} -n {job.namespace}`"
