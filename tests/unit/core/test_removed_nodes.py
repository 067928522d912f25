"""A node that left before it was retried, and is back: of its earlier try nothing counts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.node_record import NodeRecord
from daemonset_job.api.states import NodeState
from tests.unit.builders import NOW, START, make_pod
from tests.unit.core.node_states import SPEC, assess

LIMITED = replace(SPEC, node_deadline_seconds=40)
REMOVED = NodeRecord(
    uid="a-uid", state=NodeState.REMOVED, attempts=2, active_since=NOW - timedelta(seconds=60)
)


@pytest.mark.parametrize(("pod_uid", "attempts"), [("", 0), ("pod-a-1", 2)])
def test_its_deadline_begins_again(pod_uid, attempts):
    record = replace(REMOVED, pod_uid=pod_uid, attempts=attempts)
    pod = make_pod("a", uid="pod-a-2", started_at=START)
    found = assess(pod, spec=LIMITED, record=record, retry="again").record
    assert (found.state, found.active_since, found.retry) == ("Active", NOW, "again")
    assert found.attempts == attempts + 1


def test_without_a_retry_its_time_goes_on():
    pod = make_pod("a", uid="pod-a-2", started_at=START)
    found = assess(pod, spec=LIMITED, record=REMOVED).record
    assert (found.state, found.reason) == ("Failed", "DeadlineExceeded")
