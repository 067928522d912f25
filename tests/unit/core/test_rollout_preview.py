"""The preview of a suspended Job with a rollout: what would run where, without running it."""

from dataclasses import replace

from daemonset_job.api.rollout import Rollout, Step
from daemonset_job.api.taints import Taint
from job_controller.core.plan import WriteStatus
from job_controller.core.start import plan_start
from tests.unit.builders import NOW, make_cluster, make_job, make_node
from tests.unit.core.runs import acts

CANARY = {"matchLabels": {"canary": "true"}}
STEPS = Rollout(max_parallel=1, steps=(Step(selector=CANARY), Step(nodes="50%")))


def preview(*names, rollout=STEPS, suspend=True):
    cluster = make_cluster(*names, running=False, job=make_job(), has_daemon_set=False)
    cluster.nodes["c"] = make_node("c", labels={"canary": "true"})
    spec = replace(cluster.job.spec, rollout=rollout, suspend=suspend)
    cluster.job = replace(cluster.job, spec=spec)
    plan = plan_start(cluster.snapshot(), NOW)
    (write,) = acts(plan, WriteStatus)
    assert plan.actions == (write,), "nothing is created"
    return write.status.rollout


def test_a_suspended_job_shows_its_batches_in_their_order():
    found = preview("a", "b", "c", "d")
    assert [(each.step, each.nodes) for each in found.plan] == [
        (1, ("c",)),
        (2, ("a",)),
        (3, ("b", "d")),
    ]


def test_a_large_batch_lists_its_first_nodes_and_counts_all():
    found = preview(*(f"n{i:03}" for i in range(200)), "c", rollout=Rollout())
    (batch,) = found.plan
    assert batch.count == 201
    assert len(batch.nodes) == 50


def test_a_job_without_a_rollout_has_none():
    assert preview("a", "c", rollout=None) is None


def test_cordoned_nodes_are_in_the_preview_and_those_that_get_no_pod_are_not():
    """As the DaemonSet controller does, which adds tolerations to its pods."""
    cluster = make_cluster("a", "b", "d", "e", running=False, job=make_job(), has_daemon_set=False)
    taints = {
        "a": Taint("node.kubernetes.io/unschedulable", "NoSchedule"),
        "b": Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),
        "d": Taint("example.com/maintenance", "NoSchedule"),
    }
    for name, taint in taints.items():
        cluster.nodes[name] = replace(cluster.nodes[name], taints=(taint,))
    cluster.job = replace(
        cluster.job, spec=replace(cluster.job.spec, rollout=Rollout(max_parallel=1), suspend=True)
    )
    (write,) = acts(plan_start(cluster.snapshot(), NOW), WriteStatus)
    (batch,) = write.status.rollout.plan
    assert batch.nodes == ("a", "b", "e")
