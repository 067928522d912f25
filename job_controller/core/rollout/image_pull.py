"""Before the first turn: whether the nodes have the images, with `rollout.pullImagesFirst`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.reasons import ProgressingReason
from daemonset_job.api.rollout_progress import RolloutProgress
from daemonset_job.api.states import ConditionType
from job_controller.core.desired.image_pull import image_pull_spec
from job_controller.core.desired.part import IMAGE_PULL_SUFFIX, Part, PartKind, make_part
from job_controller.core.desired.pod_images import find_image_problem
from job_controller.core.owned_jobs.outcome import OwnedOutcome, owned_outcome
from job_controller.core.owned_jobs.part import describe_refusal, find_kind, find_part
from job_controller.core.rollout.written_progress import written_progress
from job_controller.core.settings import Settings
from job_controller.core.state.snapshot import Snapshot
from job_controller.core.text.sanitize import single_line

# `status.rollout.imagePullFailure` takes 1,024 characters.
_FAILURE_LIMIT: Final = 900
_WORDS_LIMIT: Final = 400


def image_pull_part(job: Job, settings: Settings) -> Part:
    """Return the Job that pulls the images of a Job; a retry of the Job has another one."""
    spec = image_pull_spec(job, settings)
    return make_part(PartKind.IMAGE_PULL, IMAGE_PULL_SUFFIX, spec, job.revision, job.retry_request)


def advance_pull(
    snapshot: Snapshot, progress: RolloutProgress
) -> tuple[RolloutProgress, Part | None]:
    """Return the progress with what has become of the pull, and the Job that is needed for it.

    The Job is needed until its result is written: `progress` is the written one.
    """
    job = snapshot.job
    rollout = job.spec.rollout
    if rollout is None or not rollout.pull_images_first:
        return replace(progress, image_pull_failure=""), None
    if progress.images_pulled or progress.image_pull_failure:
        return progress, None
    if find_image_problem(job, snapshot.settings):
        return progress, None
    part = image_pull_part(job, snapshot.settings)
    pull = find_part(snapshot, part)
    match owned_outcome(pull):
        case OwnedOutcome.SUCCEEDED:
            progress = replace(progress, images_pulled=True)
        case OwnedOutcome.FAILED:
            words = single_line(_message(pull, ConditionType.FAILED), _FAILURE_LIMIT)
            progress = replace(progress, image_pull_failure=words or "unknown")
    return progress, part


def find_pull_hold(snapshot: Snapshot) -> tuple[ProgressingReason, str] | None:
    """Return why nodes wait for their images, None if they do not.

    Only what is written counts: a node that starts is to have the images on record.
    """
    job = snapshot.job
    rollout = job.spec.rollout
    if rollout is None or not rollout.pull_images_first:
        return None
    known = written_progress(job)
    if known is not None and known.images_pulled:
        return None
    if job.is_true(ConditionType.COMPLETE) and not job.spec.is_continuous:
        return None
    if problem := find_image_problem(job, snapshot.settings):
        return ProgressingReason.TOO_MANY_IMAGES, problem
    return ProgressingReason.PULLING_IMAGES, _describe(snapshot)


def _describe(snapshot: Snapshot) -> str:
    pull = find_kind(snapshot.owned_jobs, PartKind.IMAGE_PULL)
    nodes = pull.status.nodes if pull is not None else None
    if pull is None or nodes is None:
        words = "no node starts before the images are pulled on all of them"
        refusal = describe_refusal(snapshot) if pull is None else ""
        return f"{words}: {refusal}" if refusal else words
    words = f"{nodes.completed} of {nodes.desired} nodes have the images, no node starts before"
    progressing = pull.condition(ConditionType.PROGRESSING)
    if progressing is None or progressing.status:
        return words
    return f"{words}: {single_line(progressing.message, _WORDS_LIMIT)}"


def _message(pull: Job | None, type_: ConditionType) -> str:
    condition = pull.condition(type_) if pull is not None else None
    return condition.message if condition is not None else ""
