"""The patch of a report's status, which a write of another program in the same report may meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from daemonset_job.api.report import JobReport, parse_report
from daemonset_job.api.report_status import ReportStatus
from daemonset_job.kube.client.answers import RawObject
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Conflict
from daemonset_job.kube.client.request import DEFAULT_TIMEOUT_SECONDS
from daemonset_job.kube.client.resource import JOB_REPORT_STATUS, JOB_REPORTS


async def patch_report_status(
    client: KubeClient,
    report: JobReport,
    body: Mapping[str, Any],
    *,
    is_due: Callable[[ReportStatus], bool],
    tries: int,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> RawObject | None:
    """Patch the status and return the report's metadata; None if the patch is not due any more.

    `body` has UID and resourceVersion as preconditions: a write of a former leader may be carried
    out late. After a conflict, `is_due` says of the newest status whether the patch is sent again.
    It is not if the report is another one. Raises Conflict if the last of the `tries` meets one,
    NotFound if the report is gone, and any other KubeError.
    """
    for tries_left in reversed(range(tries)):
        try:
            return await client.merge_patch(
                JOB_REPORT_STATUS,
                report.name,
                body,
                report.namespace,
                # The server encodes what it answers, and a report is large.
                metadata_only=True,
                timeout_seconds=timeout_seconds,
            )
        except Conflict:
            if not tries_left:
                raise
        found = await client.find(
            JOB_REPORTS, report.name, report.namespace, timeout_seconds=timeout_seconds
        )
        current = parse_report(found.item) if found.item is not None else None
        if current is None or current.uid != report.uid or not is_due(current.status):
            return None
        meta = {**body["metadata"], "resourceVersion": current.resource_version}
        body = {**body, "metadata": meta}
    return None
