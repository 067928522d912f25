"""Nodes that have completed, and that the Job chooses no more because they changed."""

from dataclasses import replace

import pytest

from daemonset_job.api.job import selection_hash
from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.taints import Taint
from job_controller.core.decide import decide
from job_controller.core.plan import WriteReportStatus, WriteStatus
from job_controller.core.state.counting import count_nodes
from tests.unit.builders import (
    NOW,
    done,
    gated_pod,
    make_cluster,
    make_job,
    make_pod,
    started,
)

TO_DO = {"nodes": {"selector": {"matchLabels": {"state": "to-do"}}}}
NO_SCHEDULE = Taint("maintenance", "NoSchedule")


def job_for(raw):
    job = started(make_job(raw_spec=raw))
    nodes = NodeSelection(selector=raw["nodes"]["selector"])
    return replace(job, spec=replace(job.spec, nodes=nodes))


def left(*names, of="abc", completed=None, **changes):
    """A Job for nodes with a label. Some have completed and lost it, and the DaemonSet knows."""
    evidence = {name: done(name) for name in completed or names}
    cluster = make_cluster(*of, gated=True, job=job_for(TO_DO), evidence=evidence, **changes)
    cluster.nodes = {
        name: replace(node, labels={"state": "done" if name in names else "to-do"})
        for name, node in cluster.nodes.items()
    }
    cluster.pods = [make_pod(name) for name in of if name not in names]
    cluster.desired = len(cluster.pods)
    return cluster


def written(cluster):
    actions = decide(cluster.snapshot(), NOW).actions
    status = next(a.status for a in actions if isinstance(a, WriteStatus))
    records = {}
    for action in actions:
        if isinstance(action, WriteReportStatus):
            records.update(action.status.node_states)
    return status.to_raw(), records


def conditions(status):
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_they_stay_counted_as_completed():
    counts = count_nodes(left("a").snapshot(), NOW)
    assert counts.desired == 3
    assert counts.completed_unselected == {"a"}
    assert counts.names("Completed") == ["a"]
    assert counts.missing == 0
    assert counts.is_exact
    assert not counts.is_complete


def test_a_run_all_of_whose_nodes_left_is_complete_and_has_their_records():
    status, records = written(left("a", "b", "c"))
    assert conditions(status)["Complete"] == ("True", "AllNodesCompleted")
    assert status["nodes"]["desired"] == status["nodes"]["completed"] == 3
    assert status["nodes"]["completedNames"] == "a,b,c"
    assert {name: record.state for name, record in records.items()} == dict.fromkeys(
        "abc", "Completed"
    )


def test_a_node_that_left_at_work_is_not_completed_by_the_others():
    cluster = left("a", "b", "c", completed=("a", "b"))
    cluster.report_status = {
        "nodeStates": {"c": {"uid": "c-uid", "state": "Active", "attempts": 1}}
    }
    status, records = written(cluster)
    assert status["nodes"]["desired"] == status["nodes"]["completed"] == 2
    assert records["c"].state == "Removed"


def test_a_record_of_a_node_at_work_becomes_that_of_a_completed_one():
    cluster = left("a", "b", "c")
    active = {"uid": "a-uid", "state": "Active", "attempts": 2, "podUID": "pod-a-1"}
    cluster.report_status = {"nodeStates": {"a": active}}
    records = written(cluster)[1]
    assert (records["a"].state, records["a"].attempts) == ("Completed", 2)


@pytest.mark.parametrize("taint", [NO_SCHEDULE, Taint("maintenance", "NoExecute")])
def test_a_tainted_one_stays_counted_as_well(taint):
    cluster = left("a")
    cluster.nodes["a"] = replace(
        cluster.nodes["a"], labels={"state": "to-do"}, taints=(taint,), ready=True
    )
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.skipped) == (3, ["a"], {})


def test_a_node_that_the_user_took_out_does_not_count():
    cluster = left("a", started_with="of another selection")
    assert count_nodes(cluster.snapshot(), NOW).desired == 2
    cluster = left("a", "b", "c", started_with="of another selection")
    status, _ = written(cluster)
    assert "Complete" not in conditions(status)
    assert conditions(status)["Progressing"] == ("False", "NoMatchingNodes")


def test_a_report_of_an_older_version_says_of_no_selection():
    cluster = left("a", "b", "c")
    snapshot = cluster.snapshot()
    (report,) = snapshot.reports
    old = replace(snapshot, reports=(replace(report, selection_hash=""),))
    assert count_nodes(old, NOW).desired == 0


def test_a_selection_that_is_only_written_otherwise_is_the_same():
    plain = {"nodes": {"include": ["a", "b"], "selector": {"matchLabels": {"x": "1", "y": "2"}}}}
    other = {
        "nodes": {
            "include": ["b", "a"],
            "exclude": [],
            "selector": {"matchLabels": {"y": "2", "x": "1"}, "matchExpressions": None},
        },
        "template": {"spec": {"nodeSelector": {}}},
    }
    assert selection_hash(plain) == selection_hash(other)
    assert selection_hash(plain) != selection_hash({"nodes": {"include": ["a"]}})


def test_a_deleted_node_or_one_of_another_machine_does_not_count():
    cluster = left("a", "b")
    del cluster.nodes["a"]
    cluster.nodes["b"] = replace(cluster.nodes["b"], uid="another")
    assert count_nodes(cluster.snapshot(), NOW).desired == 1


def test_it_counts_once_while_its_pod_is_being_deleted():
    for misscheduled, desired in ((1, 2), (0, 3)):
        # In the second case the DaemonSet controller has yet to see that the label is gone.
        cluster = left("a", misscheduled=misscheduled)
        cluster.pods.append(make_pod("a", is_terminating=True))
        cluster.desired = desired
        assert count_nodes(cluster.snapshot(), NOW).desired == 3


def test_a_node_that_waits_for_its_pod_is_not_hidden_by_one_that_left():
    cluster = left("a", "b", completed=("a", "b"))
    cluster.pods = []
    cluster.desired = 1
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.missing, counts.is_complete) == (3, 1, False)


# What the DaemonSet counts when a node has left: desired, scheduled and misscheduled. First from
# before the change, then while the pod is deleted, then when it is gone.
DAEMON_SET_VIEWS = ((3, 3, 0), (2, 2, 1), (2, 2, 0))


@pytest.mark.parametrize("numbers", DAEMON_SET_VIEWS)
@pytest.mark.parametrize("has_label", [True, False])
@pytest.mark.parametrize("taints", [(), (NO_SCHEDULE,)])
def test_it_stays_counted_whichever_watch_is_behind_while_its_pod_goes(numbers, has_label, taints):
    cluster = left("a")
    cluster.nodes["a"] = replace(
        cluster.nodes["a"], labels={"state": "to-do" if has_label else "done"}, taints=taints
    )
    cluster.pods.append(make_pod("a", is_terminating=True))
    cluster.desired, cluster.scheduled, cluster.misscheduled = numbers
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 0)


@pytest.mark.parametrize("numbers", [(4, 4, 0), (2, 2, 2), (2, 2, 0)])
@pytest.mark.parametrize("has_label", [True, False])
def test_several_stay_counted_as_well(numbers, has_label):
    cluster = left("a", "b", of="abcd")
    for name in "ab":
        labels = {"state": "to-do" if has_label else "done"}
        cluster.nodes[name] = replace(cluster.nodes[name], labels=labels)
        cluster.pods.append(make_pod(name, is_terminating=True))
    cluster.desired, cluster.scheduled, cluster.misscheduled = numbers
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (4, ["a", "b"], 0)


def test_a_run_does_not_fail_because_a_watch_is_behind():
    # One of three may fail, none of two.
    cluster = left("a", completed=("a",))
    policy = replace(cluster.job.spec.failure_policy, max_failed_nodes="34%")
    cluster.job = replace(cluster.job, spec=replace(cluster.job.spec, failure_policy=policy))
    cluster.report_status = {
        "nodeStates": {"b": {"uid": "b-uid", "state": "Failed", "podUID": "pod-b-1"}}
    }
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"state": "to-do"})
    cluster.pods.append(make_pod("a", is_terminating=True))
    cluster.desired = 2
    status, _ = written(cluster)
    assert status["phase"] == "Running"


def test_no_run_is_complete_while_it_is_not_known_whether_a_node_has_left():
    cluster = left("a", completed=("a", "b", "c"))
    cluster.pods.append(make_pod("a", is_terminating=True))
    for numbers in ((3, 3, 0), (2, 2, 0)):
        cluster.desired, cluster.scheduled, cluster.misscheduled = numbers
        counts = count_nodes(cluster.snapshot(), NOW)
        assert (counts.desired, len(counts.names("Completed")), counts.is_exact) == (3, 3, False)


def test_a_node_whose_next_pod_is_awaited_is_not_hidden_by_one_that_may_have_left():
    cluster = left("a", completed=("a",))
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"state": "to-do"})
    cluster.pods = [make_pod("a", is_terminating=True), make_pod("b", is_terminating=True)]
    cluster.pods.append(make_pod("c"))
    cluster.desired, cluster.scheduled = 2, 2
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 1)


@pytest.mark.parametrize("taints", [(), (NO_SCHEDULE,)])
def test_it_counts_once_when_its_pod_is_gone_and_the_daemon_set_does_not_know(taints):
    cluster = left("a", misscheduled=1)
    cluster.nodes["a"] = replace(cluster.nodes["a"], taints=taints)
    cluster.scheduled = 2
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 0)
    assert not counts.is_exact


def test_it_counts_beside_a_node_with_a_pod_that_it_should_not_have():
    cluster = left("a", misscheduled=1)
    cluster.nodes["b"] = replace(cluster.nodes["b"], taints=(NO_SCHEDULE,))
    cluster.desired, cluster.scheduled = 1, 1
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 0)
    assert counts.is_exact
    # The cache of nodes does not have the taint yet.
    cluster.nodes["b"] = replace(cluster.nodes["b"], taints=())
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 0)
    assert counts.is_exact


def test_a_node_that_waits_for_its_first_pod_counts_beside_one_whose_pod_is_gone():
    cluster = left("a", misscheduled=1)
    cluster.pods = [make_pod("b")]
    cluster.desired, cluster.scheduled = 2, 1
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 1)


@pytest.mark.parametrize("has_label", [True, False])
def test_it_stays_counted_while_a_taint_keeps_off_the_pod_that_waits_there(has_label):
    cluster = left("a", misscheduled=1)
    labels = {"state": "to-do" if has_label else "done"}
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels=labels, taints=(NO_SCHEDULE,))
    cluster.pods.append(gated_pod("a"))
    cluster.desired = 2
    counts = count_nodes(cluster.snapshot(), NOW)
    assert (counts.desired, counts.names("Completed"), counts.missing) == (3, ["a"], 0)
    assert [pod.node_name for pod in counts.surplus_pods] == ["a"]


def test_one_that_is_another_machine_or_was_taken_out_does_not_count_while_a_watch_is_behind():
    cluster = left("a")
    cluster.pods.append(make_pod("a", is_terminating=True))
    cluster.nodes["a"] = replace(cluster.nodes["a"], uid="another")
    assert count_nodes(cluster.snapshot(), NOW).desired == 2
    cluster = left("a", started_with="of another selection")
    cluster.pods.append(make_pod("a", is_terminating=True))
    assert count_nodes(cluster.snapshot(), NOW).desired == 2
