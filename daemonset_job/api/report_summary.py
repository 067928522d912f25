"""The summary that caches keep of the report of a run whose Job is deleted."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Final

from daemonset_job.api.evidence import Evidence
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import FINAL_PHASES, Phase

# A run whose Job was deleted before it ended; only a report can be in this phase.
FINAL_REPORT_PHASES: Final = frozenset({*FINAL_PHASES, Phase.CANCELLED})

_NO_EVIDENCE: Final[Mapping[str, Evidence]] = MappingProxyType({})
_NO_RECORDS: Final[Mapping[str, NodeRecord]] = MappingProxyType({})


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


def _summary(status: ReportStatus) -> ReportStatus:
    """Return the status without its nodes.

    Of a finished run few fields are needed. A report that is yet to be closed keeps its summary, to
    which the closing write adds. It is the same while a receiver is yet to be notified of the run.
    """
    is_told = not any(map(status.due_notifications, status.notifications))
    if status.phase in FINAL_REPORT_PHASES and is_told:
        return ReportStatus(
            phase=status.phase,
            start_time=status.start_time,
            completion_time=status.completion_time,
            nodes=_numbers(status.nodes),
        )
    return replace(status, node_states=_NO_RECORDS, node_list=())


def _numbers(nodes: NodeTotals | None) -> NodeTotals | None:
    """Return the numbers of nodes without their names."""
    if nodes is None:
        return None
    return replace(
        nodes, completed_names="", failed_names="", unreachable_names="", skipped_names=""
    )


def ended_at(report: JobReport) -> datetime | None:
    """Return when the run ended, as the report has it, else when the report was created."""
    return report.status.completion_time or report.created_at
