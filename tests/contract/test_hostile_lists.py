"""What is read beside the caches has the bounds of the caches, whatever a tenant has stored."""

from unittest.mock import Mock

import pytest

from daemonset_job.kube.cache.pager import SMALL_PAGES_BYTES
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import (
    CONFIG_MAPS,
    JOB_REPORTS,
    JOBS,
    PODS,
    SCHEDULED_JOBS,
)
from job_controller.core.scheduled.decide import LISTED_LIMIT
from job_controller.dependencies import Dependencies
from job_controller.schedules.reconciler import ScheduleReconciler
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=20_000), pytest.mark.usefixtures("virtual_clock")]

# About as much as the API server stores of one object.
LARGE = "x" * 1_000_000
ON_A = {"spec": {"nodeName": "a"}}
ENDED = {"status": {"phase": "Failed"}}


@pytest.fixture
def sizes(monkeypatch):
    """The bytes of each page that was parsed, by resource."""
    found = []
    whole = KubeClient.page

    async def page(self, what, **options):
        result = await whole(self, what, **options)
        found.append((what.resource, len(result.items), result.size_bytes))
        return result

    monkeypatch.setattr(KubeClient, "page", page)
    return found


def assert_bounded(sizes, *resources):
    for resource, count, size in sizes:
        if resource in resources and count > 1:
            assert size <= SMALL_PAGES_BYTES[resource], (resource.plural, count, size)


def is_started(server):
    return any(not gated(pod) for pod in server.list(PODS, "daemonset-job=true"))


def schedule_reconciler(client, server):
    return ScheduleReconciler(
        Dependencies(
            client=client,
            events=Mock(),
            clock=server.clock,
            metrics=Mock(),
            settings=lambda: Mock(stop_message=""),
        ),
        Mock(),
    )


async def test_large_jobs_of_a_schedule_are_read_in_small_parts(server, client, sizes):
    made = server.put(
        SCHEDULED_JOBS,
        {
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"image": "a:v1"}}},
        },
    )
    owner = {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "ScheduledJob",
        "name": "nightly",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    label = {"daemonset.darkowlzz.space/scheduled-job": "nightly"}
    for number in range(8):
        meta = {"name": f"nightly-{number}", "labels": label, "ownerReferences": [owner]}
        server.put(JOBS, {"metadata": meta, "spec": {"image": "a:v1", "args": [LARGE]}})
    await schedule_reconciler(client, server).reconcile(("default", "nightly"))
    assert len(server.get(SCHEDULED_JOBS, "nightly")["status"]["active"]) == 8
    assert sizes
    assert_bounded(sizes, JOBS, JOB_REPORTS)


async def test_a_status_with_many_runs_costs_a_bounded_number_of_requests(server, client):
    active = [{"name": f"nightly-{number}", "uid": f"u{number}"} for number in range(3000)]
    server.put(
        SCHEDULED_JOBS,
        {
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"image": "a:v1"}}},
            "status": {"active": active},
        },
    )
    await schedule_reconciler(client, server).reconcile(("default", "nightly"))
    assert len(server.requests) <= 2 * LISTED_LIMIT


async def test_large_pods_with_an_exclusive_key_are_read_in_small_parts(server, sizes):
    cluster = FakeCluster(server)
    cluster.join("a")
    for number in range(6):
        meta = {
            "name": f"forged-{number}",
            "labels": {"daemonset.darkowlzz.space/exclusive": "disk"},
            "annotations": {"note": LARGE},
        }
        server.put(PODS, {"metadata": meta, **ON_A, **ENDED})
    async with running(server):
        cluster.apply(rollout={"exclusive": "disk"})
        await until(lambda: is_started(server))
    assert sum(count for resource, count, _ in sizes if resource == PODS) >= 6
    assert_bounded(sizes, PODS)


async def test_large_pods_on_a_node_that_is_drained_are_read_in_small_parts(server, sizes):
    cluster = FakeCluster(server)
    cluster.join("a")
    uid = server.put(CONFIG_MAPS, {"metadata": {"name": "owner"}})["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": uid}
    for number in range(6):
        meta = {"name": f"big-{number}", "annotations": {"note": LARGE}}
        server.put(PODS, {"metadata": meta | {"name": f"ended-{number}"}, **ON_A, **ENDED})
        meta["ownerReferences"] = [owner | {"controller": True}]
        server.put(PODS, {"metadata": meta, **ON_A})
    async with running(server):
        cluster.apply(drain={"timeoutSeconds": 60})
        await until(lambda: is_started(server), 50)
    assert sum(count for resource, count, _ in sizes if resource == PODS) >= 6
    assert_bounded(sizes, PODS)
