"""What is said of a rollback: how far its Jobs are, and how it has ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from daemonset_job.api.fold_names import fold
from daemonset_job.api.job import Job
from daemonset_job.api.reasons import RolledBackReason
from daemonset_job.api.states import ConditionType
from job_controller.core.owned_jobs.rollback_jobs import BATCHES_LIMIT, RollbackJobs
from job_controller.core.owned_jobs.rollback_targets import Targets
from job_controller.core.text.commands import plugin_command
from job_controller.core.text.sanitize import REFUSAL_LIMIT, single_line

# Names of nodes in a message, in characters.
NAMES_LIMIT: Final = 200
# What is left to do once a Job of the rollback is over for good.
_BY_HAND: Final = "apply a Job that runs spec.rollback on its other nodes, with spec.nodes.include"


def describe_end(
    targets: Targets, found: RollbackJobs, beyond: Collection[str]
) -> tuple[RolledBackReason, str]:
    """Return how the rollback has ended, and the nodes that are not rolled back.

    `beyond` are those for which no further Job may be created.
    """
    if not targets.started:
        words = "the task had not started on any node: there is nothing to roll back"
        return RolledBackReason.ROLLED_BACK, words
    done = targets.started & found.completed
    left = targets.started - done
    words = f"{len(done)} of {len(targets.started)} nodes are rolled back"
    if not left:
        return RolledBackReason.ROLLED_BACK, words
    # Within maxFailedNodes of the rollback's Job, which a person may raise.
    if failed := left & found.failed:
        words += f"; the rollback failed on {fold(failed, limit=NAMES_LIMIT)}"
    if away := left.difference(beyond, failed):
        nodes = fold(away, limit=NAMES_LIMIT)
        words += f"; not rolled back, because away, tainted or gone: {nodes}"
    if beyond:
        words += (
            f"; {fold(beyond, limit=NAMES_LIMIT)} {'is' if len(beyond) == 1 else 'are'} left, "
            f"because a rollback creates at most {BATCHES_LIMIT} Jobs: apply a Job that runs "
            f"spec.rollback there, with spec.nodes.include"
        )
    return RolledBackReason.ROLLED_BACK_PARTLY, words


def describe_failure(owned: Job) -> str:
    """Return that one of the Jobs has failed, and what to do. An aborted one is over for good."""
    failed = owned.condition(ConditionType.FAILED)
    cause = single_line(failed.message if failed is not None else "", REFUSAL_LIMIT)
    answer = f"correct the node, then {plugin_command('retry', owned)} goes on"
    if owned.is_aborted:
        answer = f"no retry revives it: {_BY_HAND}"
    return f"Job {owned.name} failed: {cause}; {answer}"


def describe_loss(name: str) -> str:
    """Return that one of the Jobs was deleted, and what to do."""
    return f"Job {name} was deleted before the rollback had ended: {_BY_HAND}"


def describe_work(owned: Job, targets: Targets, found: RollbackJobs) -> str:
    """Return how far the rollback is while one of its Jobs is at work."""
    done, desired = len(targets.started & found.completed), len(targets.started)
    words = f"{done} of {desired} nodes are rolled back; Job {owned.name} is at work"
    progressing = owned.condition(ConditionType.PROGRESSING)
    if progressing is not None and progressing.status is False:
        words += f": {single_line(progressing.message, REFUSAL_LIMIT)}"
    return words
