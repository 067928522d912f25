"""Failures of nodes and of runs, deadlines, pauses and retries, as their user sees them."""

import asyncio
from datetime import timedelta

import pytest

from daemonset_job.api.names import ANNOTATION_RETRY
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, NODES, PODS
from daemonset_job.kube.client.writes import DeleteOptions
from tests.integration.harness import condition, open_harness
from tests.integration.jobs import job as make_job
from tests.integration.simulated_nodes import TaskRun, is_gated
from tests.integration.task_runs import DAEMON_SET, FAST, HOLD, failed, fails, script, spec

pytestmark = pytest.mark.timeout(90)


# --- nodes -------------------------------------------------------------------------------


async def test_an_exit_code_fails_the_node_and_the_run_says_why(kube_env, namespace):
    behaviour = script(a=[fails(2, "looking", "disk full", late=FAST, back_off=60)])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=0))
        found = await failed(harness)

        a = harness.nodes.name("a")
        assert found["message"] == (
            f"1 of 3 nodes failed: {a} exit 2 at the first attempt: 'disk full'"
        )
        record = (await harness.node_states())["a"]
        assert (record["state"], record["reason"]) == ("Failed", "BackoffLimitExceeded")
        assert (record["attempts"], record["exitCode"]) == (1, 2)
        assert (await harness.report())["evidence"][a]["lastLines"] == ["looking", "disk full"]
        # For people to look at: the failed run's pods stay, and so does the Job.
        await asyncio.sleep(1)
        assert len(await harness.all(PODS)) == 3
        assert await harness.find(JOBS, "sample")


async def test_a_restart_within_the_limit_is_no_failure(kube_env, namespace):
    behaviour = script(a=[fails(1), TaskRun()], b=[fails(1), fails(1), TaskRun()])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=2))
        await harness.wait_deleted(JOBS, "sample")

        states = await harness.node_states()
        attempts = {node: (s["state"], s["attempts"]) for node, s in states.items()}
        assert attempts == {"a": ("Completed", 2), "b": ("Completed", 3), "c": ("Completed", 1)}


async def test_restarts_beyond_the_limit_fail_the_node(kube_env, namespace):
    behaviour = script(a=[fails(1), fails(7, back_off=60.0)])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=1))
        found = await failed(harness)

        assert "exit 7 after 2 attempts" in found["message"]
        assert (await harness.node_states())["a"]["attempts"] == 2


async def test_rules_say_what_an_exit_code_means(kube_env, namespace):
    ignore = script(a=[fails(42), fails(42), TaskRun()])
    rules = [{"exitCodes": [42], "action": "Ignore"}, {"exitCodes": [3], "action": "Fail"}]
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=ignore) as harness:
        job = spec(backoffLimit=0, failurePolicy={"rules": rules})
        await harness.apply(job)
        await harness.wait_deleted(JOBS, "sample")
        assert (await harness.node_states())["a"]["attempts"] == 3

        harness.nodes.executions.clear()
        harness.nodes.behaviour = script(a=[fails(3), HOLD])
        await harness.apply({**job, "backoffLimit": 6})
        assert "exit 3 at the first attempt" in (await failed(harness))["message"]
        assert (await harness.node_states())["a"]["reason"] == "FailurePolicyRule"


async def test_the_failure_token_fails_the_node(kube_env, namespace):
    behaviour = script(a=[TaskRun(lines=("FATAL is not it", "FATAL", "done"))])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(completion={"failureToken": "FATAL"}))
        found = await failed(harness)

        assert "printed the failure token" in found["message"]
        record = (await harness.node_states())["a"]
        assert (record["state"], record["reason"]) == ("Failed", "FailureToken")
        assert record["finishedAt"]


async def test_a_token_counts_although_the_task_then_exits(kube_env, namespace):
    behaviour = script(a=[TaskRun(lines=("done",), exit_code=1, late=FAST), HOLD])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=0))
        await harness.wait_deleted(JOBS, "sample")
        assert (await harness.node_states())["a"]["state"] == "Completed"


async def test_in_mode_exit_the_exit_code_decides(kube_env, namespace):
    behaviour = script(
        a=[TaskRun(lines=(), exit_code=0)],
        b=[fails(1), TaskRun(lines=("no token",), exit_code=0)],
        c=[TaskRun(lines=("done",), exit_code=5), TaskRun(lines=(), exit_code=0)],
    )
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(completion={"mode": "Exit"}))
        await harness.wait_deleted(JOBS, "sample")

        states = await harness.node_states()
        attempts = {node: (s["state"], s["attempts"]) for node, s in states.items()}
        assert attempts == {"a": ("Completed", 1), "b": ("Completed", 2), "c": ("Completed", 2)}
        assert harness.nodes.executions == {"a": 1, "b": 2, "c": 2}


async def test_in_mode_exit_a_failing_node_fails_the_run(kube_env, namespace):
    behaviour = script(a=[fails(9), HOLD], b=[TaskRun(exit_code=0)], c=[TaskRun(exit_code=0)])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(completion={"mode": "Exit"}, backoffLimit=0))
        assert "exit 9 at the first attempt" in (await failed(harness))["message"]


async def test_an_image_that_cannot_be_pulled_is_reported_and_can_be_fixed(kube_env, namespace):
    wrong = TaskRun(waiting="ImagePullBackOff", message="no such image: example/task:v1")
    async with open_harness(kube_env, namespace, behaviour=script(a=[wrong])) as harness:
        await harness.apply(spec())
        found = await harness.wait_reason("Progressing", "ImagePullFailed")
        assert found["status"] == "False"
        assert "1 of 3 nodes cannot pull the image" in found["message"]
        assert "no such image" in found["message"]
        await harness.wait_events("ImagePullFailed")

        harness.nodes.behaviour = script()
        await harness.wait_deleted(JOBS, "sample")


@pytest.mark.parametrize(
    "wrong",
    [
        TaskRun(waiting="ImagePullBackOff", message="no such image"),
        TaskRun(waiting="InvalidImageName", message="no such image"),
        TaskRun(waiting="CreateContainerConfigError", message="no such image"),
    ],
    ids=lambda run: run.waiting,
)
async def test_container_that_cannot_start_fails_its_node_after_the_timeout(
    kube_env, namespace, wrong
):
    async with open_harness(
        kube_env, namespace, behaviour=script(a=[wrong]), controller=False
    ) as harness:
        await harness.start_controller(pod_start_timeout_seconds=2)
        await harness.apply(spec())
        assert "no such image" in (await failed(harness))["message"]
        assert harness.nodes.executions["a"] == 0


async def test_the_deadline_of_a_node_fails_it(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(a=[HOLD])) as harness:
        await harness.apply(spec(nodeDeadlineSeconds=2))
        assert "nodeDeadlineSeconds (2 s)" in (await failed(harness))["message"]
        assert (await harness.node_states())["a"]["reason"] == "DeadlineExceeded"


async def test_an_eviction_is_no_failure(kube_env, namespace):
    behaviour = script(a=[HOLD, TaskRun()])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=0))
        await harness.wait_job(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        pod = (await harness.pods())["a"][0]
        status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
        await harness.admin.merge_patch(
            PODS.with_subresource("status"), pod["metadata"]["name"], {"status": status}, namespace
        )
        await harness.wait_deleted(JOBS, "sample")
        record = (await harness.node_states())["a"]
        assert (record["state"], record["attempts"]) == ("Completed", 2)
        assert harness.nodes.executions["a"] == 2


async def test_a_node_recreated_under_its_name_is_another_node(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[TaskRun()], b=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec())
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("completed") == 1, "a done")
        await harness.nodes.leave("a")
        await harness.wait_job(lambda s: s["nodes"]["desired"] == 1, "a has left")
        # Times of the API are whole seconds: a node of the same second would be the same.
        await asyncio.sleep(1.1)
        await harness.nodes.join("a")

        async def is_done_again():
            return harness.nodes.executions["a"] == 2

        await harness.wait_until(is_done_again, "the new node does the work")
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        new = await harness.admin.list(
            NODES, field_selector=f"metadata.name={harness.nodes.name('a')}"
        )
        evidence = (await harness.report())["evidence"][harness.nodes.name("a")]
        assert evidence["nodeUID"] == new["items"][0]["metadata"]["uid"]


# --- unreachable nodes -------------------------------------------------------------------


async def test_unreachable_node_is_reported_and_counts_against_the_limit(kube_env, namespace):
    behaviour = script(c=[HOLD])
    async with open_harness(kube_env, namespace, behaviour=behaviour, controller=False) as harness:
        await harness.start_controller(node_unreachable_grace_period_seconds=2)
        await harness.apply(spec())
        await harness.wait_job(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        await harness.nodes.lose("c", since=timedelta(minutes=2))
        found = await failed(harness)
        assert found["message"] == f"1 unreachable ({harness.nodes.name('c')})"
        assert (await harness.find(JOBS, "sample"))["status"]["nodes"]["unreachable"] == 1


async def test_an_unreachable_node_within_the_limit_is_waited_for(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(c=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, behaviour=behaviour, controller=False) as harness:
        await harness.start_controller(node_unreachable_grace_period_seconds=2)
        await harness.apply(spec(failurePolicy={"maxFailedNodes": 1, "unreachableSeconds": 600}))
        await harness.wait_job(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        await harness.nodes.lose("c", since=timedelta(minutes=2))
        found = await harness.wait_reason("Progressing", "NodesUnreachable")
        assert found["status"] == "False"
        await harness.nodes.recover("c")
        await harness.wait_job(lambda s: s["nodes"]["unreachable"] == 0, "back")
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions["c"] == 1


async def test_a_lost_node_whose_pod_was_deleted_by_force_is_waited_for(kube_env, namespace):
    behaviour = script(c=[HOLD, TaskRun()])
    async with open_harness(kube_env, namespace, behaviour=behaviour, controller=False) as harness:
        await harness.start_controller(node_unreachable_grace_period_seconds=2)
        await harness.apply(spec(failurePolicy={"action": "Continue"}))
        await harness.wait_job(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        await harness.nodes.lose("c", since=timedelta(minutes=2))
        (pod,) = (await harness.pods())["c"]
        at_once = DeleteOptions(grace_period_seconds=0)
        await harness.admin.delete(PODS, pod["metadata"]["name"], namespace, options=at_once)

        def is_waited_for(status):
            nodes = status["nodes"]
            return (nodes["desired"], nodes["unreachable"]) == (3, 1)

        await harness.wait_job(is_waited_for, "c is waited for")
        await asyncio.sleep(1)
        assert not (await harness.pods()).get("c")
        assert is_waited_for((await harness.find(JOBS, "sample"))["status"])
        await harness.nodes.recover("c")
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.name("c") in (await harness.report())["evidence"]
        assert harness.nodes.executions["c"] == 2


# --- runs --------------------------------------------------------------------------------


async def test_with_fail_fast_no_further_node_starts(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as harness:
        await harness.apply(spec(backoffLimit=0))
        await failed(harness)
        await harness.wait_gated(DAEMON_SET)
        await harness.nodes.join("late")

        async def held():
            pods = (await harness.pods()).get("late")
            return pods and is_gated(pods[0])

        await harness.wait_until(held, "late is held")
        await asyncio.sleep(1)
        assert await held()
        assert harness.nodes.executions["late"] == 0


@pytest.mark.parametrize(("limit", "end"), [(0, "Failed"), (1, "Succeeded"), ("34%", "Succeeded")])
async def test_with_continue_every_node_does_the_work_before_the_run_fails(
    kube_env, namespace, limit, end
):
    go = asyncio.Event()
    behaviour = script(a=[fails(1), HOLD], b=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        policy = {"action": "Continue", "maxFailedNodes": limit}
        await harness.apply(spec(backoffLimit=0, failurePolicy=policy))
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("failed") == 1, "a failed")
        await asyncio.sleep(0.5)
        status = (await harness.find(JOBS, "sample"))["status"]
        assert status["phase"] == "Running"
        go.set()
        if end == "Failed":
            await failed(harness)
        else:
            found = await harness.wait_reason("Complete", "CompletedWithinFailureLimit")
            a = harness.nodes.name("a")
            assert found["message"] == f"2 of 3 nodes completed, 1 failed ({a})"
            # It has a failed node to look at: it stays until a user says for how long.
            await asyncio.sleep(0.5)
            await harness.change(JOBS, "sample", {"spec": {"ttlSecondsAfterFinished": 0}})
            await harness.wait_deleted(JOBS, "sample")
        assert (await harness.report())["status"]["phase"] == end
        states = {node: s["state"] for node, s in (await harness.node_states()).items()}
        assert states == {"a": "Failed", "b": "Completed", "c": "Completed"}


async def test_pause_holds_the_run_until_a_retry(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[fails(1), HOLD, TaskRun()], b=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=0, failurePolicy={"action": "Pause"}))
        found = await harness.wait_reason("Suspended", "MaxFailedNodesExceeded")
        assert "1 of 3 nodes failed" in found["message"]
        assert (await harness.find(JOBS, "sample"))["status"]["phase"] == "Paused"
        await harness.wait_events("Paused")
        await harness.nodes.join("late")
        await asyncio.sleep(1)
        assert harness.nodes.executions["late"] == 0
        # What runs goes on.
        go.set()
        await harness.wait_job(lambda s: s["nodes"]["completed"] == 2, "b and c done")

        await harness.change(JOBS, "sample", {"metadata": {"annotations": {ANNOTATION_RETRY: "1"}}})
        await harness.wait_deleted(JOBS, "sample")
        states = {node: s["state"] for node, s in (await harness.node_states()).items()}
        assert set(states.values()) == {"Completed"}
        assert len(states) == 4


async def test_a_retry_starts_the_failed_nodes_only(kube_env, namespace):
    behaviour = script(a=[fails(1), HOLD, TaskRun()])
    async with open_harness(kube_env, namespace, behaviour=behaviour) as harness:
        await harness.apply(spec(backoffLimit=0, failurePolicy={"action": "Continue"}))
        await failed(harness)
        before = harness.nodes.executions["a"]
        await harness.change(JOBS, "sample", {"metadata": {"annotations": {ANNOTATION_RETRY: "x"}}})
        await harness.wait_events("Retrying")
        await harness.wait_deleted(JOBS, "sample")

        assert harness.nodes.executions == {"a": before + 1, "b": 1, "c": 1}
        assert (await harness.report())["status"]["phase"] == "Succeeded"
        await harness.wait_events("Failed", "Retrying", "Completed")


async def test_the_pods_of_a_failed_run_go_when_asked_for(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as harness:
        await harness.apply(spec(backoffLimit=0, failurePolicy={"pods": "Delete"}))
        await failed(harness)
        await harness.wait_deleted(DAEMON_SETS, DAEMON_SET)

        async def no_pods():
            return not await harness.all(PODS)

        await harness.wait_until(no_pods, "pods gone")
        await asyncio.sleep(1)
        assert not await harness.find(DAEMON_SETS, DAEMON_SET)
        assert (await harness.node_states())["a"]["state"] == "Failed"


async def test_the_deadline_of_a_run_survives_a_restart(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(c=[HOLD])) as harness:
        await harness.apply(spec(activeDeadlineSeconds=10))
        job = await harness.wait_job(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        assert not condition(job["status"], "Failed")
        controller = harness.processes[0]
        await harness.stop(controller)
        await asyncio.sleep(1)
        await harness.start_controller()
        found = await failed(harness, "DeadlineExceeded")
        assert found["message"] == ("2 of 3 nodes completed within activeDeadlineSeconds (10 s)")


async def test_a_deadline_that_passed_without_a_controller_counts_at_its_start(kube_env, namespace):
    async with open_harness(kube_env, namespace, behaviour=script(c=[HOLD])) as harness:
        await harness.apply(spec(activeDeadlineSeconds=3))
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("active") == 1, "c active")
        await harness.stop(harness.processes[0])
        await asyncio.sleep(3.5)
        await harness.start_controller()
        await failed(harness, "DeadlineExceeded")


# --- suspend -----------------------------------------------------------------------------


async def test_a_job_that_is_suspended_makes_nothing_until_it_is_resumed(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        await harness.apply(spec(suspend=True))
        found = await harness.wait_reason("Suspended", "Suspended")
        assert found["status"] == "True"
        await asyncio.sleep(0.5)
        assert not await harness.all(DAEMON_SETS)
        assert (await harness.find(JOBS, "sample"))["status"]["phase"] == "Paused"
        # Nothing has run yet, so what runs may still change.
        await harness.change(
            JOBS, "sample", {"spec": {"suspend": False, "image": "example/other:2"}}
        )
        await harness.wait_deleted(JOBS, "sample")
        assert (await harness.report())["spec"]["image"] == "example/other:2"


async def test_a_job_that_the_api_server_refuses_is_corrected_and_runs(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        task = {"name": "job-container", "imagePullPolicy": "Sometimes"}
        refused = make_job(namespace, spec(template={"spec": {"containers": [task]}}))
        kube_env.apply(refused)
        found = await harness.wait_reason("Progressing", "DaemonSetRefused")
        assert "imagePullPolicy" in found["message"]
        assert "startTime" not in (await harness.find(JOBS, "sample"))["status"]
        assert not await harness.all(DAEMON_SETS)

        task["imagePullPolicy"] = "Always"
        refused["spec"]["image"] = "example/other:2"
        kube_env.apply(refused)
        await harness.wait_deleted(JOBS, "sample")
        report = await harness.report()
        assert (report["spec"]["image"], report["status"]["phase"]) == (
            "example/other:2",
            "Succeeded",
        )
        # Each pod was made of what the Job said when it started.
        assert set(harness.nodes.executions.values()) == {1}


async def test_a_run_that_is_suspended_starts_no_more_nodes(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec())
        await harness.wait_job(lambda s: (s.get("nodes") or {}).get("completed") == 1, "b done")
        await harness.change(JOBS, "sample", {"spec": {"suspend": True}})
        await harness.wait_reason("Suspended", "Suspended")
        await harness.nodes.join("c")
        await harness.wait_job(lambda s: s["nodes"]["waiting"] == 1, "c waits")
        go.set()
        await harness.wait_job(lambda s: s["nodes"]["completed"] == 2, "a is done all the same")
        await asyncio.sleep(1)
        assert harness.nodes.executions["c"] == 0

        await harness.change(JOBS, "sample", {"spec": {"suspend": False}})
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}
