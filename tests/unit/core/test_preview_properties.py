"""The preview of a suspended Job says in which batches and in which order its nodes then start."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.rollout import Order, Rollout, Step
from job_controller.core.plan import RemoveSchedulingGates, WriteStatus
from job_controller.core.settings import Settings
from job_controller.core.start import plan_start
from tests.unit.builders import NOW, make_cluster, make_job
from tests.unit.core.rollouts import RolloutWorld
from tests.unit.core.runs import acts

NODES = tuple("abcdefg")
ZONES = ("x", "y")
CANARY = {"matchLabels": {"canary": "true"}}
SHARES = st.integers(1, 8) | st.sampled_from(["1%", "30%", "50%", "100%"])
STEPS = st.lists(
    st.builds(Step, nodes=SHARES) | st.just(Step(selector=CANARY)), max_size=3, unique_by=str
)


def plan_of(world: RolloutWorld):
    """Return the batches that the Job shows while it is suspended and has not started."""
    cluster = make_cluster(*NODES, running=False, job=make_job(), has_daemon_set=False)
    cluster.nodes = dict(world.cluster.nodes)
    spec = replace(cluster.job.spec, rollout=world.cluster.job.spec.rollout, suspend=True)
    cluster.job = replace(cluster.job, uid=world.cluster.job.uid, spec=spec)
    plan = plan_start(cluster.snapshot(settings=world.settings), NOW)
    (write,) = acts(plan, WriteStatus)
    assert plan.actions == (write,), "nothing is created"
    return write.status.rollout.plan


@settings(max_examples=30, deadline=None)
@given(STEPS, st.sampled_from(list(Order)), st.sets(st.sampled_from(NODES)), st.sampled_from(NODES))
def test_nodes_start_as_the_preview_says(found, order, canaries, controller):
    if not canaries:
        canaries = {"c"}
    rollout = Rollout(max_parallel=1, steps=tuple(found), order=order)
    world = RolloutWorld(*NODES, rollout=rollout)
    world.settings = Settings(node_name=controller)
    for number, name in enumerate(NODES):
        canary = {"canary": "true"} if name in canaries else {}
        world.label(name, zone=ZONES[number % 2], **canary)
    plan = plan_of(world)
    assert sum(batch.count for batch in plan) == len(NODES)
    for _ in range(90):
        world.step()
        world.complete(*world.at_work)
        waits = world.cluster.job.status.rollout
        if waits is not None and waits.waits_for:
            world.request(approved_step=waits.step)
        if world.phase == "Succeeded":
            break
    assert world.phase == "Succeeded"
    assert world.started == [name for batch in plan for name in batch.nodes]
    steps = {name: batch.step for batch in plan for name in batch.nodes}
    assert world.turns() == steps
    assert not acts(world.plan, RemoveSchedulingGates)
