"""When the controller first saw what keeps a task from starting, and what of the time counts."""

from dataclasses import replace
from datetime import timedelta

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.job_spec import JobSpec
from job_controller.core.state.first_seen import (
    LEDGER_ROOM,
    ObservedObjects,
    has_limits,
    not_starting,
    shift_sightings,
    task_ended,
    update_sightings,
)
from job_controller.sightings import observe
from tests.unit.builders import NOW, gated_pod, make_cluster, make_job, make_node, make_pod

NODE = make_node("a")
PULLING = make_pod("a", container=Container("waiting", "ContainerCreating"))
NO_IMAGE = make_pod("a", container=Container("waiting", "ErrImagePull"))
CRASHED = make_pod("a", container=Container("waiting", "CrashLoopBackOff", last_exit_code=1))
REJECTED = make_pod("a", state="", phase="Failed", reason="AppArmor")
FAILED_INIT = replace(PULLING, init_failure="init container x: exit 1")
AT_WORK = replace(PULLING, has_init_running=True)


def counted(*sights, retry="", failed=()):
    """Return how many seconds count at the end of a timeline of (seconds, pod, node or nothing)."""
    seen, pod, node, now = {}, None, NODE, NOW
    for seconds, pod_, *nodes in sights:
        pod, node = pod_, (nodes or [NODE])[0]
        seen = update_sightings(
            seen, ObservedObjects({"a": pod}, {"a": node}, failed, retry=retry), now
        )
        now += timedelta(seconds=seconds)
    fact = not_starting(node, pod, retry, seen)
    return (now - seen[fact].first).total_seconds() if fact is not None else None


def test_a_slow_pull_before_it_fails_does_not_count():
    assert counted((200, PULLING), (30, NO_IMAGE)) == 30


def test_what_holds_on_counts_however_rarely_it_is_looked_at():
    assert counted((200, NO_IMAGE), (0, NO_IMAGE)) == 200
    assert counted((200, REJECTED), (1, make_pod("a", state="", serial=2)), (5, REJECTED)) == 205


def test_init_containers_at_work_do_not_count():
    assert counted((500, AT_WORK)) is None
    assert counted((20, PULLING), (30, AT_WORK), (10, PULLING)) == 30
    assert counted((20, PULLING), (60, AT_WORK), (10, PULLING)) == 10


def test_failing_init_container_does_not_restart_its_timeout():
    loop = [(40, FAILED_INIT), (20, AT_WORK)] * 4
    assert counted(*loop, (1, FAILED_INIT)) == 161


def test_the_time_of_a_node_that_is_not_ready_does_not_count():
    away = make_node("a", ready=False)
    assert counted((100, NO_IMAGE), (50, NO_IMAGE, away), (10, NO_IMAGE)) == 110
    assert counted((100, NO_IMAGE), (60, NO_IMAGE, away), (10, NO_IMAGE)) == 10
    assert counted((100, NO_IMAGE, away)) is None


def test_rejections_count_over_gated_successors():
    timeline = [
        sight
        for serial in range(0, 20, 2)
        for sight in (
            (30, replace(REJECTED, uid=f"pod-{serial}")),
            (5, gated_pod("a", serial=serial)),
        )
    ]
    assert counted(*timeline, (1, REJECTED)) == 301


def test_a_task_that_starts_ends_the_rejections():
    assert counted((100, REJECTED), (1, make_pod("a")), (10, REJECTED)) == 10


def test_rejections_of_an_earlier_revision_do_not_count():
    first, second = (replace(REJECTED, revision=f"{number}-hash") for number in (1, 2))
    waiting = gated_pod("a", revision=second.revision)
    assert counted((25, first), (5, waiting), (20, second)) == 20
    assert counted((25, second), (5, waiting), (20, second)) == 45


def test_another_try_begins_again():
    assert counted((100, REJECTED), (0, REJECTED)) == 100
    seen = update_sightings({}, ObservedObjects({"a": REJECTED}, {"a": NODE}), NOW)
    on_record = update_sightings(seen, ObservedObjects({"a": REJECTED}, {"a": NODE}, {"a"}), NOW)
    assert not [fact for fact in on_record if fact.kind == "rejected"]
    fact = not_starting(NODE, NO_IMAGE, "2", {})
    assert fact != not_starting(NODE, NO_IMAGE, "1", {})


def test_the_next_pod_begins_again_unless_the_one_before_was_rejected():
    assert counted((100, NO_IMAGE), (10, replace(NO_IMAGE, uid="pod-a-2"))) == 10


def test_a_back_off_hides_whether_the_container_can_be_created():
    again = replace(NO_IMAGE, container=replace(NO_IMAGE.container, last_exit_code=1))
    assert counted((10, CRASHED)) is None
    assert counted((10, CRASHED), (10, again), (140, CRASHED), (0, again)) == 150
    next_one = replace(CRASHED, container=replace(CRASHED.container, restart_count=1))
    assert counted((10, again), (10, next_one)) is None


def test_how_many_starts_have_ended_never_goes_back():
    seen = update_sightings({}, ObservedObjects({"a": CRASHED}, {"a": NODE}), NOW)
    unclear = replace(PULLING, container=Container("waiting", "ContainerCreating"))
    later = update_sightings(
        seen, ObservedObjects({"a": unclear}, {"a": NODE}), NOW + timedelta(seconds=9)
    )
    assert later[task_ended(CRASHED, 1)].first == NOW


def test_the_time_to_read_a_log_begins_when_a_token_in_it_can_be_recorded():
    full = ObservedObjects({"a": CRASHED}, {"a": NODE}, has_ledger_room=False)
    before = update_sightings({}, full, NOW)
    assert LEDGER_ROOM not in before
    later = NOW + timedelta(minutes=1)
    seen = update_sightings(before, ObservedObjects({"a": CRASHED}, {"a": NODE}), later)
    assert seen[LEDGER_ROOM].first == later
    assert seen[task_ended(CRASHED, 1)].first == NOW
    assert LEDGER_ROOM not in update_sightings(seen, full, later)


@pytest.mark.parametrize("change", [{"backoff_limit": 0}, {"node_deadline_seconds": 60}])
def test_limits_are_seen_anew_once_one_changes(change):
    spec, later = JobSpec(image="example/task:1"), NOW + timedelta(minutes=1)
    cluster = make_cluster("a", job=make_job(spec=spec))
    seen = update_sightings({}, observe(cluster.snapshot()), NOW)
    assert update_sightings(seen, observe(cluster.snapshot()), later)[has_limits(spec)].first == NOW
    lower = replace(spec, **change)
    cluster.job = make_job(spec=lower)
    seen = update_sightings(seen, observe(cluster.snapshot()), later)
    assert seen[has_limits(lower)].first == later
    assert has_limits(spec) not in seen


def test_sightings_move_with_a_clock_that_is_set():
    seen = update_sightings({}, ObservedObjects({"a": REJECTED}, {"a": NODE}), NOW)
    hour = timedelta(hours=1)
    assert {s.first for s in shift_sightings(seen, hour).values()} == {NOW + hour}
    lost = update_sightings(seen, ObservedObjects({}, {}, has_ledger_room=False), NOW)
    assert {s.gone_at for s in shift_sightings(lost, -hour).values()} == {NOW - hour}
