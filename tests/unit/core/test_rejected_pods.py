"""Nodes are read before they fail because they reject their pods, one after the other."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.kube.client.errors import Unavailable
from job_controller.core.state.counting import count_nodes
from job_controller.core.state.node_exits import READ_LIMIT
from job_controller.fresh_nodes import (
    FreshNodeReader,
    find_nodes_to_confirm,
    postpone_failed_reads,
)
from tests.unit.builders import NOW, make_cluster, make_pod, seen_before

LIMIT = 300  # that of the start timeout


def rejecting(seconds, **changes):
    """Return a snapshot in which node a has rejected its pods for that many seconds."""
    cluster = make_cluster("a", "b", **changes)
    cluster.pods[0] = make_pod("a", state="", phase="Failed", reason="SysctlForbidden")
    return seen_before(cluster.snapshot(), timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "names"), [(LIMIT - 1, []), (LIMIT, ["a"]), (LIMIT + 119, ["a"]), (LIMIT + 120, [])]
)
def test_a_node_is_read_from_when_it_may_fail_for_two_minutes(seconds, names):
    """It may be a new machine with the name of the old, which had rejected the other pods."""
    assert READ_LIMIT.total_seconds() == 120
    found = find_nodes_to_confirm(rejecting(seconds), NOW, {})
    assert [node.name for node in found] == names


@pytest.mark.parametrize(("state", "names"), [("Failed", []), ("Waiting", ["a"])])
def test_a_node_that_has_failed_is_not_read_for_that(state, names):
    status = {"nodeStates": {"a": {"uid": "a-uid", "state": state}}}
    cluster = make_cluster("a", report_status=status)
    cluster.pods[0] = make_pod("a", state="", phase="Failed", reason="SysctlForbidden")
    seen = rejecting(LIMIT).seen
    found = find_nodes_to_confirm(replace(cluster.snapshot(), seen=seen), NOW, {})
    assert [node.name for node in found] == names


class Server:
    """Answers with an error, and is the clock, too."""

    async def find(self, *_arguments, **_options):
        raise Unavailable("away")

    def monotonic(self):
        return 0.0

    def now(self):
        return NOW


def test_a_node_that_cannot_be_read_fails_after_the_next_read():
    snapshot, server = rejecting(LIMIT), Server()
    assert count_nodes(snapshot, NOW).nodes["a"].state == "Failed"
    due = find_nodes_to_confirm(snapshot, NOW, {})
    read = asyncio.run(FreshNodeReader(server, server).read(due, asyncio.Event()))
    later = postpone_failed_reads(snapshot, read, server)
    assert count_nodes(later, NOW).nodes["a"].state == "Waiting"
    after = NOW + timedelta(seconds=5)
    assert count_nodes(later, after).nodes["a"].state == "Failed"
    assert [node.name for node in find_nodes_to_confirm(later, after, {})] == ["a"]
