import asyncio

import pytest

from daemonset_job.kube import recorder as events
from daemonset_job.kube.client.resource import EVENTS
from daemonset_job.kube.recorder import EventRecorder, ObjectReference

# Whatever is waited for in vain ends there instead of hanging.
pytestmark = pytest.mark.looptime(end=20_000)

JOB = ObjectReference("Job", "default", "clean", "uid-1", "daemonset.darkowlzz.space/v1beta1", "7")


@pytest.fixture
async def recorder(server, client):
    recorder = EventRecorder(client, component="job-controller", clock=server.clock)
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_event_shows_in_describe(server, recorder):
    recorder.emit(JOB, "Normal", "Completed", "3 of 3 nodes completed", "Complete")
    await asyncio.sleep(1)
    (event,) = server.list(EVENTS)
    assert event["involvedObject"] == {
        "kind": "Job",
        "namespace": "default",
        "name": "clean",
        "uid": "uid-1",
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Completed", "Complete")
    assert event["message"] == "3 of 3 nodes completed"
    assert event["source"] == {"component": "job-controller"}
    assert (event["count"], event["firstTimestamp"]) == (1, event["lastTimestamp"])


async def test_repetition_raises_the_count_and_moves_the_last_time(server, recorder):
    recorder.emit(JOB, "Warning", "Failed", "node-1")
    recorder.emit(JOB, "Warning", "Failed", "node-1")  # before the first is sent: one request
    await asyncio.sleep(60)
    assert server.count("POST") == 1
    recorder.emit(JOB, "Warning", "Failed", "node-1")
    recorder.emit(JOB, "Warning", "Failed", "node-2")
    await asyncio.sleep(1)
    first, second = sorted(server.list(EVENTS), key=lambda event: event["message"])
    assert (first["count"], second["count"]) == (3, 1)
    assert first["lastTimestamp"] > first["firstTimestamp"]


async def test_repetition_after_a_restart_goes_on_counting(server, client, recorder):
    recorder.emit(JOB, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    restarted = EventRecorder(client, component="job-controller", clock=server.clock)
    task = asyncio.create_task(restarted.run())
    restarted.emit(JOB, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    task.cancel()
    (event,) = server.list(EVENTS)
    assert event["count"] == 2


async def test_repetition_of_an_expired_event_creates_a_new_one(server, recorder):
    recorder.emit(JOB, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    server.remove(EVENTS, server.list(EVENTS)[0]["metadata"]["name"])
    recorder.emit(JOB, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    recorder.emit(JOB, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    (event,) = server.list(EVENTS)
    assert event["count"] == 2


async def test_message_is_one_clean_line_of_bounded_length(server, recorder):
    recorder.emit(JOB, "Warning", "Failed", "a\x1b[31mred\r\n\0b " + "x" * 5000)
    await asyncio.sleep(1)
    (event,) = server.list(EVENTS)
    assert event["message"].startswith("a [31mred b xxx")
    assert len(event["message"]) == 1024


async def test_long_names_make_valid_event_names(server, recorder):
    about = ObjectReference("Node", "", "n" * 253, "uid-n", "v1")
    recorder.emit(about, "Normal", "Cordoned", "cordoned")
    await asyncio.sleep(1)
    (event,) = server.list(EVENTS)
    assert len(event["metadata"]["name"]) <= 253
    assert event["metadata"]["namespace"] == "default"


async def test_object_that_talks_too_much_is_limited_and_others_are_not(server, recorder):
    for i in range(100):
        recorder.emit(JOB, "Warning", "Failed", f"{i}")
    other = ObjectReference("Job", "default", "other", "uid-2", "v1")
    recorder.emit(other, "Normal", "Started", "hello")
    await asyncio.sleep(1)
    assert len(server.list(EVENTS)) == 26
    assert recorder.dropped == 75
    await asyncio.sleep(601)
    for i in range(100, 110):
        recorder.emit(JOB, "Warning", "Failed", f"{i}")
    await asyncio.sleep(1)
    assert len(server.list(EVENTS)) == 28


async def test_queue_and_memory_are_bounded(client, server, monkeypatch):
    monkeypatch.setattr(events, "QUEUE_LIMIT", 5)
    monkeypatch.setattr(events, "MEMORY_LIMIT", 3)
    recorder = EventRecorder(client, component="c", clock=server.clock)
    for i in range(9):
        about = ObjectReference("Job", "default", f"job-{i}", f"uid-{i}", "v1")
        recorder.emit(about, "Normal", "Started", "hello")
    assert recorder.dropped == 4
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(1)
    task.cancel()
    assert len(server.list(EVENTS)) == 5
    assert len(recorder._counts) == len(recorder._buckets) == 3


def of_tenant(namespace, number):
    return ObjectReference("Job", namespace, f"job-{number}", f"{namespace}-{number}", "v1")


async def test_events_of_one_namespace_do_not_drop_those_of_another(client, server, monkeypatch):
    monkeypatch.setattr(events, "QUEUE_LIMIT", 10)
    recorder = EventRecorder(client, component="c", clock=server.clock)
    for number in range(50):
        recorder.emit(of_tenant("noisy", number), "Warning", "FailedCreate", "refused")
    for number in range(4):
        recorder.emit(of_tenant("quiet", number), "Normal", "Completed", "done")
    recorder.emit(of_tenant("noisy", 99), "Warning", "FailedCreate", "refused")
    task = asyncio.create_task(recorder.run())
    await asyncio.sleep(1)
    task.cancel()
    found = [request.path.split("/")[4] for request in server.requests]
    assert (found.count("quiet"), found.count("noisy")) == (4, 6)
    assert recorder.dropped == 45
    # They are sent in turn, as far as there are some of both.
    assert found[:8] == ["noisy", "quiet"] * 4


async def test_events_survive_failures_of_the_server(server, recorder):
    server.fail_next("POST", "/events", 503, times=2)
    recorder.emit(JOB, "Normal", "First", "first")
    await asyncio.sleep(30)
    server.fail_next("POST", "/events", 500, times=4)
    recorder.emit(JOB, "Normal", "Second", "second")
    await asyncio.sleep(60)
    server.fail_next("POST", "/events", 403)
    recorder.emit(JOB, "Normal", "Third", "third")
    recorder.emit(JOB, "Normal", "Fourth", "fourth")
    await asyncio.sleep(60)
    assert sorted(event["reason"] for event in server.list(EVENTS)) == ["First", "Fourth"]
    assert recorder.dropped == 2


async def test_namespaces_whose_writes_hang_do_not_delay_the_events_of_others(server, recorder):
    # More of them than are written to at a time.
    for number in range(8):
        server.delay_next("POST", f"/namespaces/slow-{number}/events", 60.0, times=100)
        for job in range(3):
            recorder.emit(of_tenant(f"slow-{number}", job), "Warning", "FailedCreate", "refused")
    recorder.emit(of_tenant("quick", 1), "Normal", "Completed", "done")
    await asyncio.sleep(2 * events.QUICK_SECONDS + 1)
    assert [event["metadata"]["namespace"] for event in server.list(EVENTS)] == ["quick"]
    # From then on their writes wait only for each other.
    recorder.emit(of_tenant("quick", 2), "Normal", "Completed", "done")
    await asyncio.sleep(0.5)
    assert len(server.list(EVENTS)) == 2
    await asyncio.sleep(3600)
    assert recorder.dropped == 24


async def test_namespace_is_slow_until_a_write_is_quick_again(server, recorder):
    server.delay_next("POST", "/namespaces/busy/events", 3.0, times=3)
    for job in range(4):
        recorder.emit(of_tenant("busy", job), "Normal", "Completed", "done")
    await asyncio.sleep(60)
    # Nothing is lost, in the order in which it came.
    assert [event["involvedObject"]["name"] for event in server.list(EVENTS)] == [
        f"job-{job}" for job in range(4)
    ]
    assert recorder.dropped == 0
    assert not recorder._slow_namespaces


async def test_retry_of_one_namespace_does_not_delay_others(server, recorder):
    server.fail_next("POST", "/namespaces/ill/events", 503, times=3)
    recorder.emit(of_tenant("ill", 1), "Normal", "First", "first")
    await asyncio.sleep(0.1)
    recorder.emit(of_tenant("ill", 2), "Normal", "Second", "second")  # no earlier retry for that
    recorder.emit(of_tenant("well", 1), "Normal", "Started", "hello")
    await asyncio.sleep(0.1)
    assert [event["reason"] for event in server.list(EVENTS)] == ["Started"]
    assert server.count("POST") == 2
    await asyncio.sleep(30)
    assert {event["reason"] for event in server.list(EVENTS)} == {"Started", "First", "Second"}
