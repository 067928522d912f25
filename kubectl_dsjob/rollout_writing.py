"""The verbs about rollouts that write: approve, promote and abort.

Each sets an annotation, as the user could with kubectl.
"""

from __future__ import annotations

from typing import Any, NoReturn

from daemonset_job.api import names
from daemonset_job.api.job import Job
from daemonset_job.api.rollout_requests import ABORT_LIMIT, PROMOTE_ALL
from daemonset_job.api.states import ConditionType
from kubectl_dsjob.edge import Answer
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.proposals import at_job
from kubectl_dsjob.rollback_view import is_rolled_back
from kubectl_dsjob.tables import counted
from kubectl_dsjob.target import Target
from kubectl_dsjob.writing import check_going_on, patch_job


async def approve(target: Target, name: str, step: int | None) -> Answer:
    """Approve the step that waits, or the one with that number."""
    approved: list[int] = []

    def patch(job: Job) -> dict[str, Any]:
        _check_rollout(job)
        number = step or _waiting_step(job)
        steps = len(job.spec.rollout.steps) if job.spec.rollout else 0
        if number > steps:
            way = f"See which one it is in: {_status_command(job)}"
            raise CliError(
                f"{job.name} has {counted(steps, 'step')}, no step {number}", way, ExitCode.USAGE
            )
        approved.append(number)
        return _annotation(names.ANNOTATION_APPROVE, str(number))

    await patch_job(target, name, patch)
    return Answer(words=f"approved step {approved[-1]} of {name}")


async def promote(target: Target, name: str) -> Answer:
    """Leave out the remaining soaks and approvals."""
    patch = _annotation(names.ANNOTATION_PROMOTE, PROMOTE_ALL)

    def patch_for(job: Job) -> dict[str, Any]:
        _check_rollout(job)
        return patch

    await patch_job(target, name, patch_for)
    return Answer(words=f"{name} goes on without further soaks and approvals; checks still count")


async def abort(target: Target, name: str, reason: str) -> Answer:
    """End the run for good."""
    check_reason(reason, "an abort")
    await patch_job(target, name, lambda job: abort_patch_for(job, reason))
    return Answer(words=f"aborted {name}: no further node starts, and its report stays")


def abort_patch_for(job: Job, reason: str) -> dict[str, Any]:
    """Return the patch that ends a run; CliError if it has ended for good before."""
    if is_rolled_back(job):
        _refuse_of_rolled_back(job)
    if job.is_aborted:
        way = f"See how it ended: {_status_command(job)}"
        raise CliError(f"{job.name} has been ended already", way, ExitCode.USAGE)
    _check_success(job)
    return _annotation(names.ANNOTATION_ABORT, reason)


def _refuse_of_rolled_back(job: Job) -> NoReturn:
    """Raise CliError: the run is final. Only the rollback itself could still be ended."""
    jobs = job.status.rollback.jobs if job.status.rollback is not None else ()
    if jobs and not job.is_true(ConditionType.ROLLED_BACK):
        owned = at_job(jobs[-1], job.namespace)
        way = f"To end the rollback, abort its Job: kubectl dsjob abort {owned} --reason TEXT"
    else:
        way = f"See how far it is: {_status_command(job)}"
    raise CliError(f"{job.name} is rolled back: an abort of its run changes nothing", way)


def _check_success(job: Job) -> None:
    """Raise CliError if a run has succeeded: no request takes that back, nor is there more to do.

    One of policy Continuous has no end.
    """
    if not job.spec.is_continuous and job.is_true(ConditionType.COMPLETE):
        way = f"See how it ended: {_status_command(job)}"
        raise CliError(f"{job.name} has succeeded, and stays so", way)


def check_reason(reason: str, what: str) -> None:
    """Raise CliError if there is no reason, or if it is longer than what a report keeps."""
    if not reason.strip():
        way = "Say why: --reason TEXT. The report keeps it."
        raise CliError(f"{what} needs a reason", way, ExitCode.USAGE)
    if len(reason) > ABORT_LIMIT:
        way = f"Say it in at most {ABORT_LIMIT} characters."
        raise CliError(f"the reason has {len(reason)} characters", way, ExitCode.USAGE)


def _check_rollout(job: Job) -> None:
    """Raise CliError if a Job has no rollout that could go on."""
    check_going_on(job)
    _check_success(job)
    if job.spec.rollout is None or not job.spec.rollout.steps:
        way = f"See what it does: {_status_command(job)}"
        raise CliError(
            f"{job.name} has no step that could be approved or left out", way, ExitCode.USAGE
        )


def _waiting_step(job: Job) -> int:
    """Return the present step of a Job's rollout; CliError if it waits for no approval."""
    progress = job.status.rollout
    if progress is None:
        way = f"See what it does: {_status_command(job)}"
        raise CliError(f"{job.name} has no step that could be approved", way, ExitCode.USAGE)
    if not progress.waits_for:
        way = (
            f"It is in step {progress.step} of {progress.steps}. To approve a step before it is "
            "done, name it: --step NUMBER"
        )
        raise CliError(f"{job.name} waits for no approval", way, ExitCode.USAGE)
    return progress.step


def _status_command(job: Job) -> str:
    return f"kubectl dsjob status {at_job(job.name, job.namespace)}"


def _annotation(key: str, value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}
