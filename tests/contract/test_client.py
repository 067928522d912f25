import asyncio
import re

import pytest

from daemonset_job.kube.client.answers import Found
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from daemonset_job.kube.client.pod_logs import PodLogOptions
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_STATUS, JOBS, NODES, PODS
from daemonset_job.kube.client.selection import Selection
from daemonset_job.kube.client.writes import DeleteOptions
from tests.contract.fake_api import FakeApiServer
from tests.contract.fake_faults import Fault

LOG = PodLogOptions("job-container")


def job(name: str = "clean", **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": spec or {"image": "busybox"}}


async def test_create_get_list_and_delete_round_trip(server, client):
    created = await client.create(JOBS, job(), "default")
    assert created["kind"] == "Job"
    assert await client.get(JOBS, "clean", "default") == created
    listed = await client.list(JOBS)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["clean"]
    await client.delete(JOBS, "clean", "default", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound) as caught:
        await client.get(JOBS, "clean", "default")
    assert "GET /apis/daemonset.darkowlzz.space/v1beta1/namespaces/default/jobs/clean" in str(
        caught.value
    )


async def test_find_returns_the_one_of_that_name_and_of_which_time_that_is(server, client):
    created = await client.create(JOBS, job(), "default")
    found = await client.find(JOBS, "clean", "default")
    assert found.item["metadata"] == created["metadata"]
    other = await client.create(JOBS, job("other"), "default")
    again = await client.find(JOBS, "clean", "default")
    assert again.item == found.item
    assert again.resource_version == other["metadata"]["resourceVersion"]
    absent = await client.find(JOBS, "cle", "default")
    assert absent == Found(None, again.resource_version)
    # It takes no other right than to list.
    assert server.count("GET", "/jobs/") == 0


async def test_a_redirect_is_an_error_and_never_the_answer(server, client):
    page = b"done\n"
    server.faults.append(Fault("GET", re.compile("/pods"), 2, 302, body=page))
    with pytest.raises(KubeError) as caught:
        await client.list(PODS)
    assert caught.value.status == 302
    with pytest.raises(KubeError):
        await client.read_pod_log("default", "a", LOG, limit_bytes=100)


async def test_create_of_a_taken_name_is_already_exists(client):
    await client.create(JOBS, job(), "default")
    with pytest.raises(AlreadyExists) as caught:
        await client.create(JOBS, job(), "default")
    assert not isinstance(caught.value, Conflict)


async def test_delete_with_another_uid_is_a_conflict_and_deletes_nothing(server, client):
    await client.create(JOBS, job(), "default")
    with pytest.raises(Conflict):
        await client.delete(JOBS, "clean", "default", uid="another")
    assert server.exists(JOBS, "clean")


async def test_status_and_spec_are_written_apart(server, client):
    await client.create(JOBS, job(), "default")
    await client.merge_patch(JOBS, "clean", {"status": {"phase": "X"}}, "default")
    assert "status" not in server.get(JOBS, "clean")
    body = {"status": {"phase": "Running"}, "spec": {"image": "other"}}
    await client.merge_patch(JOB_STATUS, "clean", body, "default")
    stored = server.get(JOBS, "clean")
    assert stored["status"] == {"phase": "Running"}
    assert stored["spec"] == {"image": "busybox"}
    assert stored["metadata"]["generation"] == 1


async def test_patch_with_an_old_resource_version_is_a_conflict(client):
    created = await client.create(JOBS, job(), "default")
    await client.merge_patch(JOBS, "clean", {"spec": {"image": "b"}}, "default")
    stale = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict):
        await client.merge_patch(JOBS, "clean", stale, "default")
    with pytest.raises(Conflict):
        await client.replace(JOBS, "clean", created, "default")


async def test_apply_creates_updates_and_removes_what_is_left_out(server, client):
    body = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1, "y": 2}}
    await client.apply(DAEMON_SETS, "d", body, "default", field_manager="us")
    server.patch(DAEMON_SETS, "d", {"metadata": {"labels": {"theirs": "1"}}})
    again = await client.apply(DAEMON_SETS, "d", {"spec": {"x": 1}}, "default", field_manager="us")
    assert again["spec"] == {"x": 1}
    assert again["metadata"]["labels"] == {"theirs": "1"}
    request = server.requests[-1]
    assert request.query == {"fieldManager": "us", "force": "true", "fieldValidation": "Strict"}
    assert request.body["kind"] == "DaemonSet"
    same = await client.apply(DAEMON_SETS, "d", {"spec": {"x": 1}}, "default", field_manager="us")
    assert same["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]


async def test_apply_takes_the_fields_of_other_managers(client):
    await client.apply(DAEMON_SETS, "d", {"spec": {"x": 1}}, "default", field_manager="them")
    ours = await client.apply(DAEMON_SETS, "d", {"spec": {"x": 2}}, "default", field_manager="us")
    assert ours["spec"] == {"x": 2}


async def test_apply_unless_conflict_leaves_the_fields_of_other_managers(server, client):
    await client.apply(DAEMON_SETS, "d", {"spec": {"x": 1}}, "default", field_manager="them")
    us = {"field_manager": "us"}
    with pytest.raises(Conflict):
        await client.apply_unless_conflict(DAEMON_SETS, "d", {"spec": {"x": 2}}, "default", **us)
    body = {"spec": {"x": 1, "y": 2}}
    same = await client.apply_unless_conflict(DAEMON_SETS, "d", body, "default", **us)
    assert same["spec"] == {"x": 1, "y": 2}
    assert "force" not in server.requests[-1].query


async def test_eviction_is_a_create_on_the_subresource(server, client):
    server.put(PODS, {"metadata": {"name": "p"}})
    await client.create(PODS.with_subresource("eviction"), {}, "default", name="p")
    assert not server.exists(PODS, "p")


async def test_list_selects_and_pages(server, client):
    for i in range(5):
        labels = {"n": str(i), "odd": str(i % 2)}
        server.put(NODES, {"metadata": {"name": f"node-{i}", "labels": labels}})
    odd = await client.list(NODES, label_selector="odd=1,n in (1,3)")
    assert [item["metadata"]["name"] for item in odd["items"]] == ["node-1", "node-3"]
    one = await client.list(NODES, field_selector="metadata.name=node-2", metadata_only=True)
    assert [item["kind"] for item in one["items"]] == ["PartialObjectMetadata"]
    page = await client.page(Selection(NODES), limit=3)
    rest = await client.page(Selection(NODES), limit=3, continue_=page.continue_)
    assert [item["metadata"]["name"] for item in rest.items] == ["node-3", "node-4"]


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", BadRequest),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (405, "MethodNotAllowed", KubeError),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
        (504, "Timeout", Unavailable),
    ],
)
async def test_every_status_has_its_error(server, client, status, reason, kind):
    server.fail_next("GET", "/nodes/", status, times=2, reason=reason, message="because")
    with pytest.raises(KubeError) as caught:
        await client.get(NODES, "n")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert caught.value.message == "because"


@pytest.mark.looptime
async def test_throttled_read_and_patch_wait_as_long_as_the_server_asks(server, client):
    server.put(NODES, {"metadata": {"name": "n"}})
    server.fail_next("GET", "/nodes/n", 429, times=2, retry_after=2)
    server.fail_next("PATCH", "/nodes/n", 503, retry_after=1)
    started = asyncio.get_running_loop().time()
    await client.get(NODES, "n")
    await client.merge_patch(NODES, "n", {"metadata": {"labels": {"a": "b"}}})
    assert asyncio.get_running_loop().time() - started == pytest.approx(5, abs=0.1)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("method", "times", "retry_after", "requests"),
    [
        ("GET", 9, 1, 4),  # three repetitions and no more
        ("GET", 1, 60, 1),  # too long: the caller's backoff is the better place
        ("GET", 1, None, 1),  # no wish, no wait
        ("POST", 1, 1, 1),  # never
    ],
)
async def test_throttled_surfaces_with_retry_after(
    server, client, method, times, retry_after, requests
):
    server.fail_next(method, "/nodes", 429, times=times, retry_after=retry_after)
    call = client.get(NODES, "n") if method == "GET" else client.create(NODES, {"metadata": {}})
    with pytest.raises(Throttled) as caught:
        await call
    assert caught.value.retry_after_seconds == retry_after
    assert len(server.requests) == requests


@pytest.mark.looptime
async def test_wait_for_a_busy_server_never_outlives_the_timeout(server, client):
    server.fail_next("GET", "/nodes", 429, times=9, retry_after=3)
    with pytest.raises(Throttled):
        await client.get(NODES, "n", timeout_seconds=5)
    assert asyncio.get_running_loop().time() < 5


async def test_reset_read_is_repeated_once(server, client):
    server.put(NODES, {"metadata": {"name": "n"}})
    server.reset_next("GET", "/nodes/n")
    assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"
    server.reset_next("GET", "/nodes/n", times=9)
    server.requests.clear()
    with pytest.raises(Unavailable) as caught:
        await client.get(NODES, "n")
    assert caught.value.status == 0
    assert server.count("GET") == 2


async def test_write_with_a_lost_answer_is_unavailable_and_not_repeated(server, client):
    server.lose_answer_next("POST", "/jobs")
    with pytest.raises(Unavailable):
        await client.create(JOBS, job(), "default")
    assert server.exists(JOBS, "clean")
    assert server.count("POST") == 1
    server.lose_answer_next("PATCH", "/jobs/clean")
    with pytest.raises(Unavailable):
        await client.merge_patch(JOBS, "clean", {"spec": {"image": "b"}}, "default")
    assert server.count("PATCH") == 1
    server.lose_answer_next("PUT", "/jobs/clean")
    with pytest.raises(Unavailable):
        await client.replace(JOBS, "clean", server.get(JOBS, "clean") | {"spec": {}}, "default")
    assert server.count("PUT") == 1
    server.lose_answer_next("DELETE", "/jobs/clean")
    with pytest.raises(Unavailable):
        await client.delete(JOBS, "clean", "default")
    assert server.count("DELETE") == 1


@pytest.mark.looptime
async def test_slow_answer_is_a_timeout(server, client):
    server.delay_next("GET", "/nodes/n", seconds=100)
    with pytest.raises(Unavailable) as caught:
        await client.get(NODES, "n", timeout_seconds=10)
    assert caught.value.reason == "Timeout"
    assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)


@pytest.mark.looptime
async def test_cancelled_request_frees_its_connection(server):
    async with KubeClient(server.url, connections=1) as client:
        server.put(NODES, {"metadata": {"name": "n"}})
        server.delay_next("GET", "/nodes/n", seconds=1000)
        task = asyncio.create_task(client.get(NODES, "n"))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"


async def test_no_server_on_the_port_is_unavailable():
    async with KubeClient("http://127.0.0.1:1") as client:
        with pytest.raises(Unavailable) as caught:
            await client.get(NODES, "n")
    assert caught.value.status == 0
    assert caught.value.is_retryable


async def test_requests_are_reported_with_verb_resource_and_status(server):
    seen: list[tuple[str, str, int]] = []
    async with KubeClient(
        server.url, on_request=lambda verb, what, code, _: seen.append((verb, what, code))
    ) as client:
        server.log("p").write("done")
        await client.create(JOBS, job(), "default")
        await client.merge_patch(JOB_STATUS, "clean", {"status": {}}, "default")
        with pytest.raises(NotFound):
            await client.get(NODES, "n")
        await client.read_pod_log("default", "p", LOG, limit_bytes=10)
        async with client.watch(Selection(JOBS), resource_version="0"):
            pass
    assert seen == [
        ("create", "jobs", 201),
        ("patch", "jobs/status", 200),
        ("get", "nodes", 404),
        ("get", "pods/log", 200),
        ("watch", "jobs", 200),
    ]


async def test_streams_leave_the_connections_for_requests_alone(server: FakeApiServer):
    server.put(NODES, {"metadata": {"name": "n"}})
    async with (
        KubeClient(server.url, connections=1) as client,
        client.watch(Selection(NODES), resource_version="0"),
        client.watch(Selection(PODS), resource_version="0"),
    ):
        await client.get(NODES, "n", timeout_seconds=1)


async def test_names_are_encoded_and_cannot_leave_their_collection(server, client):
    for name in ("", ".", "..", "a/b", "a%2Fb"):
        with pytest.raises(ValueError, match="not a path segment"):
            await client.delete(JOBS, name, "default")
    await client.create(JOBS, job("system:node"), "default")
    await client.get(JOBS, "system:node", "default")
    assert server.requests[-1].path.endswith("/jobs/system%3Anode")


async def test_large_body_is_sent_whole(server, client):
    body = job(script="x" * 1_400_000)
    await client.create(JOBS, body, "default")
    assert len(server.get(JOBS, "clean")["spec"]["script"]) == 1_400_000


async def test_delete_says_how(server, client):
    server.put(NODES, {"metadata": {"name": "n", "finalizers": ["x"]}})
    version = server.get(NODES, "n")["metadata"]["resourceVersion"]
    options = DeleteOptions("Orphan", grace_period_seconds=0)
    raw = await client.delete(NODES, "n", resource_version=version, options=options)
    assert raw["metadata"]["deletionTimestamp"]
    assert server.requests[-1].body["propagationPolicy"] == "Orphan"
    assert server.requests[-1].body["gracePeriodSeconds"] == 0


@pytest.mark.parametrize("body", [b"<html>", b"[]"])
async def test_answer_that_is_no_object_is_unavailable(client, monkeypatch, body):
    async def send(call):
        return body

    monkeypatch.setattr(client._transport, "send", send)
    with pytest.raises(Unavailable) as caught:
        await client.get(NODES, "n")
    assert caught.value.reason == "MalformedAnswer"
