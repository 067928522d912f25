"""Drains with anything in between: suspension, deletion, failures, crashes, lost answers.

Whatever happens, three things hold. A cordon from before is never touched. One node at most is
cordoned by a Job at any moment. No cordon is left when all Jobs are over or gone.
"""

import asyncio
from random import Random

import pytest

from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.controller_cluster import FakeCluster, gated, running, until, virtual_clock
from tests.contract.test_controller_drains import (
    BUDGET,
    is_clean,
    is_cordoned,
    mark,
    put_pod,
)
from tests.fakekube.daemon_sets import node_of

__all__ = ["virtual_clock"]

pytestmark = [pytest.mark.looptime(end=50_000), pytest.mark.usefixtures("virtual_clock")]

NODES_OF_ALL = ("a", "b", "c")
# Cordoned by a person, before and after.
CORDONED = "b"
STEPS = 40


class Story:
    """One run with random disturbances."""

    def __init__(self, server, cluster, seed):
        self.server, self.cluster, self.random = server, cluster, Random(seed)
        self.serial = 0
        self.spec = {
            "drain": {"timeoutSeconds": 30},
            "backoffLimit": 0,
            "failurePolicy": {"action": "Continue", "maxFailedNodes": "100%"},
        }
        self.violations = []
        server.storage.listeners.append(self._look)

    def _look(self, _event):
        marked = [name for name in NODES_OF_ALL if self._exists(name) and mark(self.server, name)]
        if len(marked) > 1:
            self.violations.append(f"{marked} are cordoned at the same time")
        if CORDONED in marked:
            self.violations.append("the cordon of a person is marked")

    def _exists(self, name):
        return self.server.exists(NODES, name, "")

    async def rest(self, seconds):
        """Let time pass; a suspended Job gives its nodes back meanwhile."""
        is_suspended = self.has_job() and self.server.get(JOBS, "sample")["spec"].get("suspend")
        is_idle = is_suspended and not self.pods() and not self.server.faults
        await asyncio.sleep(seconds)
        if is_idle and seconds >= 5.0:
            assert [name for name in NODES_OF_ALL if mark(self.server, name)] == []

    def step(self):
        phase = self.cluster.status().get("phase") if self.has_job() else "Failed"
        if phase in {"Failed", "Succeeded"}:
            self.delete()
            self.apply()
            return
        for _ in NODES_OF_ALL:
            self.put_pod()
        acts = (
            self.suspend, self.resume, self.delete, self.apply, self.complete, self.complete,
            self.fail, self.block, self.allow, self.allow, self.lose_answers, self.refuse,
            self.delete_pod,
        )  # fmt: skip
        self.random.choice(acts)()

    def has_job(self):
        return self.server.exists(JOBS, "sample")

    def apply(self, **changes):
        self.cluster.apply(**self.spec, **changes)

    def suspend(self):
        if self.has_job():
            self.apply(suspend=True)

    def resume(self):
        if self.has_job():
            self.apply(suspend=False)

    def delete(self):
        if self.has_job():
            self.server.remove(JOBS, "sample")

    def pods(self):
        return [
            pod
            for pod in self.server.list(PODS)
            if pod["metadata"]["namespace"] == "default" and not gated(pod)
        ]

    def complete(self, most=1):
        """Enter nodes in the ledger of their run, as the terminator does."""
        for pod in self.random.sample(found := self.pods(), len(found))[:most]:
            uid = pod["metadata"]["labels"]["daemonset.darkowlzz.space/job-uid"]
            for report in self.server.list(JOB_REPORTS):
                if report["spec"]["job"]["uid"] == uid:
                    self._enter(report["metadata"]["name"], pod)

    def _enter(self, report, pod):
        node = node_of(pod)
        entry = {
            "nodeUID": self.server.get(NODES, node, "")["metadata"]["uid"],
            "completedAt": self.cluster.stamp(),
            "pod": pod["metadata"]["name"],
            "podUID": pod["metadata"]["uid"],
        }
        self.server.patch(JOB_REPORTS, report, {"evidence": {node: entry}})

    def fail(self):
        for pod in self.pods()[:1]:
            self.cluster.fail(node_of(pod))

    def block(self):
        self.server.fail_next("POST", "/eviction", 429, 1000, message=BUDGET)

    def allow(self):
        self.server.faults.clear()

    def lose_answers(self):
        self.server.lose_answer_next("PATCH", "/nodes/", 1)

    def refuse(self):
        self.server.fail_next("PATCH", "/nodes/", 500, 2, message="failed calling webhook")

    def put_pod(self):
        self.serial += 1
        name, node = f"web-{self.serial}", self.random.choice(NODES_OF_ALL)
        if not is_cordoned(self.server, node):
            put_pod(self.server, name, node)

    def delete_pod(self):
        for pod in self.pods()[:1]:
            self.server.remove(PODS, pod["metadata"]["name"])


@pytest.mark.parametrize("seed", range(8))
async def test_no_cordon_is_left_and_none_of_others_is_touched(server, seed):
    cluster = FakeCluster(server)
    end_pods(server)
    for name in NODES_OF_ALL:
        cluster.join(name)
    server.patch(NODES, CORDONED, {"spec": {"unschedulable": True}}, "")
    story = Story(server, cluster, seed)
    story.apply()
    left = STEPS
    while left > 0:
        async with running(server):
            for _ in range(min(story.random.randint(1, 8), left)):
                await story.rest(story.random.choice((0.0, 0.1, 1.0, 5.0, 40.0)))
                story.step()
                left -= 1
    server.faults.clear()
    if story.random.random() < 0.5:
        story.delete()
    elif story.has_job():
        story.apply(suspend=False)
    async with running(server):
        # The tasks that are at work end.
        for _ in range(2 * len(NODES_OF_ALL)):
            await asyncio.sleep(40)
            story.complete(most=len(NODES_OF_ALL))
        await until(lambda: is_clean(server, "a") and is_clean(server, "c"), 600)
    assert is_cordoned(server, CORDONED)
    assert mark(server, CORDONED) is None
    assert story.violations == []


def end_pods(server):
    """Have the kubelets end pods of other clients as soon as they may."""

    def end(event):
        meta = event.new["metadata"]
        is_other = meta.get("namespace") == "shop"
        if event.type == "MODIFIED" and is_other and meta.get("deletionTimestamp"):
            loop = asyncio.get_running_loop()
            loop.call_soon(server.remove, PODS, meta["name"], meta["namespace"])

    server.storage.listeners.append(end)
