"""Failures of nodes and of runs, deadlines, pauses and retries, as their user sees them."""

import asyncio
from datetime import timedelta

import pytest

from daemonset_job.api.names import ANNOTATION_RETRY
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, NODES, PODS
from tests.integration.jobs import job as make_job
from tests.integration.playing import Run, is_gated
from tests.integration.stage import condition, stage

pytestmark = pytest.mark.timeout(90)

SET = "sample-daemonset-job"
# Neither done nor failed: it stays.
HOLD = Run(lines=("still at it",))
FAST = timedelta(0)


def script(**runs: list[Run]):
    """Return a task that does on each node one Run after the other, and done on nodes unnamed."""

    def behaviour(node: str, start: int) -> Run:
        here = runs.get(node) or [Run()]
        return here[min(start, len(here)) - 1]

    return behaviour


def fails(code: int, *lines: str, **how) -> Run:
    return Run(lines=lines or ("no luck",), exit_code=code, **how)


def spec(**fields):
    return {"image": "example/task:v1", **fields}


async def failed(play, reason="MaxFailedNodesExceeded"):
    """Return the Failed condition of the Job, which is still there with all it has."""
    found = await play.reason("Failed", reason)
    assert found["status"] == "True"
    job = await play.find(JOBS, "sample")
    assert job["status"]["phase"] == "Failed"
    assert job["status"]["completionTime"]
    await play.told("Failed")
    report = await play.report()
    assert report["status"]["phase"] == "Failed"
    assert report["status"]["message"] == found["message"]
    return found


# --- nodes -------------------------------------------------------------------------------


async def test_an_exit_code_fails_the_node_and_the_run_says_why(kube_env, namespace):
    behaviour = script(a=[fails(2, "looking", "disk full", late=FAST, back_off=60)])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=0))
        found = await failed(play)

        a = play.world.name("a")
        assert found["message"] == (
            f"1 of 3 nodes failed: {a} exit 2 at the first attempt: 'disk full'"
        )
        record = (await play.node_states())["a"]
        assert (record["state"], record["reason"]) == ("Failed", "BackoffLimitExceeded")
        assert (record["attempts"], record["exitCode"]) == (1, 2)
        assert (await play.report())["evidence"][a]["lastLines"] == ["looking", "disk full"]
        # For people to look at: the failed run's pods stay, and so does the Job.
        await asyncio.sleep(1)
        assert len(await play.all(PODS)) == 3
        assert await play.find(JOBS, "sample")


async def test_a_restart_within_the_limit_is_no_failure(kube_env, namespace):
    behaviour = script(a=[fails(1), Run()], b=[fails(1), fails(1), Run()])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=2))
        await play.gone(JOBS, "sample")

        states = await play.node_states()
        attempts = {node: (s["state"], s["attempts"]) for node, s in states.items()}
        assert attempts == {"a": ("Completed", 2), "b": ("Completed", 3), "c": ("Completed", 1)}


async def test_restarts_beyond_the_limit_fail_the_node(kube_env, namespace):
    behaviour = script(a=[fails(1), fails(7, back_off=60.0)])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=1))
        found = await failed(play)

        assert "exit 7 after 2 attempts" in found["message"]
        assert (await play.node_states())["a"]["attempts"] == 2


async def test_rules_say_what_an_exit_code_means(kube_env, namespace):
    ignore = script(a=[fails(42), fails(42), Run()])
    rules = [{"exitCodes": [42], "action": "Ignore"}, {"exitCodes": [3], "action": "Fail"}]
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=ignore) as play:
        job = spec(backoffLimit=0, failurePolicy={"rules": rules})
        await play.apply(job)
        await play.gone(JOBS, "sample")
        assert (await play.node_states())["a"]["attempts"] == 3

        play.world.executions.clear()
        play.world.behaviour = script(a=[fails(3), HOLD])
        await play.apply({**job, "backoffLimit": 6})
        assert "exit 3 at the first attempt" in (await failed(play))["message"]
        assert (await play.node_states())["a"]["reason"] == "FailurePolicyRule"


async def test_the_failure_token_fails_the_node(kube_env, namespace):
    behaviour = script(a=[Run(lines=("FATAL is not it", "FATAL", "done"))])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(completion={"failureToken": "FATAL"}))
        found = await failed(play)

        assert "printed the failure token" in found["message"]
        record = (await play.node_states())["a"]
        assert (record["state"], record["reason"]) == ("Failed", "FailureToken")
        assert record["finishedAt"]


async def test_a_token_counts_although_the_task_then_exits(kube_env, namespace):
    behaviour = script(a=[Run(lines=("done",), exit_code=1, late=FAST), HOLD])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=0))
        await play.gone(JOBS, "sample")
        assert (await play.node_states())["a"]["state"] == "Completed"


async def test_in_mode_exit_the_exit_code_decides(kube_env, namespace):
    behaviour = script(
        a=[Run(lines=(), exit_code=0)],
        b=[fails(1), Run(lines=("no token",), exit_code=0)],
        c=[Run(lines=("done",), exit_code=5), Run(lines=(), exit_code=0)],
    )
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(completion={"mode": "Exit"}))
        await play.gone(JOBS, "sample")

        states = await play.node_states()
        attempts = {node: (s["state"], s["attempts"]) for node, s in states.items()}
        assert attempts == {"a": ("Completed", 1), "b": ("Completed", 2), "c": ("Completed", 2)}
        assert play.world.executions == {"a": 1, "b": 2, "c": 2}


async def test_in_mode_exit_a_failing_node_fails_the_run(kube_env, namespace):
    behaviour = script(a=[fails(9), HOLD], b=[Run(exit_code=0)], c=[Run(exit_code=0)])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(completion={"mode": "Exit"}, backoffLimit=0))
        assert "exit 9 at the first attempt" in (await failed(play))["message"]


async def test_an_image_that_cannot_be_pulled_is_told_and_mended(kube_env, namespace):
    wrong = Run(waiting="ImagePullBackOff", message="no such image: example/task:v1")
    async with stage(kube_env, namespace, behaviour=script(a=[wrong])) as play:
        await play.apply(spec())
        found = await play.reason("Progressing", "ImagePullFailed")
        assert found["status"] == "False"
        assert "1 of 3 nodes cannot pull the image" in found["message"]
        assert "no such image" in found["message"]
        await play.told("ImagePullFailed")

        play.world.behaviour = script()
        await play.gone(JOBS, "sample")


@pytest.mark.parametrize(
    "wrong",
    [
        Run(waiting="ImagePullBackOff", message="no such image"),
        Run(waiting="InvalidImageName", message="no such image"),
        Run(waiting="CreateContainerConfigError", message="no such image"),
    ],
    ids=lambda run: run.waiting,
)
async def test_a_container_that_cannot_start_fails_the_node_when_patience_ends(
    kube_env, namespace, wrong
):
    async with stage(kube_env, namespace, behaviour=script(a=[wrong]), controller=False) as play:
        await play.start_controller(pod_start_timeout_seconds=2)
        await play.apply(spec())
        assert "no such image" in (await failed(play))["message"]
        assert play.world.executions["a"] == 0


async def test_the_deadline_of_a_node_fails_it(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(a=[HOLD])) as play:
        await play.apply(spec(nodeDeadlineSeconds=2))
        assert "nodeDeadlineSeconds (2 s)" in (await failed(play))["message"]
        assert (await play.node_states())["a"]["reason"] == "DeadlineExceeded"


async def test_an_eviction_is_no_failure(kube_env, namespace):
    behaviour = script(a=[HOLD, Run()])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=0))
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done")
        pod = (await play.pods())["a"][0]
        status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
        await play.admin.merge_patch(
            PODS, pod["metadata"]["name"], {"status": status}, namespace, subresource="status"
        )
        await play.gone(JOBS, "sample")
        record = (await play.node_states())["a"]
        assert (record["state"], record["attempts"]) == ("Completed", 2)
        assert play.world.executions["a"] == 2


async def test_a_node_made_anew_under_the_same_name_is_another_node(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[Run()], b=[Run(after=go)])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec())
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 1, "a done")
        await play.world.leave("a")
        await play.job_until(lambda s: s["nodes"]["desired"] == 1, "a has left")
        # Times of the API are whole seconds: a node of the same second would be the same.
        await asyncio.sleep(1.1)
        await play.world.join("a")

        async def anew():
            return play.world.executions["a"] == 2

        await play.until(anew, "the new node does the work")
        go.set()
        await play.gone(JOBS, "sample")
        new = await play.admin.list(NODES, field_selector=f"metadata.name={play.world.name('a')}")
        evidence = (await play.report())["evidence"][play.world.name("a")]
        assert evidence["nodeUID"] == new["items"][0]["metadata"]["uid"]


# --- unreachable nodes -------------------------------------------------------------------


async def test_an_unreachable_node_is_told_apart_and_counts_against_the_limit(kube_env, namespace):
    behaviour = script(c=[HOLD])
    async with stage(kube_env, namespace, behaviour=behaviour, controller=False) as play:
        await play.start_controller(node_unreachable_grace_period_seconds=2)
        await play.apply(spec())
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done")
        await play.world.lose("c", since=timedelta(minutes=2))
        found = await failed(play)
        assert found["message"] == f"1 unreachable ({play.world.name('c')})"
        assert (await play.find(JOBS, "sample"))["status"]["nodes"]["unreachable"] == 1


async def test_an_unreachable_node_within_the_limit_is_waited_for(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(c=[Run(after=go)])
    async with stage(kube_env, namespace, behaviour=behaviour, controller=False) as play:
        await play.start_controller(node_unreachable_grace_period_seconds=2)
        await play.apply(spec(failurePolicy={"maxFailedNodes": 1}))
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done")
        await play.world.lose("c", since=timedelta(minutes=2))
        found = await play.reason("Progressing", "NodesUnreachable")
        assert found["status"] == "False"
        await play.world.recover("c")
        await play.job_until(lambda s: s["nodes"]["unreachable"] == 0, "back")
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions["c"] == 1


async def test_a_lost_node_whose_pod_was_deleted_by_force_is_waited_for(kube_env, namespace):
    behaviour = script(c=[HOLD, Run()])
    async with stage(kube_env, namespace, behaviour=behaviour, controller=False) as play:
        await play.start_controller(node_unreachable_grace_period_seconds=2)
        await play.apply(spec(failurePolicy={"action": "Continue"}))
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done")
        await play.world.lose("c", since=timedelta(minutes=2))
        (pod,) = (await play.pods())["c"]
        await play.admin.delete(PODS, pod["metadata"]["name"], namespace, grace_seconds=0)

        def is_waited_for(status):
            nodes = status["nodes"]
            return (nodes["desired"], nodes["unreachable"]) == (3, 1)

        await play.job_until(is_waited_for, "c is waited for")
        await asyncio.sleep(1)
        assert not (await play.pods()).get("c")
        assert is_waited_for((await play.find(JOBS, "sample"))["status"])
        await play.world.recover("c")
        await play.gone(JOBS, "sample")
        assert play.world.name("c") in (await play.report())["evidence"]
        assert play.world.executions["c"] == 2


# --- runs --------------------------------------------------------------------------------


async def test_fail_fast_gives_no_more_turns(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as play:
        await play.apply(spec(backoffLimit=0))
        await failed(play)
        await play.shut(SET)
        await play.world.join("late")

        async def held():
            pods = (await play.pods()).get("late")
            return pods and is_gated(pods[0])

        await play.until(held, "late is held")
        await asyncio.sleep(1)
        assert await held()
        assert play.world.executions["late"] == 0


@pytest.mark.parametrize(("limit", "end"), [(0, "Failed"), (1, "Succeeded"), ("34%", "Succeeded")])
async def test_continue_lets_every_node_have_its_turn(kube_env, namespace, limit, end):
    go = asyncio.Event()
    behaviour = script(a=[fails(1), HOLD], b=[Run(after=go)])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        policy = {"action": "Continue", "maxFailedNodes": limit}
        await play.apply(spec(backoffLimit=0, failurePolicy=policy))
        await play.job_until(lambda s: (s.get("nodes") or {}).get("failed") == 1, "a failed")
        await asyncio.sleep(0.5)
        status = (await play.find(JOBS, "sample"))["status"]
        assert status["phase"] == "Running"
        go.set()
        if end == "Failed":
            await failed(play)
        else:
            found = await play.reason("Complete", "CompletedWithinFailureLimit")
            a = play.world.name("a")
            assert found["message"] == f"2 of 3 nodes completed, 1 failed ({a})"
            # It has a failed node to look at: it stays until somebody says for how long.
            await asyncio.sleep(0.5)
            await play.change(JOBS, "sample", {"spec": {"ttlSecondsAfterFinished": 0}})
            await play.gone(JOBS, "sample")
        assert (await play.report())["status"]["phase"] == end
        states = {node: s["state"] for node, s in (await play.node_states()).items()}
        assert states == {"a": "Failed", "b": "Completed", "c": "Completed"}


async def test_pause_holds_the_run_until_a_retry(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[fails(1), HOLD, Run()], b=[Run(after=go)])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=0, failurePolicy={"action": "Pause"}))
        found = await play.reason("Suspended", "MaxFailedNodesExceeded")
        assert "1 of 3 nodes failed" in found["message"]
        assert (await play.find(JOBS, "sample"))["status"]["phase"] == "Paused"
        await play.told("Paused")
        await play.world.join("late")
        await asyncio.sleep(1)
        assert play.world.executions["late"] == 0
        # What runs goes on.
        go.set()
        await play.job_until(lambda s: s["nodes"]["completed"] == 2, "b and c done")

        await play.change(JOBS, "sample", {"metadata": {"annotations": {ANNOTATION_RETRY: "1"}}})
        await play.gone(JOBS, "sample")
        states = {node: s["state"] for node, s in (await play.node_states()).items()}
        assert set(states.values()) == {"Completed"}
        assert len(states) == 4


async def test_a_retry_starts_the_failed_nodes_only(kube_env, namespace):
    behaviour = script(a=[fails(1), HOLD, Run()])
    async with stage(kube_env, namespace, behaviour=behaviour) as play:
        await play.apply(spec(backoffLimit=0, failurePolicy={"action": "Continue"}))
        await failed(play)
        before = play.world.executions["a"]
        await play.change(JOBS, "sample", {"metadata": {"annotations": {ANNOTATION_RETRY: "x"}}})
        await play.told("Retrying")
        await play.gone(JOBS, "sample")

        assert play.world.executions == {"a": before + 1, "b": 1, "c": 1}
        assert (await play.report())["status"]["phase"] == "Succeeded"
        await play.told("Failed", "Retrying", "Completed")


async def test_the_pods_of_a_failed_run_go_when_asked_for(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as play:
        await play.apply(spec(backoffLimit=0, failurePolicy={"pods": "Delete"}))
        await failed(play)
        await play.gone(DAEMON_SETS, SET)

        async def no_pods():
            return not await play.all(PODS)

        await play.until(no_pods, "pods gone")
        await asyncio.sleep(1)
        assert not await play.find(DAEMON_SETS, SET)
        assert (await play.node_states())["a"]["state"] == "Failed"


async def test_the_deadline_of_a_run_survives_a_restart(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(c=[HOLD])) as play:
        await play.apply(spec(activeDeadlineSeconds=10))
        job = await play.job_until(
            lambda s: (s.get("nodes") or {}).get("completed") == 2, "others done"
        )
        assert not condition(job["status"], "Failed")
        controller = play.processes[0]
        await play.stop(controller)
        await asyncio.sleep(1)
        await play.start_controller()
        found = await failed(play, "DeadlineExceeded")
        assert found["message"] == ("2 of 3 nodes completed within activeDeadlineSeconds (10 s)")


async def test_a_deadline_that_passed_while_nobody_ran_is_noticed_at_once(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(c=[HOLD])) as play:
        await play.apply(spec(activeDeadlineSeconds=3))
        await play.job_until(lambda s: (s.get("nodes") or {}).get("active") == 1, "c active")
        await play.stop(play.processes[0])
        await asyncio.sleep(3.5)
        await play.start_controller()
        await failed(play, "DeadlineExceeded")


# --- suspend -----------------------------------------------------------------------------


async def test_a_job_that_is_suspended_makes_nothing_until_it_is_resumed(kube_env, namespace):
    async with stage(kube_env, namespace) as play:
        await play.apply(spec(suspend=True))
        found = await play.reason("Suspended", "Suspended")
        assert found["status"] == "True"
        await asyncio.sleep(0.5)
        assert not await play.all(DAEMON_SETS)
        assert (await play.find(JOBS, "sample"))["status"]["phase"] == "Paused"
        # Nothing has run yet, so what runs may still change.
        await play.change(JOBS, "sample", {"spec": {"suspend": False, "image": "example/other:2"}})
        await play.gone(JOBS, "sample")
        assert (await play.report())["spec"]["image"] == "example/other:2"


async def test_a_job_that_the_api_server_refuses_is_corrected_and_runs(kube_env, namespace):
    async with stage(kube_env, namespace) as play:
        task = {"name": "job-container", "imagePullPolicy": "Sometimes"}
        refused = make_job(namespace, spec(template={"spec": {"containers": [task]}}))
        kube_env.apply(refused)
        found = await play.reason("Progressing", "DaemonSetRefused")
        assert "imagePullPolicy" in found["message"]
        assert "startTime" not in (await play.find(JOBS, "sample"))["status"]
        assert not await play.all(DAEMON_SETS)

        task["imagePullPolicy"] = "Always"
        refused["spec"]["image"] = "example/other:2"
        kube_env.apply(refused)
        await play.gone(JOBS, "sample")
        report = await play.report()
        assert (report["spec"]["image"], report["status"]["phase"]) == (
            "example/other:2",
            "Succeeded",
        )
        # Each pod was made of what the Job said when it started.
        assert set(play.world.executions.values()) == {1}


async def test_a_run_that_is_suspended_starts_no_more_nodes(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[Run(after=go)])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec())
        await play.job_until(lambda s: (s.get("nodes") or {}).get("completed") == 1, "b done")
        await play.change(JOBS, "sample", {"spec": {"suspend": True}})
        await play.reason("Suspended", "Suspended")
        await play.world.join("c")
        await play.job_until(lambda s: s["nodes"]["waiting"] == 1, "c waits")
        go.set()
        await play.job_until(lambda s: s["nodes"]["completed"] == 2, "a is done all the same")
        await asyncio.sleep(1)
        assert play.world.executions["c"] == 0

        await play.change(JOBS, "sample", {"spec": {"suspend": False}})
        await play.gone(JOBS, "sample")
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}


# --- time to live ------------------------------------------------------------------------


async def test_a_completed_job_stays_for_its_time_to_live(kube_env, namespace):
    async with stage(kube_env, namespace) as play:
        await play.apply(spec(ttlSecondsAfterFinished=6))
        await play.reason("Complete", "AllNodesCompleted")
        await asyncio.sleep(1)
        assert (await play.find(JOBS, "sample"))["status"]["phase"] == "Succeeded"
        await play.gone(JOBS, "sample")


async def test_a_failed_job_goes_when_its_time_to_live_says_so(kube_env, namespace):
    async with stage(kube_env, namespace, behaviour=script(a=[fails(1), HOLD])) as play:
        await play.apply(spec(backoffLimit=0, ttlSecondsAfterFinished=3))
        await failed(play)
        await play.gone(JOBS, "sample")
        await play.gone(DAEMON_SETS, SET)
        assert (await play.report())["status"]["phase"] == "Failed"
