"""What the user asked for, against a cluster that does what real ones do.

Nodes are tainted in the middle of a run, selections widened, pods never start, clocks differ: the
work is done on every node that the user chose before the Job is complete, and a Job ends when the
user said so. Every expectation is about the Job's own spec, never about the DaemonSet.
"""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from daemonset_job.api.names import ANNOTATION_RETRY
from daemonset_job.kube.client.errors import Invalid
from daemonset_job.kube.client.resource import DAEMON_SETS, JOBS, PODS
from tests.integration.playing import Run
from tests.integration.stage import condition, stage

pytestmark = pytest.mark.timeout(60)

SET = "sample-daemonset-job"
HOUR = timedelta(hours=1)
# Neither done nor failed: it stays.
HOLD = Run(lines=("still at it",))
# The kubelet reports an exit as it happens.
FAST = timedelta(0)
# In mode Exit a failure is judged at once: no log has to be read first.
EXIT = {"completion": {"mode": "Exit"}}
FAILS = Run(lines=("no luck",), exit_code=1, back_off=60)
SUCCEEDS = Run(lines=(), exit_code=0)
# Enough for whatever the programs do at once, and for the grace that a log is given.
SOON = 8.0
MAX_INT64 = 2**63 - 1


def script(**runs):
    """Return a task that does on each node one Run after the other, and done on nodes unnamed."""

    def behaviour(node, start):
        here = runs.get(node) or [Run()]
        return here[min(start, len(here)) - 1]

    return behaviour


def spec(**fields):
    return {"image": "example/task:v1", **fields}


async def completed(play, number):
    """Return once so many nodes are completed and the gate is up: the run is well under way."""
    await play.job_until(
        lambda status: (status.get("nodes") or {}).get("completed") == number, f"{number} completed"
    )
    await play.shut(SET)


async def is_kept(play, seconds):
    """Assert that the Job is there for so long, and neither complete nor failed."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        job = await play.find(JOBS, "sample")
        assert job is not None, f"the Job is gone: {await play.describe()}"
        for type_ in ("Complete", "Failed"):
            found = condition(job["status"], type_)
            assert found.get("status") != "True", found
        await asyncio.sleep(0.1)


async def retry(play, token="again"):
    body = {"metadata": {"annotations": {ANNOTATION_RETRY: token}}}
    await play.change(JOBS, "sample", body)


async def pod_of(play, node):
    (pod,) = (await play.pods())[node]
    return pod


# --- the selection is widened (A1) -------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ({"selector": {"matchLabels": {"example.com/zone": "one"}}}, None),
        ({"include": ["a"]}, None),
        ({"exclude": ["b"]}, {"exclude": None}),
        (
            {"selector": {"matchLabels": {"example.com/zone": "one"}}, "include": ["a", "b"]},
            {"selector": None},
        ),
    ],
    ids=["selector", "include", "exclude", "selector-of-included"],
)
async def test_a_node_that_a_wider_selection_lets_in_does_the_work(
    kube_env, namespace, before, change
):
    go = asyncio.Event()
    behaviour = script(a=[Run(after=go)])
    async with stage(kube_env, namespace, nodes=(), behaviour=behaviour) as play:
        await play.world.join("a", "c", labels={"example.com/zone": "one"})
        await play.world.join("b", labels={"example.com/zone": "two"})
        nodes = {
            key: [play.world.name(node) for node in value] if isinstance(value, list) else value
            for key, value in before.items()
        }
        await play.apply(spec(nodes=nodes))
        await play.started("a")
        await play.shut(SET)
        assert play.world.executions["b"] == 0

        await play.change(JOBS, "sample", {"spec": {"nodes": change}})
        await asyncio.sleep(0.5)
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions["b"] == 1
        assert (await play.node_states())["b"]["state"] == "Completed"


async def test_values_that_are_the_same_quantity_are_different_labels(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[Run(after=go)])
    async with stage(kube_env, namespace, nodes=(), behaviour=behaviour) as play:
        await play.world.join("a", labels={"example.com/version": "1.10"})
        await play.world.join("b", labels={"example.com/version": "1.1"})
        chosen = {"selector": {"matchLabels": {"example.com/version": "1.10"}}}
        await play.apply(spec(nodes=chosen))
        await play.started("a")
        await play.shut(SET)

        chosen["selector"]["matchLabels"]["example.com/version"] = "1.1"
        await play.change(JOBS, "sample", {"spec": {"nodes": chosen}})
        await asyncio.sleep(0.5)
        go.set()
        await play.gone(JOBS, "sample")
        assert play.world.executions["b"] == 1


# --- taints (A2) -------------------------------------------------------------------------


async def test_a_tainted_node_does_not_stand_in_for_one_that_lost_its_pod(kube_env, namespace):
    template = {"spec": {"terminationGracePeriodSeconds": 3}}
    async with stage(kube_env, namespace, behaviour=script(c=[HOLD, Run()])) as play:
        play.world.keeps_grace = True
        await play.apply(spec(template=template))
        await completed(play, 2)
        await play.world.taint("b", "NoSchedule")
        await counted(play, misscheduled=1)

        pod = await pod_of(play, "c")
        await play.admin.delete(PODS, pod["metadata"]["name"], namespace)
        await is_kept(play, 2)
        await play.gone(JOBS, "sample", seconds=SOON)
        assert play.world.executions == {"a": 1, "b": 1, "c": 2}


async def test_a_completed_node_that_is_tainted_does_not_keep_the_job(kube_env, namespace):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(c=[Run(after=go)])) as play:
        await play.apply(spec())
        await completed(play, 2)
        await play.world.taint("b", "NoSchedule")
        await counted(play, misscheduled=1)
        go.set()
        await play.gone(JOBS, "sample", seconds=SOON)
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}


async def test_a_node_at_work_that_is_tainted_is_waited_for(kube_env, namespace):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(c=[Run(after=go)])) as play:
        await play.apply(spec())
        await completed(play, 2)
        await play.world.taint("c", "NoSchedule")
        await counted(play, misscheduled=1)
        await is_kept(play, 1)
        go.set()
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.node_states())["c"]["state"] == "Completed"


async def counted(play, *, misscheduled):
    """Return once the DaemonSet controller says so."""

    async def look():
        found = await play.find(DAEMON_SETS, SET)
        return found["status"].get("numberMisscheduled", 0) == misscheduled

    await play.until(look, f"{misscheduled} misscheduled")


# --- a refused DaemonSet (A3) ------------------------------------------------------------


@pytest.mark.parametrize("finishes_first", [False, True], ids=["told-first", "at-once"])
async def test_a_run_whose_changed_daemon_set_is_refused_is_not_complete(
    kube_env, namespace, finishes_first
):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(b=[Run(after=go)])) as play:
        a, b = map(play.world.name, "ab")
        await play.apply(spec(nodes={"include": [a, b]}))
        await completed(play, 1)

        # The CRD's pattern takes this key, and the validation of DaemonSets does not.
        rule = {"key": "a..b/c", "operator": "DoesNotExist"}
        wider = {"include": None, "selector": {"matchExpressions": [rule]}}
        await play.change(JOBS, "sample", {"spec": {"nodes": wider}})
        if finishes_first:
            go.set()
        found = await play.reason("Progressing", "DaemonSetRefused", seconds=SOON)
        assert found["status"] == "False"
        go.set()
        await is_kept(play, 3)
        assert play.world.executions["c"] == 0

        await play.change(JOBS, "sample", {"spec": {"nodes": {"selector": None}}})
        await play.gone(JOBS, "sample", seconds=SOON)
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}


# --- a token that the CRD cannot judge (D8) ----------------------------------------------


async def test_a_pattern_that_is_too_large_is_told_and_may_be_changed_for_one_that_is_not(
    kube_env, namespace
):
    async with stage(kube_env, namespace) as play:
        large = {"token": "\\pL{900}", "match": "Regex"}
        await play.apply(spec(completion=large))
        found = await play.reason("Progressing", "InvalidCompletionToken", seconds=SOON)
        assert found["status"] == "False"
        assert "spec.completion.token: pattern too large" in found["message"]
        await play.told("InvalidCompletionToken")
        assert await play.all(DAEMON_SETS) == []
        assert await play.pods() == {}
        assert await play.report() is None

        await play.change(JOBS, "sample", {"spec": {"completion": {"token": "^do+ne$"}}})
        await play.gone(JOBS, "sample", seconds=SOON)
        assert play.world.executions == {"a": 1, "b": 1, "c": 1}


# --- a task that is told to stop (A4) ----------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "evicted"])
async def test_a_task_that_ends_with_0_when_it_is_told_to_stop_has_not_done_its_work(
    kube_env, namespace, how
):
    stops = Run(lines=(), after=asyncio.Event(), exit_on_term=0)
    behaviour = script(a=[SUCCEEDS], b=[stops, SUCCEEDS])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec(**EXIT))
        await completed(play, 1)
        await play.started("b")
        name = (await pod_of(play, "b"))["metadata"]["name"]
        if how == "deleted":
            await play.admin.delete(PODS, name, namespace)
        else:
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
            await play.admin.create(PODS, body, namespace, name=name, subresource="eviction")
        await play.gone(JOBS, "sample", seconds=SOON)
        assert play.world.executions == {"a": 1, "b": 2}
        assert (await play.node_states())["b"]["state"] == "Completed"


# --- deadlines of runs (B1) --------------------------------------------------------------


async def test_a_retry_after_the_deadline_tries_again(kube_env, namespace):
    behaviour = script(a=[FAILS, SUCCEEDS], b=[SUCCEEDS])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec(**EXIT, backoffLimit=0, activeDeadlineSeconds=4))
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=3)
        await asyncio.sleep(4)
        await retry(play)
        await play.gone(JOBS, "sample", seconds=6)
        assert (await play.report())["status"]["phase"] == "Succeeded"
        assert play.world.executions == {"a": 2, "b": 1}


async def test_a_run_that_failed_by_its_deadline_is_given_its_time_anew_by_a_retry(
    kube_env, namespace
):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(a=[Run(after=go)])) as play:
        await play.apply(spec(activeDeadlineSeconds=3))
        await play.reason("Failed", "DeadlineExceeded", seconds=SOON)
        await asyncio.sleep(1)
        await retry(play)
        await play.job_until(
            lambda status: condition(status, "Failed")["status"] == "False", "again", seconds=2
        )
        go.set()
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.report())["status"]["phase"] == "Succeeded"


async def test_the_time_of_a_resumed_run_starts_anew(kube_env, namespace):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(a=[Run(after=go)])) as play:
        await play.apply(spec(activeDeadlineSeconds=3))
        await play.started("a")
        await play.change(JOBS, "sample", {"spec": {"suspend": True}})
        await play.reason("Suspended", "Suspended", seconds=2)
        await asyncio.sleep(3.5)
        await play.change(JOBS, "sample", {"spec": {"suspend": False}})
        await is_kept(play, 1)
        go.set()
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.report())["status"]["phase"] == "Succeeded"


# --- time to live (B5) -------------------------------------------------------------------


async def test_a_failed_run_without_pods_takes_a_time_to_live(kube_env, namespace):
    behaviour = script(a=[FAILS], b=[SUCCEEDS])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec(**EXIT, backoffLimit=0, failurePolicy={"pods": "Delete"}))
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        await play.gone(DAEMON_SETS, SET, seconds=SOON)
        await play.change(JOBS, "sample", {"spec": {"ttlSecondsAfterFinished": 0}})
        await play.gone(JOBS, "sample", seconds=4)


async def test_a_completed_job_whose_nodes_have_left_goes_after_its_time_to_live(
    kube_env, namespace
):
    async with stage(kube_env, namespace, nodes=("a",)) as play:
        await play.apply(spec(ttlSecondsAfterFinished=3))
        await play.reason("Complete", "AllNodesCompleted", seconds=SOON)
        await play.world.leave("a")
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.report())["status"]["phase"] == "Succeeded"


async def test_a_completed_job_with_a_node_that_failed_later_goes_after_its_time_to_live(
    kube_env, namespace
):
    behaviour = script(a=[SUCCEEDS], late=[FAILS])
    async with stage(kube_env, namespace, nodes=("a",), behaviour=behaviour) as play:
        await play.apply(spec(**EXIT, ttlSecondsAfterFinished=4, backoffLimit=0))
        await play.reason("Complete", "AllNodesCompleted", seconds=SOON)
        await play.world.join("late")
        await play.started("late", seconds=3)
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.report())["status"]["phase"] == "Succeeded"


# --- pods that never start (B6) ----------------------------------------------------------

NEVER_STARTS = {
    "volume": Run(waiting="ContainerCreating"),
    "init": Run(init_exit_code=3),
    "rejected": Run(rejected="SysctlForbidden", message='forbidden sysctl: "net.x" not allowed'),
}
SETUP = {"spec": {"initContainers": [{"name": "setup", "image": "example/setup:v1"}]}}


@pytest.mark.parametrize("why", NEVER_STARTS)
async def test_a_pod_that_never_starts_its_task_fails_its_node(kube_env, namespace, why):
    behaviour = script(a=[NEVER_STARTS[why]])
    async with stage(kube_env, namespace, controller=False, behaviour=behaviour) as play:
        await play.start_controller(pod_start_timeout_seconds=1 if why == "volume" else 3)
        await play.apply(spec(template=SETUP) if why == "init" else spec())
        found = await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON + 2)
        assert play.world.name("a") in found["message"]
        reason = "PodRejected" if why == "rejected" else "ContainerStartFailed"
        assert (await play.node_states())["a"]["reason"] == reason
        if why == "init":
            assert "setup" in found["message"]
        if why == "rejected":
            assert "SysctlForbidden" in found["message"]


# --- input at the edge (C5) --------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["activeDeadlineSeconds", "nodeDeadlineSeconds", "ttlSecondsAfterFinished"]
)
async def test_a_number_of_seconds_that_no_clock_can_count_is_refused(kube_env, namespace, field):
    async with stage(kube_env, namespace, nodes=(), controller=False, terminator=False) as play:
        with pytest.raises(Invalid, match=field):
            await play.apply(spec(**{field: MAX_INT64}))


async def test_a_long_retry_token_works(kube_env, namespace):
    behaviour = script(a=[FAILS, SUCCEEDS], b=[SUCCEEDS])
    async with stage(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as play:
        await play.apply(spec(**EXIT, backoffLimit=0))
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        await retry(play, "x" * 300)
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.report())["status"]["phase"] == "Succeeded"


# --- clocks that differ (B3) -------------------------------------------------------------

AHEAD_OR_BEHIND = pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["ahead", "behind"])


async def test_a_failure_on_a_node_whose_clock_is_ahead_is_told_soon(kube_env, namespace):
    failing = Run(lines=("no luck",), exit_code=1, late=FAST)
    async with stage(kube_env, namespace, behaviour=script(a=[failing, HOLD])) as play:
        play.world.skew["a"] = HOUR
        await play.apply(spec(backoffLimit=0))
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON + 2)


async def test_a_token_counts_before_the_exit_on_a_node_whose_clock_is_behind(kube_env, namespace):
    ends = Run(exit_code=1, late=FAST, back_off=60)
    async with stage(
        kube_env, namespace, nodes=("a",), behaviour=script(a=[ends]), terminator=False
    ) as play:
        play.world.skew["a"] = -HOUR
        await play.apply(spec(backoffLimit=0))

        async def ended():
            statuses = (await pod_of(play, "a"))["status"].get("containerStatuses") or [{}]
            return "terminated" in statuses[0].get("state", {})

        await play.started("a")
        await play.until(ended, "the task ended")
        await asyncio.sleep(1)
        await play.start_terminator()
        await play.gone(JOBS, "sample", seconds=SOON)
        assert (await play.node_states())["a"]["state"] == "Completed"


@AHEAD_OR_BEHIND
async def test_the_deadline_of_a_node_is_counted_by_one_clock(kube_env, namespace, skew):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(a=[Run(after=go)])) as play:
        play.world.skew["a"] = skew
        await play.apply(spec(nodeDeadlineSeconds=4))
        await play.started("a")
        await is_kept(play, 1.5)
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        assert (await play.node_states())["a"]["reason"] == "DeadlineExceeded"


@AHEAD_OR_BEHIND
async def test_the_patience_with_an_image_is_counted_by_one_clock(kube_env, namespace, skew):
    wrong = Run(waiting="ErrImagePull", message="no such image: example/task:v1")
    async with stage(kube_env, namespace, controller=False, behaviour=script(a=[wrong])) as play:
        play.world.skew["a"] = skew
        await play.start_controller(pod_start_timeout_seconds=4)
        await play.apply(spec())
        await play.reason("Progressing", "ImagePullFailed", seconds=4)
        await is_kept(play, 1)
        await play.reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)


async def test_a_node_whose_clock_is_behind_is_given_the_time_to_be_ready_again(
    kube_env, namespace
):
    go = asyncio.Event()
    async with stage(kube_env, namespace, behaviour=script(a=[Run(after=go)])) as play:
        play.world.skew["a"] = -HOUR
        await play.apply(spec())
        await completed(play, 2)
        await play.world.unready("a")
        await is_kept(play, 1)
        await play.world.recover("a")
        go.set()
        await play.gone(JOBS, "sample", seconds=SOON)


@AHEAD_OR_BEHIND
async def test_the_time_to_live_is_counted_by_one_clock(kube_env, namespace, skew):
    async with stage(kube_env, namespace, nodes=("a",)) as play:
        play.world.skew["a"] = skew
        before = datetime.now(UTC).replace(microsecond=0)
        await play.apply(spec(ttlSecondsAfterFinished=4))
        found = await play.job_until(
            lambda status: condition(status, "Complete").get("status") == "True",
            "complete",
            seconds=4,
        )
        ended = datetime.fromisoformat(found["status"]["completionTime"])
        assert before <= ended <= datetime.now(UTC)
        await asyncio.sleep(1)
        assert await play.find(JOBS, "sample")
        await play.gone(JOBS, "sample", seconds=SOON)
