"""How late a notification may be after its receiver was away, or a write of the record failed."""

import asyncio

import pytest

from daemonset_job.kube.client.resource import EVENTS, JOB_REPORTS
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock
from tests.contract.controller_runs import put_ended_report
from tests.contract.fake_receiver import configured

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=40_000), pytest.mark.usefixtures("virtual_clock")]

NOTIFY = [{"receiver": "ops"}]
# The receiver is tried each half a minute at least, whatever has failed before.
LATE_SECONDS = 31.0


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a")


async def pause(cluster, *names):
    for name in names:
        cluster.apply(name, notify=NOTIFY, suspend=True)
    await until(lambda: all(cluster.status(name).get("phase") == "Paused" for name in names))


@pytest.mark.parametrize("away_seconds", [125, 190])
async def test_a_receiver_that_is_back_is_notified_within_half_a_minute(
    server, cluster, receiver, tmp_path, away_seconds
):
    receiver.status = 503
    loop = asyncio.get_running_loop()
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await until(cluster.is_settled)
        await asyncio.sleep(away_seconds)
        await pause(cluster, "sample")
        receiver.status, receiver.got = 200, []
        begin = loop.time()
        await until(lambda: len(receiver.got) == 2, 120)
        assert loop.time() - begin < LATE_SECONDS
    assert receiver.events == ["default/sample Started", "default/sample Paused"]


async def test_all_runs_that_wait_for_a_receiver_are_notified_once_it_is_back(
    server, cluster, receiver, tmp_path
):
    receiver.status = 503
    names = [f"run-{number}" for number in range(4)]
    loop = asyncio.get_running_loop()
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        for name in names:
            cluster.apply(name, notify=NOTIFY)
        await asyncio.sleep(200)
        await pause(cluster, *names)
        receiver.status, receiver.got = 200, []
        begin = loop.time()
        await until(lambda: len(receiver.got) == 8, 120)
        assert loop.time() - begin < LATE_SECONDS
    assert sorted(receiver.events) == sorted(
        f"default/{name} {event}" for name in names for event in ("Started", "Paused")
    )


async def test_a_record_that_cannot_be_written_delays_the_next_one_by_half_a_minute(
    server, cluster, receiver, tmp_path
):
    loop = asyncio.get_running_loop()
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        receiver.on_request = lambda: server.fail_next("PATCH", "/jobreports/", 503, times=1000)
        cluster.apply(notify=NOTIFY)
        await until(lambda: receiver.got)
        receiver.on_request = lambda: None
        await asyncio.sleep(200)
        server.faults.clear()
        await pause(cluster, "sample")
        begin = loop.time()
        await until(lambda: len(receiver.got) == 2, 120)
        assert loop.time() - begin < LATE_SECONDS


async def test_records_that_hang_in_some_namespaces_delay_no_notification_of_others(
    server, cluster, receiver, tmp_path
):
    # In one of them, reports name a receiver that does not exist.
    for tenant, name in (("one", "ops"), ("two", "ops"), ("three", "unknown")):
        server.delay_next("PATCH", f"/namespaces/{tenant}/jobreports/", 1000.0, times=10_000)
        for number in range(5):
            put_ended_report(cluster, tenant, f"run-{number}", name)
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        await until(lambda: {"one/run-0 Succeeded", "two/run-0 Succeeded"} <= set(receiver.events))
        for number in range(3):
            put_ended_report(cluster, "default", f"run-{number}", "ops")
        put_ended_report(cluster, "default", "mistaken", "unknown")
        await asyncio.sleep(3)
        own = [event for event in receiver.events if event.startswith("default/")]
        assert own == [f"default/run-{number} Succeeded" for number in range(3)]
        found = server.get(JOB_REPORTS, "mistaken-0", "default")
        assert found["status"]["notifications"]["unknown"].get("message")


async def test_a_first_try_that_fails_gives_up_nothing_that_waited_while_no_controller_was_there(
    server, cluster, receiver, tmp_path
):
    for number in range(8):
        put_ended_report(cluster, "default", f"job{number}")
    await asyncio.sleep(7200)

    def be_back():
        receiver.status = 503 if len(receiver.got) == 1 else 200

    receiver.on_request = be_back
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        await until(lambda: len(set(receiver.events)) == 8, 120)


async def test_after_a_time_without_a_controller_a_receiver_that_is_away_delays_no_end_of_the_tries(
    server, cluster, receiver, tmp_path
):
    for number in range(8):
        put_ended_report(cluster, "default", f"job{number}")
    await asyncio.sleep(7200)
    receiver.status = 503
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        await until(lambda: all(failed(each) for each in server.list(JOB_REPORTS)), 120)
        assert len(receiver.got) < 12


def failed(report):
    return report["status"]["notifications"]["ops"].get("failed")


async def test_the_history_deletes_no_report_before_its_notification_is_given_up_and_reported(
    server, cluster, receiver, tmp_path
):
    receiver.status = 503
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers, history_limit=0):
        put_ended_report(cluster, "default", "sample")
        await asyncio.sleep(3590)
        assert not server.list(EVENTS)
        await until(lambda: server.list(EVENTS), 60)
        await until(lambda: not server.list(JOB_REPORTS), 60)
    assert cluster.events() == ["NotificationNotSent"]


@pytest.mark.parametrize("limit", [{"history_limit": 0}, {"history_max_age_seconds": 60}])
async def test_a_slow_receiver_gets_all_that_waited_while_no_controller_was_there(
    server, cluster, receiver, tmp_path, limit
):
    for number in range(8):
        put_ended_report(cluster, "default", f"job{number}")
    await asyncio.sleep(7200)
    receiver.delay_seconds = 2
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),), **limit):
        await until(lambda: not server.list(JOB_REPORTS), 120)
    assert len(set(receiver.events)) == 8


async def test_a_report_that_a_limit_removes_before_its_notification_is_sent_leaves_an_event(
    server, cluster, receiver, tmp_path
):
    metrics = Metrics()
    receiver.status = 503
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, metrics=metrics, receivers=receivers, history_namespace_limit=5):
        for number in range(8):
            put_ended_report(cluster, "default", f"job{number}")
        await until(lambda: len(server.list(JOB_REPORTS)) == 5)
        receiver.status, receiver.got = 200, []
        await until(lambda: len(receiver.got) == 5, 60)
        # These are over their limit, too, and were sent.
        for number in range(3):
            put_ended_report(cluster, "default", f"other{number}")
        await until(lambda: len(receiver.got) == 8, 60)
        await asyncio.sleep(60)
    found = [raw["message"] for raw in server.list(EVENTS)]
    words = "Succeeded: the report of the run was deleted before that"
    assert found == [f"receiver ops was not notified: {words}"] * 3
    labels = {"receiver": "ops", "result": "report_deleted"}
    assert metrics.registry.get_sample_value("dsj_notifications_total", labels) == 3
