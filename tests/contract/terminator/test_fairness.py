"""What the many logs of one namespace cost another one."""

import asyncio
import re

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.names import CONTAINER_NAME
from daemonset_job.api.pod import Pod
from daemonset_job.kube.client.resource import JOBS
from terminator.config import Config
from terminator.logs.matcher import Matcher
from terminator.logs.scanner import Limits, Scanner, Target
from terminator.metrics import Metrics
from tests.clocks import LoopClock
from tests.contract.fake_api import START
from tests.contract.fake_faults import Fault
from tests.contract.fake_logs import FakeLog
from tests.contract.terminator.cluster import eventually

pytestmark = pytest.mark.looptime(end=2000)

TALKATIVE_PODS = 5000


def target(namespace, name):
    pod = Pod(
        namespace=namespace,
        name=name,
        uid=f"{namespace}-{name}",
        resource_version="1",
        owner_uid="set",
        node_name=name,
        is_scheduled=True,
        phase="Running",
        container=Container("running"),
    )
    return Target(pod, f"job-{namespace}", f"node-{name}", Matcher("done"))


@pytest.mark.parametrize("seconds", [0.25, 5.0])
async def test_noisy_pods_delay_another_namespace_by_less_than_two_seconds(
    server, client, monkeypatch, seconds
):
    """With kubelets that answer at once, and with some that need longer than a read may."""
    monkeypatch.setattr("terminator.logs.read_budget.SHARED_BYTES", 0)
    server.delay_next("GET", "/namespaces/tenant/pods/.*/log", seconds, times=1_000_000)
    talk = FakeLog(server.clock)
    talk.write(*[b"x" * 4000] * 80)
    found = {}
    scanner = Scanner(
        client,
        LoopClock(START),
        Metrics(),
        limits=Limits(),
        on_findings=lambda _job, target, findings: found.setdefault(target.pod.uid, findings),
        on_progress=lambda *_found: None,
    )
    running = asyncio.create_task(scanner.run())
    many = [target("tenant", f"n{number}") for number in range(TALKATIVE_PODS)]
    for each in many:
        server.logs["tenant", each.pod.name, CONTAINER_NAME, False] = talk
    scanner.set_targets(("tenant", "noisy"), many)
    await asyncio.sleep(5)
    assert server.count("GET", "/namespaces/tenant/pods") > 60

    few = [target("other", name) for name in "abc"]
    for each in few:
        server.log(each.pod.name, "other", CONTAINER_NAME).write("working")
    scanner.set_targets(("other", "quiet"), few)
    for number, each in enumerate(few):
        await asyncio.sleep(number)
        server.log(each.pod.name, "other", CONTAINER_NAME).write("done")
        await eventually(lambda each=each: each.pod.uid in found, 2.0)
        assert found[each.pod.uid].completed_at
    assert set(found) == {each.pod.uid for each in few}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_namespace_that_holds_all_streams_gives_another_its_share(cluster, server):
    cluster.add_job("quiet", tuple(f"n{number}" for number in range(20)), "tenant")
    terminator, _ = cluster.start(Config(max_streams=4, resync_period=1000.0))
    await asyncio.sleep(20)
    assert cluster.sample(terminator, "log_streams") == 4
    assert server.count("GET", "/namespaces/tenant/pods/.*follow=true") == 4

    cluster.add_job("other", namespace="other")
    await eventually(lambda: server.count("GET", "/namespaces/other/.*follow=true") == 2, 2.0)
    await asyncio.sleep(20)
    # Neither has more than its half, and none of them is taken to and fro.
    assert server.count("GET", "/namespaces/other/.*follow=true") == 2
    assert cluster.sample(terminator, "log_streams") == 4


async def test_many_jobs_that_cannot_be_deleted_delay_no_deletion_of_another_namespace(
    cluster, server
):
    """A slow webhook refuses to let them go."""
    path = re.compile("/namespaces/tenant/jobs/")
    server.faults.append(Fault("DELETE", path, 100_000, 422, delay_seconds=10.0))
    stuck = [cluster.add_job(f"stuck-{number}", ("a",), "tenant") for number in range(30)]
    cluster.start()
    for run in stuck:
        run.log("a").write("done")
        run.agree()
    await eventually(lambda: server.count("DELETE", "/namespaces/tenant/jobs/") >= 4)
    other = cluster.add_job("other", ("a",), "other")
    other.log("a").write("done")
    await eventually(lambda: other.completed() == {"a"}, 2.0)
    other.agree()
    await eventually(lambda: not other.exists, 1.0)
    assert server.count("DELETE", "/namespaces/tenant/jobs/") < len(stuck)


async def test_a_client_that_changes_a_job_all_the_time_costs_a_few_reconciles_a_second(
    cluster, server
):
    run = cluster.add_job()
    terminator, _ = cluster.start()

    def count() -> float:
        return cluster.sample(terminator, "reconciles_total", component="terminator", result="done")

    await asyncio.sleep(10)
    before = count()
    for number in range(500):
        text = {"metadata": {"annotations": {"example.com/number": str(number)}}}
        server.patch(JOBS, run.name, text)
        await asyncio.sleep(0.02)
    assert count() - before < 120
    run.print_tokens()
    run.agree()
    await eventually(lambda: not run.exists)
