"""The decision, pass by pass. Time is a literal; nothing here acts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api import names
from daemonset_job.api.node_totals import NodeTotals
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    CreateReport,
    DeletePods,
    RemoveSchedulingGates,
    WriteReportStatus,
    WriteStatus,
)
from tests.unit.builders import (
    NOW,
    done,
    gated_pod,
    make_cluster,
    make_job,
    make_node,
    make_pod,
    started,
)
from tests.unit.core.plans import condition, kinds, status_of, written_status


def test_a_started_job_gets_its_report_before_its_daemon_set():
    plan = decide(make_cluster("a", has_daemon_set=False, has_report=False).snapshot(), NOW)

    assert kinds(plan)[:2] == ["CreateReport", "ApplyDaemonSet"]


def test_first_daemon_set_has_no_gate():
    plan = decide(make_cluster("a", has_daemon_set=False).snapshot(), NOW)

    (apply,) = [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    assert "schedulingGates" not in apply.body["spec"]["template"]["spec"]
    assert apply.uid == ""


def test_the_gate_goes_up_once_every_node_has_its_first_pod():
    early = decide(make_cluster("a", "b", running=False, desired=2).snapshot(), NOW)
    assert not [a for a in early.actions if isinstance(a, ApplyDaemonSet)]

    plan = decide(make_cluster("a", "b").snapshot(), NOW)

    (apply,) = [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    gates = apply.body["spec"]["template"]["spec"]["schedulingGates"]
    assert gates == [{"name": names.START_GATE}]
    assert apply.uid == "ds-uid"


def test_recreated_daemon_set_of_a_run_with_records_has_the_gate():
    cluster = make_cluster("a", "b", has_daemon_set=False, evidence={"a": done("a")})
    plan = decide(cluster.snapshot(pods=()), NOW)

    (apply,) = [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    assert "schedulingGates" in apply.body["spec"]["template"]["spec"]


def test_recreated_daemon_set_of_a_run_with_nodes_has_the_gate():
    """Their work may be done already, and only not be on record yet."""
    cluster = make_cluster("a", "b", has_daemon_set=False)
    cluster.job = replace(
        cluster.job,
        status=replace(cluster.job.status, nodes=NodeTotals(desired=2, waiting=2)),
    )
    plan = decide(cluster.snapshot(pods=()), NOW)

    (apply,) = [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    assert "schedulingGates" in apply.body["spec"]["template"]["spec"]


def test_recreating_a_deleted_daemon_set_is_reported_once():
    cluster = make_cluster("a", has_daemon_set=False)
    cluster.job = replace(
        cluster.job, status=replace(cluster.job.status, nodes=NodeTotals(desired=1))
    )

    plan = decide(cluster.snapshot(pods=()), NOW)

    assert "DaemonSetRecreated" in [e.reason for e in plan.events]


def test_a_settled_run_has_nothing_to_write():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    first = decide(cluster.snapshot(), NOW)
    cluster.job = replace(cluster.job, status=written_status(first))
    cluster.report_status = next(
        a.status.to_raw() for a in first.actions if isinstance(a, WriteReportStatus)
    )

    again = decide(cluster.snapshot(), NOW.replace(hour=23))

    assert again.actions == ()
    assert again.events == ()


def test_counts_show_the_state_of_each_node():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a")})
    cluster.nodes["c"] = make_node("c")
    cluster.nodes["d"] = make_node("d")
    cluster.pods.append(make_pod("c", state="waiting"))

    status = status_of(decide(cluster.snapshot(), NOW))

    assert status["nodes"] == {
        "desired": 4,
        "waiting": 2,
        "active": 1,
        "completed": 1,
        "failed": 0,
        "unreachable": 0,
        "completedNames": "a",
    }
    assert status["phase"] == "Running"


def test_complete_is_written_after_the_report_with_an_event():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})

    plan = decide(cluster.snapshot(), NOW)

    assert kinds(plan) == ["WriteReportStatus", "WriteStatus"]
    report = plan.actions[0].status.to_raw()
    assert report["phase"] == "Succeeded"
    assert report["message"] == "2 of 2 nodes completed"
    assert condition(plan, "Complete")["status"] == "True"
    assert condition(plan, "Progressing")["status"] == "False"
    assert status_of(plan)["completionTime"] == report["completionTime"] == "2026-01-02T03:04:05Z"
    assert [e.reason for e in plan.events] == ["Completed"]


@pytest.mark.parametrize("at", ["2026-01-01T00:00:00.5Z", "2026-02-01T00:00:00.5Z"])
def test_the_end_of_a_run_is_recorded_by_one_clock_and_once(at):
    cluster = make_cluster("a", gated=True, evidence={"a": done("a", at=at)})
    plan = decide(cluster.snapshot(), NOW)
    assert status_of(plan)["completionTime"] == "2026-01-02T03:04:05Z"
    # The process died between the two writes; the next one says what the report says.
    cluster.report_status = plan.actions[0].status.to_raw()
    later = decide(cluster.snapshot(), NOW + timedelta(seconds=9))
    assert status_of(later)["completionTime"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"observed": False}, id="the DaemonSet controller has not seen the spec"),
        pytest.param({"desired": 3}, id="a desired node has no pod yet"),
        pytest.param({"desired": 0}, id="no node is desired"),
        pytest.param({"evidence": {"a": done("a")}}, id="a node is missing in the ledger"),
        pytest.param(
            {"evidence": {"a": done("a"), "b": done("b", uid="b-before")}},
            id="the ledger names another node of that name",
        ),
    ],
)
def test_completion_is_not_declared_early(changes):
    both = {"a": done("a"), "b": done("b")}
    plan = decide(
        make_cluster("a", "b", gated=True, **{"evidence": both, **changes}).snapshot(), NOW
    )

    statuses = [a.status.to_raw() for a in plan.actions if isinstance(a, WriteStatus)]
    assert not any(c["type"] == "Complete" for s in statuses for c in s["conditions"])


def test_a_pod_older_than_its_node_belongs_to_the_former_node():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    cluster.nodes["a"] = make_node("a", uid="a-2", created_at=NOW)

    plan = decide(cluster.snapshot(), NOW)

    assert status_of(plan)["nodes"]["completed"] == 0
    # No other program would remove it, and without that the new node would never get its own.
    (deleted,) = [a for a in plan.actions if isinstance(a, DeletePods)]
    assert deleted.pods == tuple(cluster.pods)


def test_a_pod_being_deleted_does_not_stand_for_its_node():
    cluster = make_cluster("a", "b", gated=True)
    cluster.pods[0] = make_pod("a", is_terminating=True)

    plan = decide(cluster.snapshot(), NOW)

    assert status_of(plan)["nodes"]["active"] == 1
    assert status_of(plan)["nodes"]["waiting"] == 1


def test_completed_node_without_pod_counts_and_does_not_end_the_run():
    cluster = make_cluster("a", "b", gated=True, evidence={"a": done("a"), "b": done("b")})
    cluster.pods[0] = make_pod("a", is_terminating=True)

    plan = decide(cluster.snapshot(), NOW)

    assert status_of(plan)["nodes"]["completed"] == 2
    assert status_of(plan)["nodes"]["waiting"] == 0
    assert all(c["type"] != "Complete" for c in status_of(plan)["conditions"])


def test_a_pod_that_cannot_end_is_said():
    cluster = make_cluster("a", "b", gated=True, evidence={"b": done("b")})
    cluster.nodes["a"] = make_node("a", ready=False)
    cluster.pods[0] = make_pod("a", is_terminating=True)

    progressing = condition(decide(cluster.snapshot(), NOW), "Progressing")

    assert progressing["reason"] == "NodesUnreachable"
    assert "1 of 2 nodes cannot be reached (a)" in progressing["message"]


def test_what_the_report_says_of_a_success_is_not_taken_back():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    first = decide(cluster.snapshot(), NOW)
    cluster.report_status = next(
        a.status.to_raw() for a in first.actions if isinstance(a, WriteReportStatus)
    )
    cluster.observed = False

    plan = decide(cluster.snapshot(), NOW)

    assert kinds(plan) == ["WriteStatus"]
    assert condition(plan, "Complete")["status"] == "True"
    assert status_of(plan)["nodes"]["completed"] == 1


def test_what_is_being_removed_says_nothing_of_a_run_that_is_over():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    first = decide(cluster.snapshot(), NOW)
    cluster.report_status = next(
        a.status.to_raw() for a in first.actions if isinstance(a, WriteReportStatus)
    )
    cluster.job = replace(cluster.job, status=written_status(first))
    cluster.has_daemon_set = False

    assert kinds(decide(cluster.snapshot(pods=()), NOW)) == ["ApplyDaemonSet"]


def test_gates_open_for_nodes_that_have_not_completed_only():
    cluster = make_cluster("a", "b", gated=True, running=False, evidence={"a": done("a")})
    cluster.pods = [gated_pod("a"), gated_pod("b")]

    plan = decide(cluster.snapshot(), NOW)

    (action,) = [a for a in plan.actions if isinstance(a, RemoveSchedulingGates)]
    assert [pod.node_name for pod in action.pods] == ["b"]
    assert action.node_uids == {"b": "b-uid"}


def test_a_node_that_joins_after_completion_still_does_the_work():
    cluster = make_cluster("a", gated=True, evidence={"a": done("a")})
    cluster.job = replace(cluster.job, status=written_status(decide(cluster.snapshot(), NOW)))
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(gated_pod("b"))

    plan = decide(cluster.snapshot(), NOW)

    assert [a for a in plan.actions if isinstance(a, RemoveSchedulingGates)]
    assert condition(plan, "Complete")["status"] == "True"


def test_a_job_being_deleted_is_left_alone():
    cluster = make_cluster("a", has_daemon_set=False, has_report=False)
    cluster.job = replace(cluster.job, is_terminating=True)

    assert decide(cluster.snapshot(), NOW).actions == ()


def test_only_a_changed_node_selection_is_applied():
    cluster = make_cluster("a", gated=True)
    before = cluster.daemon_set()
    raw = replace(cluster.job.spec.nodes, exclude=("z",))
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, nodes=raw))

    plan = decide(cluster.snapshot(daemon_set=before), NOW)

    assert [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    assert not [a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, ApplyDaemonSet)]


@pytest.mark.parametrize(
    ("setup", "reason", "words"),
    [
        ({"refusal": "unknown field spec.template.spec.foo"}, "DaemonSetRefused", "foo"),
        ({"desired": 0, "running": False}, "NoMatchingNodes", "no node matches"),
        (
            {"running": False, "desired": 2, "failed_create_message": "exceeded quota: pods=0"},
            "FailedCreate",
            "2 of 2 pods cannot be created: exceeded quota: pods=0",
        ),
    ],
)
def test_what_holds_a_run_up_becomes_a_condition_and_one_warning(setup, reason, words):
    cluster = make_cluster("a", "b", gated=True, **setup)

    plan = decide(cluster.snapshot(), NOW)

    progressing = condition(plan, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", reason)
    assert words in progressing["message"]
    assert [(e.type, e.reason) for e in plan.events] == [("Warning", reason)]
    cluster.job = replace(cluster.job, status=written_status(plan))
    assert decide(cluster.snapshot(), NOW).events == ()


def test_a_refused_daemon_set_is_tried_again_later_and_not_at_once():
    plan = decide(
        make_cluster("a", has_daemon_set=False, running=False, refusal="forbidden").snapshot(), NOW
    )

    assert not [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    assert plan.requeue_after == 15.0


def test_an_image_that_does_not_exist_is_named_with_its_nodes():
    cluster = make_cluster("node-1", "node-2", gated=True)
    stuck = replace(
        make_pod("node-2").container,
        state="waiting",
        reason="ImagePullBackOff",
        message='Back-off pulling image "nope:1"',
    )
    cluster.pods[1] = replace(cluster.pods[1], container=stuck, phase="Pending")

    progressing = condition(decide(cluster.snapshot(), NOW), "Progressing")

    assert progressing["reason"] == "ImagePullFailed"
    assert progressing["message"] == (
        '1 of 2 nodes cannot pull the image (node-2): Back-off pulling image "nope:1"'
    )


def test_recovery_from_a_blocker_is_reported_once():
    cluster = make_cluster("a", gated=True, desired=0)
    pods, cluster.pods = cluster.pods, []
    cluster.job = replace(cluster.job, status=written_status(decide(cluster.snapshot(), NOW)))
    cluster.pods, cluster.desired = pods, 1

    plan = decide(cluster.snapshot(), NOW)

    assert [e.reason for e in plan.events] == ["Resumed"]


@pytest.mark.parametrize("owner", ["other-job", ""])
def test_a_daemon_set_of_another_owner_is_never_changed(owner):
    cluster = make_cluster("a")
    foreign = replace(cluster.daemon_set(), owner_uid=owner)

    plan = decide(cluster.snapshot(daemon_set=foreign, pods=()), NOW)

    assert not [a for a in plan.actions if isinstance(a, ApplyDaemonSet)]
    expected = "PreviousRunEnding" if owner else "DaemonSetAlreadyExists"
    assert condition(plan, "Progressing")["reason"] == expected


def test_a_missing_report_is_made_again():
    plan = decide(make_cluster("a", gated=True, has_report=False).snapshot(), NOW)

    assert isinstance(plan.actions[0], CreateReport)


def test_last_transition_time_moves_only_when_the_status_flips():
    cluster = make_cluster("a", "b", gated=True)
    first = decide(cluster.snapshot(), NOW)
    cluster.job = replace(cluster.job, status=written_status(first))
    cluster.evidence = {"a": done("a")}

    later = decide(cluster.snapshot(), NOW.replace(hour=9))

    assert (
        condition(later, "Progressing")["lastTransitionTime"]
        == condition(first, "Progressing")["lastTransitionTime"]
    )
    assert condition(later, "Progressing")["message"] == "1 of 2 nodes completed"


def test_observed_generation_follows_the_job():
    cluster = make_cluster("a", gated=True)
    cluster.job = replace(started(make_job()), generation=4)

    assert status_of(decide(cluster.snapshot(), NOW))["observedGeneration"] == 4


def test_a_pod_that_waits_for_a_node_that_has_gone_is_deleted():
    """The DaemonSet controller does not see that the node has gone, and goes on counting it."""
    cluster = make_cluster("a", evidence={"a": done("a"), "b": done("b")}, gated=True)
    cluster.pods.append(gated_pod("b"))
    (deleted,) = [a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, DeletePods)]
    assert [pod.node_name for pod in deleted.pods] == ["b"]


def test_unbound_pod_of_an_unknown_node_is_deleted_after_some_time():
    """At first, the node may be too new for the cache of nodes; later it has gone unseen."""
    cluster = make_cluster("a", evidence={"a": done("a")}, gated=True)
    cluster.pods.append(gated_pod("b"))
    soon = decide(cluster.snapshot(), NOW)
    assert not [a for a in soon.actions if isinstance(a, DeletePods)]
    assert soon.requeue_after == 30.0
    cluster.seen = timedelta(seconds=29)
    assert not [a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, DeletePods)]
    cluster.seen = timedelta(seconds=30)
    (deleted,) = [a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, DeletePods)]
    assert [pod.node_name for pod in deleted.pods] == ["b"]


def test_a_pod_that_names_no_node_is_left_alone():
    cluster = make_cluster("a", gated=True, seen=timedelta(hours=1))
    cluster.pods.append(gated_pod(""))
    assert not [a for a in decide(cluster.snapshot(), NOW).actions if isinstance(a, DeletePods)]
