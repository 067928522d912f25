"""Which completed nodes are changed, how, and when that is on record."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.choices import CompletionMode, FailureAction
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job_spec import Completion, NodeSelection
from daemonset_job.api.node_changes import NodeChange, OnSuccess, build_node_patch, is_label_value
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ChangeNodes,
    DryRunNodeChange,
    RefusedWrite,
    WriteReportStatus,
    WriteStatus,
    defer_progress_writes,
)
from job_controller.core.state.node_changes import (
    ANNOTATION_VALUE_LIMIT,
    NODES_PER_PLAN,
    RESULTS_GRACE,
    describe_unset_results,
    find_pending_changes,
    nodes_without_results,
)
from tests.unit.builders import (
    NOW,
    done,
    make_cluster,
    make_job,
    make_node,
    make_pod,
    seen_before,
)
from tests.unit.core.plans import condition, kinds
from tests.unit.core.runs import acts, failing, run, spec
from tests.unit.core.test_continuous import request, standing

A_CHANGED = {done("a").completion_id: NOW}
WANTED = OnSuccess(labels={"example.com/a": "b"}, remove_taints=("example.com/t",))
RESULT = OnSuccess(
    labels={"example.com/a": "b"},
    result_labels={"kernel": "example.com/kernel"},
    result_annotations={"kernel": "example.com/uname"},
)


def cluster_of(*names, completed=(), on_success=WANTED, results=None, **changes):
    evidence = {name: replace(done(name), results=results or {}) for name in completed}
    found = make_cluster(*names, gated=True, evidence=evidence, **changes)
    return spec(found, on_success=on_success)


def due(cluster, **changes):
    (action,) = acts(decide(cluster.snapshot(**changes), NOW), ChangeNodes)
    return action.changes


def record_of(cluster, name="a", **changes):
    plan = decide(cluster.snapshot(**changes), NOW)
    (written,) = acts(plan, WriteReportStatus)
    return written.status.node_states[name]


def recorded(cluster, *names):
    states = {
        name: {"uid": f"{name}-uid", "state": "Completed", "nodeChangedAt": "2026-01-02T03:04:01Z"}
        for name in names
    }
    cluster.report_status = {"nodeStates": states}
    return cluster


# --- which nodes -------------------------------------------------------------------------


def test_completed_nodes_are_due_and_no_others():
    changes = due(cluster_of("a", "b", "c", completed=("a", "c")))
    assert changes == (
        NodeChange(
            "a", "a-uid", done("a").completion_id, {"example.com/a": "b"}, {}, ("example.com/t",)
        ),
        NodeChange(
            "c", "c-uid", done("c").completion_id, {"example.com/a": "b"}, {}, ("example.com/t",)
        ),
    )


def test_a_job_without_changes_changes_no_node():
    plan = decide(cluster_of("a", completed=("a",), on_success=OnSuccess()).snapshot(), NOW)
    assert "ChangeNodes" not in kinds(plan)
    assert condition(plan, "Complete")["status"] == "True"


def test_a_node_is_changed_once():
    cluster = recorded(cluster_of("a", "b", completed=("a", "b")), "a")
    assert [change.name for change in due(cluster)] == ["b"]
    cluster = recorded(cluster, "a", "b")
    assert "ChangeNodes" not in kinds(decide(cluster.snapshot(), NOW))


def test_a_node_that_is_created_again_is_another_one():
    cluster = recorded(cluster_of("a", "b", completed=("a",)), "a")
    cluster.nodes["a"] = make_node("a", uid="new")
    assert "ChangeNodes" not in kinds(decide(cluster.snapshot(), NOW))
    cluster.evidence = {"a": done("a", uid="new")}
    assert [change.uid for change in due(cluster)] == ["new"]


def test_the_record_of_a_node_that_is_created_again_is_its_own():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.nodes["a"] = make_node("a", uid="new")
    cluster.pods[0] = make_pod("a", serial=2)
    plan = decide(cluster.snapshot(changed_nodes=A_CHANGED), NOW)
    (written,) = acts(plan, WriteReportStatus)
    record = written.status.node_states["a"]
    assert (record.uid, record.state, record.node_changed_at) == ("new", "Active", None)


def test_a_node_that_completes_again_is_changed_again():
    again = done("a", at="2026-01-02T03:09:00Z")
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.evidence = {"a": again}
    (change,) = due(cluster, changed_nodes=A_CHANGED)
    assert change.completion_id == again.completion_id


def test_a_deleted_node_needs_no_change():
    cluster = cluster_of("a", "b", completed=("a", "b"))
    del cluster.nodes["b"]
    cluster.pods.pop()
    assert [change.name for change in due(cluster)] == ["a"]
    plan = decide(cluster.snapshot(changed_nodes=A_CHANGED), NOW)
    assert condition(plan, "Complete")["status"] == "True"


def test_a_node_without_pod_or_selection_is_changed():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.pods = [make_pod("b")]
    cluster.desired = 1
    assert [change.name for change in due(cluster)] == ["a"]


def test_each_plan_changes_a_bounded_number_of_nodes():
    names = [f"n{number:03}" for number in range(NODES_PER_PLAN + 5)]
    cluster = cluster_of(*names, completed=names)
    first = due(cluster)
    assert [change.name for change in first] == names[:NODES_PER_PLAN]
    changed = {change.completion_id: NOW for change in first}
    assert [change.name for change in due(cluster, changed_nodes=changed)] == names[-5:]
    assert find_pending_changes(cluster.snapshot(), NOW).count == len(names)


@pytest.mark.parametrize("suspend", [True, False])
def test_nodes_of_a_suspended_or_failed_run_are_changed(suspend):
    cluster = cluster_of("a", "b", completed=("a",))
    if suspend:
        cluster = spec(cluster, suspend=True)
    else:
        cluster.pods[1] = failing("b")
        run(cluster)
        assert cluster.job.is_true("Failed")
    assert [change.name for change in due(cluster)] == ["a"]


def test_changes_are_made_although_progress_is_written_later():
    plan = decide(cluster_of("a", "b", completed=("a",)).snapshot(), NOW)
    assert kinds(plan) == ["ChangeNodes", "WriteReportStatus", "WriteStatus"]
    (written,) = acts(plan, WriteStatus)
    assert kinds(defer_progress_writes(plan, written.status, 5.0)) == ["ChangeNodes"]


# --- the end of the run ------------------------------------------------------------------


def test_a_run_is_complete_only_when_its_nodes_are_changed():
    cluster = cluster_of("a", completed=("a",))
    plan = decide(cluster.snapshot(), NOW)
    progressing = condition(plan, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("True", "NodesActive")
    assert progressing["message"] == (
        "1 of 1 nodes completed; completed nodes have yet to be changed (spec.onSuccess)"
    )
    plan = decide(cluster.snapshot(changed_nodes=A_CHANGED), NOW)
    assert condition(plan, "Complete")["status"] == "True"
    assert kinds(plan) == ["WriteReportStatus", "WriteStatus"]
    (written,) = acts(plan, WriteReportStatus)
    assert written.status.phase == "Succeeded"
    assert "+60s 1 node changed as spec.onSuccess and results say" in written.status.timeline
    assert written.status.node_states["a"].node_changed_at == NOW


def test_a_run_within_its_failure_limit_waits_as_well():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.pods[1] = failing("b")
    policy = replace(
        cluster.job.spec.failure_policy, action=FailureAction.CONTINUE, max_failed_nodes=1
    )
    cluster = spec(cluster, failure_policy=policy)
    assert not run(cluster).events
    assert not cluster.job.is_true("Complete")
    plan = decide(cluster.snapshot(changed_nodes=A_CHANGED), NOW)
    assert acts(plan, WriteStatus)


def test_a_recorded_success_is_not_taken_back_for_a_node_that_joined_late():
    cluster = recorded(cluster_of("a", "b", completed=("a", "b")), "a")
    cluster.report_status |= {"phase": "Succeeded", "jobGeneration": 1, "message": "m"}
    plan = decide(cluster.snapshot(), NOW)
    assert condition(plan, "Complete")["status"] == "True"
    assert [change.name for change in due(cluster)] == ["b"]


def test_changes_are_recorded_although_the_count_is_not_exact():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.pods[1] = failing("b")
    run(cluster)
    run(cluster)
    cluster.observed = False
    plan = decide(cluster.snapshot(changed_nodes=A_CHANGED), NOW)
    before = cluster.report_status
    (written,) = acts(plan, WriteReportStatus)
    assert written.status.node_states["a"].node_changed_at == NOW
    after = written.status.to_raw()
    after["nodeStates"]["a"].pop("nodeChangedAt")
    assert after == before


def test_a_change_of_a_node_without_a_record_makes_one():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.pods[1] = failing("b")
    run(cluster)
    cluster.report_status["nodeStates"].pop("a")
    cluster.observed = False
    record = record_of(cluster, changed_nodes=A_CHANGED)
    assert (record.state, record.node_changed_at) == ("Completed", NOW)


# --- refusals ----------------------------------------------------------------------------


def test_a_refused_change_is_shown_and_delays_the_end():
    cluster = cluster_of("a", completed=("a",))
    words = 'cannot patch resource "nodes" in API group "" at the cluster scope'
    refusals = {RefusedWrite.NODE_CHANGE: words}
    plan = decide(cluster.snapshot(refusals=refusals), NOW)
    assert "ChangeNodes" not in kinds(plan)
    progressing = condition(plan, "Progressing")
    assert (progressing["status"], progressing["reason"]) == ("False", "NodeChangeRefused")
    assert words in progressing["message"]
    assert progressing["message"].endswith(
        "kubectl apply --server-side -k deploy/components/node-changes"
    )
    assert plan.requeue_after is not None


def test_a_refusal_is_shown_from_its_reason_to_its_end():
    cluster = cluster_of("a", completed=("a",))
    words = f"denied request: {'x' * 3000} keys that are reserved: k8s.io/a"
    plan = decide(cluster.snapshot(refusals={RefusedWrite.NODE_CHANGE: words}), NOW)
    message = condition(plan, "Progressing")["message"]
    assert message.startswith("the API server refuses to change nodes (spec.onSuccess, results): d")
    assert message.endswith("keys that are reserved: k8s.io/a")
    assert len(message) <= 1024


def test_a_failed_run_shows_the_refusal_too():
    cluster = cluster_of("a", "b", completed=("a",))
    cluster.pods[1] = failing("b")
    run(cluster)
    plan = decide(cluster.snapshot(refusals={RefusedWrite.NODE_CHANGE: "no"}), NOW)
    assert condition(plan, "Progressing")["message"].endswith("results): no")


def test_a_complete_job_shows_the_refusal_for_a_node_that_joined_late():
    cluster = recorded(cluster_of("a", completed=("a",)), "a")
    run(cluster)
    assert cluster.job.is_true("Complete")
    late = cluster_of("a", "b", completed=("a", "b"), job=cluster.job)
    late = recorded(late, "a")
    late.report_status |= {"phase": "Succeeded"}
    plan = decide(late.snapshot(refusals={RefusedWrite.NODE_CHANGE: "no"}), NOW)
    assert condition(plan, "Progressing")["message"].endswith("results): no")


# --- the start ---------------------------------------------------------------------------


def unstarted(on_success=RESULT, **changes):
    cluster = make_cluster("a", "b", running=False, job=make_job(), **changes)
    cluster.has_daemon_set = cluster.has_report = False
    return spec(cluster, on_success=on_success)


def test_the_api_server_is_asked_before_the_start():
    plan = decide(unstarted().snapshot(), NOW)
    assert kinds(plan) == ["DryRunDaemonSet", "DryRunNodeChange"]
    (action,) = acts(plan, DryRunNodeChange)
    assert action.change == NodeChange(
        "a",
        "a-uid",
        "",
        {"example.com/a": "b", "example.com/kernel": ""},
        {"example.com/uname": ""},
    )
    assert kinds(decide(unstarted().snapshot(is_dry_run_done=True), NOW)) == ["WriteStatus"]


def test_the_api_server_is_asked_about_a_node_that_the_job_selects():
    cluster = spec(unstarted(), nodes=NodeSelection(include=("b",)))
    (action,) = acts(decide(cluster.snapshot(), NOW), DryRunNodeChange)
    assert action.change.name == "b"
    cluster = spec(unstarted(), nodes=NodeSelection(include=("elsewhere",)))
    assert kinds(decide(cluster.snapshot(), NOW)) == ["DryRunDaemonSet"]


def test_nothing_is_asked_without_changes_or_nodes():
    assert kinds(decide(unstarted(OnSuccess()).snapshot(), NOW)) == ["DryRunDaemonSet"]
    assert kinds(decide(unstarted().snapshot(nodes={}), NOW)) == ["DryRunDaemonSet"]


def test_a_run_that_may_not_change_nodes_does_not_start():
    plan = decide(unstarted().snapshot(refusals={RefusedWrite.NODE_CHANGE: "no"}), NOW)
    assert kinds(plan) == ["WriteStatus"]
    assert condition(plan, "Progressing")["reason"] == "NodeChangeRefused"
    assert [event.reason for event in plan.events] == ["NodeChangeRefused"]
    assert plan.requeue_after is not None


# --- results -----------------------------------------------------------------------------


def test_results_go_to_labels_and_annotations():
    (change,) = due(cluster_of("a", completed="a", on_success=RESULT, results={"kernel": "6.1"}))
    assert change.labels == {"example.com/a": "b", "example.com/kernel": "6.1"}
    assert change.annotations == {"example.com/uname": "6.1"}


@pytest.mark.parametrize("value", ["two words", "-a", "a" * 64, "ä", "a\n"])
def test_a_result_that_is_no_label_value_is_named_and_not_set(value):
    assert not is_label_value(value)
    cluster = cluster_of("a", completed="a", on_success=RESULT, results={"kernel": value})
    (change,) = due(cluster)
    assert change.labels == {"example.com/a": "b"}
    assert change.annotations == {"example.com/uname": value}
    record = record_of(cluster, changed_nodes=A_CHANGED)
    assert (record.state, record.reason) == ("Completed", "ResultNotSet")
    assert record.message.startswith("results that are not set on the node: kernel, since '")
    assert record.message.isprintable()


@pytest.mark.parametrize("value", ["", "a", "a" * 63, "A.b_c-9"])
def test_what_a_label_can_have_is_set(value):
    assert is_label_value(value)
    (change,) = due(cluster_of("a", completed="a", on_success=RESULT, results={"kernel": value}))
    assert change.labels["example.com/kernel"] == value


def test_a_result_that_was_not_printed_is_named():
    cluster = cluster_of("a", completed="a", on_success=RESULT)
    assert due(cluster)[0].labels == {"example.com/a": "b"}
    message = record_of(cluster, changed_nodes=A_CHANGED).message
    assert message.endswith("kernel, which the task did not print")


def test_the_message_about_results_is_bounded():
    wanted = OnSuccess(result_labels={"n" * 50 + str(n): str(n) for n in range(16)})
    assert len(describe_unset_results(Evidence("u"), wanted)) <= 300
    long = dict.fromkeys(wanted.result_labels, "<" * 256)
    assert len(describe_unset_results(Evidence("u", results=long), wanted)) <= 300


def test_an_annotation_takes_a_result_up_to_its_limit():
    wanted = OnSuccess(result_annotations={"r": "example.com/r"})
    for length, is_set in ((ANNOTATION_VALUE_LIMIT, True), (ANNOTATION_VALUE_LIMIT + 1, False)):
        results = {"r": "x" * length}
        cluster = cluster_of("a", completed="a", on_success=wanted, results=results)
        assert bool(due(cluster)[0].annotations) == is_set
        problem = describe_unset_results(cluster.evidence["a"], wanted)
        assert ("too long for an annotation" in problem) != is_set


def test_in_mode_exit_a_change_waits_for_results_that_are_not_read():
    cluster = cluster_of("a", completed="a", on_success=RESULT)
    cluster = spec(cluster, completion=Completion(mode=CompletionMode.EXIT))
    snapshot = seen_before(cluster.snapshot(), timedelta(seconds=5))
    assert nodes_without_results(snapshot) == {"a-uid"}
    plan = decide(snapshot, NOW)
    assert "ChangeNodes" not in kinds(plan)
    assert plan.requeue_after == RESULTS_GRACE.total_seconds() - 5
    assert not [each for each in acts(plan, WriteStatus) if each.status.is_true("Complete")]
    assert acts(decide(seen_before(cluster.snapshot(), RESULTS_GRACE), NOW), ChangeNodes)
    cluster.evidence = {"a": replace(done("a"), results={"kernel": "6.1"})}
    assert due(cluster)[0].labels["example.com/kernel"] == "6.1"


# --- the patch ---------------------------------------------------------------------------

NODE = {
    "metadata": {
        "name": "a",
        "uid": "a-uid",
        "resourceVersion": "9",
        "labels": {"x": "y"},
    },
    "spec": {
        "taints": [
            {"key": "example.com/t", "effect": "NoSchedule"},
            {"key": "other", "effect": "NoExecute"},
            {"key": "example.com/t", "effect": "PreferNoSchedule", "value": "v"},
        ]
    },
}


def test_the_patch_has_what_differs_and_no_more():
    change = NodeChange("a", "a-uid", "", {"x": "y", "z": "1"}, {"n": "2"})
    assert build_node_patch(NODE, change) == {
        "metadata": {"uid": "a-uid", "labels": {"z": "1"}, "annotations": {"n": "2"}}
    }
    assert build_node_patch(NODE, NodeChange("a", "a-uid", "", {"x": "y"})) == {}
    assert build_node_patch(NODE, NodeChange("a", "a-uid", remove_taints=("absent",))) == {}


def test_all_taints_of_a_key_are_removed_from_this_version_alone():
    patch = build_node_patch(NODE, NodeChange("a", "a-uid", remove_taints=("example.com/t",)))
    assert patch == {
        "metadata": {"uid": "a-uid", "resourceVersion": "9"},
        "spec": {"taints": [{"key": "other", "effect": "NoExecute"}]},
    }
    both = NodeChange("a", "a-uid", remove_taints=("example.com/t", "other"))
    assert build_node_patch(NODE, both)["spec"] == {"taints": None}


# --- policy Continuous -------------------------------------------------------------------


def test_a_node_that_runs_again_is_changed_again_when_it_completes():
    cluster = standing("a", completed=("a",))
    cluster = spec(cluster, on_success=WANTED)
    (first,) = acts(run(cluster), ChangeNodes)[0].changes
    changed = {first.completion_id: NOW}
    plan = decide(cluster.snapshot(changed_nodes=changed), NOW)
    assert condition(plan, "Complete")["status"] == "True"
    (written,) = acts(plan, WriteReportStatus)
    cluster.report_status = written.status.to_raw()
    cluster.job = replace(cluster.job, status=acts(plan, WriteStatus)[0].status)
    cluster = request(cluster, "a@again")
    plan = run(cluster)
    assert "ChangeNodes" not in kinds(plan)
    assert "nodeChangedAt" not in cluster.report_status["nodeStates"]["a"]
    revision = cluster.job.revision
    again = replace(done("a", at="2026-01-02T03:05:00Z"), pod_uid="pod-a-2", revision=revision)
    cluster.pods = [make_pod("a", serial=2, revision=revision)]
    cluster.evidence = {"a": again}
    (action,) = acts(decide(cluster.snapshot(changed_nodes=changed), NOW), ChangeNodes)
    assert action.changes[0].completion_id == again.completion_id


def test_a_completion_of_an_earlier_revision_that_is_recorded_late_changes_no_node():
    cluster = spec(standing("a"), on_success=WANTED)
    cluster.evidence = {"a": replace(done("a"), revision="another")}
    assert "ChangeNodes" not in kinds(run(cluster))
    cluster.evidence = {"a": replace(done("a"), revision=cluster.job.revision)}
    assert "ChangeNodes" in kinds(run(cluster))
