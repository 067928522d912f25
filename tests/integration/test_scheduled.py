"""ScheduledJobs against a real API server: what is refused, and the runs of a real controller."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from daemonset_job.api.times import format_time
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import (
    CONFIG_MAPS,
    JOB_REPORTS,
    JOBS,
    SCHEDULED_JOB_STATUS,
    SCHEDULED_JOBS,
)
from job_controller.core.scheduled.starts import run_name
from tests.integration.harness import SYSTEM, open_harness
from tests.integration.jobs import API_VERSION
from tests.integration.kube_env import KubeEnv, User
from tests.integration.simulated_nodes import TaskRun
from tests.integration.test_admission import grant

pytestmark = pytest.mark.timeout(200)

RESOURCE = "scheduledjobs.daemonset.darkowlzz.space"
STOP = "daemonset-job-stop"
SHARD = "daemonset.darkowlzz.space/shard"
SCHEDULED = "daemonset.darkowlzz.space/scheduled-job"


def scheduled(namespace: str, template: dict[str, Any] | None = None, **spec: Any) -> dict:
    """Return a ScheduledJob; without a schedule, one that starts each minute."""
    run = {"image": "example/task:v1"} if template is None else template
    return {
        "apiVersion": API_VERSION,
        "kind": "ScheduledJob",
        "metadata": {"name": "sweep", "namespace": namespace},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": run}, **spec},
    }


# --- what is refused -----------------------------------------------------------------------


def test_the_shortest_one_gets_the_defaults_of_a_cron_job(kube_env: KubeEnv, namespace):
    kube_env.apply(scheduled(namespace))
    found = json.loads(kube_env.kubectl("get", "dsjs", "sweep", "-n", namespace, "-o", "json"))
    spec = found["spec"]
    assert (spec["timeZone"], spec["concurrencyPolicy"]) == ("UTC", "Allow")
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 1)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"schedule": "0 2 * *"}, "spec.schedule must have five fields"),
        ({"schedule": "TZ=UTC 0 2 * * *"}, "set spec.timeZone"),
        ({"timeZone": "Europe/Ber lin"}, "spec.timeZone must be the name of a time zone"),
        ({"concurrencyPolicy": "Never"}, "Unsupported value"),
        ({"startingDeadlineSeconds": -1}, "startingDeadlineSeconds"),
        ({"jobTemplate": {"spec": {}}}, "spec.jobTemplate.spec.image is required"),
        (
            {"jobTemplate": {"spec": {"image": "a", "mountPath": "tmp"}}},
            "spec.jobTemplate.spec.mountPath must be an absolute path",
        ),
        ({"jobTemplate": {"spec": {"image": "a", "wrong": 1}}}, "spec.jobTemplate.spec.wrong"),
        (
            {"jobTemplate": {"spec": {"image": "a", "completion": {"policy": "Continuous"}}}},
            "spec.jobTemplate.spec.completion.policy must be Once",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_field(kube_env: KubeEnv, namespace, spec, message):
    body = json.dumps(scheduled(namespace, **spec))
    assert message in kube_env.refusal(
        "create", "--validate=strict", "-f", "-", "-n", namespace, input=body
    )


def test_a_name_has_room_for_the_minute(kube_env: KubeEnv, namespace):
    body = scheduled(namespace)
    body["metadata"]["name"] = "a" * 53
    refusal = kube_env.refusal("create", "-f", "-", input=json.dumps(body))
    assert "metadata.name must have at most 52 characters" in refusal


def test_the_crd_can_be_applied_without_server_side_apply(kube_env: KubeEnv):
    """The annotation of kubectl apply takes 256 KiB."""
    kube_env.kubectl("apply", "--dry-run=server", "-f", "crds/scheduledjobs.yaml")


# --- who may -------------------------------------------------------------------------------


def test_it_is_no_way_around_the_rights_for_jobs(kube_env: KubeEnv, namespace):
    user = User("scheduler")
    grant(kube_env, namespace, user, ("*", RESOURCE))
    body = json.dumps(scheduled(namespace))
    refusal = kube_env.refusal("create", "-f", "-", input=body, user=user)
    assert "needs the right to create DaemonSets" in refusal
    kube_env.apply(scheduled(namespace))
    patch = json.dumps({"spec": {"jobTemplate": {"spec": {"image": "other"}}}})
    refusal = kube_env.refusal(
        "patch", "dsjs", "sweep", "-n", namespace, "--type=merge", "-p", patch, user=user
    )
    assert "needs the right to create DaemonSets" in refusal
    kube_env.kubectl("delete", "dsjs", "sweep", "-n", namespace, user=user)


@pytest.mark.parametrize(
    "template",
    [
        {"image": "a", "onSuccess": {"labels": {"example.com/a": "b"}}},
        {"image": "a", "results": [{"name": "a", "label": "example.com/a"}]},
    ],
)
def test_what_changes_nodes_needs_the_right_to_do_so(kube_env: KubeEnv, namespace, template):
    user = User("labeller")
    grant(kube_env, namespace, user, ("*", RESOURCE), ("create", "daemonsets.apps"))
    kube_env.apply(scheduled(namespace), user=user)
    body = json.dumps(scheduled(namespace, template))
    assert "needs the right to patch nodes" in kube_env.refusal(
        "apply", "-f", "-", input=body, user=user
    )


# --- runs ----------------------------------------------------------------------------------


class DeadError(Exception):
    """The process is dead, and sends nothing more."""


def dies_after(write: int):
    """Return a kind of client that dies with its process after a number of writes of this kind."""

    class Client(KubeClient):
        count = 0

        async def _after(self, answer):
            Client.count += 1
            if Client.count >= write:
                raise DeadError
            return answer

        async def create(self, resource, *args, **options):
            if Client.count >= write:
                raise DeadError
            answer = await super().create(resource, *args, **options)
            return await self._after(answer) if resource == JOBS else answer

        async def merge_patch(self, resource, *args, **options):
            if Client.count >= write:
                raise DeadError
            answer = await super().merge_patch(resource, *args, **options)
            return await self._after(answer) if resource == SCHEDULED_JOB_STATUS else answer

    return Client


async def apply(harness, **spec: Any):
    return await harness.admin.create(
        SCHEDULED_JOBS, scheduled(harness.namespace, **spec), harness.namespace
    )


async def status(harness) -> dict[str, Any]:
    found = await harness.admin.get(SCHEDULED_JOBS, "sweep", harness.namespace)
    return found.get("status") or {}


async def reason(harness) -> str:
    conditions = (await status(harness)).get("conditions") or [{}]
    return str(conditions[0].get("reason"))


async def jobs(harness) -> list[str]:
    found = await harness.admin.list(JOBS, harness.namespace)
    return sorted(job["metadata"]["name"] for job in found["items"])


async def runs(harness) -> list[str]:
    """Return the names of all Jobs that ever ran, one for each run."""
    found = await harness.admin.list(JOB_REPORTS, harness.namespace)
    return sorted(report["spec"]["job"]["name"] for report in found["items"])


async def test_a_run_completes_and_is_not_started_again_by_a_new_controller(kube_env, namespace):
    """The Job deletes itself within a second; its report says that it ran, and when."""
    async with open_harness(kube_env, namespace, controller=False) as harness:
        # It dies between the creation of the Job and the write that says so.
        dying = await harness.start_controller(dies_after(2))
        await apply(harness)
        harness.processes.remove(dying)

        async def is_created():
            return await jobs(harness)

        await harness.wait_until(is_created, "a Job is created", seconds=75)
        await asyncio.sleep(1)
        dying.task.cancel()
        await asyncio.wait({dying.task})
        await dying.client.close()
        (name,) = await jobs(harness)
        assert "lastScheduleTime" not in await status(harness)

        # Another one lets the run complete, and the Job is gone before a third one looks.
        await harness.start_controller()

        async def succeeded():
            return (await status(harness)).get("lastSuccessfulTime")

        await harness.wait_until(succeeded, "the run succeeded")
        await harness.wait_deleted(JOBS, name)
        last = datetime.fromisoformat((await status(harness))["lastScheduleTime"])
        assert run_name("sweep", last) in await runs(harness)
        await harness.stop(harness.processes[-1])
        await harness.start_controller()
        await asyncio.sleep(2)
        found = await runs(harness)
        assert name in found
        assert len(found) == len(set(found))


@pytest.mark.on_demand
async def test_a_start_is_not_done_again_when_only_its_report_is_left(kube_env, namespace):
    """The worst moment: created, completed and deleted before its start was recorded."""
    async with open_harness(kube_env, namespace, controller=False) as harness:
        created = await apply(harness)
        await asyncio.sleep(60.5 - datetime.now(UTC).second)
        due = datetime.now(UTC).replace(second=0, microsecond=0)
        name = run_name("sweep", due)
        report = {
            "apiVersion": API_VERSION,
            "kind": "JobReport",
            "metadata": {
                "name": f"{name}-r",
                "labels": {"job": name, SHARD: "0", SCHEDULED: "sweep"},
            },
            "spec": {"job": {"name": name, "uid": "gone"}, "image": "a"},
        }
        await harness.admin.create(JOB_REPORTS, report, namespace)
        await harness.start_controller()

        async def is_recorded():
            return (await status(harness)).get("lastScheduleTime") == format_time(due)

        await harness.wait_until(is_recorded, "the start is recorded")
        assert created["metadata"]["uid"]
        assert await jobs(harness) == []


@pytest.mark.on_demand
async def test_forbid_waits_and_deletion_takes_the_jobs_owner(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=lambda _node, _start: TaskRun(after=go)
    ) as harness:
        created = await apply(harness, concurrencyPolicy="Forbid")

        async def waits():
            return await reason(harness) == "WaitingForRun"

        await harness.wait_until(waits, "the second start waits", seconds=135)
        (first,) = await jobs(harness)
        found = await harness.admin.get(JOBS, first, namespace)
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (created["metadata"]["uid"], True)
        assert [run["name"] for run in (await status(harness))["active"]] == [first]
        go.set()

        async def is_next():
            return [name for name in await runs(harness) if name != first]

        await harness.wait_until(is_next, "the next run starts at once")


async def test_suspend_and_mistakes_are_in_the_condition(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        await apply(harness, suspend=True)

        async def has(expected):
            return await reason(harness) == expected

        await harness.wait_until(lambda: has("Suspended"), "suspended")
        change = {"spec": {"suspend": False, "timeZone": "Mars/Phobos"}}
        await harness.admin.merge_patch(SCHEDULED_JOBS, "sweep", change, namespace)
        await harness.wait_until(lambda: has("InvalidSchedule"), "invalid")
        (found,) = (await status(harness))["conditions"]
        assert found["message"].startswith('spec.timeZone: there is no time zone "Mars/Phobos"')
        assert await jobs(harness) == []


async def test_the_stop_of_all_jobs_holds_jobs_and_schedules(kube_env, namespace):
    body = {"metadata": {"name": STOP}, "data": {"stop": "true", "reason": "bad \x1b[31mkernel"}}
    async with open_harness(kube_env, namespace, controller=False, terminator=False) as harness:
        await harness.admin.create(CONFIG_MAPS, body, SYSTEM)
        try:
            await harness.start_controller(lease_namespace=SYSTEM)
            await harness.start_terminator()
            await harness.apply()

            async def is_stopped():
                job = await harness.admin.get(JOBS, "sample", namespace)
                found = (job.get("status") or {}).get("conditions") or ()
                return next((c for c in found if c["reason"] == "ClusterStopped"), None)

            await harness.wait_until(is_stopped, "the Job says that all are stopped")
            found = await is_stopped()
            assert "stopped all Jobs of this cluster (bad [31mkernel)" in found["message"]
            await apply(harness)

            async def is_held():
                return await reason(harness) == "ClusterStopped"

            await harness.wait_until(is_held, "the ScheduledJob says so too")
            assert harness.nodes.executions == {}
            await harness.admin.merge_patch(CONFIG_MAPS, STOP, {"data": {"stop": "false"}}, SYSTEM)
            await harness.wait_deleted(JOBS, "sample")
            assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
        finally:
            await harness.admin.delete(CONFIG_MAPS, STOP, SYSTEM)
