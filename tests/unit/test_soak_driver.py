"""What the driver of a soak Job takes for its end."""

import asyncio
import contextlib
import random
from typing import Any

from benchmarks import soak_driver
from benchmarks.soak_driver import FAILED_SECONDS, Driver, EndedError
from benchmarks.soak_jobs import draw_wish
from benchmarks.soak_wish import Place
from daemonset_job.api import names

PLACE = Place(["soak-a"], ["node-a"], ["fake-0"])
UID = "f0959f3e"


class Cluster:
    """One Job, failed, whose retry the controller sees after some seconds; then it is gone."""

    def __init__(self, monkeypatch, *, seen_after: float, **status: Any) -> None:
        self._job = failed_job(**status)
        self.jobs: dict[str, Any] = {}
        self.looked_at = 0.0
        self._seen_after = seen_after
        monkeypatch.setattr(soak_driver.time, "time", lambda: self.looked_at)

    async def looked(self) -> None:
        self.looked_at += 1
        self.jobs = {} if self.looked_at > self._seen_after else {UID: self._job}


def failed_job(**status: Any) -> dict[str, Any]:
    failed = {"type": "Failed", "status": "True", "reason": "Failed", "message": "exit 3"}
    notes = {names.ANNOTATION_RETRY: "1"}
    return {"metadata": {"annotations": notes}, "status": {"conditions": [failed], **status}}


def problems(cluster: Cluster) -> list[str]:
    driver = Driver(cluster, draw_wish(random.Random(1), PLACE, 1, kind="retry"))
    driver.run.uid = UID
    driver._limit = 420.0
    driver._answered_at = -1.0
    with contextlib.suppress(EndedError):
        asyncio.run(driver._reach("gone"))
    return driver.run.problems


def test_a_retry_that_a_killed_controller_sees_late_is_waited_for(monkeypatch):
    """Ended twice, it comes back after 30 s: its start waits, and the Lease has to expire."""
    assert problems(Cluster(monkeypatch, seen_after=FAILED_SECONDS + 10)) == []


def test_a_retry_that_no_controller_sees_is_a_problem(monkeypatch):
    (found,) = problems(Cluster(monkeypatch, seen_after=1000))
    assert found.startswith("not gone in time: ")


def test_a_job_that_fails_again_after_its_retry_is_given_up_soon(monkeypatch):
    (found,) = problems(Cluster(monkeypatch, seen_after=1000, observedRetry="1"))
    assert found.startswith("it has failed: ")
