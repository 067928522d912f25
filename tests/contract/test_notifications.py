"""The controller and the receivers of notifications, which may be slow, away, or hostile."""

import asyncio
import itertools

import pytest
from loguru import logger

from daemonset_job.kube.client.resource import EVENTS, JOB_REPORTS, JOBS, PODS
from job_controller.core.receivers import MessageFormat
from job_controller.metrics import Metrics
from tests.contract.controller_cluster import FakeCluster, running, until, virtual_clock
from tests.contract.controller_runs import put_ended_report
from tests.contract.fake_receiver import configured, listening

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=40_000), pytest.mark.usefixtures("virtual_clock")]

NOTIFY = [{"receiver": "ops"}]


@pytest.fixture
def cluster(server):
    return FakeCluster(server, "a")


def report(cluster):
    (found,) = cluster.server.list(JOB_REPORTS)
    return found


def delivery(cluster, receiver="ops"):
    return report(cluster)["status"].get("notifications", {}).get(receiver, {})


async def complete(cluster):
    await until(cluster.is_settled)
    cluster.complete("a")
    await until(lambda: cluster.condition("Complete").get("status") == "True")


def sample(metrics, result, receiver="ops"):
    labels = {"receiver": receiver, "result": result}
    return metrics.registry.get_sample_value("dsj_notifications_total", labels)


async def start_notified(cluster):
    """Start a run, of which the receiver has had the first notification."""
    cluster.apply(notify=NOTIFY)
    await until(cluster.is_settled)
    await until(lambda: delivery(cluster).get("sent") == 1)


async def test_a_run_is_notified_once_at_its_start_and_once_at_its_end(
    server, cluster, receiver, tmp_path
):
    metrics = Metrics()
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, metrics=metrics, receivers=receivers, cluster_name="prod"):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await until(lambda: len(receiver.got) == 2)
        await asyncio.sleep(600)
    assert receiver.events == ["default/sample Started", "default/sample Succeeded"]
    started, ended = receiver.taken
    assert ended["cluster"] == "prod"
    assert ended["nodes"] == {"desired": 1, "completed": 1, "failed": 0, "unreachable": 0}
    assert ended["message"] == "1 of 1 nodes completed"
    assert ended["report"] == report(cluster)["metadata"]["name"]
    assert started["id"] != ended["id"]
    assert delivery(cluster)["event"] == "Succeeded"
    assert delivery(cluster)["sent"] == 2
    assert sample(metrics, "sent") == 2


async def test_a_job_that_is_deleted_right_after_its_end_is_notified(
    server, cluster, receiver, tmp_path
):
    receiver.status = 500
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        server.remove(JOBS, "sample")
        await asyncio.sleep(200)
        receiver.status, receiver.got = 204, []
        await until(lambda: delivery(cluster).get("sent") == 2, 200)
    assert receiver.events == ["default/sample Started", "default/sample Succeeded"]


async def test_a_report_that_the_history_does_not_keep_stays_until_all_is_sent(
    server, cluster, receiver, tmp_path
):
    receiver.status = 503
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers, history_limit=0):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        server.remove(JOBS, "sample")
        await asyncio.sleep(200)
        receiver.status, receiver.got = 200, []
        await until(lambda: not server.list(JOB_REPORTS), 200)
    assert receiver.events == ["default/sample Started", "default/sample Succeeded"]


async def test_a_job_that_a_user_deletes_is_notified_as_cancelled(
    server, cluster, receiver, tmp_path
):
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=[{"receiver": "ops", "events": ["Cancelled"]}])
        await until(cluster.is_settled)
        server.remove(JOBS, "sample")
        await until(lambda: receiver.got)
        await asyncio.sleep(600)
    assert receiver.events == ["default/sample Cancelled"]


async def test_a_restart_sends_what_is_left_and_nothing_twice(server, cluster, receiver, tmp_path):
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers):
        await start_notified(cluster)
        receiver.status = 503
        await complete(cluster)
        await until(lambda: len(receiver.got) > 1)
        server.remove(JOBS, "sample")
        await asyncio.sleep(1)
    receiver.status, receiver.got = 200, []
    async with running(server, receivers=receivers):
        await until(lambda: receiver.got)
        await asyncio.sleep(600)
    async with running(server, receivers=receivers):
        await asyncio.sleep(600)
    assert receiver.events == ["default/sample Succeeded"]


async def test_a_crash_before_the_record_sends_one_duplicate_with_the_same_id(
    server, cluster, receiver, tmp_path
):
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers):
        cluster.apply(notify=[{"receiver": "ops", "events": ["Succeeded"]}])
        await until(cluster.is_settled)
        receiver.on_request = lambda: server.fail_next("PATCH", "/jobreports/", 503, times=1000)
        cluster.complete("a")
        await until(lambda: receiver.got)
        await asyncio.sleep(600)
        assert len(receiver.got) == 1
    server.faults.clear()
    receiver.on_request = server.faults.clear
    async with running(server, receivers=receivers):
        await until(lambda: delivery(cluster).get("sent"))
        await asyncio.sleep(600)
    first, second = receiver.taken
    assert first["id"] == second["id"]


async def test_a_receiver_that_is_away_for_minutes_gets_everything_in_order(
    server, cluster, receiver, tmp_path
):
    receiver.status = 502
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await until(cluster.is_settled)
        for _ in range(3):
            cluster.apply(notify=NOTIFY, suspend=True)
            await until(lambda: cluster.status().get("phase") == "Paused")
            await asyncio.sleep(2)
            cluster.apply(notify=NOTIFY, suspend=False)
            await until(lambda: cluster.status().get("phase") == "Running")
        await complete(cluster)
        await asyncio.sleep(900)
        tries = len(receiver.got)
        receiver.status, receiver.got = 200, []
        await until(lambda: delivery(cluster).get("sent") == 5, 150)
    assert [each["event"] for each in receiver.taken] == [
        "Started",
        *["Paused"] * 3,
        "Succeeded",
    ]
    # One try of the first one each 15 to 30 s, more often only at the beginning.
    assert tries < 60


async def test_what_cannot_be_delivered_for_an_hour_is_given_up_and_told(
    server, cluster, receiver, tmp_path
):
    metrics = Metrics()
    receiver.status = 500
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, metrics=metrics, receivers=receivers):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await asyncio.sleep(3900)
        assert sample(metrics, "expired") == 2
        tries = len(receiver.got)
        await asyncio.sleep(1000)
        assert len(receiver.got) == tries
    found = delivery(cluster)
    assert (found["event"], found["failed"]) == ("Succeeded", 2)
    assert found["message"] == (
        "Succeeded: it was not delivered within 60 minutes; it answered with HTTP 500"
    )
    told = [each for each in server.list(EVENTS) if each["reason"] == "NotificationNotSent"]
    assert "receiver ops was not notified" in told[0]["message"]


async def test_what_waits_while_no_controller_is_there_is_sent_however_long_it_was_away(
    server, cluster, receiver, tmp_path
):
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers):
        await start_notified(cluster)
        receiver.status = 503
        await complete(cluster)
        await until(lambda: len(receiver.got) > 1)
    await asyncio.sleep(7200)
    receiver.status, receiver.got = 200, []
    async with running(server, receivers=receivers):
        await until(lambda: delivery(cluster).get("sent") == 2)
    assert receiver.events == ["default/sample Succeeded"]


async def test_a_message_that_no_receiver_takes_is_given_up_after_a_time_without_a_controller(
    server, cluster, receiver, tmp_path
):
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, receivers=receivers):
        await start_notified(cluster)
        receiver.status = 503
        await complete(cluster)
    await asyncio.sleep(7200)
    receiver.got = []
    async with running(server, receivers=receivers):
        await until(lambda: delivery(cluster).get("failed") == 1)
    assert len(receiver.got) == 1


async def test_a_refused_message_is_given_up_at_once(server, cluster, receiver, tmp_path):
    metrics = Metrics()
    receiver.status = 400
    receivers = (configured(tmp_path, "ops", receiver.url),)
    async with running(server, metrics=metrics, receivers=receivers):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await until(lambda: delivery(cluster).get("failed") == 2)
        await asyncio.sleep(600)
    assert len(receiver.got) == 2
    assert sample(metrics, "refused") == 2


async def test_a_slow_receiver_delays_no_run_and_no_other_receiver(
    server, cluster, receiver, tmp_path
):
    receiver.delay_seconds = 10_000
    async with listening() as other:
        receivers = (
            configured(tmp_path, "ops", receiver.url),
            configured(tmp_path, "other", other.url),
        )
        loop = asyncio.get_running_loop()
        async with running(server, receivers=receivers):
            begin = loop.time()
            cluster.apply(notify=[*NOTIFY, {"receiver": "other"}])
            await complete(cluster)
            await until(lambda: len(other.got) == 2)
            assert loop.time() - begin < 5
            await asyncio.sleep(60)
    # Each try ends after ten seconds.
    times = [at for at, _, _ in receiver.got]
    assert all(later - earlier > 10 for earlier, later in itertools.pairwise(times))


async def test_an_endless_answer_is_read_to_a_bound_and_counts(server, cluster, receiver, tmp_path):
    receiver.is_endless = True
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await until(lambda: delivery(cluster).get("sent") == 2, 20)
    assert receiver.sent_bytes < 16 * 1024 * 1024


async def test_a_redirect_is_not_followed(server, cluster, receiver, tmp_path):
    async with listening() as target:
        receiver.status, receiver.headers = 302, {"Location": f"{target.url}/internal"}
        async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
            cluster.apply(notify=NOTIFY)
            await complete(cluster)
            await asyncio.sleep(4000)
        assert target.got == []
    assert "redirect (HTTP 302), which is not followed" in delivery(cluster)["message"]


async def test_too_many_requests_wait_as_long_as_the_receiver_asks(
    server, cluster, receiver, tmp_path
):
    receiver.status, receiver.headers = 429, {"Retry-After": "120"}
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await until(lambda: receiver.got)
        receiver.status = 200
        await until(lambda: delivery(cluster).get("sent"), 200)
    first, second = (at for at, _, _ in receiver.got)
    assert 119 < second - first < 130


async def test_an_environment_with_a_proxy_changes_nothing(
    server, cluster, receiver, tmp_path, monkeypatch
):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await until(lambda: receiver.got)


async def test_one_namespace_with_many_runs_does_not_delay_another_one(
    server, cluster, receiver, tmp_path
):
    for number in range(300):
        put_ended_report(cluster, "noisy", f"run-{number}")
    put_ended_report(cluster, "quiet", "run")
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        await until(lambda: len(receiver.got) == 301)
    assert len(set(receiver.events)) == 301
    assert receiver.events.index("quiet/run Succeeded") <= 2
    times = [at for at, _, _ in receiver.got]
    # Ten a second at most.
    assert times[-1] - times[0] > 29


async def test_a_message_that_fails_alone_does_not_hold_up_the_others(
    server, cluster, receiver, tmp_path
):
    receiver.refuses = "poison"
    for name in ("a-poison", *(f"good-{number}" for number in range(20)), "z-poison"):
        put_ended_report(cluster, "default", name)
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        good = {f"default/good-{number} Succeeded" for number in range(20)}
        await until(lambda: good <= set(receiver.events), 60)
        await asyncio.sleep(3700)
    assert sum("good" in each for each in receiver.events) == 20
    assert 2 <= sum("poison" in each for each in receiver.events) < 200


@pytest.mark.parametrize(
    ("namespaces", "names"), [(("team-*",), "ops"), (("*",), "nobody")], ids=["not-ours", "unknown"]
)
async def test_a_receiver_that_the_job_cannot_use_is_told_and_stops_nothing(
    server, cluster, receiver, tmp_path, namespaces, names
):
    metrics = Metrics()
    receivers = (configured(tmp_path, "ops", receiver.url, namespaces=namespaces),)
    async with running(server, metrics=metrics, receivers=receivers):
        cluster.apply(notify=[{"receiver": names, "events": ["Succeeded"]}])
        await until(cluster.is_settled)
        await until(lambda: delivery(cluster, names).get("message"))
        # Before anything was lost.
        assert "failed" not in delivery(cluster, names)
        await complete(cluster)
        await until(lambda: delivery(cluster, names).get("failed") == 1)
        await asyncio.sleep(600)
    assert receiver.got == []
    (told,) = [each for each in server.list(EVENTS) if each["reason"] == "NotificationNotSent"]
    assert f"the receiver '{names}'" in told["message"]
    assert "namespace default" in told["message"]
    assert sample(metrics, "unknown_receiver", "") == 1


async def test_a_receiver_that_is_added_during_the_run_hears_what_follows(
    server, cluster, receiver, tmp_path
):
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply()
        await until(cluster.is_settled)
        cluster.apply(notify=NOTIFY)
        await until(lambda: delivery(cluster))
        await complete(cluster)
        await until(lambda: receiver.got)
        await asyncio.sleep(60)
    assert receiver.events == ["default/sample Succeeded"]


async def test_the_address_is_nowhere_that_a_user_reads(server, cluster, tmp_path):
    lines = []
    sink = logger.add(lambda message: lines.append(str(message)))
    async with running(server, receivers=(configured(tmp_path, "ops", "http://127.0.0.1:1"),)):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await asyncio.sleep(4000)
    logger.remove(sink)
    assert "it cannot be connected to" in delivery(cluster)["message"]
    seen = [str(server.list(kind)) for kind in (EVENTS, JOB_REPORTS, JOBS)]
    assert not any("SECRET" in text or "127.0.0.1:1" in text for text in seen)
    assert not any("SECRET" in line for line in lines)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 No\r\nContent-Length: 31\r\n\r\nCannot POST /services/T0/SECRET",
        b"HTTP/1.1 400 Bad\r\nContent-Length: 25\r\n\r\nno \\/services\\/T0\\/SECRET\n",
        b"this is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    ],
)
async def test_an_answer_that_repeats_the_address_or_is_none_has_no_secret_in_the_log(
    server, cluster, tmp_path, answer
):
    lines = []

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    sink = logger.add(lambda message: lines.append(str(message) + str(message.record["extra"])))
    receivers = (configured(tmp_path, "ops", f"http://127.0.0.1:{port}"),)
    async with listener, running(server, receivers=receivers):
        cluster.apply(notify=NOTIFY)
        await until(lambda: any("cannot send a notification" in line for line in lines))
    logger.remove(sink)
    assert not any("SECRET" in line for line in lines)


async def test_a_message_of_slack_has_one_line_without_control_sequences(
    server, cluster, receiver, tmp_path
):
    found = configured(tmp_path, "ops", receiver.url, message_format=MessageFormat.SLACK)
    async with running(server, receivers=(found,)):
        cluster.apply(notify=NOTIFY)
        await complete(cluster)
        await until(lambda: len(receiver.got) == 2)
    assert receiver.taken[1] == {
        "text": (
            "Succeeded: Job default/sample: 1 of 1 nodes completed "
            f"(JobReport {report(cluster)['metadata']['name']})"
        ),
        "mrkdwn": False,
    }


async def test_a_reconcile_that_began_before_does_not_have_it_sent_again(
    server, cluster, receiver, tmp_path
):
    receiver.delay_seconds = 5
    cluster.join("b")
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        cluster.apply(notify=NOTIFY)
        await until(cluster.is_settled)
        assert receiver.got
        server.delay_next("PATCH", "/pods/", 20)
        server.remove(PODS, cluster.pod("b")["metadata"]["name"])
        await asyncio.sleep(600)
    assert receiver.events == ["default/sample Started"]
    assert delivery(cluster)["sent"] == 1


async def test_a_receiver_is_not_notified_of_what_happened_before_the_job_named_the_event(
    server, cluster, receiver, tmp_path
):
    async with running(server, receivers=(configured(tmp_path, "ops", receiver.url),)):
        some = [{"receiver": "ops", "events": ["Started", "Succeeded"]}]
        cluster.apply(notify=some, suspend=False)
        await until(cluster.is_settled)
        cluster.apply(notify=some, suspend=True)
        await until(lambda: cluster.status().get("phase") == "Paused")
        cluster.apply(notify=some, suspend=False)
        await until(lambda: cluster.status().get("phase") == "Running")
        cluster.apply(notify=NOTIFY, suspend=False)
        await asyncio.sleep(60)
        assert receiver.events == ["default/sample Started"]
        await complete(cluster)
        await asyncio.sleep(60)
    assert receiver.events == ["default/sample Started", "default/sample Succeeded"]
