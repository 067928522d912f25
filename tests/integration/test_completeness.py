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
from tests.integration.harness import condition, open_harness
from tests.integration.simulated_nodes import TaskRun
from tests.integration.task_runs import (
    DAEMON_SET,
    EXIT,
    FAILS,
    FAST,
    HOLD,
    SOON,
    SUCCEEDS,
    script,
    spec,
)

pytestmark = pytest.mark.timeout(60)

HOUR = timedelta(hours=1)
MAX_INT64 = 2**63 - 1


async def completed(harness, number):
    """Return once this number of nodes is completed and the gate is up."""
    await harness.wait_job(
        lambda status: (status.get("nodes") or {}).get("completed") == number, f"{number} completed"
    )
    await harness.wait_gated(DAEMON_SET)


async def is_kept(harness, seconds):
    """Assert that the Job is there for all these seconds, and neither complete nor failed."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        job = await harness.find(JOBS, "sample")
        assert job is not None, f"the Job is gone: {await harness.describe()}"
        for type_ in ("Complete", "Failed"):
            found = condition(job["status"], type_)
            assert found.get("status") != "True", found
        await asyncio.sleep(0.1)


async def retry(harness, token="again"):
    body = {"metadata": {"annotations": {ANNOTATION_RETRY: token}}}
    await harness.change(JOBS, "sample", body)


async def pod_of(harness, node):
    (pod,) = (await harness.pods())[node]
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
    behaviour = script(a=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, nodes=(), behaviour=behaviour) as harness:
        await harness.nodes.join("a", "c", labels={"example.com/zone": "one"})
        await harness.nodes.join("b", labels={"example.com/zone": "two"})
        nodes = {
            key: [harness.nodes.name(node) for node in value] if isinstance(value, list) else value
            for key, value in before.items()
        }
        await harness.apply(spec(nodes=nodes))
        await harness.wait_started("a")
        await harness.wait_gated(DAEMON_SET)
        assert harness.nodes.executions["b"] == 0

        await harness.change(JOBS, "sample", {"spec": {"nodes": change}})
        await asyncio.sleep(0.5)
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions["b"] == 1
        assert (await harness.node_states())["b"]["state"] == "Completed"


async def test_values_that_are_the_same_quantity_are_different_labels(kube_env, namespace):
    go = asyncio.Event()
    behaviour = script(a=[TaskRun(after=go)])
    async with open_harness(kube_env, namespace, nodes=(), behaviour=behaviour) as harness:
        await harness.nodes.join("a", labels={"example.com/version": "1.10"})
        await harness.nodes.join("b", labels={"example.com/version": "1.1"})
        chosen = {"selector": {"matchLabels": {"example.com/version": "1.10"}}}
        await harness.apply(spec(nodes=chosen))
        await harness.wait_started("a")
        await harness.wait_gated(DAEMON_SET)

        chosen["selector"]["matchLabels"]["example.com/version"] = "1.1"
        await harness.change(JOBS, "sample", {"spec": {"nodes": chosen}})
        await asyncio.sleep(0.5)
        go.set()
        await harness.wait_deleted(JOBS, "sample")
        assert harness.nodes.executions["b"] == 1


# --- taints (A2) -------------------------------------------------------------------------


async def test_a_tainted_node_does_not_stand_in_for_one_that_lost_its_pod(kube_env, namespace):
    template = {"spec": {"terminationGracePeriodSeconds": 3}}
    async with open_harness(kube_env, namespace, behaviour=script(c=[HOLD, TaskRun()])) as harness:
        harness.nodes.keeps_grace = True
        await harness.apply(spec(template=template))
        await completed(harness, 2)
        await harness.nodes.taint("b", "NoSchedule")
        await counted(harness, misscheduled=1)

        pod = await pod_of(harness, "c")
        await harness.admin.delete(PODS, pod["metadata"]["name"], namespace)
        await is_kept(harness, 2)
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 2}


async def test_a_completed_node_that_is_tainted_does_not_keep_the_job(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(c=[TaskRun(after=go)])
    ) as harness:
        await harness.apply(spec())
        await completed(harness, 2)
        await harness.nodes.taint("b", "NoSchedule")
        await counted(harness, misscheduled=1)
        go.set()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}


async def test_a_node_at_work_that_is_tainted_is_waited_for(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(c=[TaskRun(after=go)])
    ) as harness:
        await harness.apply(spec())
        await completed(harness, 2)
        await harness.nodes.taint("c", "NoSchedule")
        await counted(harness, misscheduled=1)
        await is_kept(harness, 1)
        go.set()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.node_states())["c"]["state"] == "Completed"


async def counted(harness, *, misscheduled):
    """Return once the DaemonSet controller says so."""

    async def look():
        found = await harness.find(DAEMON_SETS, DAEMON_SET)
        return found["status"].get("numberMisscheduled", 0) == misscheduled

    await harness.wait_until(look, f"{misscheduled} misscheduled")


# --- a refused DaemonSet (A3) ------------------------------------------------------------


@pytest.mark.parametrize("finishes_first", [False, True], ids=["reported-first", "at-once"])
async def test_a_run_whose_changed_daemon_set_is_refused_is_not_complete(
    kube_env, namespace, finishes_first
):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(b=[TaskRun(after=go)])
    ) as harness:
        a, b = map(harness.nodes.name, "ab")
        await harness.apply(spec(nodes={"include": [a, b]}))
        await completed(harness, 1)

        # The CRD's pattern takes this key, and the validation of DaemonSets does not.
        rule = {"key": "a..b/c", "operator": "DoesNotExist"}
        wider = {"include": None, "selector": {"matchExpressions": [rule]}}
        await harness.change(JOBS, "sample", {"spec": {"nodes": wider}})
        if finishes_first:
            go.set()
        found = await harness.wait_reason("Progressing", "DaemonSetRefused", seconds=SOON)
        assert found["status"] == "False"
        go.set()
        await is_kept(harness, 3)
        assert harness.nodes.executions["c"] == 0

        await harness.change(JOBS, "sample", {"spec": {"nodes": {"selector": None}}})
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}


# --- a token that the CRD cannot judge (D8) ----------------------------------------------


async def test_too_large_pattern_is_reported_and_can_be_replaced(kube_env, namespace):
    async with open_harness(kube_env, namespace) as harness:
        large = {"token": "\\pL{900}", "match": "Regex"}
        await harness.apply(spec(completion=large))
        found = await harness.wait_reason("Progressing", "InvalidCompletionToken", seconds=SOON)
        assert found["status"] == "False"
        assert "spec.completion.token: pattern too large" in found["message"]
        await harness.wait_events("InvalidCompletionToken")
        assert await harness.all(DAEMON_SETS) == []
        assert await harness.pods() == {}
        assert await harness.report() is None

        await harness.change(JOBS, "sample", {"spec": {"completion": {"token": "^do+ne$"}}})
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert harness.nodes.executions == {"a": 1, "b": 1, "c": 1}


# --- a task that gets a signal to stop (A4) ----------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "evicted"])
async def test_exit_code_0_on_term_does_not_complete_the_node(kube_env, namespace, how):
    stops = TaskRun(lines=(), after=asyncio.Event(), exit_on_term=0)
    behaviour = script(a=[SUCCEEDS], b=[stops, SUCCEEDS])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec(**EXIT))
        await completed(harness, 1)
        await harness.wait_started("b")
        name = (await pod_of(harness, "b"))["metadata"]["name"]
        if how == "deleted":
            await harness.admin.delete(PODS, name, namespace)
        else:
            evictions = PODS.with_subresource("eviction")
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
            await harness.admin.create(evictions, body, namespace, name=name)
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert harness.nodes.executions == {"a": 1, "b": 2}
        assert (await harness.node_states())["b"]["state"] == "Completed"


# --- deadlines of runs (B1) --------------------------------------------------------------


async def test_a_retry_after_the_deadline_tries_again(kube_env, namespace):
    behaviour = script(a=[FAILS, SUCCEEDS], b=[SUCCEEDS])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec(**EXIT, backoffLimit=0, activeDeadlineSeconds=4))
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=3)
        await asyncio.sleep(4)
        await retry(harness)
        await harness.wait_deleted(JOBS, "sample", seconds=6)
        assert (await harness.report())["status"]["phase"] == "Succeeded"
        assert harness.nodes.executions == {"a": 2, "b": 1}


async def test_retry_of_a_run_failed_by_deadline_restarts_the_deadline(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(a=[TaskRun(after=go)])
    ) as harness:
        await harness.apply(spec(activeDeadlineSeconds=3))
        await harness.wait_reason("Failed", "DeadlineExceeded", seconds=SOON)
        await asyncio.sleep(1)
        await retry(harness)
        await harness.wait_job(
            lambda status: condition(status, "Failed")["status"] == "False", "again", seconds=2
        )
        go.set()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.report())["status"]["phase"] == "Succeeded"


async def test_the_deadline_of_a_resumed_run_counts_from_the_start_again(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(a=[TaskRun(after=go)])
    ) as harness:
        await harness.apply(spec(activeDeadlineSeconds=3))
        await harness.wait_started("a")
        await harness.change(JOBS, "sample", {"spec": {"suspend": True}})
        await harness.wait_reason("Suspended", "Suspended", seconds=2)
        await asyncio.sleep(3.5)
        await harness.change(JOBS, "sample", {"spec": {"suspend": False}})
        await is_kept(harness, 1)
        go.set()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.report())["status"]["phase"] == "Succeeded"


# --- pods that never start (B6) ----------------------------------------------------------

NEVER_STARTS = {
    "volume": TaskRun(waiting="ContainerCreating"),
    "init": TaskRun(init_exit_code=3),
    "rejected": TaskRun(
        rejected="SysctlForbidden", message='forbidden sysctl: "net.x" not allowed'
    ),
}
SETUP = {"spec": {"initContainers": [{"name": "setup", "image": "example/setup:v1"}]}}


@pytest.mark.parametrize("why", NEVER_STARTS)
async def test_a_pod_that_never_starts_its_task_fails_its_node(kube_env, namespace, why):
    behaviour = script(a=[NEVER_STARTS[why]])
    async with open_harness(kube_env, namespace, controller=False, behaviour=behaviour) as harness:
        await harness.start_controller(pod_start_timeout_seconds=1 if why == "volume" else 3)
        await harness.apply(spec(template=SETUP) if why == "init" else spec())
        found = await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON + 2)
        assert harness.nodes.name("a") in found["message"]
        reason = "PodRejected" if why == "rejected" else "ContainerStartFailed"
        assert (await harness.node_states())["a"]["reason"] == reason
        if why == "init":
            assert "setup" in found["message"]
        if why == "rejected":
            assert "SysctlForbidden" in found["message"]


# --- input at the edge (C5) --------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [
        "activeDeadlineSeconds",
        "nodeDeadlineSeconds",
        "nodeUnreachableSeconds",
        "ttlSecondsAfterFinished",
    ],
)
async def test_a_number_of_seconds_that_no_clock_can_count_is_refused(kube_env, namespace, field):
    async with open_harness(
        kube_env, namespace, nodes=(), controller=False, terminator=False
    ) as harness:
        with pytest.raises(Invalid, match=field):
            await harness.apply(spec(**{field: MAX_INT64}))


async def test_a_long_retry_token_works(kube_env, namespace):
    behaviour = script(a=[FAILS, SUCCEEDS], b=[SUCCEEDS])
    async with open_harness(kube_env, namespace, nodes=("a", "b"), behaviour=behaviour) as harness:
        await harness.apply(spec(**EXIT, backoffLimit=0))
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        await retry(harness, "x" * 300)
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.report())["status"]["phase"] == "Succeeded"


# --- clocks that differ (B3) -------------------------------------------------------------

AHEAD_OR_BEHIND = pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["ahead", "behind"])


async def test_a_failure_on_a_node_whose_clock_is_ahead_is_reported_soon(kube_env, namespace):
    failing = TaskRun(lines=("no luck",), exit_code=1, late=FAST)
    async with open_harness(kube_env, namespace, behaviour=script(a=[failing, HOLD])) as harness:
        harness.nodes.skew["a"] = HOUR
        await harness.apply(spec(backoffLimit=0))
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON + 2)


async def test_token_counts_before_the_exit_despite_a_slow_node_clock(kube_env, namespace):
    ends = TaskRun(exit_code=1, late=FAST, back_off=60)
    async with open_harness(
        kube_env, namespace, nodes=("a",), behaviour=script(a=[ends]), terminator=False
    ) as harness:
        harness.nodes.skew["a"] = -HOUR
        await harness.apply(spec(backoffLimit=0))

        async def ended():
            statuses = (await pod_of(harness, "a"))["status"].get("containerStatuses") or [{}]
            return "terminated" in statuses[0].get("state", {})

        await harness.wait_started("a")
        await harness.wait_until(ended, "the task ended")
        await asyncio.sleep(1)
        await harness.start_terminator()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
        assert (await harness.node_states())["a"]["state"] == "Completed"


@AHEAD_OR_BEHIND
async def test_the_deadline_of_a_node_is_counted_by_one_clock(kube_env, namespace, skew):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(a=[TaskRun(after=go)])
    ) as harness:
        harness.nodes.skew["a"] = skew
        await harness.apply(spec(nodeDeadlineSeconds=4))
        await harness.wait_started("a")
        await is_kept(harness, 1.5)
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)
        assert (await harness.node_states())["a"]["reason"] == "DeadlineExceeded"


@AHEAD_OR_BEHIND
async def test_the_pod_start_timeout_counts_by_one_clock(kube_env, namespace, skew):
    wrong = TaskRun(waiting="ErrImagePull", message="no such image: example/task:v1")
    async with open_harness(
        kube_env, namespace, controller=False, behaviour=script(a=[wrong])
    ) as harness:
        harness.nodes.skew["a"] = skew
        await harness.start_controller(pod_start_timeout_seconds=4)
        await harness.apply(spec())
        await harness.wait_reason("Progressing", "ImagePullFailed", seconds=4)
        await is_kept(harness, 1)
        await harness.wait_reason("Failed", "MaxFailedNodesExceeded", seconds=SOON)


async def test_node_with_a_slow_clock_gets_its_grace_period(kube_env, namespace):
    go = asyncio.Event()
    async with open_harness(
        kube_env, namespace, behaviour=script(a=[TaskRun(after=go)])
    ) as harness:
        harness.nodes.skew["a"] = -HOUR
        await harness.apply(spec())
        await completed(harness, 2)
        await harness.nodes.unready("a")
        await is_kept(harness, 1)
        await harness.nodes.recover("a")
        go.set()
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)


@AHEAD_OR_BEHIND
async def test_the_time_to_live_is_counted_by_one_clock(kube_env, namespace, skew):
    async with open_harness(kube_env, namespace, nodes=("a",)) as harness:
        harness.nodes.skew["a"] = skew
        before = datetime.now(UTC).replace(microsecond=0)
        await harness.apply(spec(ttlSecondsAfterFinished=4))
        found = await harness.wait_job(
            lambda status: condition(status, "Complete").get("status") == "True",
            "complete",
            seconds=4,
        )
        ended = datetime.fromisoformat(found["status"]["completionTime"])
        assert before <= ended <= datetime.now(UTC)
        await asyncio.sleep(1)
        assert await harness.find(JOBS, "sample")
        await harness.wait_deleted(JOBS, "sample", seconds=SOON)
