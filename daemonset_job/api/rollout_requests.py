"""What a person asks of a rollout: annotations of the Job, as the retry request is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.api.managed_fields import find_annotation_manager

PROMOTE_ALL: Final = "all"
# Characters of the text of an abort, or of a rollback, that are kept.
ABORT_LIMIT: Final = 256
# Characters of an approval that is none which are kept.
APPROVAL_LIMIT: Final = 40
# Digits of the number of a step.
_DIGITS_LIMIT: Final = 6
_KEYS: Final = (
    names.ANNOTATION_APPROVE,
    names.ANNOTATION_PROMOTE,
    names.ANNOTATION_ABORT,
    names.ANNOTATION_ROLLBACK,
)


@dataclass(frozen=True, slots=True)
class RolloutRequests:
    """The requests in a Job's annotations, and the clients that wrote them, "" if not known.

    `approved_step` is the step that a person approves, 0 for none. `other_approval` is how an
    approval begins that names no step, "" for none. `is_promoted`: the remaining soaks and
    approvals are to be left out. `abort` is why the run is to end, "" for no abort, and `rollback`
    why it is to be rolled back.
    """

    approved_step: int = 0
    other_approval: str = ""
    is_promoted: bool = False
    abort: str = ""
    rollback: str = ""
    approved_by: str = ""
    promoted_by: str = ""
    aborted_by: str = ""
    rollback_by: str = ""


def parse_requests(meta: Mapping[str, Any]) -> RolloutRequests:
    """Return the requests in the metadata of a Job; a value that is none is ignored."""
    annotations: Mapping[str, str] = meta.get("annotations") or {}
    approve, promote, abort, rollback = (annotations.get(key) or "" for key in _KEYS)
    if not (approve or promote or abort or rollback):
        return RolloutRequests()
    step = approve.strip()
    is_number = step.isascii() and step.isdigit() and len(step) <= _DIGITS_LIMIT
    return RolloutRequests(
        approved_step=int(step) if is_number else 0,
        other_approval="" if is_number else approve[:APPROVAL_LIMIT],
        is_promoted=promote.strip() == PROMOTE_ALL,
        abort=abort[:ABORT_LIMIT],
        rollback=rollback[:ABORT_LIMIT],
        approved_by=find_annotation_manager(meta, names.ANNOTATION_APPROVE) if approve else "",
        promoted_by=find_annotation_manager(meta, names.ANNOTATION_PROMOTE) if promote else "",
        aborted_by=find_annotation_manager(meta, names.ANNOTATION_ABORT) if abort else "",
        rollback_by=find_annotation_manager(meta, names.ANNOTATION_ROLLBACK) if rollback else "",
    )
