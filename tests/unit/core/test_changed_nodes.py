"""A change of `spec.nodes`, or of labels, before the DaemonSet controller has acted on it."""

from dataclasses import replace

import pytest

from daemonset_job.api.choices import FailureAction
from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout import Step
from daemonset_job.api.taints import Taint
from job_controller.core.plan import Plan, RemoveSchedulingGates
from tests.unit.builders import SampleCluster, gated_pod, make_cluster, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import acts, conditions, failing, lost, run, spec

REST = ("b", "c", "d", "e", "f", "g", "h")


def exclude(cluster: SampleCluster, name: str) -> None:
    """Change the Job, so that it does not choose a node."""
    cluster.started_with = cluster.job.selection_hash
    spec(cluster, nodes=NodeSelection(exclude=(name,)))
    raw = {**cluster.job.raw_spec, "nodes": {"exclude": [name]}}
    cluster.job = replace(cluster.job, raw_spec=raw, generation=2)


def opened(plan: Plan) -> list[str]:
    return [pod.node_name for each in acts(plan, RemoveSchedulingGates) for pod in each.pods]


def test_no_task_starts_on_a_node_that_the_change_takes_out():
    """A person resumes a Job and excludes a node, whose pod waits at its gate."""
    cluster = make_cluster("a", "b", "c", running=False, gated=True)
    cluster.pods = [gated_pod(name) for name in cluster.nodes]
    former = cluster.daemon_set()
    exclude(cluster, "b")
    assert opened(run(cluster, daemon_set=former)) == ["a", "c"]
    # The DaemonSet has the new selection, and its controller has not acted on it yet.
    cluster.observed = False
    assert opened(run(cluster)) == ["a", "c"]


@pytest.mark.parametrize("refusal", ["", "denied by a policy"])
@pytest.mark.parametrize(
    ("taint", "starts"),
    [
        (Taint("team", "NoSchedule"), ["a"]),
        (Taint("team", "NoExecute"), ["a"]),
        (Taint("node.kubernetes.io/not-ready", "NoSchedule"), ["a", "b"]),
    ],
)
def test_no_task_starts_on_a_node_whose_taint_the_change_does_not_tolerate(taint, starts, refusal):
    """The pod at its gate still tolerates it, and so does the DaemonSet."""
    cluster = make_cluster("a", "b", running=False, gated=True, refusal=refusal)
    cluster.pods = [gated_pod(name) for name in cluster.nodes]
    cluster.nodes["b"] = make_node("b", taints=(taint,))
    spec(cluster, template={"spec": {"tolerations": [{"operator": "Exists"}]}})
    former = cluster.daemon_set()
    spec(cluster, template={})
    assert opened(run(cluster, daemon_set=former)) == starts


@pytest.mark.parametrize(
    "says_so", [False, True], ids=["changed by the Job", "changed by a client"]
)
def test_a_change_of_the_job_is_not_said_to_be_that_of_another_client(says_so):
    """The DaemonSet has tolerations that the Job does not ask for, or not any more."""
    cluster = make_cluster("a", "b")
    spec(cluster, template={"spec": {"tolerations": [{"operator": "Exists"}]}})
    former = cluster.daemon_set()
    spec(cluster, template={})
    if says_so:
        former = replace(former, annotations=cluster.daemon_set().annotations)
    plan = run(cluster, daemon_set=former)
    assert ("DaemonSetAltered" in {event.reason for event in plan.events}) == says_so
    assert (conditions(cluster)["Progressing"] == ("False", "DaemonSetAltered")) == says_so


@pytest.mark.parametrize("odd", ["x", None, [], {"key": ["team"]}, {"key": "team", "value": {}}])
def test_what_is_no_toleration_tolerates_nothing(odd):
    """The CRD under which the Job was stored did not check its template."""
    cluster = make_cluster("a", "b", running=False, gated=True, refusal="invalid")
    cluster.pods = [gated_pod(name) for name in cluster.nodes]
    cluster.nodes["b"] = make_node("b", taints=(Taint("team", "NoSchedule"),))
    spec(cluster, template={"spec": {"tolerations": [{"operator": "Exists"}]}})
    former = cluster.daemon_set()
    spec(cluster, template={"spec": {"tolerations": [odd]}})
    assert opened(run(cluster, daemon_set=former)) == ["a"]


def test_no_task_starts_there_while_the_change_is_refused():
    cluster = make_cluster("a", "b", running=False, gated=True, refusal="denied by a policy")
    cluster.pods = [gated_pod(name) for name in cluster.nodes]
    former = cluster.daemon_set()
    exclude(cluster, "b")
    assert opened(run(cluster, daemon_set=former)) == ["a"]


@pytest.mark.parametrize("rollout", [None, steps()])
def test_no_task_starts_on_a_node_whose_labels_take_it_out(rollout):
    world = RolloutWorld("a", "b", rollout=rollout)
    selector = {"matchLabels": {"pool": "x"}}
    spec(world.cluster, nodes=NodeSelection(selector=selector))
    raw = {**world.cluster.job.raw_spec, "nodes": {"selector": selector}}
    world.cluster.job = replace(world.cluster.job, raw_spec=raw)
    world.label("a", pool="x")
    world.label("b", pool="y")
    world.step(5)
    assert world.started == ["a"]
    world.label("b", pool="x")
    world.step(5)
    assert world.started == ["a", "b"]


def test_a_rollout_gives_no_turn_to_a_node_that_the_change_takes_out():
    world = RolloutWorld("a", "b", "c", rollout=steps(max_parallel=1))
    world.step(3)
    world.complete("a")
    former = world.cluster.daemon_set()
    exclude(world.cluster, "b")
    world.extra = {"daemon_set": former}
    world.step()
    world.extra = {}
    world.cluster.observed = False
    world.step(3)
    world.take_pod("b")
    world.cluster.observed, world.cluster.desired = True, 2
    world.step(3)
    assert world.started == ["a", "c"]


def test_a_node_that_had_its_turn_does_not_start_after_the_change():
    """Its turn is on record, and the gate is still there."""
    world = RolloutWorld("a", "b", rollout=steps())
    world.step(1)
    while not world.turns():
        world.step()
    assert world.started == []
    former = world.cluster.daemon_set()
    exclude(world.cluster, "b")
    world.extra = {"daemon_set": former}
    world.step(3)
    assert world.started == ["a"]


def test_a_step_does_not_end_by_the_number_of_nodes_before_the_change():
    """Half of one node is one, and half of eight are four."""
    world = RolloutWorld("a", rollout=steps(Step(nodes="50%")))
    world.step(4)
    world.cluster.nodes |= {name: make_node(name) for name in REST}
    world.cluster.observed, world.cluster.desired = False, 1
    world.complete("a")
    world.step(3)
    world.cluster.observed, world.cluster.desired = True, None
    for name in REST:
        world.put(gated_pod(name))
    world.step(4)
    assert world.started == ["a", "b", "c", "d"]


def test_nor_does_its_soak_begin():
    """After the soak, the script of a check would run before the step has all of its nodes."""
    world = RolloutWorld("a", rollout=steps(Step(nodes="50%", soak_seconds=60)))
    world.step(4)
    world.cluster.nodes |= {name: make_node(name) for name in REST}
    world.cluster.observed, world.cluster.desired = False, 1
    world.complete("a")
    world.step(3)
    assert world.cluster.job.status.rollout.soak_started_at is None


@pytest.mark.parametrize("action", [FailureAction.FAIL_FAST, FailureAction.ROLLBACK])
@pytest.mark.parametrize(("allowed", "fails"), [("10%", False), (1, True)])
def test_a_run_does_not_fail_by_a_share_of_the_nodes_before_the_change(action, allowed, fails):
    cluster = make_cluster(*(f"n{i}" for i in range(10)), gated=True)
    cluster.pods[:2] = [failing("n0"), failing("n1")]
    spec(cluster, failure_policy=FailurePolicy(action, allowed))
    cluster.nodes |= {f"n{i}": make_node(f"n{i}") for i in range(10, 30)}
    cluster.observed, cluster.desired = False, 10
    run(cluster)
    assert ("Failed" in conditions(cluster)) is fails
    cluster.observed, cluster.desired = True, None
    run(cluster)
    assert ("Failed" in conditions(cluster)) is fails


def tolerant(cluster: SampleCluster) -> DaemonSet:
    """Return the DaemonSet as a webhook leaves it that adds a toleration to each one."""
    ours = cluster.daemon_set()
    pod_spec = {**ours.pod_spec, "tolerations": [{"key": "team", "operator": "Exists"}]}
    template = {**ours.spec["template"], "spec": pod_spec}
    return replace(ours, spec={**ours.spec, "template": template})


@pytest.mark.parametrize("is_altered", [True, False], ids=["altered", "not observed"])
@pytest.mark.parametrize(
    "policy",
    [{"max_failed_nodes": "10%"}, {"max_failed_nodes": 9, "max_unreachable_nodes": "10%"}],
    ids=["failed", "unreachable"],
)
def test_a_run_fails_by_a_share_that_the_newest_number_does_not_allow_either(is_altered, policy):
    """It may stay uncorrected for long, and the other nodes are not to fail as well."""
    cluster = make_cluster(*(f"n{i}" for i in range(10)), running=False, gated=True)
    cluster.pods = [gated_pod(name) for name in cluster.nodes]
    for number in range(5):
        if "max_unreachable_nodes" in policy:
            cluster.nodes[f"n{number}"] = lost(f"n{number}")
        else:
            cluster.pods[number] = failing(f"n{number}")
    spec(cluster, failure_policy=FailurePolicy(FailureAction.FAIL_FAST, **policy))
    cluster.observed = is_altered
    changes = {"daemon_set": tolerant(cluster)} if is_altered else {}
    assert opened(run(cluster, **changes)) == []
    assert conditions(cluster)["Failed"] == ("True", "MaxFailedNodesExceeded")


def test_a_run_does_not_fail_while_another_client_has_narrowed_its_selection():
    """A tenth of one node is none, and of the ten nodes of the Job it is one."""
    cluster = make_cluster(*(f"n{i}" for i in range(10)), gated=True)
    cluster.pods = [failing("n0")]
    cluster.desired = 1
    spec(cluster, failure_policy=FailurePolicy(FailureAction.FAIL_FAST, "10%"))
    run(cluster, daemon_set=tolerant(cluster))
    assert "Failed" not in conditions(cluster)
