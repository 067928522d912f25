"""How far a rollout is: `status.rollout` of a Job and of its JobReport."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from daemonset_job.api.shape import BOOLEAN, NUMBER, STRING, TIME, fields, list_of
from daemonset_job.api.times import format_time, parse_whole_seconds

BATCH_SHAPE: Final = fields(step=NUMBER, count=NUMBER, nodes=list_of(STRING))
PROGRESS_SHAPE: Final = fields(
    step=NUMBER,
    steps=NUMBER,
    soakStartedAt=TIME,
    approvedStep=NUMBER,
    promoted=BOOLEAN,
    waitsFor=STRING,
    checkFailure=STRING,
    revision=STRING,
    imagesPulled=BOOLEAN,
    imagePullFailure=STRING,
    scriptCheckedUpTo=STRING,
    scriptCheckedNodes=NUMBER,
    scriptCheckInconclusive=STRING,
    scriptCheckHash=STRING,
    checkHash=STRING,
    checkStartedAt=TIME,
    checkPassed=STRING,
    plan=list_of(BATCH_SHAPE),
)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The nodes of a step before the run has started, in the order of their turns.

    `count` is how many there are, `nodes` are the first of them. The last batch is the rest.
    """

    step: int
    count: int
    nodes: tuple[str, ...] = ()

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"step": self.step, "count": self.count, "nodes": list(self.nodes)}


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """How far a rollout is, as it is written before anything follows from it.

    `step` is the present step, from 1. After the last of the `steps` it is one more: the rest of
    the nodes. `soak_started_at` is when all nodes of the step had finished, by the controller's
    clock. `approved_step` is the newest step that a person has approved. `is_promoted`: the
    remaining soaks and approvals are left out. `check_failure` says which check of the step has
    failed, "" for none. `waits_for` says what a person is asked for, "" for nothing. `revision` is
    that of a Job of policy Continuous. `plan` is the preview of a Job that has not started.

    `images_pulled`: the nodes have the images, as far as `spec.failurePolicy` asks for. If they
    cannot be pulled, `image_pull_failure` says why, "" if that is not known. The script of the
    step's check has passed on the nodes up to `script_checked_up_to`, by name. They are
    `script_checked_nodes`, 0 if that is not known. Why its result is not known is in
    `script_check_inconclusive`. `script_check_hash` is a hash of the script that all three are
    about. `check_started_at` is since when the present check of the step is made, of which
    `check_hash` is a hash; None before that. `check_passed` is a hash of the check that has passed
    in a step that waits for its approval, "" for none.
    """

    step: int = 1
    steps: int = 0
    soak_started_at: datetime | None = None
    approved_step: int = 0
    is_promoted: bool = False
    check_failure: str = ""
    waits_for: str = ""
    revision: str = ""
    plan: tuple[PlannedBatch, ...] = ()
    images_pulled: bool = False
    image_pull_failure: str = ""
    script_checked_up_to: str = ""
    script_checked_nodes: int = 0
    script_check_inconclusive: str = ""
    script_check_hash: str = ""
    check_hash: str = ""
    check_started_at: datetime | None = None
    check_passed: str = ""

    @property
    def is_in_rest(self) -> bool:
        """Whether all steps are over."""
        return self.step > self.steps

    def to_raw(self) -> dict[str, Any]:
        """Return the JSON form; what is unknown is left out."""
        raw: dict[str, Any] = {
            "soakStartedAt": self.soak_started_at and format_time(self.soak_started_at),
            "approvedStep": self.approved_step,
            "promoted": self.is_promoted,
            "checkFailure": self.check_failure,
            "waitsFor": self.waits_for,
            "revision": self.revision,
            "imagesPulled": self.images_pulled,
            "imagePullFailure": self.image_pull_failure,
            "scriptCheckedUpTo": self.script_checked_up_to,
            "scriptCheckedNodes": self.script_checked_nodes,
            "scriptCheckInconclusive": self.script_check_inconclusive,
            "scriptCheckHash": self.script_check_hash,
            "checkHash": self.check_hash,
            "checkStartedAt": self.check_started_at and format_time(self.check_started_at),
            "checkPassed": self.check_passed,
            "plan": [batch.to_raw() for batch in self.plan],
        }
        kept = {key: value for key, value in raw.items() if value}
        return {"step": self.step, "steps": self.steps, **kept}


def parse_rollout_progress(raw: Mapping[str, Any] | None) -> RolloutProgress | None:
    """Return the progress in its raw form, None without one. Never raises for PROGRESS_SHAPE."""
    if raw is None:
        return None
    return RolloutProgress(
        step=max(raw.get("step") or 1, 1),
        steps=raw.get("steps") or 0,
        soak_started_at=parse_whole_seconds(raw.get("soakStartedAt")),
        approved_step=raw.get("approvedStep") or 0,
        is_promoted=bool(raw.get("promoted")),
        check_failure=raw.get("checkFailure") or "",
        waits_for=raw.get("waitsFor") or "",
        revision=raw.get("revision") or "",
        images_pulled=bool(raw.get("imagesPulled")),
        image_pull_failure=raw.get("imagePullFailure") or "",
        script_checked_up_to=raw.get("scriptCheckedUpTo") or "",
        script_checked_nodes=raw.get("scriptCheckedNodes") or 0,
        script_check_inconclusive=raw.get("scriptCheckInconclusive") or "",
        script_check_hash=raw.get("scriptCheckHash") or "",
        check_hash=raw.get("checkHash") or "",
        check_started_at=parse_whole_seconds(raw.get("checkStartedAt")),
        check_passed=raw.get("checkPassed") or "",
        plan=tuple(
            PlannedBatch(
                each.get("step") or 0, each.get("count") or 0, tuple(each.get("nodes") or ())
            )
            for each in raw.get("plan") or ()
        ),
    )
