"""The verb rollback: it has a run undone by what `spec.rollback` of its Job says.

The request is an annotation, as the user could set with kubectl.
"""

from __future__ import annotations

from typing import Any

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.rollback import can_roll_back
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.reading import End, Show, follow
from kubectl_dsjob.rollback_view import is_rolled_back
from kubectl_dsjob.rollout_writing import check_reason
from kubectl_dsjob.run_view import RunView
from kubectl_dsjob.target import Target
from kubectl_dsjob.writing import patch_job


async def roll_back(
    target: Target, name: str, reason: str, show: Show | None, limit_seconds: float | None
) -> Answer:
    """Request a rollback; with `show`, follow it until it has ended."""
    check_reason(reason, "a rollback")
    uids: list[str] = []

    def patch(job: Job) -> dict[str, Any]:
        uids.append(job.uid)
        _check(job)
        return {"metadata": {"annotations": {names.ANNOTATION_ROLLBACK: reason}}}

    await patch_job(target, name, patch)
    words = f"requested a rollback of {name}: no further node starts"
    if show is None:
        where = at_job(name, target.find_namespace())
        way = f"follow it: kubectl dsjob status {where} --watch"
        return Answer(words=f"{words}\n{way}")
    say(words)
    return await follow(target, name, limit_seconds, show, uids[-1], end=_END)


def _check(job: Job) -> None:
    if is_rolled_back(job):
        way = f"See how far it is: kubectl dsjob status {at_job(job.name, job.namespace)}"
        raise CliError(f"a rollback of {job.name} was requested already", way, ExitCode.USAGE)
    if not can_roll_back(job):
        edit = f"kubectl edit dsj {at_job(job.name, job.namespace)}"
        way = f"Add it, then repeat the command: {edit}"
        if job.spec.is_continuous:
            way = "It is Continuous: apply a spec that undoes the change, as another revision."
        raise CliError(
            f"{job.name} has no spec.rollback, which says what undoes it", way, ExitCode.USAGE
        )


def _is_over(view: RunView) -> bool:
    if view.rollback is not None:
        return view.rollback.is_ended
    # Deleted before the controller has seen the request.
    return not view.exists and view.is_ended


def _last_words(view: RunView) -> str:
    if view.rollback is None:
        return f"{view.name} is deleted, and was not rolled back"
    return f"{view.name}: {view.rollback.line}: {view.rollback.message}".removesuffix(": ")


def _exit_code(view: RunView) -> ExitCode:
    return view.rollback.exit_code if view.rollback is not None else ExitCode.FAILURE


_END = End(_is_over, _last_words, _exit_code)
