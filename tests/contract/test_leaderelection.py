import asyncio
from typing import ClassVar

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import LEASES
from daemonset_job.kube.leaderelection.elector import LeaderElectionConfig, run_as_leader
from daemonset_job.kube.leaderelection.lease_lock import LeaseLock
from tests.contract.fake_api import FakeApiServer

# Whatever is waited for in vain ends there instead of hanging.
pytestmark = pytest.mark.looptime(end=20_000)


def now() -> float:
    return asyncio.get_running_loop().time()


class Candidate:
    """One contender with its own connection, and a record of what it did."""

    leading: ClassVar[list[str]] = []

    def __init__(self, server: FakeApiServer, identity: str, cleanup_seconds: float = 0) -> None:
        self.server, self.identity, self.cleanup_seconds = server, identity, cleanup_seconds
        self.client = KubeClient(server.url)
        self.states: list[tuple[bool, float]] = []
        self.started, self.ended = asyncio.Event(), asyncio.Event()
        self.stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        try:
            await run_as_leader(
                LeaseLock(
                    self.client,
                    "kube-system",
                    "lock",
                    identity=self.identity,
                    clock=self.server.clock,
                ),
                lead=self.lead,
                on_state=lambda state: self.states.append((state, now())),
            )
        finally:
            await self.client.close()

    async def lead(self) -> None:
        assert not self.leading, "two lead at once"
        self.leading.append(self.identity)
        self.started.set()
        try:
            await self.stop
        finally:
            await asyncio.sleep(self.cleanup_seconds)
            self.leading.remove(self.identity)
            self.ended.set()

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def candidate(server):
    made: list[Candidate] = []
    Candidate.leading = []

    def make(identity: str, **options: float) -> Candidate:
        made.append(Candidate(server, identity, **options))
        return made[-1]

    yield make
    for each in made:
        await each.cancel()


def spec(server: FakeApiServer) -> dict:
    return server.get(LEASES, "lock", "kube-system")["spec"]


async def test_first_candidate_creates_the_lease_and_renews_it(server, candidate):
    a = candidate("a")
    await a.started.wait()
    first = spec(server)
    assert first["holderIdentity"] == "a"
    assert first["leaseDurationSeconds"] == 15
    assert first["acquireTime"] == first["renewTime"]
    await asyncio.sleep(60)
    renewed = spec(server)
    assert renewed["renewTime"] > first["renewTime"]
    assert (renewed["acquireTime"], renewed["leaseTransitions"]) == (first["acquireTime"], 0)
    # The usual renewal is one write and no read.
    assert server.count("GET", "/leases/") == 1


async def test_of_many_candidates_exactly_one_leads(server, candidate):
    many = [candidate(str(i)) for i in range(5)]
    await asyncio.sleep(120)
    assert sum(each.started.is_set() for each in many) == 1
    assert len(Candidate.leading) == 1


async def test_cancelled_leader_releases_and_the_next_takes_over_at_once(server, candidate):
    a = candidate("a")
    await a.started.wait()
    b = candidate("b")
    await asyncio.sleep(10)
    await a.cancel()
    assert a.task.cancelled()
    assert a.ended.is_set()
    assert "holderIdentity" not in spec(server)
    stopped = now()
    await b.started.wait()
    assert now() - stopped < 3
    assert [state for state, _ in a.states] == [True, False]
    assert spec(server)["leaseTransitions"] == 1


@pytest.mark.parametrize("status", [409, 500, 503])
async def test_release_that_fails_is_repeated(server, candidate, status):
    # A renewal that is cancelled on its way may be written between the release's read and write.
    a = candidate("a")
    await a.started.wait()
    await asyncio.sleep(10)
    server.fail_next("PUT", "/leases/", status, times=2)
    await a.cancel()
    assert "holderIdentity" not in spec(server)


async def test_release_gives_up_after_half_of_the_renewals_time(server, candidate):
    a = candidate("a")
    await a.started.wait()
    server.fail_next("PUT", "/leases/", 409, times=1000)
    stopped = now()
    await a.cancel()
    assert 4 < now() - stopped <= 5.1


async def test_lease_is_renewed_while_a_cancelled_lead_cleans_up(server, candidate):
    a = candidate("a", cleanup_seconds=100)
    await a.started.wait()
    b = candidate("b")
    await a.cancel()
    assert now() >= 100
    assert not b.started.is_set()
    await b.started.wait()


async def test_crash_of_the_lead_is_raised_and_releases(server, candidate):
    a = candidate("a")
    await a.started.wait()
    b = candidate("b")
    a.stop.set_exception(RuntimeError("crash"))
    with pytest.raises(RuntimeError, match="crash"):
        await a.task
    writes = server.count("PUT", "/leases/")
    await b.started.wait()
    assert now() < 5
    assert server.count("PUT", "/leases/") == writes + 1  # b took it; no process renews for a


async def test_end_of_the_lead_returns_and_releases(server, candidate):
    a = candidate("a")
    await a.started.wait()
    a.stop.set_result(None)
    await a.task
    assert "holderIdentity" not in spec(server)


async def test_dead_leader_is_succeeded_after_its_lease_ran_out(server, candidate):
    server.put(
        LEASES,
        {
            "metadata": {"name": "lock", "namespace": "kube-system"},
            # A clock an hour ahead: remote times are not looked at.
            "spec": {
                "holderIdentity": "dead",
                "leaseDurationSeconds": 15,
                "renewTime": "2030-01-01T01:00:00.000000Z",
                "leaseTransitions": 4,
            },
        },
    )
    b = candidate("b")
    await b.started.wait()
    assert 15 <= now() < 19
    assert spec(server)["leaseTransitions"] == 5


async def test_leader_without_the_api_stops_before_anybody_else_starts(server, candidate):
    a = candidate("a", cleanup_seconds=3)
    await a.started.wait()
    b = candidate("b")
    await asyncio.sleep(20)
    cut = now()
    a.client._transport._connection.credentials.authorization = _no_answer
    await b.started.wait()  # the assertion in lead() is what this is about
    lost = a.states[-1]
    assert lost[0] is False
    # At the latest ten seconds after the last renewal, and three for cleaning up.
    assert lost[1] - cut <= 13.1
    assert now() - cut >= 13


async def _no_answer():
    await asyncio.sleep(10_000)


async def test_leader_survives_an_outage_shorter_than_the_deadline(server, candidate):
    a = candidate("a")
    await a.started.wait()
    server.fail_next("PUT", "/leases/", 500, times=3)
    server.fail_next("GET", "/leases/", 503, times=2)
    await asyncio.sleep(60)
    assert Candidate.leading == ["a"]


async def test_the_leader_stops_at_once_when_another_one_has_the_lease(server, candidate):
    a = candidate("a")
    await a.started.wait()
    server.patch(
        LEASES,
        "lock",
        {"spec": {"holderIdentity": "thief", "renewTime": "2030-01-01T00:00:05.000000Z"}},
        "kube-system",
    )
    await a.task
    assert now() < 3
    assert spec(server)["holderIdentity"] == "thief"


async def test_conflict_with_a_bystander_is_no_loss(server, candidate):
    a = candidate("a")
    await a.started.wait()
    server.patch(LEASES, "lock", {"metadata": {"annotations": {"who": "me"}}}, "kube-system")
    await asyncio.sleep(30)
    assert Candidate.leading == ["a"]
    server.remove(LEASES, "lock", "kube-system")
    await asyncio.sleep(30)
    assert Candidate.leading == ["a"]
    assert spec(server)["holderIdentity"] == "a"


async def test_who_deletes_the_lease_lets_no_second_process_lead(server, candidate):
    a = candidate("a")
    await a.started.wait()
    b = candidate("b")
    await asyncio.sleep(20)
    # The leader learns late that the Lease is gone.
    server.delay_next("PUT", "/leases/", 4)
    server.remove(LEASES, "lock", "kube-system")
    await asyncio.sleep(60)
    assert Candidate.leading == ["a"]
    assert not b.task.done()
    assert spec(server)["holderIdentity"] == "a"


async def test_a_deleted_lease_of_a_dead_leader_is_succeeded(server, candidate):
    held = {"holderIdentity": "dead", "leaseDurationSeconds": 15}
    server.put(LEASES, {"metadata": {"name": "lock", "namespace": "kube-system"}, "spec": held})
    b = candidate("b")
    await asyncio.sleep(5)
    server.remove(LEASES, "lock", "kube-system")
    await b.started.wait()
    assert 15 <= now() < 19


async def test_an_edited_duration_lets_no_second_process_lead(server, candidate):
    a = candidate("a")
    await a.started.wait()
    b = candidate("b")
    await asyncio.sleep(20)
    # The leader learns late of the edit.
    server.delay_next("PUT", "/leases/", 4.9)
    server.patch(LEASES, "lock", {"spec": {"leaseDurationSeconds": 1}}, "kube-system")
    await asyncio.sleep(60)
    assert Candidate.leading == ["a"]
    assert not b.task.done()


async def test_a_lease_with_a_strange_holder_for_years_is_taken_after_a_minute(server, candidate):
    a = candidate("a")
    await a.started.wait()
    strange = {"holderIdentity": "?", "leaseDurationSeconds": 2_147_483_647}
    server.patch(LEASES, "lock", {"spec": strange}, "kube-system")
    await a.task
    b = candidate("b")
    await b.started.wait()
    assert 60 <= now() < 66


async def test_a_leader_that_was_paused_stops_although_its_successor_has_released(
    server, candidate
):
    """The clock of a machine that was paused or moved may not have gone on meanwhile."""
    a = candidate("a")
    await a.started.wait()
    server.patch(
        LEASES,
        "lock",
        {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1, "leaseTransitions": 1}},
        "kube-system",
    )
    await a.task
    assert a.ended.is_set()
    assert now() < 3


async def test_lost_answers_leave_no_lease_behind(server, candidate):
    server.lose_answer_next("POST", "/leases")
    a = candidate("a")
    await a.started.wait()
    assert now() < 3
    server.lose_answer_next("PUT", "/leases/")
    await asyncio.sleep(10)
    assert Candidate.leading == ["a"]


async def test_candidate_waits_for_an_api_that_refuses(server, candidate):
    server.fail_next("GET", "/leases/", 403, times=3)
    a = candidate("a")
    await a.started.wait()
    assert now() > 5


async def test_candidate_cancelled_before_it_led_says_nothing(server, candidate):
    await candidate("a").started.wait()
    b = candidate("b")
    await asyncio.sleep(5)
    await b.cancel()
    assert b.states == []
    assert spec(server)["holderIdentity"] == "a"


def test_durations_must_descend():
    with pytest.raises(ValueError, match="must descend"):
        LeaderElectionConfig(lease_duration_seconds=10, renew_deadline_seconds=10)
