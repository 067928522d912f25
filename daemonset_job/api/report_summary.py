"""The summary that caches keep of the report of a run whose Job is deleted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from daemonset_job.api.report import Evidence, JobReport
from daemonset_job.api.states import FINAL_PHASES, Phase
from daemonset_job.api.times import parse_time

# A run whose Job was deleted before it ended; only a report can be in this phase.
FINAL_REPORT_PHASES: Final = frozenset({*FINAL_PHASES, Phase.CANCELLED})

_NO_EVIDENCE: Final[Mapping[str, Evidence]] = MappingProxyType({})
# The only fields that are needed of a finished run. A report that is yet to be closed keeps its
# summary, to which the closing write adds.
_FINAL_FIELDS: Final = ("phase", "completionTime")


def summarize(report: JobReport) -> JobReport:
    """Return the report without its nodes: about 1 KiB, however many nodes it has."""
    if not report.is_whole:
        return report
    return replace(
        report,
        namespace=sys.intern(report.namespace),
        evidence=_NO_EVIDENCE,
        status=_summary(report.status),
        is_whole=False,
    )


def _summary(status: Mapping[str, Any]) -> dict[str, Any]:
    if status.get("phase") in FINAL_REPORT_PHASES:
        return {key: status[key] for key in _FINAL_FIELDS if key in status}
    return {key: value for key, value in status.items() if key != "nodeStates"}


def ended_at(report: JobReport) -> datetime | None:
    """Return when the run ended, as the report has it, else when the report was created."""
    return parse_time(report.status.get("completionTime")) or report.created_at
