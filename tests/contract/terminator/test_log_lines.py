"""The terminator's log of a whole run, at INFO: what it recorded, what it deleted, and why."""

import asyncio
from collections.abc import Iterator

import pytest
from loguru import logger

from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=2000)


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines at INFO and above of the Job's run, without the identifiers."""
    found: list[str] = []

    def keep(message):
        record = message.record
        extra = {key: text for key, text in record["extra"].items() if key != "reconcile_id"}
        if "job" not in extra:
            assert record["message"] in {"became leader", "stopped leading"}
            return
        assert (extra.pop("namespace"), extra.pop("job")) == ("default", "sample")
        extra.pop("report", None)
        fields = "; ".join(f"{key}={text}" for key, text in extra.items())
        found.append(f"{record['level'].name} {record['message']}: {fields}")

    number = logger.add(keep, level="INFO", format="{message}")
    yield found
    logger.remove(number)


async def test_a_run_that_succeeds(cluster, lines):
    run = cluster.add_job()
    cluster.start()
    await asyncio.sleep(5)
    run.print_tokens("a", "b")
    await eventually(lambda: run.completed() == {"a", "b"})
    await asyncio.sleep(60)
    run.print_tokens("c")
    await eventually(lambda: run.completed() == set(run.nodes))
    run.agree(nodes={"desired": 3, "completed": 3})
    await eventually(lambda: not run.exists)
    await asyncio.sleep(600)
    assert lines == [
        "INFO recorded evidence: completed=2; failed=0; nodes=a,b",
        "INFO recorded evidence: completed=1; failed=0; nodes=c",
        "INFO deleted the Job: why=the run is complete; desired=3; completed=3; failed=0",
    ]


async def test_a_run_that_fails_and_whose_time_to_live_ends(cluster, lines):
    nodes = tuple(f"n{number}" for number in range(7))
    completion = {"failureToken": "broken"}
    run = cluster.add_job(nodes=nodes, completion=completion, ttlSecondsAfterFinished=100)
    cluster.start()
    await asyncio.sleep(5)
    for node in nodes:
        run.log(node).write("broken")
    await eventually(lambda: sum(bool(e.get("failedAt")) for e in run.evidence().values()) == 7)
    run.agree("Failed", completionTime="2030-01-01T00:00:00Z", nodes={"desired": 7, "failed": 7})
    await eventually(lambda: not run.exists, 1000)
    recorded, deleted = lines
    assert recorded == (
        "INFO recorded evidence: completed=0; failed=7; nodes=n0,n1,n2,n3,n4 and 2 more"
    )
    assert deleted.startswith(
        "INFO deleted the Job: why=the run failed, and ttlSecondsAfterFinished have passed; "
        "desired=7; completed=0; failed=7"
    )
