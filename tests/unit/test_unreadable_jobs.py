"""What is written to a Job that cannot be read. Not here: which Jobs these are."""

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.job_status import JobStatusActions
from tests.clocks import FakeClock

KEY = ("default", "sample")


def write(status):
    """Return the merge patches of the status of an unreadable Job that has this status."""
    patches = []

    async def merge_patch(_resource, _name, body, _namespace, **_how):
        patches.append(body["status"])
        return {}

    writer = SimpleNamespace(
        client=SimpleNamespace(merge_patch=merge_patch), expect_version=lambda *_: None
    )
    metrics = SimpleNamespace(count_end=lambda *_: None)
    actions = JobStatusActions(writer, FakeClock(datetime(2026, 1, 2, tzinfo=UTC)), metrics)
    found = Unreadable("too deep", *KEY, "uid", "7", generation=2, status=status)
    asyncio.run(actions.write_unreadable(KEY, found))
    return patches


def test_it_is_written_once_for_each_generation():
    (patch,) = write({"phase": "Running", "observedGeneration": 1})
    assert set(patch) == {"observedGeneration", "conditions"}
    (condition,) = patch["conditions"]
    assert (condition["type"], condition["reason"]) == ("Progressing", "Unreadable")
    assert write({"phase": "Running", **patch}) == []


@pytest.mark.parametrize(
    "status", [{"phase": 1}, {"conditions": "none"}, {"conditions": ["none"]}, {"conditions": [{}]}]
)
def test_a_status_that_is_itself_odd_is_replaced(status):
    (patch,) = write(status)
    assert patch["phase"] == "Pending"
    assert write(patch) == []
