"""The count on which a Job is deleted."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api import names
from daemonset_job.api.affinity import REQUIRED
from daemonset_job.api.choices import FailureAction
from daemonset_job.api.container import Container
from daemonset_job.api.evidence import Evidence
from daemonset_job.api.job import nodes_hash
from daemonset_job.api.job_spec import FailurePolicy, NodeSelection
from daemonset_job.api.rollout_requests import RolloutRequests
from daemonset_job.api.times import format_time
from terminator.deletion_decision import decide_deletion
from terminator.node_count import Snapshot, count_nodes
from tests.unit.terminator.builders import (
    COMPLETE,
    FAILED,
    NOW,
    done,
    make_daemon_set,
    make_job,
    make_node,
    make_pod,
)
from tests.unit.terminator.snapshots import NAMES, blocked_by, record, world


def test_a_job_that_both_count_as_complete_may_go():
    count = count_nodes(world())
    assert count.desired == count.completed == frozenset(NAMES)
    assert count.all_completed
    assert decide_deletion(make_job(COMPLETE), lambda: count, NOW).may_delete


def test_a_job_stays_until_its_report_is_whole():
    snapshot = world()
    records = {**snapshot.records, "c": record("c-uid", "Active")}
    assert blocked_by(replace(snapshot, records=records)) == (
        "the JobReport lacks the final state of 1 nodes"
    )


def test_a_job_stays_until_both_count_the_same_nodes():
    status = {"nodes": {"desired": 4}}
    snapshot = world(job=make_job(COMPLETE, status=status))
    assert blocked_by(snapshot) == "status reports 4 desired nodes, but there are 3"
    status = {"nodes": {"desired": 3}}
    assert not blocked_by(replace(snapshot, job=make_job(COMPLETE, status=status)))


def test_job_stays_while_its_status_counts_a_node_that_has_not_finished():
    """A node without a pod makes up for one that has left, so the numbers agree by chance."""
    snapshot = world(names=("a",), completed=("a",))
    away = {"b": done("b")}, {"b": record("b-uid", "Completed")}
    snapshot = replace(
        snapshot,
        nodes={**snapshot.nodes, "b": make_node("b")},
        ledger={**snapshot.ledger, **away[0]},
        records={**snapshot.records, **away[1]},
    )
    status = {"nodes": {"desired": 2, "completed": 1, "waiting": 1}}
    stale = replace(snapshot, job=make_job(COMPLETE, status=status))
    assert blocked_by(stale) == "status reports 1 nodes that have not finished"
    status = {"nodes": {"desired": 2, "completed": 2}}
    assert not blocked_by(replace(snapshot, job=make_job(COMPLETE, status=status)))


def test_one_count_alone_does_not_do():
    assert blocked_by(world(completed=NAMES[:2])) == "2 of 3 nodes are completed"
    assert "not marked the Job complete" in blocked_by(world(job=make_job()))
    assert "not marked the Job complete" in blocked_by(
        world(job=make_job({**COMPLETE, "status": "False"}))
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"daemon_set": None}, "the Job has no DaemonSet"),
        ({"daemon_set": make_daemon_set(3, owner_uid="other")}, "the Job has no DaemonSet"),
        ({"daemon_set": make_daemon_set(3, owner_uid="")}, "the Job has no DaemonSet"),
        ({"daemon_set": make_daemon_set(3, is_terminating=True)}, "is being deleted"),
        ({"daemon_set": make_daemon_set(3, observed_generation=2)}, "not observed the newest spec"),
        ({"daemon_set": make_daemon_set(4)}, "counts 4 nodes with a pod, but 3 have one"),
        ({"daemon_set": make_daemon_set(2)}, "counts 2 nodes with a pod, but 3 have one"),
        ({"daemon_set": make_daemon_set(4, scheduled=3)}, "3 of 4 desired nodes have a pod"),
        ({"daemon_set": make_daemon_set(3, annotations={})}, "applied for an older spec.nodes"),
        (
            {"job": make_job(COMPLETE, raw_spec={"nodes": {"include": ["a"]}})},
            "an older spec.nodes",
        ),
        ({"job": make_job(COMPLETE, is_terminating=True)}, "the Job is being deleted"),
        ({"job": make_job(COMPLETE, generation=3)}, "not observed the newest spec"),
        (
            {"job": make_job(COMPLETE, status={"observedGeneration": None})},
            "not observed the newest spec",
        ),
    ],
)
def test_what_keeps_a_job(changes, words):
    assert words in blocked_by(world(**changes))


# --- time to live -----------------------------------------------------------------------


def with_ttl(condition, seconds, **changes):
    status = {"completionTime": "2026-01-02T03:04:00Z", **changes}
    return make_job(condition, spec={"ttl_seconds_after_finished": seconds}, status=status)


def ending(job, now=NOW):
    return decide_deletion(job, lambda: count_nodes(world(job=job)), now)


def test_a_completed_job_lives_on_for_its_time():
    assert ending(with_ttl(COMPLETE, 0)).may_delete
    assert ending(with_ttl(COMPLETE, 5)).may_delete
    kept = ending(with_ttl(COMPLETE, 65))
    assert kept.blocked_by == "ttlSecondsAfterFinished ends at 2026-01-02T03:05:05Z"
    assert kept.wake_at == NOW + timedelta(seconds=60)
    assert "no completionTime" in ending(with_ttl(COMPLETE, 5, completionTime=None)).blocked_by
    late = ending(with_ttl(COMPLETE, 5, completionTime="9999-12-31T23:59:59Z"))
    assert late.blocked_by == "ttlSecondsAfterFinished ends at 9999-12-31T23:59:59Z"


def test_a_failed_job_stays_unless_it_says_otherwise():
    assert "ttlSecondsAfterFinished is not set" in ending(make_job(FAILED)).blocked_by
    assert ending(with_ttl(FAILED, 0)).may_delete
    assert ending(with_ttl(FAILED, 5)).may_delete
    assert ending(with_ttl(FAILED, 65)).wake_at is not None


def test_a_failed_job_that_is_about_to_be_retried_stays():
    job = with_ttl(FAILED, 0)
    asked = replace(job, annotations={"daemonset.darkowlzz.space/retry": "2"})
    assert "about to be retried" in ending(asked).blocked_by


def over(**changes):
    """A Job whose time to live has been over for an hour."""
    spec = {"ttl_seconds_after_finished": 5}
    status = {"completionTime": "2026-01-02T02:03:00Z", "nodes": {"desired": 3}}
    return world(job=make_job(COMPLETE, spec=spec, status=status), **changes)


def test_a_complete_job_none_of_whose_nodes_is_left_goes():
    gone = make_daemon_set(0)
    assert blocked_by(world(pods=[], daemon_set=gone)) == ""
    assert blocked_by(world(pods=[], daemon_set=replace(gone, observed_generation=2)))


def test_a_complete_job_on_which_no_node_ever_worked_stays():
    nothing = world(pods=[], ledger={}, daemon_set=make_daemon_set(0))
    assert blocked_by(nothing) == "no node is desired, and none has completed or failed"


@pytest.mark.parametrize(
    ("ttl_seconds", "reported", "stays"),
    [(0, 0, False), (None, 0, True), (0, 1, True), (0, None, True)],
)
def test_a_ttl_holds_for_a_complete_job_without_nodes_by_both_counts(ttl_seconds, reported, stays):
    """Its failed node was to be retried, and has got a taint since."""
    nodes = {} if reported is None else {"nodes": {"desired": reported}}
    job = make_job(COMPLETE, spec={"ttl_seconds_after_finished": ttl_seconds}, status=nodes)
    snapshot = world(job=job, pods=[], ledger={}, daemon_set=make_daemon_set(0))
    assert bool(blocked_by(snapshot)) == stays


def test_a_complete_job_none_of_whose_nodes_completed_or_is_left_goes_after_its_ttl():
    failed = world(pods=[], ledger={}, records={"a": record("a-uid")})
    failed = replace(failed, daemon_set=make_daemon_set(0), nodes={})
    for ttl_seconds, words in ((0, ""), (None, "nodes failed and ttlSecondsAfterFinished is not")):
        job = make_job(COMPLETE, spec={"ttl_seconds_after_finished": ttl_seconds})
        blocked = blocked_by(replace(failed, job=job))
        assert blocked.startswith(words)
        assert bool(blocked) == bool(words)


def test_a_pod_on_a_node_that_is_not_selected_counts_for_no_node():
    """The selection moved from c to another node, whose pod this cache has yet to see."""
    snapshot = world(job=without_c())
    found = daemon_set_without_c(3)
    assert blocked_by(replace(snapshot, daemon_set=found)) == (
        "node c is not selected any more, and its pod still exists"
    )


def without_c():
    spec = {"nodes": NodeSelection(exclude=("c",))}
    return make_job(COMPLETE, spec=spec, raw_spec={"nodes": {"exclude": ["c"]}})


def daemon_set_without_c(desired, **changes):
    rule = {"key": "metadata.name", "operator": "NotIn", "values": ["c"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [rule]}]}}}
    annotations = {names.ANNOTATION_NODES_HASH: nodes_hash({"nodes": {"exclude": ["c"]}})}
    spec = {"template": {"spec": {"affinity": affinity}}}
    return make_daemon_set(desired, annotations=annotations, spec=spec, **changes)


def held(snapshot, overdue_since):
    return decide_deletion(snapshot.job, lambda: count_nodes(snapshot), NOW, overdue_since)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"daemon_set": make_daemon_set(4, scheduled=3)}, "3 of 4 desired nodes have a pod"),
        (
            {
                "completed": ("a", "b"),
                "pods": [*map(make_pod, "ab"), make_pod("c", is_scheduled=False, container=None)],
            },
            "2 of 3 nodes are completed",
        ),
        (
            {"completed": ("a", "b"), "records": {"c": record(state="Unreachable")}},
            "2 of 3 nodes are completed",
        ),
    ],
)
def test_inactive_node_keeps_a_job_for_ten_minutes(changes, words):
    """The time to live may have been over for long: until now another node was at work."""
    snapshot = over(**changes)
    first = held(snapshot, None)
    assert (first.blocked_by, first.is_overdue) == (words, True)
    assert first.wake_at == NOW + timedelta(minutes=10)
    before = NOW - timedelta(minutes=9)
    assert held(snapshot, before).wake_at == before + timedelta(minutes=10)
    assert held(snapshot, NOW - timedelta(minutes=10)).may_delete


def test_nothing_is_overdue_before_the_time_to_live_is_over():
    job = with_ttl(COMPLETE, 65)
    assert not ending(job).is_overdue
    snapshot = world(job=job, daemon_set=make_daemon_set(4, scheduled=3))
    assert not held(snapshot, None).is_overdue


@pytest.mark.parametrize(
    "container",
    [
        Container("running"),
        Container("waiting", reason="CrashLoopBackOff", restart_count=1, last_exit_code=1),
        Container("waiting", reason="ContainerCreating"),
        Container("waiting", reason="PodInitializing"),
        Container("terminated", exit_code=1),
        None,
    ],
)
def test_active_node_keeps_a_complete_job_beyond_its_ttl(container):
    pods = [*map(make_pod, "ab"), make_pod("c", container=container)]
    found = held(over(completed=("a", "b"), pods=pods), NOW - timedelta(hours=1))
    assert (found.blocked_by, found.is_overdue) == ("2 of 3 nodes are completed", False)


def test_a_pod_whose_containers_have_ended_for_good_is_not_at_work():
    pods = [*map(make_pod, "ab"), make_pod("c", phase="Failed", container=Container("terminated"))]
    assert held(over(completed=("a", "b"), pods=pods), NOW - timedelta(hours=1)).may_delete


# --- nodes without a pod ----------------------------------------------------------------


def without_pod_of_c(entry, **changes):
    """The pod of c has gone, and the DaemonSet controller does not count c."""
    snapshot = world(completed=("a", "b"), pods=[make_pod("a"), make_pod("b")])
    records = {**snapshot.records, "c": entry}
    return replace(snapshot, daemon_set=make_daemon_set(2), records=records, **changes)


@pytest.mark.parametrize(
    "entry",
    [
        record(state="Active"),
        record(state="Unreachable"),
        replace(record(state="Waiting"), attempts=1),
        replace(record(state="Failed"), attempts=1, retry="an older one"),
    ],
)
def test_a_node_that_has_begun_and_lost_its_pod_keeps_its_job(entry):
    snapshot = without_pod_of_c(entry)
    count = count_nodes(snapshot)
    assert not count.all_completed
    assert blocked_by(snapshot) == "node c has begun, has not finished and has no pod"


@pytest.mark.parametrize(
    "entry",
    [
        record("an older node of that name", "Active"),
        record(state="Waiting"),
        replace(record(state="Removed"), attempts=1),
    ],
)
def test_node_not_started_or_removed_keeps_no_job(entry):
    assert not blocked_by(without_pod_of_c(entry))


def test_started_node_that_is_deleted_or_unselected_keeps_no_job():
    snapshot = without_pod_of_c(record(state="Active"))
    nodes = {name: make_node(name) for name in "ab"}
    assert not blocked_by(replace(snapshot, nodes=nodes))
    assert not blocked_by(replace(snapshot, job=without_c(), daemon_set=daemon_set_without_c(2)))


@pytest.mark.parametrize("desired", [2, 3, 4])
def test_nodes_that_have_ended_and_lost_their_pods_may_be_counted(desired):
    """Whether they are desired, taints say, of which this count knows nothing."""
    job = make_job(COMPLETE, status={"nodes": {"desired": desired}})
    snapshot = world(pods=[make_pod("a"), make_pod("b")], job=job, daemon_set=make_daemon_set(2))
    assert count_nodes(snapshot).ended_without_pod == {"c"}
    assert bool(blocked_by(snapshot)) == (desired == 4)


# --- nodes that should not have a pod, and pods on their way out ----------------------------


def test_a_tainted_node_that_completed_does_not_keep_its_job():
    """Three nodes completed; one has a NoSchedule taint now, and its pod may stay."""
    assert blocked_by(world(daemon_set=make_daemon_set(2, misscheduled=1))) == ""


def test_a_tainted_node_with_a_pod_does_not_stand_for_one_without():
    """a and b completed, a is tainted; the pod of c, which is desired, is being deleted."""
    pods = [make_pod("a"), make_pod("b"), make_pod("c", is_terminating=True)]
    snapshot = world(completed=("a", "b"), pods=pods)
    counted = make_daemon_set(2, misscheduled=1)
    assert blocked_by(replace(snapshot, daemon_set=counted)) == (
        "the pod of node c is being deleted, and a new one follows"
    )
    # Its pod was refused, or is yet to come.
    missing = make_daemon_set(2, scheduled=1, misscheduled=1)
    assert "of 2 desired nodes have a pod" in blocked_by(
        replace(snapshot, pods=pods[:2], daemon_set=missing)
    )


def test_unselected_node_with_a_terminating_pod_does_not_keep_its_job():
    pods = [make_pod("a"), make_pod("b"), make_pod("c", is_terminating=True)]
    snapshot = world(completed=("a", "b"), pods=pods, job=without_c())
    found = daemon_set_without_c(2, misscheduled=1)
    assert blocked_by(replace(snapshot, daemon_set=found)) == ""


# --- failures that are allowed ----------------------------------------------------------


def with_failed(limit, entry=None):
    spec = {"failure_policy": FailurePolicy("Continue", limit), "ttl_seconds_after_finished": 0}
    return world(
        completed=("a", "b"),
        job=make_job(COMPLETE, spec=spec),
        records={
            "a": record("a-uid", "Completed"),
            "b": record("b-uid", "Completed"),
            "c": entry or record(),
            "gone": record("gone-uid"),
        },
    )


@pytest.mark.parametrize("limit", [1, "34%", 0])
def test_failed_nodes_do_not_keep_a_complete_job_beyond_its_ttl(limit):
    """The controller counted them when it called the Job complete; others joined later."""
    assert blocked_by(with_failed(limit)) == ""


def test_complete_job_with_failed_nodes_is_kept_unless_a_ttl_is_set():
    snapshot = with_failed(1)
    spec = replace(snapshot.job.spec, ttl_seconds_after_finished=None)
    snapshot = replace(snapshot, job=replace(snapshot.job, spec=spec))
    assert (
        blocked_by(snapshot)
        == "nodes failed and ttlSecondsAfterFinished is not set: the Job is kept"
    )


def test_a_complete_job_stays_for_a_failed_node_that_has_left():
    snapshot = with_failed(1)
    spec = replace(snapshot.job.spec, ttl_seconds_after_finished=None)
    gone = replace(
        snapshot,
        job=replace(snapshot.job, spec=spec),
        pods=[make_pod("a"), make_pod("b")],
        nodes={name: make_node(name) for name in "ab"},
        daemon_set=make_daemon_set(2),
    )
    assert (
        blocked_by(gone) == "nodes failed and ttlSecondsAfterFinished is not set: the Job is kept"
    )


@pytest.mark.parametrize("entry", [record(uid="other"), record(state="Active")])
def test_only_nodes_recorded_as_failed_are_excused(entry):
    assert blocked_by(with_failed(1, entry)) == "2 of 3 nodes are completed"


@pytest.mark.parametrize("token", ["again", "once more"])
def test_a_failure_before_a_retry_that_was_asked_for_is_no_end(token):
    """Its record is kept until the pod of the next try is there; a complete Job waits for that."""
    snapshot = with_failed(1, replace(record(), retry="again"))
    annotations = {names.ANNOTATION_RETRY: token}
    snapshot = replace(snapshot, job=replace(snapshot.job, annotations=annotations))
    asked = token != "again"
    assert blocked_by(snapshot) == ("2 of 3 nodes are completed" if asked else "")


def test_failed_nodes_need_to_be_known_nodes():
    snapshot = with_failed(1)
    nodes = {name: node for name, node in snapshot.nodes.items() if name != "c"}
    assert not count_nodes(replace(snapshot, nodes=nodes)).failed


# --- properties -------------------------------------------------------------------------

pods = st.lists(
    st.builds(
        make_pod,
        st.sampled_from("abcd"),
        owner_uid=st.sampled_from(["ds-uid", "ds-uid", "forged"]),
        is_terminating=st.booleans(),
        is_scheduled=st.booleans(),
    ),
    max_size=8,
)
entries = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        Evidence,
        st.sampled_from(["a-uid", "b-uid", "c-uid", "d-uid", "old"]),
        completed_at=st.sampled_from(["", "2026-01-02T03:04:05Z"]),
    ),
)


@given(pods, entries, st.integers(0, 5), st.randoms(use_true_random=False))
def test_plan_is_independent_of_order_and_never_early(pods, ledger, desired, random):
    snapshot = Snapshot(
        job=make_job(COMPLETE),
        daemon_set=make_daemon_set(desired),
        pods=pods,
        nodes={name: make_node(name) for name in "abc"},
        ledger=ledger,
    )
    count = count_nodes(snapshot)
    again = pods + pods[:3]
    random.shuffle(again)
    assert count_nodes(replace(snapshot, pods=again)) == count
    live = {pod.node_name for pod in pods if pod.owner_uid == "ds-uid" and not pod.is_terminating}
    assert count.desired == live
    assert count.completed <= count.desired
    if decide_deletion(snapshot.job, lambda: count, NOW).may_delete:
        assert desired == len(live)
        assert all(ledger[n].is_completed and ledger[n].node_uid == f"{n}-uid" for n in live)


@pytest.mark.parametrize("reason", ["MinCompletedReached", "CompletedWithinFailureLimit"])
def test_a_job_that_succeeded_without_all_nodes_stays_unless_it_has_a_time_to_live(reason):
    snapshot = world(completed=NAMES[:2])
    complete = {**COMPLETE, "reason": reason}
    records = {**snapshot.records, "c": record("c-uid", "Waiting")}
    pods = [pod for pod in snapshot.pods if pod.node_name != "c"]
    pods.append(make_pod("c", is_scheduled=False))
    snapshot = replace(snapshot, job=make_job(complete), pods=pods, records=records)
    late = NOW + timedelta(days=1)
    count = count_nodes(snapshot)
    assert not decide_deletion(snapshot.job, lambda: count, late, NOW).may_delete
    with_ttl = replace(snapshot.job, spec=replace(snapshot.job.spec, ttl_seconds_after_finished=0))
    assert decide_deletion(with_ttl, lambda: count, late, NOW).may_delete


# --- rollbacks ---------------------------------------------------------------------------

UNDONE = {"type": "RolledBack", "status": "True"}
ROLLBACK_SPEC = {"rollback": True, "failure_policy": FailurePolicy(FailureAction.ROLLBACK)}


def decided(*conditions, spec, rollback=None, requests=None, at=NOW, count=None):
    """Return why a Job with a rollback is not deleted, "" if it is."""
    status = {"completionTime": format_time(NOW)}
    if rollback is not None:
        status["rollback"] = rollback
    job = make_job(*conditions, spec=spec, status=status)
    if requests is not None:
        job = replace(job, requests=RolloutRequests(rollback=requests))
    return decide_deletion(job, lambda: count or count_nodes(world()), at)


@pytest.mark.parametrize("ttl", [0, 60])
def test_a_failed_job_stays_until_its_rollback_has_ended(ttl):
    spec = {**ROLLBACK_SPEC, "ttl_seconds_after_finished": ttl}
    late = NOW + timedelta(hours=1)
    for rollback in (None, {"desired": 2}):
        assert "rolled back" in decided(FAILED, spec=spec, rollback=rollback, at=late).blocked_by
    ended = {"desired": 2, "completionTime": format_time(late)}
    found = decided(FAILED, spec=spec, rollback=ended, at=late)
    assert found.may_delete == (ttl == 0)
    # The time to live counts from the end of the rollback.
    assert found.wake_at == (late + timedelta(seconds=ttl) if ttl else None)


def test_an_aborted_job_is_not_rolled_back_and_may_go():
    spec = {**ROLLBACK_SPEC, "ttl_seconds_after_finished": 0}
    aborted = {**FAILED, "reason": "Aborted"}
    assert decided(aborted, spec=spec).may_delete
    assert not decided(aborted, spec=spec, requests="after all").may_delete


def test_a_complete_job_stays_while_a_person_wants_it_rolled_back():
    assert decided(COMPLETE, spec=ROLLBACK_SPEC).may_delete
    found = decided(COMPLETE, spec=ROLLBACK_SPEC, requests="slower")
    assert "rolled back" in found.blocked_by
    # It says nothing of how the work is undone.
    assert decided(COMPLETE, spec={}, requests="slower").may_delete


def test_a_complete_job_that_was_rolled_back_is_kept_without_a_time_to_live():
    ended = {"desired": 3, "completionTime": format_time(NOW)}
    found = decided(COMPLETE, UNDONE, spec=ROLLBACK_SPEC, rollback=ended, requests="slower")
    assert "was rolled back and ttlSecondsAfterFinished is not set" in found.blocked_by
    spec = {**ROLLBACK_SPEC, "ttl_seconds_after_finished": 0}
    assert decided(COMPLETE, UNDONE, spec=spec, rollback=ended, requests="slower").may_delete
