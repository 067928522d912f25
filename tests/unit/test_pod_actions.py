"""Whether each pod of a run waits at its gate, as the API server has them."""

import asyncio
from types import SimpleNamespace

import pytest

from daemonset_job.api import names
from daemonset_job.kube.client.answers import Found, Page
from daemonset_job.kube.client.errors import Conflict
from daemonset_job.kube.client.resource import DAEMON_SETS
from daemonset_job.kube.client.unreadable import Unreadable
from job_controller.actions.pods import PodActions
from job_controller.core.plan import CheckNoPodMayStart
from job_controller.core.state.ended_pods import EndedPods
from job_controller.ended_pods import EndedPodStore
from tests.unit.builders import make_job, started

JOB = make_job()
KEY = (JOB.namespace, JOB.name)


def raw_pod(name="p", daemon_set=JOB.daemon_set_name, *, gated=True):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon_set, "uid": "ds"}
    gates = [{"name": names.START_GATE}] if gated else []
    return {
        "metadata": {"name": name, "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"schedulingGates": gates},
    }


def orphan(name):
    labels = {"daemonset": JOB.daemon_set_name, "job": JOB.name}
    pod = raw_pod(name)
    return {**pod, "metadata": {"name": name, "labels": labels}}


class Server:
    """Answers a list in pages of one pod, and has a DaemonSet of the Job, or none."""

    def __init__(self, *pods, daemon_set=None):
        self.pods = pods
        self.daemon_set = daemon_set

    async def find(self, resource, name, namespace):
        assert (resource, name, namespace) == (DAEMON_SETS, JOB.daemon_set_name, JOB.namespace)
        return Found(self.daemon_set, "1")

    async def page(self, what, *, continue_=None, **_):
        assert what.label_selector == f"{names.LABEL_JOB_UID}={JOB.uid}"
        at = int(continue_ or 0)
        more = str(at + 1) if at + 1 < len(self.pods) else ""
        return Page(list(self.pods[at : at + 1]), "1", more, 100)


def raw_daemon_set(*, owner=JOB.uid, gated=True, seen=1):
    gates = [{"name": names.START_GATE}] if gated else []
    owners = [{"kind": names.JOB_KIND, "name": JOB.name, "uid": owner, "controller": True}]
    return {
        "metadata": {
            "name": JOB.daemon_set_name,
            "namespace": JOB.namespace,
            "uid": "ds",
            "generation": 1,
            "ownerReferences": [{"apiVersion": names.API_VERSION, **each} for each in owners],
        },
        "spec": {"template": {"spec": {"schedulingGates": gates}}},
        "status": {"observedGeneration": seen},
    }


def check(*pods, daemon_set=None, **changes):
    actions = PodActions(SimpleNamespace(client=Server(*pods, daemon_set=daemon_set)))
    asyncio.run(actions.execute(KEY, JOB, CheckNoPodMayStart(**changes)))


def test_no_pod_and_gated_pods_pass():
    check()
    check(raw_pod("a"), raw_pod("b"))


def test_a_pod_of_another_daemon_set_proves_nothing():
    check(raw_pod(daemon_set="another", gated=False))


@pytest.mark.parametrize(
    "last",
    [raw_pod("late", gated=False), Unreadable("odd", "default", "late"), orphan("late")],
    ids=["not gated", "unreadable", "without an owner"],
)
def test_a_pod_that_may_start_is_a_conflict_on_each_page(last):
    with pytest.raises(Conflict, match="late"):
        check(raw_pod("a"), raw_pod("b"), last)


def test_a_task_that_has_begun_is_known_of_after_its_pod_is_gone():
    """The cache of pods may be so late that it never has the pod."""
    job, ended_pods = started(JOB), EndedPodStore()
    pod = raw_pod("a", gated=False)
    statuses = [{"name": names.CONTAINER_NAME, "state": {"running": {}}}]
    status = {"phase": "Running", "containerStatuses": statuses}
    pod = {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": status}
    caches = SimpleNamespace(ended_pods=ended_pods)
    actions = PodActions(SimpleNamespace(client=Server(pod), caches=caches))
    with pytest.raises(Conflict, match="may start"):
        asyncio.run(actions.execute(KEY, job, CheckNoPodMayStart()))
    assert ended_pods.of(job) == EndedPods(ran_on="n")


def test_an_orphan_that_is_being_deleted_keeps_no_job_from_its_next_start():
    pod = orphan("late")
    ending = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}}
    check(ending, is_taken_back=True)
    with pytest.raises(Conflict, match="late"):
        check(ending)
    with pytest.raises(Conflict, match="late"):
        check(pod, is_taken_back=True)


@pytest.mark.parametrize(
    ("changes", "is_taken_back"),
    [({"gated": False}, False), ({"seen": 0}, False), ({}, True)],
    ids=["not gated", "gate not seen", "of a start that was taken back"],
)
def test_a_daemon_set_that_may_create_pods_is_a_conflict(changes, is_taken_back):
    with pytest.raises(Conflict, match="may create pods"):
        check(daemon_set=raw_daemon_set(**changes), is_taken_back=is_taken_back)


def test_a_daemon_set_with_the_gate_and_that_of_another_job_pass():
    check(daemon_set=raw_daemon_set())
    check(daemon_set=raw_daemon_set(owner="another", gated=False), is_taken_back=True)
