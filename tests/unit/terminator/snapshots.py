"""Complete Jobs as the terminator sees them, for tests of its count."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from daemonset_job.api.job import Job
from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from terminator.deletion_decision import decide_deletion
from terminator.node_count import Snapshot, count_nodes
from tests.unit.terminator.builders import (
    COMPLETE,
    NOW,
    done,
    make_daemon_set,
    make_job,
    make_node,
    make_pod,
)

NAMES = ("a", "b", "c")


def record(uid: str = "c-uid", state: str = "Failed") -> NodeRecord:
    return NodeRecord(uid=uid, state=NodeState(state))


def world(
    names: Sequence[str] = NAMES,
    completed: Sequence[str] = NAMES,
    job: Job | None = None,
    **changes: Any,
) -> Snapshot:
    """A Job on `names`, `completed` of them done; complete unless something is changed."""
    snapshot = Snapshot(
        job=job or make_job(COMPLETE),
        daemon_set=make_daemon_set(len(names)),
        pods=[make_pod(name) for name in names],
        nodes={name: make_node(name) for name in names},
        ledger={name: done(name) for name in completed},
        records={name: record(f"{name}-uid", "Completed") for name in completed},
    )
    return replace(snapshot, **changes)


def blocked_by(
    snapshot: Snapshot, now: datetime = NOW, overdue_since: datetime | None = None
) -> str:
    """Return why the Job is not deleted, empty if it is."""
    return decide_deletion(
        snapshot.job, lambda: count_nodes(snapshot), now, overdue_since
    ).blocked_by
