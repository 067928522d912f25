"""Policy Continuous: which pods the terminator reads, and which evidence it writes."""

import asyncio

import pytest

from daemonset_job.api import names
from daemonset_job.api.job_spec import parse_spec
from daemonset_job.api.revision import find_revision
from daemonset_job.kube.client.resource import JOB_REPORTS, JOBS, NODES, PODS
from tests.contract.fake_storage import Raw
from tests.contract.terminator.cluster import FakeRun, TerminatorCluster, eventually, terminated

pytestmark = pytest.mark.looptime(end=2000)

REPORTS = "/jobreports/"


def revision(number: int, spec: Raw) -> str:
    return f"{number}-{find_revision(parse_spec(spec))}"


def add_standing_job(cluster: TerminatorCluster, mode: str = "Log") -> FakeRun:
    """Create a Job of policy Continuous with one node, whose pod is of its first revision."""
    completion = {"policy": "Continuous", "mode": mode}
    run = cluster.add_job(nodes=("a",), completion=completion)
    first = revision(1, {"image": "x", "completion": completion})
    set_revision(run, run.pod("a"), first)
    run.server.patch(JOBS, run.name, {"status": {"revision": first}})
    return run


def set_revision(run: FakeRun, pod: str, found: str) -> None:
    run.server.patch(PODS, pod, {"metadata": {"annotations": {names.ANNOTATION_REVISION: found}}})


def make_due_again(run: FakeRun, *pods: str) -> None:
    """Do as the controller does when the node is due again after these pods, by UID."""
    uid = run.server.get(NODES, "a", "")["metadata"]["uid"]
    record = {"uid": uid, "state": "Waiting", "earlierPods": list(pods)}
    name = run.reports()[0]["metadata"]["name"]
    run.server.patch(JOB_REPORTS, name, {"status": {"nodeStates": {"a": record}}})


def pod_uid(run: FakeRun) -> str:
    return str(run.server.get(PODS, run.pod("a"))["metadata"]["uid"])


@pytest.mark.parametrize("mode", ["Log", "Exit"])
async def test_evidence_of_a_pod_that_no_longer_counts_is_not_written_again(cluster, server, mode):
    """The pod stays for its grace period, or while the Job is suspended."""
    run = add_standing_job(cluster, mode)
    cluster.start()
    run.print_tokens()
    if mode == "Exit":
        run.set_container("a", terminated(0), "initContainerStatuses")
        server.patch(PODS, run.pod("a"), {"status": {"containerStatuses": []}})
    await eventually(lambda: run.completed() == {"a"})
    writes = server.count("PATCH", REPORTS)
    make_due_again(run, pod_uid(run))
    await asyncio.sleep(300)
    assert server.count("PATCH", REPORTS) == writes


async def test_evidence_that_comes_late_is_dropped_if_its_node_was_due_again_since(cluster, server):
    """By the time it can be written, the record lists pods of a later try only."""
    run = add_standing_job(cluster)
    cluster.start()
    server.fail_next("PATCH", REPORTS, 422, times=1)
    run.print_tokens()
    await eventually(lambda: server.count("PATCH", REPORTS) == 1)
    uid = pod_uid(run)
    server.remove(PODS, run.pod("a"))
    make_due_again(run, uid)
    await asyncio.sleep(1)
    make_due_again(run, "the-pod-after-it")
    await asyncio.sleep(300)
    assert run.evidence() == {}


async def test_no_script_completes_a_node_by_the_word_that_an_image_printed(cluster, server):
    run = add_standing_job(cluster)
    completion = {"policy": "Continuous"}
    script = {"script": "echo done", "completion": completion}
    second = revision(2, script)
    # The pods are ahead of the Jobs in the caches: the status is that of the first revision.
    server.patch(JOBS, run.name, {"spec": {"image": None, **script}})
    set_revision(run, run.pod("a"), second)
    cluster.start()
    run.print_tokens()
    await asyncio.sleep(30)
    assert run.evidence() == {}
    token = f"completed-{run.uid}"
    server.patch(JOBS, run.name, {"status": {"revision": second, "completionToken": token}})
    await asyncio.sleep(30)
    assert run.completed() == set()
    run.log("a").write(token)
    await eventually(lambda: run.completed() == {"a"})
