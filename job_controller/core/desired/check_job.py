"""The Job that runs the script of a step's check on the nodes of the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job import Job
from daemonset_job.api.owned_task import OwnedTask
from job_controller.core.desired.owned_task import task_spec
from job_controller.core.settings import Settings


def check_spec(
    job: Job, script: OwnedTask, nodes: Sequence[str], settings: Settings
) -> dict[str, Any]:
    """Return the spec of the Job that runs `script` once on each of these nodes.

    An exit other than 0 fails the check at once. A node that is away keeps no other one from being
    checked: it makes the result unknown.
    """
    return {
        **task_spec(job.spec, script, nodes, settings),
        "backoffLimit": 0,
        "failurePolicy": {
            "action": FailureAction.FAIL_FAST.value,
            "maxFailedNodes": 0,
            "maxUnreachableNodes": "100%",
        },
    }
