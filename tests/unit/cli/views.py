"""Runs to be shown, small and large, honest and hostile."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from daemonset_job.api.job import parse_job
from daemonset_job.api.report import parse_report
from daemonset_job.api.times import format_time
from kubectl_dsjob.rollback_view import RollbackView
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


LINES = (
    "reading /var/lib/containerd",
    "mkfs.xfs: cannot open /dev/nvme1n1: Device or resource busy",
)


def real_run(count: int) -> RunView:
    """Return a run as a cluster has it: nearly all nodes are completed, each in its own time."""
    start = NOW - timedelta(minutes=9)
    records: dict[str, Any] = {}
    evidence: dict[str, Any] = {}
    for i in range(count):
        name = f"ip-10-{i // 250}-{i % 250}" if count > 60 else f"worker-{i + 1}"
        seconds = 8 + (i * 7919 % 400) ** 1.02
        has_failed = i % 997 == 3
        state = "Failed" if has_failed else "Active" if i > count * 0.97 else "Completed"
        end = None if state == "Active" else (start + timedelta(seconds=seconds)).isoformat()
        records[name] = {
            "uid": f"u{i}",
            "state": state,
            "attempts": 3 if has_failed else 1,
            "startedAt": (start + timedelta(seconds=i % 7)).isoformat(),
            **({"finishedAt": end} if end else {}),
            **({"exitCode": 1 if has_failed else 0} if end else {}),
            **({"reason": "BackoffLimitExceeded"} if has_failed else {}),
        }
        if has_failed:
            evidence[name] = {"nodeUID": f"u{i}", "lastLines": list(LINES)}
        elif end:
            found = {"kernel": "6.1.0-28" if i % 9 else "5.15.0-119", "disk": f"{i % 40 + 20}%"}
            evidence[name] = {"nodeUID": f"u{i}", "completedAt": end, "results": found}
    states = [record["state"] for record in records.values()]
    totals = {"desired": count, **{s.lower(): states.count(s) for s in ("Completed", "Failed")}}
    failed = next((name for name, each in records.items() if each["state"] == "Failed"), "none")
    message = f"{states.count('Failed')} of {count} nodes failed: {failed} exit 1"
    report = {
        "metadata": {"name": "grow-disk-20260101115100-4f2a1", "namespace": "storage"},
        "spec": {"job": {"name": "grow-disk", "uid": "u"}},
        "evidence": evidence,
        "status": {
            "phase": "Failed",
            "startTime": start.isoformat(),
            "completionTime": (start + timedelta(seconds=480)).isoformat(),
            "nodes": {**totals, "active": states.count("Active")},
            "message": message,
            "nodeStates": records,
            "timeline": [
                f"{format_time(start)} started on {count} nodes",
                f"+8s {next(iter(records))} completed, the first",
                f"+1m31s {failed} failed: exit 1 after 3 attempts",
                f"+8m the run failed: {message}",
            ],
        },
    }
    return view_run(None, [parse_report(report)])


def undone_run() -> RunView:
    """Return a run that was rolled back on all nodes but two."""
    undone = RollbackView(
        "RolledBackPartly",
        is_ended=True,
        has_succeeded=True,
        message="3 of 5 nodes are rolled back; two are unreachable since 11:58",
        jobs=("grow-disk-rollback",),
        desired=5,
        completed=3,
        unreachable=2,
        unreachable_names="worker-[3-4].eu-central-1.compute.internal.example.com",
        requested_by="kubectl-dsjob",
    )
    view = replace(real_run(5), rollback=undone)
    words = ("Completed", "Completed", "", "", "Completed")
    nodes = (replace(node, rollback=word) for node, word in zip(view.nodes, words, strict=True))
    return replace(view, nodes=tuple(nodes))
