"""The conditions that generic tools read: whether a Job is at work, and whether it has failed.

kstatus (sigs.k8s.io/cli-utils, pkg/kstatus) takes an object for current that has neither of them
True, and whose observedGeneration is its generation. Flux waits by its rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from daemonset_job.api.job import Job
from daemonset_job.api.job_status import Condition
from daemonset_job.api.reasons import ProgressingReason, ReconcilingReason, StalledReason
from daemonset_job.api.states import ConditionType
from job_controller.core.state.blocker import Blocker
from job_controller.core.state.run_state import RunOutcome, RunState

IN_PROGRESS: Final = Condition(
    ConditionType.RECONCILING,
    True,
    ReconcilingReason.RUN_IN_PROGRESS,
    "the run has not ended: see Progressing",
)
_ENDED: Final = Condition(
    ConditionType.RECONCILING, False, ReconcilingReason.RUN_ENDED, "the run has ended"
)
CONTINUED: Final = Condition(
    ConditionType.STALLED, False, StalledReason.RUN_CONTINUED, "the failed run is continued"
)


def kstatus_conditions(job: Job, run: RunState, blocker: Blocker | None) -> Iterator[Condition]:
    """Return `Reconciling`, and `Stalled` of a run that fails or has failed before.

    A run of policy Continuous never fails. It is stalled when all that is left are failed nodes.
    """
    if blocker is not None and blocker.reason == ProgressingReason.NODES_FAILED:
        yield _ENDED
        yield Condition(ConditionType.STALLED, True, StalledReason.NODES_FAILED, blocker.message)
        return
    yield _ENDED if run.has_ended else IN_PROGRESS
    if run.outcome == RunOutcome.FAILED:
        yield Condition(ConditionType.STALLED, True, StalledReason.RUN_FAILED, run.message)
    elif job.is_true(ConditionType.STALLED):
        yield CONTINUED
