"""Changes records after a run has ended, while its nodes are not counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus


def change_records(
    reports: Iterable[JobReport],
    statuses: Iterable[tuple[JobReport, ReportStatus]],
    find_changed: Callable[[Mapping[str, NodeRecord]], Mapping[str, NodeRecord]],
) -> list[tuple[JobReport, ReportStatus]]:
    """Return the reports to write, each with its changed records; the rest of them stays.

    `statuses` are reports that are written anyway. `find_changed` gets the records of one report,
    and returns those that are new.
    """
    written = {report.uid: body for report, body in statuses}
    found = []
    for report in reports:
        body = written.get(report.uid, report.status)
        changed = find_changed(body.node_states)
        if changed:
            body = replace(body, node_states={**body.node_states, **changed})
        if changed or report.uid in written:
            found.append((report, body))
    return found
