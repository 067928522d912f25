"""What a notification says, as JSON of this project and as a message of Slack.

Messages and names come from tenants and from nodes. They are one line each, bounded, and in a
message of Slack they neither format, nor link, nor call anybody.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from daemonset_job.api.node_totals import NodeTotals
from daemonset_job.api.notifications import NotifyEvent, Occurrence
from daemonset_job.api.report import JobReport
from daemonset_job.api.times import format_time
from job_controller.core.receivers import MessageFormat
from job_controller.core.text.sanitize import single_line

# The version of the JSON; a field may be added to it without another version.
PAYLOAD_VERSION: Final = "v1"
MESSAGE_LIMIT: Final = 1024
_NAMES_LIMIT: Final = 512
# Mattermost and others, which take the same messages, look in plain text for @channel, addresses,
# and links such as [words](address), to which `mrkdwn` makes no difference. Slack links addresses.
# Mattermost takes www1.host for one, and its clients http:host. A character without width after
# each of these parts keeps them from being seen.
_BROKEN: Final = re.compile(
    r"@|:(?=//)|\](?=\()|www\d{0,3}(?=\.)|(?<![a-z0-9])(?:https?|ftp|mailto|tel):(?=\S)",
    re.ASCII | re.IGNORECASE,
)
_NO_WIDTH: Final = "\u200b"
_STARTED: Final = "the run started"


def render_notification(
    report: JobReport, occurrence: Occurrence, message_format: MessageFormat, cluster: str
) -> dict[str, Any]:
    """Return the notification of one event as JSON; `cluster` is its name, "" for none."""
    if message_format is MessageFormat.SLACK:
        # Without markup: * and ` are characters then.
        return {"text": _slack_text(report, occurrence, cluster), "mrkdwn": False}
    return _payload(report, occurrence, cluster)


def _payload(report: JobReport, occurrence: Occurrence, cluster: str) -> dict[str, Any]:
    status = report.status
    moment = format_time(occurrence.time)
    raw: Mapping[str, Any] = {
        "version": PAYLOAD_VERSION,
        # The same when it is sent again: a receiver can find a duplicate by it.
        "id": f"{report.uid}/{occurrence.event}/{moment}",
        "event": str(occurrence.event),
        "time": moment,
        "cluster": cluster,
        "job": {"namespace": report.namespace, "name": report.job_name, "uid": report.job_uid},
        "report": report.name,
        "phase": str(status.phase or ""),
        "message": _message(occurrence),
        "startTime": format_time(status.start_time) if status.start_time is not None else "",
        "completionTime": (
            format_time(status.completion_time) if status.completion_time is not None else ""
        ),
        "durationSeconds": status.duration_seconds,
        "nodes": _nodes(status.nodes) if _are_counted(status.nodes, occurrence) else None,
    }
    return {key: value for key, value in raw.items() if value not in ("", None)}


def _are_counted(nodes: NodeTotals | None, occurrence: Occurrence) -> TypeGuard[NodeTotals]:
    """Return whether the nodes are counted: just after the start of a run, they may not be yet."""
    if nodes is None:
        return False
    return nodes.desired > 0 or occurrence.event != NotifyEvent.STARTED


def _nodes(nodes: NodeTotals) -> dict[str, Any]:
    names = {
        "failedNames": single_line(nodes.failed_names, _NAMES_LIMIT),
        "unreachableNames": single_line(nodes.unreachable_names, _NAMES_LIMIT),
    }
    return {
        "desired": nodes.desired,
        "completed": nodes.completed,
        "failed": nodes.failed,
        "unreachable": nodes.unreachable,
        **{key: text for key, text in names.items() if text},
    }


def _slack_text(report: JobReport, occurrence: Occurrence, cluster: str) -> str:
    place = f" in {cluster}" if cluster else ""
    head = f"{occurrence.event}: Job {report.namespace}/{report.job_name}{place}"
    return _escape(f"{head}: {_message(occurrence)} (JobReport {report.name})")


def _escape(text: str) -> str:
    """Return a text in which Slack finds no control sequence, such as <!channel>, name or link."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return _BROKEN.sub(rf"\g<0>{_NO_WIDTH}", text)


def _message(occurrence: Occurrence) -> str:
    if occurrence.event == NotifyEvent.STARTED:
        return _STARTED
    return single_line(occurrence.message, MESSAGE_LIMIT)
