"""Runs to be shown, small and large, honest and hostile."""

from datetime import UTC, datetime, timedelta

from daemonset_job.api.job import parse_job
from daemonset_job.api.report import parse_report
from kubectl_dsjob.run_view import RunView, view_run

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
HOSTILE = "\x1b[2J\x1b]0;title\x07\u202efdp.exe\r\nroot# [red]<script>alert(1)</script>"
STATES = ("Completed", "Active", "Failed", "Waiting", "Unreachable")


def run(count: int = 5, text: str = "disk full", *, exists: bool = True) -> RunView:
    """Return a run with `count` nodes, one in five of each state."""
    records = {
        f"node-{i:04}": {
            "uid": f"u{i}",
            "state": STATES[i % 5],
            "reason": "Failed" if i % 5 == 2 else "",
            "message": text if i % 5 == 2 else "",
            "attempts": 1,
            **({"exitCode": 2} if i % 5 == 2 else {}),
        }
        for i in range(count)
    }
    evidence = {
        "node-0000": {
            "nodeUID": "u0",
            "completedAt": "2026-01-01T11:59:00Z",
            "results": {"kernel": text},
        },
        "node-0002": {"nodeUID": "u2", "lastLines": ["trying", text]},
    }
    share = count // 5
    words = ("completed", "active", "failed", "waiting", "unreachable")
    totals = {"desired": count, **dict.fromkeys(words, share)}
    progress = {"type": "Progressing", "status": "False", "reason": "Failed", "message": text}
    status = {
        "phase": "Failed",
        "startTime": (NOW - timedelta(seconds=192)).isoformat(),
        "nodes": totals,
        "conditions": [progress],
    }
    job = parse_job(
        {
            "metadata": {"name": "sweep", "namespace": "cli", "uid": "u"},
            "spec": {"image": "i"},
            "status": status,
        }
    )
    report = parse_report(
        {
            "metadata": {"name": "sweep-1", "namespace": "cli"},
            "spec": {"job": {"name": "sweep", "uid": "u"}},
            "evidence": evidence,
            "status": {**status, "message": text, "timeline": [text], "nodeStates": records},
        }
    )
    return view_run(job if exists else None, [report])
