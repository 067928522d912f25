"""What a step of a rollout asks of sources outside of the cluster, and what their answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.rollout import Check
from daemonset_job.api.times import add_seconds
from job_controller.core.rollout.checks import PASSED, CheckResult, CheckState, has_passed
from job_controller.core.rollout.members import present_step
from job_controller.core.sources import AnswerState, SourceAnswer, SourceQuery

# An older answer says nothing about now: the run was suspended in between, for instance.
FRESH_SECONDS: Final = 60.0


def find_queries(check: Check, since: datetime) -> tuple[SourceQuery, ...]:
    """Return what a check asks of sources; `since` is the start of the step's soak."""
    found = []
    if (http := check.http) is not None:
        found.append(SourceQuery(http.source, since, path=http.path))
    if (asked := check.prometheus) is not None:
        found.append(
            SourceQuery(
                asked.source,
                since,
                query=asked.query,
                expression=asked.expression,
                above=asked.above,
                below=asked.below,
            )
        )
    return tuple(found)


def due_queries(job: Job, now: datetime) -> tuple[SourceQuery, ...]:
    """Return what is to be asked of sources now: when the soak of the present step is over."""
    rollout, progress = job.spec.rollout, job.status.rollout
    if rollout is None or progress is None or progress.soak_started_at is None:
        return ()
    step = present_step(rollout, progress.step)
    if step is None or progress.revision != job.revision or progress.check_failure:
        return ()
    if has_passed(step.check, progress):
        return ()
    if now < add_seconds(progress.soak_started_at, step.soak_seconds) and not progress.is_promoted:
        return ()
    return find_queries(step.check, progress.soak_started_at)


def judge_answers(
    queries: Iterable[SourceQuery], answers: Mapping[SourceQuery, SourceAnswer], now: datetime
) -> list[CheckResult]:
    """Return what the answers mean. One that is missing or old is never a pass."""
    return [_judge(query, answers.get(query), now) for query in queries]


def _judge(query: SourceQuery, answer: SourceAnswer | None, now: datetime) -> CheckResult:
    if answer is None or now > add_seconds(answer.at, FRESH_SECONDS):
        words = f"the source {query.source!r} has not answered yet"
        return CheckResult(CheckState.INCONCLUSIVE, words)
    match answer.state:
        case AnswerState.PASS:
            return PASSED
        case AnswerState.FAIL:
            # It may pass until the time of the check is over.
            return CheckResult(CheckState.NOT_YET, answer.message)
        case AnswerState.UNKNOWN:
            return CheckResult(CheckState.INCONCLUSIVE, answer.message)
