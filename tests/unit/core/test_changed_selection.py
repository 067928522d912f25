"""Policy Continuous: `spec.nodes` is changed while the controller is away, and nodes complete."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.daemon_set import DaemonSet
from daemonset_job.api.job_spec import NodeSelection
from daemonset_job.api.names import ANNOTATION_SELECTION_CHANGED
from job_controller.core.plan import ApplyDaemonSet, Plan
from tests.unit.builders import SampleCluster, done, gated_pod, make_pod
from tests.unit.core.runs import acts, run
from tests.unit.core.standing_jobs import (
    UNCONFIGURED,
    change,
    configure,
    released,
    request,
    select,
    standing,
    totals_of,
    unconfigure,
)


def changed_back(*done_already: str) -> tuple[SampleCluster, DaemonSet]:
    """Return a run that starts with b alone, and is to have b alone once more.

    With it, the DaemonSet of the time between, when it had a, which may have completed. The
    controller has had no time to see that.
    """
    cluster = standing("a", "b", completed=done_already)
    select(cluster, "b")
    cluster.started_with = cluster.job.selection_hash
    select(cluster, "a", "b")
    between = cluster.daemon_set()
    select(cluster, "b")
    return cluster, between


def exclude(cluster: SampleCluster, *names: str) -> None:
    """Have the Job exclude these nodes as well from now on."""
    change(cluster, nodes=replace(cluster.job.spec.nodes, exclude=names))
    cluster.job = replace(cluster.job, raw_spec={"nodes": {"exclude": list(names)}})


def leave(cluster: SampleCluster) -> None:
    cluster.pods = [pod for pod in cluster.pods if pod.node_name != "a"]
    cluster.desired = cluster.scheduled = 1


def completed(cluster: SampleCluster) -> tuple[int, int]:
    totals = totals_of(cluster)
    return totals.desired, totals.completed


def test_a_node_that_a_change_back_takes_out_does_not_count() -> None:
    cluster, between = changed_back("a", "b")
    run(cluster, daemon_set=between)
    leave(cluster)
    run(cluster)
    assert completed(cluster) == (1, 1)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") != "LeftSelection"


def test_a_node_that_begins_after_a_change_back_has_taken_it_out_does_not_count() -> None:
    cluster, between = changed_back("b")
    cluster.pods = [pod for pod in cluster.pods if pod.node_name == "b"]
    cluster.pods.append(make_pod("a", state="", revision=cluster.job.revision))
    run(cluster, seen=timedelta(seconds=1), daemon_set=between)
    # The DaemonSet controller is slow to delete its pod.
    cluster.pods[-1] = make_pod("a", revision=cluster.job.revision)
    run(cluster)
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    run(cluster)
    leave(cluster)
    run(cluster)
    assert completed(cluster) == (1, 1)


def test_a_node_that_is_taken_out_and_in_again_is_not_due_again() -> None:
    cluster, between = changed_back("a", "b")
    run(cluster, daemon_set=between)
    leave(cluster)
    run(cluster)
    select(cluster, "a", "b")
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    run(cluster)
    run(cluster)
    assert completed(cluster) == (2, 2)


def test_a_node_that_left_by_itself_before_it_was_seen_still_counts() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=UNCONFIGURED)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    cluster.pods[0] = make_pod("a", revision=cluster.job.revision)
    cluster.misscheduled, cluster.desired, cluster.scheduled = 1, 1, 1
    run(cluster)
    leave(cluster)
    cluster.misscheduled = 0
    run(cluster)
    assert completed(cluster) == (2, 2)


def test_a_node_that_left_is_on_record_before_the_daemon_set_knows_it() -> None:
    cluster = standing("a", "b", completed=("a",))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    cluster.misscheduled = 1
    run(cluster)
    assert completed(cluster) == (2, 1)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") == "LeftSelection"


def begun_unseen() -> SampleCluster:
    """Return a run whose node a completes, and was first recorded with labels that do not match."""
    cluster = standing("a", "b", completed=("b",))
    change(cluster, nodes=UNCONFIGURED)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    run(cluster)
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    run(cluster)
    return cluster


def test_a_node_that_a_late_cache_has_not_seen_join_has_not_left() -> None:
    """Its labels brought it in, and the cache of nodes does not have that yet."""
    cluster = begun_unseen()
    assert completed(cluster) == (2, 2)
    # Its pod is replaced, since the task has ended.
    pods, cluster.pods = cluster.pods, [pod for pod in cluster.pods if pod.node_name == "b"]
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") != "LeftSelection"
    cluster.nodes["a"], cluster.pods = replace(cluster.nodes["a"], labels={}), pods
    run(cluster)
    assert completed(cluster) == (2, 2)


def test_a_node_that_left_before_its_first_record_is_due_when_it_is_back() -> None:
    cluster = begun_unseen()
    leave(cluster)
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") == "LeftSelection"
    unconfigure(cluster)
    run(cluster)
    run(cluster)
    assert completed(cluster) == (2, 1)


def test_a_node_whose_pod_is_followed_by_another_has_not_left() -> None:
    """The count of the DaemonSet controller may be older, and equal by chance."""
    cluster = begun_unseen()
    leave(cluster)
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") != "LeftSelection"


def completed_unseen(*others: str) -> SampleCluster:
    """Return a run without a record of its node a, which has completed and whose pod is gone.

    Its labels brought it in, and the cache of nodes does not have that yet.
    """
    cluster = standing("a", "b", *others)
    change(cluster, nodes=UNCONFIGURED)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    cluster.pods = [make_pod("b", revision=cluster.job.revision)]
    cluster.evidence = {"a": replace(done("a"), revision=cluster.job.revision)}
    cluster.desired = cluster.scheduled = 2
    return cluster


@pytest.mark.parametrize("others", [(), ("c",)], ids=["joined", "another one left"])
def test_a_node_that_completed_before_the_cache_had_it_join_is_not_due(
    others: tuple[str, ...],
) -> None:
    """If another node has left unseen, the DaemonSet controller counts as many as the cache."""
    cluster = completed_unseen(*others)
    run(cluster)
    record = (cluster.report_status or {})["nodeStates"]["a"]
    assert (record["state"], record.get("reason")) == ("Completed", None)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={})
    for name in others:
        cluster.nodes[name] = replace(cluster.nodes[name], labels={"configured": "yes"})
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    for _ in range(3):
        assert released(run(cluster)) == []
        assert completed(cluster) == (2, 1)


def test_a_node_that_is_at_work_before_the_cache_has_it_join_has_not_left() -> None:
    """Its pod is deleted, and what the task did there is in the ledger only later."""
    cluster = standing("a", "b")
    change(cluster, nodes=UNCONFIGURED)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    run(cluster)
    del cluster.pods[0]
    cluster.scheduled = 1
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"]["state"] == "Active"
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={})
    run(cluster)
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.scheduled = 2
    assert released(run(cluster)) == []
    assert completed(cluster) == (2, 1)


def test_a_node_that_left_without_a_record_counts_and_is_due_when_it_is_back() -> None:
    cluster = standing("a", "b")
    change(cluster, nodes=UNCONFIGURED)
    running = make_pod("b", revision=cluster.job.revision)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    cluster.pods, cluster.desired, cluster.scheduled = [running], 1, 1
    cluster.evidence = {"a": replace(done("a"), revision=cluster.job.revision)}
    run(cluster)
    assert completed(cluster) == (2, 1)
    unconfigure(cluster)
    run(cluster)
    run(cluster)
    assert completed(cluster) == (2, 0)


def test_refused_pods_do_not_keep_a_node_from_having_left() -> None:
    cluster = completed_unseen("c")
    cluster.failed_create_message = "exceeded quota"
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"]["reason"] == "LeftSelection"
    unconfigure(cluster, desired=3)
    run(cluster)
    assert completed(cluster) == (3, 0)


def test_a_node_that_left_by_itself_is_not_due_again_when_a_change_takes_it_in() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=NodeSelection(selector={"matchLabels": {"zone": "x"}}))
    for name in ("a", "b"):
        cluster.nodes[name] = replace(cluster.nodes[name], labels={"zone": "x"})
    run(cluster)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={})
    leave(cluster)
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") == "LeftSelection"
    select(cluster, "a", "b")
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    for _ in range(3):
        run(cluster)
        assert completed(cluster) == (2, 2)
    record = (cluster.report_status or {})["nodeStates"]["a"]
    assert (record["state"], record.get("reason")) == ("Completed", None)
    # It is due like any other once what runs is changed.
    change(cluster, args=("x",))
    run(cluster)
    run(cluster)
    assert completed(cluster) == (2, 0)


def test_a_node_that_left_is_due_when_its_labels_match_a_selection_asked_for_since() -> None:
    """Neither the selection that it left nor the one after it chose the node: no change did."""
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    exclude(cluster, "c")
    run(cluster)
    assert completed(cluster) == (2, 2)
    unconfigure(cluster)
    run(cluster)
    assert released(run(cluster)) == ["a"]
    assert completed(cluster) == (2, 1)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_node_that_left_at_work_runs_again_after_a_change_that_was_about_others(
    is_late: bool,
) -> None:
    cluster = standing("a", "b", completed=("b",))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    exclude(cluster, "c")
    run(cluster)
    late = replace(done("a"), revision=cluster.job.revision)
    if not is_late:
        cluster.evidence["a"] = late
        run(cluster)
        assert completed(cluster) == (2, 2)
    cluster.evidence["a"] = late
    unconfigure(cluster)
    run(cluster)
    assert released(run(cluster)) == ["a"]
    assert completed(cluster) == (2, 1)


def test_a_node_that_a_change_has_chosen_while_its_pod_was_refused_leaves_by_itself() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    cluster.pods, cluster.scheduled = cluster.pods[1:], 1
    exclude(cluster, "c")
    run(cluster)
    assert completed(cluster) == (2, 2)
    cluster.nodes["a"] = replace(cluster.nodes["a"], labels={"configured": "yes"})
    leave(cluster)
    run(cluster)
    assert completed(cluster) == (2, 2)
    unconfigure(cluster)
    run(cluster)
    assert released(run(cluster)) == ["a"]


def test_a_change_that_takes_a_node_in_is_not_judged_before_the_daemon_set_has_it() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=UNCONFIGURED)
    run(cluster)
    configure(cluster)
    run(cluster)
    before = cluster.daemon_set()
    select(cluster, "a", "b")
    run(cluster, daemon_set=before)
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    for _ in range(3):
        assert released(run(cluster)) == []
        assert completed(cluster) == (2, 2)


def test_a_node_that_started_unseen_before_the_change_back_does_not_count() -> None:
    """Its pod had been let start, and the watch of pods is late then."""
    cluster = standing("a", "b", completed=("b",))
    select(cluster, "b")
    cluster.started_with = cluster.job.selection_hash
    select(cluster, "a", "b")
    cluster.pods[0] = make_pod("a", state="", revision=cluster.job.revision)
    run(cluster, seen=timedelta(seconds=1))
    select(cluster, "b")
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    run(cluster)
    leave(cluster)
    run(cluster)
    assert completed(cluster) == (1, 1)


def is_marked(plan: Plan) -> bool:
    """Return whether a plan applies a DaemonSet as one that has had another selection."""
    (applied,) = acts(plan, ApplyDaemonSet)
    return ANNOTATION_SELECTION_CHANGED in applied.body["metadata"]["annotations"]


def test_the_daemon_set_says_that_it_has_had_another_selection() -> None:
    cluster = standing("a", "b")
    select(cluster, "b")
    cluster.started_with = cluster.job.selection_hash
    first = cluster.daemon_set()
    assert not is_marked(run(cluster, daemon_set=replace(first, annotations={})))
    select(cluster, "a", "b")
    assert is_marked(run(cluster, daemon_set=first))
    cluster.selection_changed = True
    between = cluster.daemon_set()
    select(cluster, "b")
    assert is_marked(run(cluster, daemon_set=between))
    assert not acts(run(cluster), ApplyDaemonSet)


def test_a_daemon_set_that_was_deleted_may_have_had_another_selection() -> None:
    cluster = standing("a", "b")
    run(cluster)
    cluster.has_daemon_set = False
    for generation in (1, 2):
        cluster.job = replace(cluster.job, generation=generation)
        assert is_marked(run(cluster, pods=())) == (generation > 1)


@pytest.mark.parametrize("record", [None, "Completed"])
def test_a_node_that_completed_unseen_under_another_selection_does_not_count(
    record: str | None,
) -> None:
    """The watch of pods is late, or the controller dies before it has recorded what chose it."""
    cluster, _ = changed_back("a", "b")
    cluster.selection_changed = True
    leave(cluster)
    if record is not None:
        state = {"uid": "a-uid", "state": record, "revision": cluster.job.revision}
        cluster.report_status = {"nodeStates": {"a": state}}
    for _ in range(2):
        run(cluster)
        assert completed(cluster) == (1, 1)


def test_a_node_that_left_before_it_was_recorded_is_not_due_when_a_change_takes_it_in() -> None:
    cluster = standing("a", "b", completed=("a", "b"))
    change(cluster, nodes=NodeSelection(selector={"matchLabels": {"zone": "x"}}))
    cluster.job = replace(cluster.job, raw_spec={"nodes": {"selector": {"zone": "x"}}})
    cluster.started_with = cluster.job.selection_hash
    cluster.nodes["b"] = replace(cluster.nodes["b"], labels={"zone": "x"})
    leave(cluster)
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"].get("reason") == "LeftSelection"
    select(cluster, "a", "b")
    cluster.selection_changed = True
    cluster.pods.append(gated_pod("a", serial=2, revision=cluster.job.revision))
    cluster.desired = cluster.scheduled = 2
    for _ in range(3):
        assert released(run(cluster)) == []
        assert completed(cluster) == (2, 2)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_node_at_work_that_a_change_takes_out_and_the_next_takes_in_is_not_due_again(
    is_late: bool,
) -> None:
    """Its pod completes it while it is deleted, and the evidence may be late."""
    cluster = standing("a", "b", completed=("b",))
    run(cluster)
    pods, chosen = cluster.pods, cluster.job
    select(cluster, "b")
    leave(cluster)
    run(cluster)
    assert (cluster.report_status or {})["nodeStates"]["a"]["state"] == "Removed"
    if not is_late:
        cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
        run(cluster)
    spec, raw_spec = chosen.spec, chosen.raw_spec
    cluster.job = replace(cluster.job, spec=spec, raw_spec=raw_spec, generation=3)
    cluster.selection_changed = True
    cluster.pods = [*pods[1:], gated_pod("a", serial=2, revision=cluster.job.revision)]
    cluster.desired = cluster.scheduled = 2
    if is_late:
        # Until the evidence is there, the node is to run the task.
        assert released(run(cluster)) == ["a"]
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    for _ in range(2):
        assert released(run(cluster)) == []
        assert completed(cluster) == (2, 2)


@pytest.mark.parametrize("is_changed", [True, False])
def test_a_node_that_waits_is_on_record_once_the_selection_was_changed(is_changed: bool) -> None:
    """Without that, one whose task changes its labels before it is seen to run does not count."""
    cluster = standing("a", "b", completed=("b",))
    change(cluster, nodes=UNCONFIGURED)
    cluster.started_with = cluster.job.selection_hash
    cluster.selection_changed = is_changed
    cluster.pods[0] = make_pod("a", state="", revision=cluster.job.revision)
    run(cluster, seen=timedelta(seconds=1))
    records = (cluster.report_status or {})["nodeStates"]
    assert ("a" in records) == is_changed
    cluster.evidence["a"] = replace(done("a"), revision=cluster.job.revision)
    configure(cluster)
    for _ in range(2):
        run(cluster)
        assert completed(cluster) == (2, 2)


def joined_unseen() -> SampleCluster:
    """Return a Job with a completed node whose labels the cache has never seen match.

    Its pod is gone, and the DaemonSet controller does not count it.
    """
    cluster = begun_unseen()
    leave(cluster)
    run(cluster)
    assert completed(cluster) == (2, 2)
    return cluster


def ask(cluster: SampleCluster, what: str) -> None:
    """Have the Job run something else, or ask for a rerun of all nodes."""
    if what == "change":
        change(cluster, args=("x",))
    else:
        request(cluster, "*")


@pytest.mark.parametrize("what", ["change", "rerun"])
def test_a_node_that_left_before_it_was_seen_to_match_stays_completed(what: str) -> None:
    cluster = joined_unseen()
    ask(cluster, what)
    run(cluster)
    for _ in range(3):
        run(cluster)
        assert completed(cluster) == (2, 1)
    record = (cluster.report_status or {})["nodeStates"]["a"]
    assert (record["state"], record["reason"]) == ("Completed", "LeftSelection")


@pytest.mark.parametrize("what", ["change", "rerun"])
def test_a_node_that_a_late_cache_has_not_seen_join_runs_what_is_asked_for(what: str) -> None:
    cluster = joined_unseen()
    ask(cluster, what)
    run(cluster)
    unconfigure(cluster)
    run(cluster)
    assert released(run(cluster)) == ["a"]
    assert completed(cluster) == (2, 0)
