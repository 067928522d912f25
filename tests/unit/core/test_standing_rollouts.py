"""Jobs that stay and roll out in steps: each revision has its own turns, and its own cordons."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import FailureAction, PodPolicy
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.pod import Pod
from daemonset_job.api.rollout import Check, Rollout, Step
from job_controller.core.drain_actions import UncordonNodes
from job_controller.core.plan import (
    ApplyDaemonSet,
    DeleteDaemonSet,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
)
from job_controller.core.state.cordons import mark_of
from tests.unit.builders import gated_pod, make_node
from tests.unit.core.rollouts import RolloutWorld, steps
from tests.unit.core.runs import acts, run
from tests.unit.core.standing_jobs import (
    CONTINUOUS,
    change,
    completed_by,
    deleted,
    select,
    standing,
)


class StandingWorld(RolloutWorld):
    """A cluster whose DaemonSet creates pods of the newest revision at once."""

    def __init__(self, *node_names: str, rollout: Rollout) -> None:
        super().__init__(*node_names, rollout=rollout)
        change(self.cluster, completion=CONTINUOUS)
        job = self.cluster.job
        self.cluster.job = replace(job, status=replace(job.status, revision=job.revision))
        self.replace_pods(1)

    def replace_pods(self, serial: int) -> None:
        revision = self.cluster.job.revision
        self.cluster.pods = [
            gated_pod(name, serial=serial, revision=revision) for name in self.cluster.nodes
        ]

    def put(self, pod: Pod) -> None:
        super().put(replace(pod, revision=self.cluster.job.revision))

    def complete(self, *node_names: str) -> None:
        super().complete(*node_names)
        for name in node_names:
            completed_by(self.cluster, name, self.cluster.job.revision)


def test_a_new_revision_begins_with_its_own_canary() -> None:
    """Nodes that had their turn, and had not started, wait for the steps like all others."""
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1, needs_approval=True)))
    world.step(4)
    world.complete("a")
    world.step(4)
    world.request(approved_step=1)
    while world.turns() != {"a": 1, "b": 2, "c": 2}:
        world.step()
    assert world.started == ["a"]
    # Before their gates are removed, the user corrects the task.
    world.request()
    change(world.cluster, command=("new",))
    world.step()
    world.replace_pods(2)
    world.step(10)
    assert world.started == ["a", "a"]
    assert world.turns() == {"a": 1}
    world.complete("a")
    world.step(10)
    assert world.started == ["a", "a"]
    assert world.condition("Suspended")[1] == "WaitingForApproval"


def test_a_rerun_of_the_node_of_a_step_gives_no_other_node_a_turn_in_its_place() -> None:
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1, soak_seconds=100)))
    world.step(4)
    world.complete("a")
    world.step(4)
    job = world.cluster.job
    world.cluster.job = replace(job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.step(2)
    # Its next pod is not there yet.
    world.take_pod("a")
    world.step(10)
    assert world.started == ["a"]
    world.put(replace(gated_pod("a", serial=9), revision=job.revision))
    world.step(10)
    assert world.started == ["a", "a"]


def test_a_rerun_that_waits_for_the_report_does_not_begin_the_soak_of_another_step_again() -> None:
    """Else each pass would write another start of the soak, and cause the next pass."""
    canary = Step(selector={"matchLabels": {"canary": "true"}}, soak_seconds=100)
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1), canary))
    world.label("b", canary="true")
    for _ in range(2):
        world.step(6)
        world.complete(*world.at_work)
    # The pod of a is deleted after its completion; the next one waits.
    world.put(gated_pod("a", serial=5))
    world.step(4)
    job = world.cluster.job
    assert job.status.rollout is not None
    assert job.status.rollout.soak_started_at is not None
    world.cluster.job = replace(job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.extra = {"refusals": {RefusedWrite.REPORT: "quota"}}
    world.step(5)
    assert world.cluster.job.status.rollout == job.status.rollout
    assert world.started == ["a", "b"]


def in_failing_check(action: FailureAction, timeout_seconds: int) -> StandingWorld:
    """Return a world in which a has completed, and then b, which is the canary and is not Ready.

    The pod of a is deleted after its completion; the next one waits.
    """
    check = Check(node_ready=True, timeout_seconds=timeout_seconds)
    canary = Step(selector={"matchLabels": {"canary": "true"}}, check=check)
    world = StandingWorld("a", "b", "c", rollout=steps(Step(nodes=1), canary))
    change(world.cluster, failure_policy=FailurePolicy(action))
    world.label("b", canary="true")
    world.step(6)
    world.complete("a")
    world.step(6)
    world.put(gated_pod("a", serial=5))
    world.set_ready("b", is_ready=False)
    world.complete("b")
    return world


def test_a_rerun_that_waits_for_the_report_leaves_the_failure_of_a_check() -> None:
    """It is requested before the check fails. The report that has both is refused for a while."""
    world = in_failing_check(FailureAction.PAUSE, timeout_seconds=30)
    world.step(4)
    world.cluster.job = replace(world.cluster.job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.extra = {"refusals": {RefusedWrite.REPORT: "quota"}}
    world.step(30)
    assert world.cluster.job.status.rollout is not None
    failure = world.cluster.job.status.rollout.check_failure
    assert failure
    for _ in range(10):
        world.step()
        assert world.cluster.job.status.rollout.check_failure == failure
    world.extra = {}
    world.step(3)
    assert world.cluster.report_status is not None
    reasons = [entry["reason"] for entry in world.cluster.report_status["history"]]
    assert reasons[-2:] == ["RerunRequested", "Resumed"]
    assert "Paused" in reasons


@pytest.mark.parametrize("action", [FailureAction.PAUSE, FailureAction.FAIL_FAST])
def test_a_check_that_has_failed_stays_failed_while_a_rerun_waits_for_the_report(
    action: FailureAction,
) -> None:
    """Else each pass forgets or finds the failure, writes that, and causes the next pass."""
    world = in_failing_check(action, timeout_seconds=0)
    world.step(10)
    phase = world.phase
    assert phase in {"Paused", "Failed"}
    world.cluster.job = replace(world.cluster.job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.extra = {"refusals": {RefusedWrite.REPORT: "quota"}}
    world.step(2)
    for _ in range(6):
        assert not acts(world.step(), WriteStatus)
        assert world.phase == phase
    world.extra = {}
    world.step(2)
    assert world.cluster.report_status is not None
    reasons = [entry["reason"] for entry in world.cluster.report_status["history"]]
    assert "RerunRequested" in reasons


@pytest.mark.parametrize("action", [FailureAction.PAUSE, FailureAction.FAIL_FAST])
def test_a_rerun_that_the_report_has_forgets_the_failure_of_a_check_whatever_is_refused_then(
    action: FailureAction,
) -> None:
    """The controller ends before it writes the status. After that the report is refused."""
    world = in_failing_check(action, timeout_seconds=0)
    world.step(10)
    assert world.phase in {"Paused", "Failed"}
    world.set_ready("b", is_ready=True)
    world.cluster.job = replace(world.cluster.job, annotations={names.ANNOTATION_RERUN: "a@1"})
    world.limit = 1
    assert isinstance(world.step().actions[0], WriteReportStatus)
    world.limit = None
    world.extra = {"refusals": {RefusedWrite.REPORT: "quota"}}
    world.step(3)
    assert not world.cluster.job.has_open_request
    world.extra = {}
    world.step(3)
    assert world.phase == "Running"


def test_a_cordon_stays_while_the_task_of_an_earlier_revision_is_at_work() -> None:
    cluster = standing("a", "b")
    change(cluster, cordon=True)
    run(cluster)
    mark = str(mark_of(cluster.job))
    cluster.nodes["a"] = make_node("a", is_cordoned=True, cordoned_by=mark)
    assert acts(run(cluster), UncordonNodes) == []
    change(cluster, command=("new",), suspend=True)
    for _ in range(3):
        plan = run(cluster)
        assert deleted(plan) == []
        assert acts(plan, UncordonNodes) == []
    change(cluster, suspend=False)
    plans = [run(cluster), run(cluster)]
    assert any("a" in deleted(plan) for plan in plans)
    assert [acts(plan, UncordonNodes) for plan in plans] == [[], []]


CHECKED = steps(Step(nodes=1, check=Check(node_ready=True, timeout_seconds=30)))
UNCHECKED = steps(Step(nodes=1))


class FailedWorld(StandingWorld):
    """Three nodes; node a has completed, and the check of the first step has failed the run.

    The cluster follows what is done to the DaemonSet: with `pods: Delete` it is gone.
    """

    def __init__(self, pods: PodPolicy) -> None:
        # Whether the condition Failed was True, each time that the status was written.
        self.failed: list[bool] = []
        self.serial = 1
        super().__init__("a", "b", "c", rollout=CHECKED)
        change(self.cluster, failure_policy=FailurePolicy(FailureAction.FAIL_FAST, pods=pods))
        self.step(6)
        self.complete("a")
        self.set_ready("a", is_ready=False)
        self.step(45)
        assert self.condition("Failed")[:2] == ("True", "CheckFailed")
        assert self.cluster.has_daemon_set == (pods != PodPolicy.DELETE)
        self.set_ready("a", is_ready=True)
        self.failed.clear()
        self.started.clear()

    def _execute(self, action: Any) -> None:
        super()._execute(action)
        match action:
            case WriteStatus():
                self.failed.append(action.status.is_true("Failed"))
            case DeleteDaemonSet():
                self.delete_daemon_set()
            case ApplyDaemonSet(uid=""):
                self.cluster.has_daemon_set = True
                self.serial += 1
                self.replace_pods(self.serial)

    @property
    def at_work(self) -> list[str]:
        """The nodes whose present pod has started, and has not completed them."""
        done_by = {entry.pod_uid for entry in self.cluster.evidence.values()}
        return sorted(
            pod.node_name
            for pod in self.cluster.pods
            if not pod.is_gated and pod.uid not in done_by
        )

    def delete_daemon_set(self) -> None:
        self.cluster.has_daemon_set, self.cluster.pods = False, []

    def annotate(self, name: str, text: str) -> None:
        self.cluster.job = replace(self.cluster.job, annotations={name: text})


BOTH = pytest.mark.parametrize("pods", [PodPolicy.DELETE, PodPolicy.DELETE_FAILED])


RETRIED = "retrying failed nodes"
RERUN = "nodes run the task again, as requested"
REVISED = "what the Job runs was changed"
CHANGED = "the Job was changed"


def join(world: FailedWorld) -> None:
    world.cluster.nodes["d"] = make_node("d")
    if world.cluster.has_daemon_set:
        world.put(gated_pod("d", serial=1))


def leave(world: FailedWorld, *node_names: str) -> None:
    for name in node_names:
        world.remove(name)


def exclude(world: FailedWorld, *node_names: str) -> None:
    select(world.cluster, *sorted(world.cluster.nodes.keys() - set(node_names)))
    for name in node_names:
        world.take_pod(name)
    world.cluster.desired = len(world.cluster.nodes) - len(node_names)


@BOTH
@pytest.mark.parametrize(
    "happens",
    [
        lambda world: None,
        lambda world: leave(world, "b", "c"),
        lambda world: exclude(world, "b", "c"),
        FailedWorld.delete_daemon_set,
        lambda world: select(world.cluster, "a", "b"),
        join,
        lambda world: world.take_pod("b"),
        lambda world: world.remove("a"),
        lambda world: world.request(approved_step=1, is_promoted=True),
        lambda world: change(world.cluster, suspend=True),
        lambda world: change(
            world.cluster,
            failure_policy=FailurePolicy(FailureAction.FAIL_FAST, pods=PodPolicy.DELETE_FAILED),
        ),
    ],
)
def test_a_run_whose_check_has_failed_stays_failed_all_the_time(
    pods: PodPolicy, happens: Callable[[FailedWorld], Any]
) -> None:
    """Its DaemonSet is not created again. Found by the simulation, seed 7430611, with Delete."""
    world = FailedWorld(pods)
    older = world.cluster.daemon_set() if world.cluster.has_daemon_set else None
    happens(world)
    # The DaemonSet of the newest selection is not there at once.
    world.extra = {"daemon_set": older} if older and world.cluster.has_daemon_set else {}
    world.step(2)
    world.extra = {}
    was_there = world.cluster.has_daemon_set
    world.step(20)
    assert world.started == []
    assert all(world.failed)
    assert world.condition("Failed")[:2] == ("True", "CheckFailed")
    assert was_there or not world.cluster.has_daemon_set


@BOTH
@pytest.mark.parametrize(
    ("asks", "again", "why"),
    [
        (lambda world: world.annotate(names.ANNOTATION_RETRY, "1"), [], RETRIED),
        (lambda world: world.annotate(names.ANNOTATION_RERUN, "a@1"), ["a"], RERUN),
        (lambda world: world.annotate(names.ANNOTATION_RERUN, "*@1"), ["a"], RERUN),
        (lambda world: change(world.cluster, command=("new",)), ["a"], REVISED),
        (lambda world: change(world.cluster, rollout=None), [], CHANGED),
        (lambda world: change(world.cluster, rollout=UNCHECKED), [], CHANGED),
    ],
)
def test_a_run_whose_check_has_failed_goes_on_if_a_person_asks_for_it(
    pods: PodPolicy, asks: Callable[[FailedWorld], Any], again: list[str], why: str
) -> None:
    world = FailedWorld(pods)
    asks(world)
    for _ in range(8):
        world.step(6)
        world.complete(*world.at_work)
    assert world.condition("Complete")[0] == "True"
    assert not any(world.failed)
    assert sorted(world.started) == [*again, "b", "c"]
    assert world.condition("Failed") == ("False", "Retrying", why)


@BOTH
def test_a_rerun_goes_on_after_a_crash_between_the_report_and_the_status(pods: PodPolicy) -> None:
    world = FailedWorld(pods)
    world.annotate(names.ANNOTATION_RERUN, "a@1")
    before = world.cluster.job
    world.step()
    world.cluster.job = before
    world.step(10)
    assert world.started == ["a"]
    assert world.condition("Failed")[0] == "False"
