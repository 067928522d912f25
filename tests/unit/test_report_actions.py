"""Which writes of a report's status have its version as a precondition."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from daemonset_job.api.history_entry import HistoryEntry
from daemonset_job.api.report import JobReport
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.api.states import Phase
from job_controller.actions.reports import ReportActions
from job_controller.metrics import Metrics

ENTRY = HistoryEntry(datetime(2026, 1, 1, tzinfo=UTC), "Paused")
REPORT = JobReport(
    "default", "r", "uid", "7", "job", "j", status=ReportStatus(Phase.RUNNING, history=(ENTRY,))
)


def written_metadata(status, **options):
    """Return the metadata of the patch that writes a status of REPORT."""
    sent = []

    async def merge_patch(_resource, _name, body, _namespace, **_):
        sent.append(body)
        return {}

    writer = SimpleNamespace(
        client=SimpleNamespace(merge_patch=merge_patch), expect_version=lambda *_: None
    )
    actions = ReportActions(writer, Metrics())
    asyncio.run(actions.write_status(("default", "job"), REPORT, status, **options))
    return sent[0]["metadata"]


@pytest.mark.parametrize(
    "change",
    [
        {"message": "3 of 4 nodes completed"},
        {"history": (ENTRY, replace(ENTRY, reason="Resumed"))},
        {"phase": Phase.CANCELLED},
    ],
)
def test_a_status_is_written_only_to_the_report_that_was_read(change):
    """A former leader's write can be carried out late."""
    meta = written_metadata(replace(REPORT.status, **change))
    assert meta == {"uid": "uid", "resourceVersion": "7"}


def test_what_was_decided_on_an_older_report_needs_that_version():
    """Its history lacks what a write added whose answer was lost (simulation, seed 3007573)."""
    older = replace(REPORT, resource_version="6", status=ReportStatus(Phase.RUNNING))
    assert written_metadata(REPORT.status, decided_on=older)["resourceVersion"] == "6"
