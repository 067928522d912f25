"""The real controller and the real terminator against a real API server, the rest simulated."""

import asyncio
from typing import Any

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES, PODS
from daemonset_job.kube.client.writes import DeleteOptions
from daemonset_job.runtime import write_pacer
from tests.integration.harness import condition, open_harness
from tests.integration.simulated_nodes import TaskRun, is_gated, owner_uid

pytestmark = pytest.mark.timeout(90)

DAEMON_SET = "sample-daemonset-job"
# Longer than any delay with which the controller looks at something again by itself.
QUIET_SECONDS = 3.0


def waiting(*nodes: str) -> tuple[asyncio.Event, Any]:
    """Return an event and a task that waits for it on these nodes, and prints the token at once
    on the others."""
    go = asyncio.Event()
    return go, lambda node, _start: TaskRun(after=go if node in nodes else None)


async def completed(harness, *nodes):
    """Return once exactly these nodes are in the Job's status as completed."""
    await harness.wait_job(
        lambda status: (status.get("nodes") or {}).get("completed") == len(nodes), f"{nodes} done"
    )
    report = await harness.report()
    assert {harness.nodes.short(name) for name in report["evidence"]} == set(nodes)


async def test_a_job_is_done_on_every_node_recorded_and_deleted(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        job = await harness.apply()
        await harness.wait_deleted(JOBS, "sample")
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET)

        report = await harness.report()
        assert report["spec"]["job"] == {"name": "sample", "uid": job["metadata"]["uid"]}
        assert report["status"]["phase"] == "Succeeded"
        assert report["status"]["nodes"]["completed"] == 3
        assert {harness.nodes.short(name) for name in report["evidence"]} == {"a", "b", "c"}
        states = await harness.node_states()
        assert {name: state["state"] for name, state in states.items()} == {
            "a": "Completed",
            "b": "Completed",
            "c": "Completed",
        }
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
        await harness.wait_events("Started", "Completed")
        assert len(await harness.events()) == 2

        async def no_pods():
            return not await harness.all(PODS)

        await harness.wait_until(no_pods, "pods gone")


async def test_the_status_shows_the_run_while_it_is_running(kube_env, namespace):
    go, behaviour = waiting("c")
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply()
        await completed(harness, "a", "b")

        job = await harness.find(JOBS, "sample")
        status = job["status"]
        assert status["phase"] == "Running"
        assert status["observedGeneration"] == job["metadata"]["generation"]
        assert status["nodes"] == {
            "desired": 3,
            "waiting": 0,
            "active": 1,
            "completed": 2,
            "failed": 0,
            "unreachable": 0,
            "completedNames": f"{harness.nodes.name('a')},{harness.nodes.name('b')}",
        }
        assert condition(status, "Progressing")["message"] == "2 of 3 nodes completed"
        assert not condition(status, "Complete")
        go.set()
        await harness.wait_deleted(JOBS, "sample")


async def test_nothing_is_written_while_nothing_changes(kube_env, namespace):
    _, behaviour = waiting("b", "c")
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply()
        await harness.apply({"image": "x", "nodes": {"include": ["nowhere"]}}, name="nowhere")
        await completed(harness, "a")
        await harness.wait_reason("Progressing", "NoMatchingNodes", "nowhere")
        await harness.apply({"image": "x", "suspend": True}, name="suspended")
        await harness.wait_reason("Suspended", "Suspended", "suspended")
        await harness.apply({"image": "x", "activeDeadlineSeconds": 1}, name="late")
        await harness.wait_reason("Failed", "DeadlineExceeded", "late")

        await harness.wait_gated(DAEMON_SET)
        # What only shows progress may be written this much later.
        await asyncio.sleep(write_pacer.MAX_SECONDS + 1)

        async def versions():
            return {
                raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"]
                for resource in (JOBS, JOB_REPORTS, DAEMON_SETS, PODS)
                for raw in await harness.all(resource)
            }

        before = await versions()
        writes = [len(process.requests.writes) for process in harness.processes]
        await asyncio.sleep(QUIET_SECONDS)

        late = [p.requests.writes[n:] for p, n in zip(harness.processes, writes, strict=True)]
        assert late == [[], []]
        assert await versions() == before


async def test_recreated_daemon_set_runs_no_completed_node_again(kube_env, namespace):
    go, behaviour = waiting("b", "c")
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply()
        await completed(harness, "a")

        async def all_at_work():
            return harness.nodes.executions == {"a": 1, "b": 1, "c": 1}

        await harness.wait_until(all_at_work, "all at work")
        old = await harness.find(DAEMON_SETS, DAEMON_SET)
        await harness.admin.delete(DAEMON_SETS, DAEMON_SET, namespace)

        async def again():
            new = await harness.find(DAEMON_SETS, DAEMON_SET)
            pods = await harness.pods()
            return (
                new is not None
                and new["metadata"]["uid"] != old["metadata"]["uid"]
                and is_gated(new["spec"]["template"])
                and len(pods) == 3
                and all(
                    owner_uid(p) == new["metadata"]["uid"] for each in pods.values() for p in each
                )
                and harness.nodes.executions == {"a": 1, "b": 2, "c": 2}
                and pods
            )

        pods = await harness.wait_until(again, "made again")
        assert is_gated(pods["a"][0])
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 2, "c": 2}
        await harness.wait_events("DaemonSetRecreated")


async def test_the_successor_of_a_completed_nodes_pod_waits_at_the_gate(kube_env, namespace):
    go, behaviour = waiting("c")
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply()
        await completed(harness, "a", "b")
        await harness.wait_gated(DAEMON_SET)
        first = (await harness.pods())["a"][0]
        await harness.admin.delete(PODS, first["metadata"]["name"], namespace)

        async def successor():
            pods = (await harness.pods()).get("a") or []
            return next((p for p in pods if p["metadata"]["uid"] != first["metadata"]["uid"]), None)

        assert is_gated(await harness.wait_until(successor, "a successor"))
        await asyncio.sleep(1)
        assert is_gated(await successor())
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}


async def test_drift_of_the_daemon_set_is_repaired(kube_env, namespace):
    _, behaviour = waiting("a")
    async with open_harness(kube_env, namespace, nodes=("a",), behaviour=behaviour) as harness:
        await harness.apply()
        await harness.wait_gated(DAEMON_SET)
        desired = await harness.find(DAEMON_SETS, DAEMON_SET)
        container = desired["spec"]["template"]["spec"]["containers"][0]
        drift = {
            "metadata": {"labels": {"job": "other"}},
            "spec": {
                "updateStrategy": {"type": "RollingUpdate"},
                "template": {
                    "spec": {
                        "schedulingGates": None,
                        "containers": [{**container, "image": "somebody/elses:1"}],
                    }
                },
            },
        }
        changed = await harness.change(DAEMON_SETS, DAEMON_SET, drift)
        assert changed["metadata"]["generation"] > desired["metadata"]["generation"]

        async def repaired():
            found = await harness.find(DAEMON_SETS, DAEMON_SET)
            return (
                found["spec"]["template"] == desired["spec"]["template"]
                and found["metadata"]["labels"] == desired["metadata"]["labels"]
                and found["spec"]["updateStrategy"]["type"] == "OnDelete"
            )

        async def started():
            return harness.nodes.executions["a"] > 0

        await harness.wait_until(repaired, "repaired")
        await harness.wait_until(started, "the task started")
        assert harness.nodes.executions == {"a": 1}


async def test_what_others_add_to_the_daemon_set_is_left_alone(kube_env, namespace):
    _, behaviour = waiting("a")
    async with open_harness(kube_env, namespace, nodes=("a",), behaviour=behaviour) as harness:
        await harness.apply()
        await harness.wait_gated(DAEMON_SET)
        addition = {"metadata": {"annotations": {"example.com/seen": "yes"}, "labels": {"x": "y"}}}
        writes = harness.processes[0].requests.writes
        changed = await harness.change(DAEMON_SETS, DAEMON_SET, addition)
        await asyncio.sleep(1.5)

        found = await harness.find(DAEMON_SETS, DAEMON_SET)
        assert found["spec"] == changed["spec"]
        assert found["metadata"]["labels"] == changed["metadata"]["labels"]
        assert found["metadata"]["annotations"] == changed["metadata"]["annotations"]
        applied = ("patch", "daemonsets", 200)
        assert harness.processes[0].requests.writes.count(applied) == writes.count(applied)


async def test_nodes_leave_and_enter_the_selection(kube_env, namespace):
    go, behaviour = waiting("b")
    async with open_harness(kube_env, namespace, behaviour=behaviour, terminator=True) as harness:
        a, b, c = map(harness.nodes.name, "abc")
        await harness.apply({"image": "x", "nodes": {"include": [a, b]}})
        await completed(harness, "a")
        await harness.wait_job(lambda status: status["nodes"]["active"] == 1, "b active")

        await harness.change(JOBS, "sample", {"spec": {"nodes": {"include": [a, c]}}})
        await harness.wait_deleted(JOBS, "sample")

        states = {node: state["state"] for node, state in (await harness.node_states()).items()}
        assert states == {"a": "Completed", "b": "Removed", "c": "Completed"}
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
        assert not go.is_set()


async def test_joining_node_runs_the_task_and_leaving_node_is_not_awaited(kube_env, namespace):
    go, behaviour = waiting("a", "b")
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply()
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("active") == 2, "both active")
        await harness.nodes.join("late")
        await completed(harness, "late")
        await harness.nodes.leave("b")
        await harness.wait_job(lambda status: status["nodes"]["desired"] == 2, "b has left")
        go.set()
        await harness.wait_deleted(JOBS, "sample")

        states = {node: state["state"] for node, state in (await harness.node_states()).items()}
        assert states == {"a": "Completed", "b": "Removed", "late": "Completed"}


async def test_a_job_without_nodes_waits_for_one(kube_env, namespace):
    async with open_harness(kube_env, namespace, nodes=()) as harness:
        await harness.apply()
        found = await harness.wait_reason("Progressing", "NoMatchingNodes")
        assert found["status"] == "False"
        await harness.nodes.join("first")
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"first": 1}


async def test_jobs_of_one_name_in_two_namespaces_do_not_meet(kube_env, namespace):
    other = f"{namespace}-other"
    async with open_harness(kube_env, namespace, other, nodes=("a", "b")) as harness:
        await harness.admin.create(NAMESPACES, {"metadata": {"name": other}})
        jobs = [await harness.apply(namespace=where) for where in (namespace, other)]
        for where in (namespace, other):
            await harness.wait_deleted(JOBS, "sample", namespace=where)

        for job, where in zip(jobs, (namespace, other), strict=True):
            (report,) = (await harness.admin.list(JOB_REPORTS, where))["items"]
            assert report["spec"]["job"]["uid"] == job["metadata"]["uid"]
            assert report["status"]["phase"] == "Succeeded"
            assert len(report["evidence"]) == 2
        assert harness.nodes.executions == {"a": 2, "b": 2}


@pytest.mark.parametrize("is_deleting", [False, True])
async def test_a_job_made_again_waits_until_the_former_daemon_set_is_gone(
    kube_env, namespace, is_deleting
):
    go, behaviour = waiting("a")
    async with open_harness(kube_env, namespace, nodes=("a",), behaviour=behaviour) as harness:
        await harness.apply()
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("active") == 1, "active")
        harness.nodes.collects_garbage = False
        if is_deleting:
            await harness.change(
                DAEMON_SETS, DAEMON_SET, {"metadata": {"finalizers": ["example.com/hold"]}}
            )
        await harness.admin.delete(JOBS, "sample", namespace)
        if is_deleting:
            foreground = DeleteOptions(propagation_policy="Foreground")
            await harness.admin.delete(DAEMON_SETS, DAEMON_SET, namespace, options=foreground)
        await harness.wait_deleted(JOBS, "sample")
        again = await harness.apply()
        found = await harness.wait_reason("Progressing", "PreviousRunEnding")
        assert DAEMON_SET in found["message"]

        go.set()
        harness.nodes.collects_garbage = True
        if is_deleting:
            await harness.change(DAEMON_SETS, DAEMON_SET, {"metadata": {"finalizers": None}})
        await harness.wait_deleted(JOBS, "sample")
        report = await harness.report(job_uid=again["metadata"]["uid"])
        assert report["status"]["phase"] == "Succeeded"
        assert len(await harness.all(JOB_REPORTS)) == 2
        phases = {raw["status"]["phase"] for raw in await harness.all(JOB_REPORTS)}
        assert phases == {"Succeeded", "Cancelled"}


def foreign(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": DAEMON_SET, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "theirs"}},
            "template": {
                "metadata": {"labels": {"app": "theirs"}},
                "spec": {"containers": [{"name": "theirs", "image": "theirs:1"}]},
            },
        },
    }


@pytest.mark.parametrize("labels", [{}, {"daemonset-job": "true"}], ids=["plain", "labelled"])
async def test_a_foreign_daemon_set_of_that_name_is_not_touched(
    kube_env, namespace, labels, monkeypatch
):
    # One without our label is in no cache: it is looked for again after a while.
    monkeypatch.setattr("job_controller.refusal_backoff.RETRY_SECONDS", (1.0, 1.0))
    async with open_harness(kube_env, namespace, nodes=("a",)) as harness:
        theirs = await harness.admin.create(DAEMON_SETS, foreign(labels), namespace)
        await harness.apply()
        found = await harness.wait_reason("Progressing", "DaemonSetAlreadyExists")
        assert DAEMON_SET in found["message"]
        await harness.wait_events("DaemonSetAlreadyExists")

        after = await harness.find(DAEMON_SETS, DAEMON_SET)
        assert after["spec"] == theirs["spec"]
        assert after["metadata"].get("labels", {}) == labels
        await harness.admin.delete(DAEMON_SETS, DAEMON_SET, namespace)
        await harness.wait_deleted(JOBS, "sample")


class Meddled(KubeClient):
    """A client before whose first write of a Job's status a user changes the Job."""

    meddle: Any = None

    async def merge_patch(self, resource, name, body, namespace=None, **how):
        meddle, Meddled.meddle = Meddled.meddle, None
        if meddle is not None:
            await meddle()
        return await super().merge_patch(resource, name, body, namespace, **how)


async def test_a_change_between_reading_and_starting_is_what_runs(kube_env, namespace):
    async with open_harness(kube_env, namespace, nodes=("a",), controller=False) as harness:

        async def meddle():
            await harness.change(JOBS, "sample", {"spec": {"image": "example/newer:2"}})

        Meddled.meddle = meddle
        controller = await harness.start_controller(Meddled)
        await harness.apply()
        await harness.wait_deleted(JOBS, "sample")

        writes = [call for call in controller.requests.writes if call[1] == "jobs/status"]
        assert writes[0] == ("patch", "jobs/status", 409)
        assert (await harness.report())["spec"]["image"] == "example/newer:2"


async def test_a_report_that_a_user_deletes_is_created_again(kube_env, namespace):
    go, behaviour = waiting("b")
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply()
        await completed(harness, "a")
        old = await harness.report()
        await harness.admin.delete(JOB_REPORTS, old["metadata"]["name"], namespace)

        async def again():
            new = await harness.report()
            return (
                new is not None
                and new["metadata"]["uid"] != old["metadata"]["uid"]
                and new.get("evidence")
            )

        evidence = await harness.wait_until(again, "made again, and read again")
        assert {harness.nodes.short(name) for name in evidence} == {"a"}
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1}


async def test_history_keeps_the_reports_of_former_runs(kube_env, namespace):
    async with open_harness(kube_env, namespace, nodes=("a",)) as harness:
        for _ in range(3):
            await harness.apply()
            await harness.wait_deleted(JOBS, "sample")
        reports = await harness.all(JOB_REPORTS)
        assert [raw["status"]["phase"] for raw in reports] == ["Succeeded"] * 3
        assert harness.nodes.executions == {"a": 3}
