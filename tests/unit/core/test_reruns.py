"""Requests to run the task of a Job again: none is lost, and none is followed twice."""

from dataclasses import replace
from typing import Any

import pytest

from daemonset_job.api import names
from daemonset_job.api.choices import PodPolicy
from daemonset_job.api.job_spec import FailurePolicy
from daemonset_job.api.node_changes import OnSuccess
from daemonset_job.api.numbered import number_of
from daemonset_job.api.report_status import parse_report_status
from daemonset_job.api.rerun import RerunRequest, parse_rerun
from daemonset_job.api.rollout import Rollout
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ChangeNodes,
    Plan,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
    defer_progress_writes,
)
from tests.unit.builders import NOW, SampleCluster, done, gated_pod, make_node, make_pod
from tests.unit.core.runs import acts, conditions, failing, run
from tests.unit.core.standing_jobs import (
    CONTINUOUS,
    UNCONFIGURED,
    change,
    configure,
    deleted,
    released,
    request,
    standing,
    unconfigure,
)

NOT_READY = Taint("node.kubernetes.io/not-ready", "NoSchedule")


def recorded(cluster: SampleCluster, node: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = (cluster.report_status or {})["nodeStates"].get(node, {})
    return found


def complete(cluster: SampleCluster, node: str, serial: int) -> None:
    """Let the node run and complete the task in its pod of that number."""
    revision, uid = cluster.job.revision, f"pod-{node}-{serial}"
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != node]
    cluster.pods.append(make_pod(node, serial=serial, revision=revision))
    cluster.evidence[node] = replace(done(node), pod_uid=uid, revision=revision)


def completed(*nodes: str) -> SampleCluster:
    """Return a cluster in which these nodes are completed, and all of it is on record."""
    cluster = standing(*nodes, completed=nodes)
    run(cluster)
    return cluster


def refuse_report(cluster: SampleCluster) -> Plan:
    """Decide while the API server refuses the status of reports, and take over the rest."""
    plan = decide(cluster.snapshot().with_refusal(RefusedWrite.REPORT, "quota"), NOW)
    for written in acts(plan, WriteStatus):
        cluster.job = replace(cluster.job, status=written.status)
    return plan


# --- what is not on record is not begun -----------------------------------------------------


def test_nothing_starts_again_while_the_report_cannot_be_written() -> None:
    cluster = request(completed("a", "b"), "a")
    for _ in range(3):
        plan = refuse_report(cluster)
        assert (deleted(plan), released(plan)) == ([], [])
        assert cluster.job.has_open_request
    assert conditions(cluster)["Progressing"] == ("False", "ReportRefused")
    # Its pod went, and another waits: it does not start, either.
    cluster.pods[0] = gated_pod("a", revision=cluster.job.revision)
    assert released(refuse_report(cluster)) == []
    # Once the report can be written, the node runs once.
    run(cluster)
    assert released(run(cluster)) == ["a"]
    complete(cluster, "a", 2)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_turn_that_was_given_before_a_request_waits_until_the_request_is_on_record() -> None:
    """Else the task runs, and a controller that is started then has it run once more."""
    cluster = standing("a", "b")
    change(cluster, rollout=Rollout())
    cluster.pods = [gated_pod(node, revision=cluster.job.revision) for node in ("a", "b")]
    for _ in range(20):
        if released(run(cluster)) == ["a", "b"]:
            break
    else:
        pytest.fail("no node gets its turn")
    request(cluster, "*")
    assert released(run(cluster)) == []
    assert not cluster.job.has_open_request
    assert released(run(cluster)) == ["a", "b"]


def test_a_node_that_comes_back_does_not_start_while_the_report_cannot_be_written() -> None:
    cluster = completed("a", "b")
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={})
    cluster.pods.append(gated_pod("a", revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    assert released(refuse_report(cluster)) == []
    run(cluster)
    assert released(run(cluster)) == ["a"]


def test_a_request_is_not_lost_when_writes_of_progress_are_deferred() -> None:
    """The node has no pod at the moment, and another one is still at work."""
    cluster = standing("a", "b", completed=("a",))
    run(cluster)
    cluster.pods = cluster.pods[1:]
    request(cluster, "a")
    plan = decide(cluster.snapshot(), NOW)
    deferred = defer_progress_writes(plan, cluster.job.status, 10.0)
    for written in acts(deferred, WriteStatus):
        cluster.job = replace(cluster.job, status=written.status)
    for noted in acts(deferred, WriteReportStatus):
        cluster.report_status = noted.status.to_raw()
    cluster.pods.append(gated_pod("a", revision=cluster.job.revision))
    run(cluster)
    run(cluster)
    assert recorded(cluster)["earlierPods"] == ["pod-a-1"]
    assert released(run(cluster)) == ["a"]


def test_a_request_is_not_lost_while_the_pod_of_a_complete_job_is_refused() -> None:
    """The count is not exact, and the report of a complete Job stays as it is meanwhile."""
    cluster = completed("a", "b")
    cluster.pods = cluster.pods[1:]
    cluster.failed_create_message = "exceeded quota"
    request(cluster, "a")
    run(cluster)
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    cluster.pods.append(gated_pod("a", revision=cluster.job.revision))
    cluster.failed_create_message = ""
    run(cluster)
    assert released(run(cluster)) == ["a"]
    complete(cluster, "a", 2)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_node_runs_again_whose_record_and_evidence_are_a_moment_late() -> None:
    """Its task had started before the request, which only its pod shows."""
    cluster = completed("a")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b", revision=cluster.job.revision))
    request(cluster, "b@1")
    run(cluster)
    assert recorded(cluster, "b")["earlierPods"] == ["pod-b-1"]
    # The first run ends now.
    cluster.evidence["b"] = replace(done("b"), revision=cluster.job.revision)
    assert deleted(run(cluster)) == ["b"]
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_a_node_that_was_registered_again_runs_again_although_its_record_is_late() -> None:
    cluster = completed("a")
    cluster.nodes["a"] = replace(cluster.nodes["a"], uid="again")
    complete(cluster, "a", 2)
    cluster.evidence["a"] = replace(cluster.evidence["a"], node_uid="again")
    cluster.pods = [gated_pod("a", serial=3, revision=cluster.job.revision)]
    request(cluster, "a@1")
    run(cluster)
    assert recorded(cluster)["earlierPods"] == ["pod-a-2"]
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_a_node_runs_again_that_completed_unseen_and_whose_pod_is_gone() -> None:
    """The controller was away: its record says that the node waits, and the ledger has it."""
    cluster = completed("a")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(gated_pod("b", serial=1, revision=cluster.job.revision))
    run(cluster)
    assert recorded(cluster, "b")["state"] == "Waiting"
    complete(cluster, "b", 1)
    cluster.pods[1] = gated_pod("b", serial=2, revision=cluster.job.revision)
    request(cluster, "b@1")
    assert released(run(cluster)) == []
    assert "pod-b-1" in recorded(cluster, "b")["earlierPods"]
    assert released(run(cluster)) == ["b"]
    complete(cluster, "b", 2)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_node_that_has_not_begun_follows_a_request_with_its_first_run() -> None:
    cluster = completed("a")
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(gated_pod("b", revision=cluster.job.revision))
    request(cluster, "*")
    # Not before it is on record: after a crash its pod would look like one of before.
    assert released(run(cluster)) == []
    assert released(run(cluster)) == ["b"]
    complete(cluster, "b", 2)
    assert deleted(run(cluster)) == ["a"]
    complete(cluster, "a", 2)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_request_on_a_newer_revision_is_not_followed_by_what_had_started() -> None:
    """The record of the node is still that of the earlier revision."""
    cluster = completed("a")
    known = cluster.report_status
    change(cluster, image="example/task:2")
    run(cluster)
    complete(cluster, "a", 2)
    cluster.report_status = known
    request(cluster, "a")
    run(cluster)
    assert deleted(run(cluster)) == ["a"]


def test_evidence_of_two_tries_ago_does_not_complete_the_newest() -> None:
    cluster = completed("a")
    late = cluster.evidence.pop("a")
    for number in range(5):
        request(cluster, f"a@{number}")
        run(cluster)
        serial = 2 + number
        cluster.pods = [make_pod("a", serial=serial, revision=cluster.job.revision)]
        run(cluster)
    cluster.evidence["a"] = late
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    pods = parse_report_status(cluster.report_status or {}).node_states["a"].earlier_pods
    assert pods[0] == "pod-a-5"
    assert pods[-1] == "pod-a-1"


def test_evidence_from_before_a_node_left_and_came_back_does_not_complete_it() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    late = cluster.evidence.pop("a")
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    assert recorded(cluster)["state"] == "Removed"
    unconfigure(cluster)
    assert released(refuse_report(cluster)) == []
    run(cluster)
    assert released(run(cluster)) == ["a"]
    cluster.evidence["a"] = late
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    complete(cluster, "a", 2)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"


def label_while_away(cluster: SampleCluster, *, scheduled: int = 1) -> None:
    """Node a is down, its labels leave and come back, and its deleted pod cannot end meanwhile."""
    pod, inside = cluster.pods[0], cluster.nodes["a"]
    down = replace(inside, ready=False, taints=(NOT_READY,))
    configure(cluster)
    cluster.pods.insert(0, replace(pod, is_terminating=True))
    cluster.nodes["a"] = replace(down, labels={"configured": "yes"})
    cluster.scheduled, cluster.misscheduled = scheduled, 1
    run(cluster)
    cluster.nodes["a"] = down
    cluster.scheduled, cluster.misscheduled = 1, 0
    run(cluster)
    cluster.nodes["a"] = inside


def end_pod_late(cluster: SampleCluster) -> None:
    """Node a is up, and prints the token before its pod ends; another pod waits at the gate."""
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    run(cluster)
    del cluster.pods[0]
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2


@pytest.mark.parametrize("scheduled", [1, 0], ids=["exact", "not exact"])
def test_a_pod_that_could_not_end_does_not_complete_a_node_that_came_back(scheduled: int) -> None:
    """Also if the count is not exact, as while the pod of another node cannot end either."""
    cluster = standing("a", "b", completed=("b",))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    label_while_away(cluster, scheduled=scheduled)
    assert recorded(cluster)["earlierPods"] == ["pod-a-1"]
    end_pod_late(cluster)
    assert released(run(cluster)) == ["a"]
    assert conditions(cluster).get("Complete", ("False",))[0] == "False"
    complete(cluster, "a", 2)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"


def failed_and_labelled() -> SampleCluster:
    """Return a cluster whose node a had failed before its labels left, and has none of them now."""
    policy = FailurePolicy(pods=PodPolicy.KEEP)
    cluster = standing("a", "b", completed=("b",))
    change(cluster, nodes=UNCONFIGURED, backoff_limit=0, failure_policy=policy)
    cluster.pods[0] = replace(failing("a"), revision=cluster.job.revision)
    run(cluster)
    assert recorded(cluster)["state"] == "Failed"
    return cluster


def test_a_node_that_had_failed_and_came_back_is_not_completed_by_its_pod() -> None:
    """Its return is no retry."""
    cluster = failed_and_labelled()
    label_while_away(cluster)
    end_pod_late(cluster)
    assert released(run(cluster)) == []
    assert (recorded(cluster)["state"], recorded(cluster)["earlierPods"]) == ("Failed", ["pod-a-1"])
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    cluster.job = replace(cluster.job, annotations={names.ANNOTATION_RETRY: "1"})
    run(cluster)
    assert released(run(cluster)) == ["a"]
    complete(cluster, "a", 2)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_node_that_had_failed_and_completes_while_it_is_out_runs_again_when_it_is_back() -> None:
    """Its labels took it out: until then it counts, as any other completed node."""
    cluster = failed_and_labelled()
    configure(cluster)
    run(cluster)
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    run(cluster)
    run(cluster)
    assert (recorded(cluster)["state"], recorded(cluster)["reason"]) == (
        "Completed",
        "LeftSelection",
    )
    unconfigure(cluster)
    run(cluster)
    assert released(run(cluster)) == ["a"]


def test_evidence_from_before_a_completion_does_not_complete_the_newest_try() -> None:
    cluster = completed("a")
    late = cluster.evidence["a"]
    request(cluster, "a@1")
    run(cluster)
    complete(cluster, "a", 2)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    request(cluster, "a@2")
    run(cluster)
    cluster.pods = [make_pod("a", serial=3, revision=cluster.job.revision)]
    run(cluster)
    # A terminator that did not run for minutes sends what it had found first.
    cluster.evidence["a"] = late
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_a_completed_node_stays_so_when_late_evidence_replaces_its_own() -> None:
    cluster = completed("a")
    late = cluster.evidence["a"]
    request(cluster, "a@1")
    run(cluster)
    complete(cluster, "a", 2)
    run(cluster)
    cluster.evidence["a"] = late
    cluster.pods = [gated_pod("a", serial=3, revision=cluster.job.revision)]
    for _ in range(3):
        assert released(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_request_on_record_outlives_a_change_that_is_undone_before_the_status_has_it() -> None:
    cluster = completed("a")
    request(cluster, "a@1")
    run(cluster)
    (first,) = cluster.pods
    cluster.pods, cluster.desired, cluster.scheduled = [], 0, 0
    taint = Taint("node.kubernetes.io/network-unavailable", "NoSchedule")
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=(taint,))
    run(cluster)
    assert recorded(cluster)["state"] == "Unreachable"
    status, spec = cluster.job.status, cluster.job.spec
    change(cluster, script="another")
    run(cluster)
    cluster.job = replace(cluster.job, status=status)  # the API server refused it
    change(cluster, script=spec.script)
    run(cluster)
    assert recorded(cluster)["earlierPods"] == [first.uid]
    assert conditions(cluster)["Complete"][0] == "False"


# --- the same text again ---------------------------------------------------------------------


def test_a_request_from_before_another_one_is_a_new_request() -> None:
    cluster = completed("a", "b")
    for serial, node in ((2, "a"), (3, "b"), (4, "a")):
        request(cluster, node)
        run(cluster)
        assert deleted(run(cluster)) == [node]
        complete(cluster, node, serial)
        run(cluster)
        assert conditions(cluster)["Complete"][0] == "True"
    assert number_of(cluster.job.status.observed_rerun) == 3


def test_a_request_that_was_removed_meanwhile_is_a_new_request() -> None:
    cluster = request(completed("a"), "a")
    run(cluster)
    run(cluster)
    complete(cluster, "a", 2)
    cluster.job = replace(cluster.job, annotations={})
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"
    assert cluster.job.status.observed_rerun == "1"
    request(cluster, "a")
    run(cluster)
    assert deleted(run(cluster)) == ["a"]
    assert number_of(cluster.job.status.observed_rerun) == 2


def test_a_request_that_another_one_replaces_at_once_is_not_followed() -> None:
    cluster = completed("a", "b")
    request(request(cluster, "a"), "b")
    run(cluster)
    assert deleted(run(cluster)) == ["b"]


def test_without_a_request_no_node_is_named() -> None:
    assert parse_rerun("", "2-aa") == RerunRequest("2")
    assert not parse_rerun("", "2-aa").names("a")
    assert not parse_rerun("@now").names("")


# --- together with other requests --------------------------------------------------------------


def assert_completes_in_its_next_pod(cluster: SampleCluster) -> None:
    """Let b start once more and complete; so does the Job."""
    cluster.pods[1] = gated_pod("b", revision=cluster.job.revision)
    assert released(run(cluster)) == ["b"]
    complete(cluster, "b", 2)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_request_is_a_retry_of_a_failed_node() -> None:
    cluster = completed("a", "b")
    revision = cluster.job.revision
    cluster.evidence.pop("b")
    cluster.report_status = None
    cluster.pods[1] = replace(failing("b"), revision=revision)
    run(cluster)
    assert recorded(cluster, "b")["state"] == "Failed"
    annotations = {names.ANNOTATION_RERUN: "b@1", names.ANNOTATION_RETRY: "1"}
    cluster.job = replace(cluster.job, annotations=annotations)
    run(cluster)
    assert deleted(run(cluster)) == ["b"]
    assert_completes_in_its_next_pod(cluster)
    assert len(recorded(cluster, "b")["failures"]) == 1


@pytest.mark.parametrize("is_failed", [True, False], ids=["failed", "at work"])
def test_a_node_that_has_not_completed_runs_again_for_a_request_alone(is_failed: bool) -> None:
    cluster = completed("a", "b")
    revision = cluster.job.revision
    cluster.evidence.pop("b")
    cluster.report_status = None
    pod = failing("b") if is_failed else make_pod("b")
    cluster.pods[1] = replace(pod, revision=revision)
    run(cluster)
    assert recorded(cluster, "b")["state"] == ("Failed" if is_failed else "Active")
    request(cluster, "b@1")
    assert deleted(run(cluster)) == []
    assert deleted(run(cluster)) == ["b"]
    assert_completes_in_its_next_pod(cluster)


def test_a_node_that_ran_again_is_changed_again() -> None:
    cluster = completed("a")
    change(cluster, on_success=OnSuccess(labels={"example.com/done": "yes"}))
    assert acts(run(cluster), ChangeNodes)
    request(cluster, "a")
    run(cluster)
    run(cluster)
    cluster.pods = [make_pod("a", serial=2, revision=cluster.job.revision)]
    assert acts(run(cluster), ChangeNodes) == []
    complete(cluster, "a", 2)
    assert acts(run(cluster), ChangeNodes)


def test_a_released_node_runs_again_in_the_pod_that_waits() -> None:
    cluster = standing("a", completed=("a",))
    change(cluster, completion=replace(CONTINUOUS, release=True))
    assert deleted(run(cluster)) == ["a"]
    cluster.pods = [gated_pod("a", revision=cluster.job.revision)]
    run(cluster)
    request(cluster, "a")
    assert released(run(cluster)) == []
    plan = run(cluster)
    assert (deleted(plan), released(plan)) == ([], ["a"])
    complete(cluster, "a", 2)
    assert deleted(run(cluster)) == ["a"]
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_request_of_a_suspended_job_is_followed_when_it_is_resumed() -> None:
    cluster = completed("a")
    change(cluster, suspend=True)
    request(cluster, "a")
    for _ in range(3):
        assert deleted(run(cluster)) == []
    assert not cluster.job.has_open_request
    change(cluster, suspend=False)
    assert deleted(run(cluster)) == ["a"]


def test_a_request_while_too_many_nodes_have_failed_is_recorded() -> None:
    cluster = completed("a", "b")
    change(cluster, failure_policy=FailurePolicy(max_failed_nodes=1))
    request(cluster, "*")
    run(cluster)
    assert {name: recorded(cluster, name)["state"] for name in "ab"} == dict.fromkeys(
        "ab", "Waiting"
    )


# --- a controller that ends after any write ------------------------------------------------------


@pytest.mark.parametrize("writes", range(1, 8))
def test_a_crash_after_any_write_neither_loses_nor_repeats_a_request(writes: int) -> None:
    """Each reconcile ends after one write: pods and status follow only as far as they were made."""
    cluster = completed("a", "b")
    request(cluster, "a")
    starts = serial = 0
    for step in range(20):
        plan = decide(cluster.snapshot(), NOW)
        plan = replace(plan, actions=plan.actions[: 1 if step < writes else None])
        for action in plan.actions:
            if isinstance(action, WriteStatus):
                cluster.job = replace(cluster.job, status=action.status)
            elif isinstance(action, WriteReportStatus):
                cluster.report_status = action.status.to_raw()
        for node in deleted(plan):
            serial += 1
            cluster.pods = [pod for pod in cluster.pods if pod.node_name != node]
            cluster.pods.append(gated_pod(node, serial=1 + serial, revision=cluster.job.revision))
        for node in released(plan):
            starts += 1
            complete(cluster, node, 1 + serial)
    assert starts == 1
    assert conditions(cluster)["Complete"][0] == "True"
    assert not cluster.job.has_open_request
    assert decide(cluster.snapshot(), NOW).actions == ()


@pytest.mark.parametrize("has_daemon_set", [True, False], ids=["not observed", "deleted"])
def test_a_request_on_record_ends_complete_although_no_pod_is_left(has_daemon_set: bool) -> None:
    """The controller ended after it had written the report, and the DaemonSet was deleted."""
    cluster = completed("a", "b")
    request(cluster, "*")
    plan = decide(cluster.snapshot(), NOW)
    (noted,) = acts(plan, WriteReportStatus)
    cluster.report_status = noted.status.to_raw()
    cluster.pods, cluster.desired = [], 0
    cluster.has_daemon_set = has_daemon_set
    snapshot = cluster.snapshot()
    if has_daemon_set:
        new = replace(cluster.daemon_set(), generation=1, observed_generation=0)
        snapshot = cluster.snapshot(daemon_set=new)
    for written in acts(decide(snapshot, NOW), WriteReportStatus):
        assert written.status.phase != "Succeeded"
    for status in acts(decide(snapshot, NOW), WriteStatus):
        cluster.job = replace(cluster.job, status=status.status)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
