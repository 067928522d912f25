"""Policy Continuous: who is due, who is due again, and when the Job is complete."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from daemonset_job.api import job as job_module
from daemonset_job.api import names
from daemonset_job.api.choices import FailureAction
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rerun import REQUEST_LIMIT, parse_rerun
from job_controller.core.decide import decide
from job_controller.core.plan import (
    ApplyDaemonSet,
    RefusedWrite,
    WriteStatus,
)
from tests.unit.builders import (
    NOW,
    SampleCluster,
    done,
    gated_pod,
    make_node,
    make_pod,
)
from tests.unit.core.runs import acts, conditions, failing, run
from tests.unit.core.standing_jobs import (
    CONTINUOUS,
    UNCONFIGURED,
    change,
    configure,
    deleted,
    released,
    request,
    select,
    standing,
    totals_of,
    unconfigure,
)


def test_a_job_is_complete_while_all_present_nodes_are() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "AllNodesCompleted")
    cluster.nodes["c"] = make_node("c")
    cluster.pods.append(gated_pod("c", revision=cluster.job.revision))
    plan = run(cluster)
    assert released(plan) == ["c"]
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert cluster.job.status.phase == "Running"


def test_an_inexact_count_takes_nothing_back() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    cluster.pods = cluster.pods[:1]
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "AllNodesCompleted")


def test_an_end_is_given_to_a_new_selection_only_when_its_daemon_set_was_seen() -> None:
    """Found by the simulation, seed 7305754."""
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    before, older = cluster.job.status.observed_generation, cluster.daemon_set()
    select(cluster, "a")
    assert conditions(cluster)["Complete"][0] == "True"
    run(cluster, daemon_set=older)
    assert cluster.job.status.observed_generation == before, "the DaemonSet is that of before"
    cluster.observed = False
    run(cluster)
    assert cluster.job.status.observed_generation == before, "its controller has not seen it"
    cluster.observed = True
    cluster.pods = cluster.pods[:1]
    run(cluster)
    assert cluster.job.status.observed_generation == cluster.job.generation


def joined(*, failed: bool = False) -> SampleCluster:
    """Return a complete Job; node c joins, is counted, and its pod is refused."""
    cluster = standing("a", "b", completed=("a",) if failed else ("a", "b"))
    if failed:
        change(cluster, failure_policy=FailurePolicy(FailureAction.FAIL_FAST, 1))
        cluster.pods[1] = replace(failing("b"), revision=cluster.job.revision)
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    cluster.nodes["c"] = make_node("c")
    cluster.failed_create_message = "exceeded quota"
    return cluster


def test_a_node_that_joins_and_whose_pod_is_refused_is_due() -> None:
    """Found by the simulation, seed 2000000430."""
    cluster = joined()
    cluster.desired = 2
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True", "not counted yet"
    cluster.desired = 3
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert conditions(cluster)["Progressing"] == ("False", "FailedCreate")
    assert cluster.job.status.to_raw()["nodes"]["waiting"] == 1
    assert cluster.report_status is not None
    assert cluster.report_status["phase"] != "Succeeded"


def test_a_count_that_is_older_than_the_deletion_of_a_node_takes_nothing_back() -> None:
    cluster = joined()
    del cluster.nodes["c"]
    cluster.desired = 3
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"


def test_a_failed_node_whose_pod_is_replaced_is_not_due_and_hides_no_node_that_is() -> None:
    cluster = joined(failed=True)
    cluster.desired, cluster.pods = 2, cluster.pods[:1]
    run(cluster)
    assert conditions(cluster)["Complete"] == ("True", "CompletedWithinFailureLimit")
    cluster.desired = 3
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_a_failed_node_that_has_left_hides_no_node_that_is_due() -> None:
    cluster = joined(failed=True)
    change(cluster, nodes=UNCONFIGURED)
    cluster.nodes["b"] = replace(cluster.nodes["b"], labels={"configured": "yes"})
    cluster.pods, cluster.desired, cluster.scheduled = cluster.pods[:1], 1, 1
    c = cluster.nodes.pop("c")
    run(cluster)
    assert conditions(cluster)["Complete"][0] == "True"
    cluster.nodes["c"], cluster.desired = c, 2
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_an_inexact_count_keeps_no_completion_of_an_older_revision() -> None:
    """The user changes what runs while a pod is created again: nothing shows yet who is due."""
    cluster = standing("a", completed=("a",))
    run(cluster)
    cluster.pods = []
    change(cluster, image="example/task:2")
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    run(cluster)
    assert cluster.job.status.observed_generation == cluster.job.generation
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert cluster.report_status is not None
    assert cluster.report_status["phase"] != "Succeeded"
    run(cluster)
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")


def test_a_failed_node_does_not_end_the_run() -> None:
    cluster = standing("a", "b", "c", completed=("a",))
    cluster.pods[1] = failing("b")
    cluster.pods[1] = replace(cluster.pods[1], revision=cluster.job.revision)
    cluster.pods[2] = gated_pod("c", revision=cluster.job.revision)
    plan = run(cluster)
    assert released(plan) == ["c"]
    assert "Failed" not in conditions(cluster)
    cluster.pods[2] = replace(make_pod("c"), revision=cluster.job.revision)
    cluster.evidence["c"] = replace(done("c"), revision=cluster.job.revision)
    run(cluster, NOW + timedelta(seconds=30))
    assert conditions(cluster)["Progressing"] == ("False", "NodesFailed")
    assert conditions(cluster)["Stalled"] == ("True", "NodesFailed")
    assert conditions(cluster)["Reconciling"] == ("False", "RunEnded")
    assert "Complete" not in conditions(cluster)
    change(cluster, image="example/task:2")
    run(cluster, NOW + timedelta(seconds=40))
    assert conditions(cluster)["Stalled"][0] == "False"
    assert conditions(cluster)["Reconciling"][0] == "True"


def test_failures_within_the_limit_do_not_keep_a_job_from_being_complete() -> None:
    cluster = standing("a", "b", completed=("a",))
    cluster = change(cluster, failure_policy=FailurePolicy(max_failed_nodes=1))
    cluster.pods[1] = replace(failing("b"), revision=cluster.job.revision)
    run(cluster, NOW + timedelta(seconds=30))
    assert conditions(cluster)["Complete"] == ("True", "CompletedWithinFailureLimit")


def test_too_many_failures_pause_a_job_that_asks_for_it() -> None:
    cluster = standing("a", "b", "c", completed=("a",))
    cluster = change(cluster, failure_policy=FailurePolicy(FailureAction.PAUSE))
    cluster.pods[1] = replace(failing("b"), revision=cluster.job.revision)
    cluster.pods[2] = gated_pod("c", revision=cluster.job.revision)
    assert released(run(cluster, NOW + timedelta(seconds=30))) == []
    assert conditions(cluster)["Suspended"] == ("True", "MaxFailedNodesExceeded")


# --- revisions ------------------------------------------------------------------------------


def test_a_change_of_what_runs_makes_every_node_due_again() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    first = cluster.job.revision
    change(cluster, image="example/task:2")
    assert cluster.job.revision != first
    # The number comes first.
    assert deleted(run(cluster)) == []
    plan = run(cluster)
    # The cluster applies at once: the pods of the first revision go.
    assert deleted(plan) == ["a", "b"]
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    cluster.pods = [
        gated_pod("a", revision=cluster.job.revision),
        gated_pod("b", revision=cluster.job.revision),
    ]
    assert released(run(cluster)) == ["a", "b"]


def test_no_pod_is_replaced_before_the_daemon_set_creates_pods_of_the_revision() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    cluster.observed = False
    assert deleted(run(cluster)) == []


def test_a_gated_pod_of_an_earlier_revision_never_starts() -> None:
    cluster = standing("a")
    cluster.pods = [gated_pod("a", revision="0123456789abcdef")]
    plan = run(cluster)
    assert (released(plan), deleted(plan)) == ([], ["a"])


def test_only_the_nodes_with_an_older_revision_are_due_again() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    change(cluster, image="example/task:2")
    run(cluster)
    revision = cluster.job.revision
    cluster.pods = [
        make_pod("a", serial=3, revision=revision),
        make_pod("b", serial=3, revision=revision),
    ]
    cluster.evidence["a"] = replace(done("a"), pod_uid="pod-a-3", revision=revision)
    plan = run(cluster)
    assert deleted(plan) == []
    totals = totals_of(cluster)
    assert (totals.completed, totals.active) == (1, 1)


def test_a_change_back_counts_as_a_change() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2")
    run(cluster)
    change(cluster, image="example/task:1")
    run(cluster)
    assert deleted(run(cluster)) == ["a"]


def test_where_it_runs_is_no_part_of_the_revision() -> None:
    cluster = standing("a", completed=("a",))
    first = cluster.job.revision
    tolerations = {"spec": {"tolerations": [{"operator": "Exists"}]}}
    change(cluster, nodes=NodeSelection(exclude=("z",)), template=tolerations)
    change(cluster, backoff_limit=2, completion=replace(CONTINUOUS, release=True))
    assert cluster.job.revision == first != ""
    change(cluster, template={"spec": {"priorityClassName": "system-node-critical"}})
    assert cluster.job.revision != first


def test_a_suspended_job_leaves_running_tasks_of_an_earlier_revision_alone() -> None:
    cluster = standing("a")
    run(cluster)
    change(cluster, image="example/task:2", suspend=True)
    assert deleted(run(cluster)) == []


def test_a_node_of_a_suspended_job_that_is_down_is_unreachable_after_a_change_too() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    change(cluster, image="example/task:2", suspend=True)
    run(cluster)
    away = NOW - timedelta(minutes=10)
    cluster.nodes["a"] = replace(cluster.nodes["a"], ready=False, ready_changed_at=away)
    run(cluster)
    assert totals_of(cluster).unreachable == 1
    cluster.nodes["a"] = replace(cluster.nodes["a"], ready=True)
    run(cluster)
    assert totals_of(cluster).waiting == 1


def test_a_failure_of_an_earlier_revision_is_history() -> None:
    cluster = standing("a")
    cluster.pods[0] = replace(failing("a"), revision=cluster.job.revision)
    run(cluster, NOW + timedelta(seconds=30))
    assert (cluster.report_status or {})["nodeStates"]["a"]["state"] == "Failed"
    change(cluster, image="example/task:2")
    run(cluster)
    assert deleted(run(cluster, NOW + timedelta(seconds=40))) == ["a"]
    record = (cluster.report_status or {})["nodeStates"]["a"]
    assert (record["state"], len(record["failures"])) == ("Waiting", 1)


# --- requests and selections ------------------------------------------------------------------


def test_a_request_runs_the_task_again_on_the_nodes_that_it_names_once() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    request(cluster, "a@1")
    # The report has it first.
    assert deleted(run(cluster)) == []
    assert deleted(run(cluster)) == ["a"]
    revision = cluster.job.revision
    cluster.pods[0] = gated_pod("a", serial=2, revision=revision)
    assert released(run(cluster)) == ["a"]
    cluster.pods[0] = make_pod("a", serial=2, revision=revision)
    assert deleted(run(cluster)) == []
    cluster.evidence["a"] = replace(done("a"), pod_uid="pod-a-2", revision=revision)
    assert deleted(run(cluster)) == []
    assert conditions(cluster)["Complete"][0] == "True"
    request(cluster, "a@2")
    run(cluster)
    assert deleted(run(cluster)) == ["a"]


def test_a_request_for_every_node_is_not_for_nodes_that_join_after_it() -> None:
    cluster = request(standing("a", completed=("a",)), "*@1")
    run(cluster)
    revision = cluster.job.revision
    cluster.pods[0] = make_pod("a", serial=2, revision=revision)
    cluster.evidence["a"] = replace(done("a"), pod_uid="pod-a-2", revision=revision)
    run(cluster)
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b", revision=revision))
    # It completed before the controller had a record of it.
    cluster.evidence["b"] = replace(done("b"), revision=revision)
    assert deleted(run(cluster)) == []


def test_a_request_is_recorded_before_the_next_pod_may_start() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    request(cluster, "a")
    plan = run(cluster)
    kinds = [type(action).__name__ for action in plan.actions]
    assert kinds == ["WriteReportStatus", "WriteStatus"]
    assert cluster.job.has_open_request
    assert (cluster.report_status or {})["nodeStates"]["a"]["earlierPods"] == ["pod-a-1"]


def test_a_node_that_left_the_selection_stays_counted_and_is_due_when_it_comes_back() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed) == (2, 2)
    assert conditions(cluster)["Complete"][0] == "True"
    assert (cluster.report_status or {})["nodeStates"]["a"]["reason"] == "LeftSelection"
    # A user removes the label.
    unconfigure(cluster)
    # The report has it first.
    assert released(run(cluster)) == []
    assert conditions(cluster)["Complete"] == ("False", "NodesDue")
    assert released(run(cluster)) == ["a"]


def test_a_node_that_the_user_takes_out_of_the_selection_is_not_counted() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    run(cluster)
    select(cluster, "b")
    cluster.pods = cluster.pods[1:]
    cluster.desired = cluster.scheduled = 1
    run(cluster)
    totals = totals_of(cluster)
    assert (totals.desired, totals.completed) == (1, 1)


def test_the_daemon_set_is_applied_with_its_revision() -> None:
    cluster = standing("a")
    cluster.has_daemon_set, cluster.pods = False, []
    (applied,) = acts(run(cluster), ApplyDaemonSet)
    template = applied.body["spec"]["template"]
    found = template["metadata"]["annotations"][names.ANNOTATION_REVISION]
    assert found == cluster.job.revision
    assert applied.body["metadata"]["annotations"][names.ANNOTATION_REVISION] == found


def test_a_request_has_names_and_a_text() -> None:
    found = parse_rerun(" a, b ,@now")
    assert found.nodes == {"a", "b"}
    assert not found.is_for_all
    assert found.id != parse_rerun("a,b@later").id
    assert parse_rerun("*").names("anything")
    assert not parse_rerun("").names("a")


def test_of_many_deleted_nodes_the_newest_hundred_stay_on_record() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    known = (cluster.report_status or {})["nodeStates"]
    for number in range(201):
        finished = (NOW + timedelta(minutes=number)).isoformat().replace("+00:00", "Z")
        known[f"gone-{number}"] = {**known["a"], "uid": f"u{number}", "finishedAt": finished}
    cluster.nodes["b"] = make_node("b")
    cluster.pods.append(make_pod("b", revision=cluster.job.revision))
    run(cluster)
    left = {name for name in (cluster.report_status or {})["nodeStates"] if name.startswith("gone")}
    assert left == {f"gone-{number}" for number in range(101, 201)}


def test_a_request_stays_open_while_the_report_cannot_be_written() -> None:
    cluster = standing("a", completed=("a",))
    run(cluster)
    request(cluster, "a")
    snapshot = cluster.snapshot().with_refusal(RefusedWrite.REPORT, "quota")
    for action in decide(snapshot, NOW).actions:
        assert not isinstance(action, WriteStatus) or not action.status.observed_rerun
    run(cluster)
    assert deleted(run(cluster)) == ["a"]
    assert cluster.job.status.observed_rerun


def test_what_a_tenant_writes_is_read_once_and_not_for_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rerun request of 16 KiB and a selection by a thousand names, on 100 nodes."""
    nodes = [f"n{number}" for number in range(100)]
    cluster = standing(*nodes, completed=tuple(nodes))
    request = {names.ANNOTATION_RERUN: ",".join(f"m{n}" for n in range(3000))[:REQUEST_LIMIT]}
    cluster.job = replace(cluster.job, annotations=request)
    calls: Counter[str] = Counter()

    def counted(name: str) -> None:
        known = getattr(job_module, name)

        def call(*values: Any) -> Any:
            calls[name] += 1
            return known(*values)

        monkeypatch.setattr(job_module, name, call)

    counted("parse_rerun")
    counted("selection_hash")
    counted("nodes_hash")
    decide(cluster.snapshot(), NOW)
    assert calls
    assert max(calls.values()) == 1
