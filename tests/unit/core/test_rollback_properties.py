"""Whatever happens to nodes, tasks and the rollback: who is rolled back, and when."""

from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.states import ConditionType
from tests.unit.builders import make_node
from tests.unit.core.rollbacks import RollbackWorld

NODES = tuple("abcdef")
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["complete", "complete", "fail", "lose", "find", "step", "ask", "undo"]),
        st.integers(0, 9),
    ),
    max_size=30,
)
POLICIES = st.sampled_from(["Rollback", "FailFast", "Continue"])


def happen(world: RollbackWorld, event: str, number: int) -> None:
    at_work, owned = world.at_work, [*world.owned.values()]
    if event == "ask" and number < 3:
        world.ask()
    elif event == "find":
        find_all(world)
    elif event == "undo" and owned and not owned[-1].status.phase:
        world.end_rollback(owned[-1].name)
    elif at_work and event in {"complete", "fail", "lose"}:
        name = at_work[number % len(at_work)]
        {"complete": world.complete, "fail": world.fail, "lose": world.lose}[event](name)


def find_all(world: RollbackWorld) -> None:
    for name, node in world.cluster.nodes.items():
        if not node.ready:
            world.cluster.nodes[name] = make_node(name)


def check(world: RollbackWorld, created: int) -> None:
    """Check the Jobs that the last pass created: none beside a task, none elsewhere, none twice."""
    for number in range(created, len(world.created)):
        nodes = world.included(number)
        assert set(nodes) <= set(world.started), "no node that never started the task"
        busy = {name for name in world.at_work if world.cluster.nodes[name].ready}
        failed = {pod.node_name for pod in world.cluster.pods if pod.container is not None}
        assert not busy & set(nodes) - failed, "no node on which the task is at work"
        earlier = [name for each in range(number) for name in world.included(each)]
        assert not set(nodes) & set(earlier), "no node twice"


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), POLICIES, EVENTS)
def test_each_started_node_is_rolled_back_once_and_no_other(parallel, action, events):
    world = RollbackWorld(
        *NODES,
        rollout={"maxParallel": parallel},
        failurePolicy={"action": action, "maxFailedNodes": 0},
    )
    began = None
    for event, number in events:
        created = len(world.created)
        world.step()
        check(world, created)
        if world.rollback is not None and began is None:
            began = list(world.started)
        if began is not None:
            assert world.started == began, "no node starts the task any more"
        happen(world, event, number)
    for _ in range(40):
        find_all(world)
        created = len(world.created)
        world.step()
        check(world, created)
        world.complete(*[name for name in world.at_work if name not in world.cluster.evidence])
        for owned in [*world.owned.values()]:
            if not owned.status.phase:
                world.end_rollback(owned.name)
    job = world.cluster.job
    if world.rollback is None:
        assert world.created == []
        return
    assert job.is_true(ConditionType.ROLLED_BACK), world.message
    undone = {name for number in range(len(world.created)) for name in world.included(number)}
    assert undone | set(world.rollback.unreachable_names.split(",")) >= set(world.started)
    assert world.report["rollback"] == world.rollback.to_raw()
