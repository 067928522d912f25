"""The real controller and the real terminator against a real API server, the rest played."""

import asyncio
from typing import Any

import pytest

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import DAEMON_SETS, JOB_REPORTS, JOBS, NAMESPACES, PODS
from job_controller.reconciler import PROGRESS_SECONDS
from tests.integration.playing import Run, is_gated, owner_uid
from tests.integration.stage import condition, stage

pytestmark = pytest.mark.timeout(90)

SET = "sample-daemonset-job"
# Longer than any delay with which the controller looks at something again by itself.
QUIET_SECONDS = 3.0


def waiting(*nodes: str) -> tuple[asyncio.Event, Any]:
    """Return an event and a task that waits for it on these nodes, and prints the token at once
    on the others."""
    go = asyncio.Event()
    return go, lambda node, _start: Run(after=go if node in nodes else None)


async def completed(play, *nodes):
    """Return once exactly these nodes stand in the Job's status as completed."""
    await play.job_until(
        lambda status: (status.get("nodes") or {}).get("completed") == len(nodes), f"{nodes} done"
    )
    report = await play.report()
    assert {play.world.short(name) for name in report["evidence"]} == set(nodes)


async def test_a_job_is_done_on_every_node_recorded_and_deleted(kube_env, namespace):
    async with stage(kube_env, namespace) as play:
        job = await play.apply()
        await play.gone(JOBS, "sample")
        await play.gone(DAEMON_SETS, SET)

        report = await play.report()
        assert report["spec"]["job"] == {"name": "sample", "uid": job["metadata"]["uid"]}
        assert report["status"]["phase"] == "Succeeded"
        assert report["status"]["nodes"]["completed"] == 3
        assert {play.world.short(name) for name in report["evidence"]} == {"a", "b", "c"}
        states = await play.node_states()
        assert {name: state["state"] for name, state in states.items()} == {
            "a": "Completed",
            "b": "Completed",
            "c": "Completed",
        }
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}
        await play.told("Started", "Completed")
        assert len(await play.events()) == 2

        async def no_pods():
            return not await play.all(PODS)

        await play.until(no_pods, "pods gone")


async def test_the_status_tells_the_run_while_it_goes_on(kube_env, namespace):
    go, behaviour = waiting("c")
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply()
        await completed(play, "a", "b")

        job = await play.find(JOBS, "sample")
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
            "completedNames": f"{play.world.name('a')},{play.world.name('b')}",
        }
        assert condition(status, "Progressing")["message"] == "2 of 3 nodes completed"
        assert not condition(status, "Complete")
        go.set()
        await play.gone(JOBS, "sample")


async def test_nothing_is_written_while_nothing_changes(kube_env, namespace):
    _, behaviour = waiting("b", "c")
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply()
        await play.apply({"image": "x", "nodes": {"include": ["nowhere"]}}, name="nowhere")
        await completed(play, "a")
        await play.reason("Progressing", "NoMatchingNodes", "nowhere")
        await play.apply({"image": "x", "suspend": True}, name="suspended")
        await play.reason("Suspended", "Suspended", "suspended")
        await play.apply({"image": "x", "activeDeadlineSeconds": 1}, name="late")
        await play.reason("Failed", "DeadlineExceeded", "late")

        await play.shut(SET)
        # What only tells progress may be written this much later.
        await asyncio.sleep(PROGRESS_SECONDS + 1)

        async def versions():
            return {
                raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"]
                for resource in (JOBS, JOB_REPORTS, DAEMON_SETS, PODS)
                for raw in await play.all(resource)
            }

        before = await versions()
        writes = [len(process.requests.writes) for process in play.processes]
        await asyncio.sleep(QUIET_SECONDS)

        late = [p.requests.writes[n:] for p, n in zip(play.processes, writes, strict=True)]
        assert late == [[], []]
        assert await versions() == before


async def test_a_deleted_daemon_set_is_made_again_and_completed_nodes_do_not_run_again(
    kube_env, namespace
):
    go, behaviour = waiting("b", "c")
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply()
        await completed(play, "a")

        async def all_at_work():
            return play.world.executions == {"a": 1, "b": 1, "c": 1}

        await play.until(all_at_work, "all at work")
        old = await play.find(DAEMON_SETS, SET)
        await play.admin.delete(DAEMON_SETS, SET, namespace)

        async def again():
            new = await play.find(DAEMON_SETS, SET)
            pods = await play.pods()
            return (
                new is not None
                and new["metadata"]["uid"] != old["metadata"]["uid"]
                and is_gated(new["spec"]["template"])
                and len(pods) == 3
                and all(
                    owner_uid(p) == new["metadata"]["uid"] for each in pods.values() for p in each
                )
                and play.world.executions == {"a": 1, "b": 2, "c": 2}
                and pods
            )

        pods = await play.until(again, "made again")
        assert is_gated(pods["a"][0])
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 2, "c": 2}
        await play.told("DaemonSetRecreated")


async def test_the_successor_of_a_completed_nodes_pod_waits_at_the_gate(kube_env, namespace):
    go, behaviour = waiting("c")
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply()
        await completed(play, "a", "b")
        await play.shut(SET)
        first = (await play.pods())["a"][0]
        await play.admin.delete(PODS, first["metadata"]["name"], namespace)

        async def successor():
            pods = (await play.pods()).get("a") or []
            return next((p for p in pods if p["metadata"]["uid"] != first["metadata"]["uid"]), None)

        assert is_gated(await play.until(successor, "a successor"))
        await asyncio.sleep(1)
        assert is_gated(await successor())
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}


async def test_drift_of_the_daemon_set_is_repaired(kube_env, namespace):
    _, behaviour = waiting("a")
    async with stage(kube_env, namespace, nodes=("a",), behaviour=behaviour) as play:
        await play.apply()
        await play.shut(SET)
        wanted = await play.find(DAEMON_SETS, SET)
        container = wanted["spec"]["template"]["spec"]["containers"][0]
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
        changed = await play.change(DAEMON_SETS, SET, drift)
        assert changed["metadata"]["generation"] > wanted["metadata"]["generation"]

        async def repaired():
            found = await play.find(DAEMON_SETS, SET)
            return (
                found["spec"]["template"] == wanted["spec"]["template"]
                and found["metadata"]["labels"] == wanted["metadata"]["labels"]
                and found["spec"]["updateStrategy"]["type"] == "OnDelete"
            )

        async def started():
            return play.world.executions["a"] > 0

        await play.until(repaired, "repaired")
        await play.until(started, "the task started")
        assert play.world.executions == {"a": 1}


async def test_what_others_add_to_the_daemon_set_is_left_alone(kube_env, namespace):
    _, behaviour = waiting("a")
    async with stage(kube_env, namespace, nodes=("a",), behaviour=behaviour) as play:
        await play.apply()
        await play.shut(SET)
        addition = {"metadata": {"annotations": {"example.com/seen": "yes"}, "labels": {"x": "y"}}}
        writes = play.processes[0].requests.writes
        changed = await play.change(DAEMON_SETS, SET, addition)
        await asyncio.sleep(1.5)

        found = await play.find(DAEMON_SETS, SET)
        assert found["spec"] == changed["spec"]
        assert found["metadata"]["labels"] == changed["metadata"]["labels"]
        assert found["metadata"]["annotations"] == changed["metadata"]["annotations"]
        applied = ("patch", "daemonsets", 200)
        assert play.processes[0].requests.writes.count(applied) == writes.count(applied)


async def test_nodes_leave_and_enter_the_selection(kube_env, namespace):
    go, behaviour = waiting("b")
    async with stage(kube_env, namespace, behaviour=behaviour, terminator=True) as play:
        a, b, c = map(play.world.name, "abc")
        await play.apply({"image": "x", "nodes": {"include": [a, b]}})
        await completed(play, "a")
        await play.job_until(lambda status: status["nodes"]["active"] == 1, "b active")

        await play.change(JOBS, "sample", {"spec": {"nodes": {"include": [a, c]}}})
        await play.gone(JOBS, "sample")

        states = {node: state["state"] for node, state in (await play.node_states()).items()}
        assert states == {"a": "Completed", "b": "Removed", "c": "Completed"}
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}
        assert not go.is_set()


async def test_a_node_that_joins_is_served_and_one_that_leaves_is_not_waited_for(
    kube_env, namespace
):
    go, behaviour = waiting("a", "b")
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply()
        await play.job_until(lambda s: (s.get("nodes") or {}).get("active") == 2, "both active")
        await play.world.join("late")
        await completed(play, "late")
        await play.world.leave("b")
        await play.job_until(lambda status: status["nodes"]["desired"] == 2, "b has left")
        go.set()
        await play.gone(JOBS, "sample")

        states = {node: state["state"] for node, state in (await play.node_states()).items()}
        assert states == {"a": "Completed", "b": "Removed", "late": "Completed"}


async def test_a_job_without_nodes_waits_for_one(kube_env, namespace):
    async with stage(kube_env, namespace, nodes=()) as play:
        await play.apply()
        found = await play.reason("Progressing", "NoMatchingNodes")
        assert found["status"] == "False"
        await play.world.join("first")
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"first": 1}


async def test_jobs_of_one_name_in_two_namespaces_do_not_meet(kube_env, namespace):
    other = f"{namespace}-other"
    async with stage(kube_env, namespace, other, nodes=("a", "b")) as play:
        await play.admin.create(NAMESPACES, {"metadata": {"name": other}})
        jobs = [await play.apply(namespace=where) for where in (namespace, other)]
        for where in (namespace, other):
            await play.gone(JOBS, "sample", namespace=where)

        for job, where in zip(jobs, (namespace, other), strict=True):
            (report,) = (await play.admin.list(JOB_REPORTS, where))["items"]
            assert report["spec"]["job"]["uid"] == job["metadata"]["uid"]
            assert report["status"]["phase"] == "Succeeded"
            assert len(report["evidence"]) == 2
        assert play.world.executions == {"a": 2, "b": 2}


@pytest.mark.parametrize("is_deleting", [False, True])
async def test_a_job_made_again_waits_until_the_former_daemon_set_is_gone(
    kube_env, namespace, is_deleting
):
    go, behaviour = waiting("a")
    async with stage(kube_env, namespace, nodes=("a",), behaviour=behaviour) as play:
        await play.apply()
        await play.job_until(lambda s: (s.get("nodes") or {}).get("active") == 1, "active")
        play.world.collects_garbage = False
        if is_deleting:
            await play.change(DAEMON_SETS, SET, {"metadata": {"finalizers": ["example.com/hold"]}})
        await play.admin.delete(JOBS, "sample", namespace)
        if is_deleting:
            await play.admin.delete(DAEMON_SETS, SET, namespace, propagation="Foreground")
        await play.gone(JOBS, "sample")
        again = await play.apply()
        found = await play.reason("Progressing", "PreviousRunEnding")
        assert SET in found["message"]

        go.set()
        play.world.collects_garbage = True
        if is_deleting:
            await play.change(DAEMON_SETS, SET, {"metadata": {"finalizers": None}})
        await play.gone(JOBS, "sample")
        report = await play.report(job_uid=again["metadata"]["uid"])
        assert report["status"]["phase"] == "Succeeded"
        assert len(await play.all(JOB_REPORTS)) == 2
        phases = {raw["status"]["phase"] for raw in await play.all(JOB_REPORTS)}
        assert phases == {"Succeeded", "Cancelled"}


def foreign(labels: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": SET, "labels": labels},
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
    async with stage(kube_env, namespace, nodes=("a",)) as play:
        theirs = await play.admin.create(DAEMON_SETS, foreign(labels), namespace)
        await play.apply()
        found = await play.reason("Progressing", "DaemonSetAlreadyExists")
        assert SET in found["message"]
        await play.told("DaemonSetAlreadyExists")

        after = await play.find(DAEMON_SETS, SET)
        assert after["spec"] == theirs["spec"]
        assert after["metadata"].get("labels", {}) == labels
        await play.admin.delete(DAEMON_SETS, SET, namespace)
        await play.gone(JOBS, "sample")


class Meddled(KubeClient):
    """A client before whose first write of a Job's status somebody changes the Job."""

    meddle: Any = None

    async def merge_patch(self, resource, name, body, namespace=None, **how):
        meddle, Meddled.meddle = Meddled.meddle, None
        if meddle is not None:
            await meddle()
        return await super().merge_patch(resource, name, body, namespace, **how)


async def test_a_change_between_reading_and_starting_is_what_runs(kube_env, namespace):
    async with stage(kube_env, namespace, nodes=("a",), controller=False) as play:

        async def meddle():
            await play.change(JOBS, "sample", {"spec": {"image": "example/newer:2"}})

        Meddled.meddle = meddle
        controller = await play.start_controller(Meddled)
        await play.apply()
        await play.gone(JOBS, "sample")

        writes = [call for call in controller.requests.writes if call[1] == "jobs/status"]
        assert writes[0] == ("patch", "jobs/status", 409)
        assert (await play.report())["spec"]["image"] == "example/newer:2"


async def test_a_report_that_somebody_deletes_is_made_again(kube_env, namespace):
    go, behaviour = waiting("b")
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply()
        await completed(play, "a")
        old = await play.report()
        await play.admin.delete(JOB_REPORTS, old["metadata"]["name"], namespace)

        async def again():
            new = await play.report()
            return (
                new is not None
                and new["metadata"]["uid"] != old["metadata"]["uid"]
                and new.get("evidence")
            )

        evidence = await play.until(again, "made again, and read again")
        assert {play.world.short(name) for name in evidence} == {"a"}
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 1}


async def test_history_keeps_the_reports_of_former_runs(kube_env, namespace):
    async with stage(kube_env, namespace, nodes=("a",)) as play:
        for _ in range(3):
            await play.apply()
            await play.gone(JOBS, "sample")
        reports = await play.all(JOB_REPORTS)
        assert [raw["status"]["phase"] for raw in reports] == ["Succeeded"] * 3
        assert play.world.executions == {"a": 3}
