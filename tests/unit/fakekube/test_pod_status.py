"""The status of a pod in the model follows from its spec and the states of some containers."""

import pytest

from tests.fakekube.containers import Container, backs_off, running, terminated, waiting
from tests.fakekube.pod_status import (
    container_statuses,
    default_waiting_reason,
    phase_of,
    ready_condition,
    sidecars,
)

SIDECAR = {"name": "sidecar", "restartPolicy": "Always"}
SETUP, TASK, HOLD = {"name": "setup"}, {"name": "task"}, {"name": "hold"}
WAITS, RUNS = Container(waiting("ContainerCreating")), Container(running("begin"))
DONE, FAILED = Container(terminated(0)), Container(terminated(1))
BACK_OFF = Container(backs_off(), terminated(1), 1)


def pod(*main, init=(), policy="Always"):
    inits = {"initContainers": list(init)} if init else {}
    return {"spec": {"containers": list(main), "restartPolicy": policy, **inits}}


def status(raw, **known):
    return container_statuses(raw, known, "begin")


def kinds(raw, **known):
    """Return the kind of each container's state, init containers first."""
    found = status(raw, **known)
    rows = [*found.get("initContainerStatuses", ()), *found["containerStatuses"]]
    return [next(iter(row["state"])) for row in rows]


def phase(raw, **known):
    return phase_of(raw, status(raw, **known))


def ended_phase(raw, **known):
    return phase_of(raw, status(raw, **known), is_terminal=True)


# --- containers --------------------------------------------------------------------------


def test_a_container_that_nothing_is_said_of_does_what_it_may():
    assert kinds(pod(HOLD, init=[SETUP, SIDECAR])) == ["terminated", "running", "running"]


def test_containers_behind_an_unfinished_init_container_wait():
    raw = pod(HOLD, init=[SETUP, TASK, SIDECAR])
    assert kinds(raw, task=RUNS) == ["terminated", "running", "waiting", "waiting"]
    assert kinds(raw, setup=FAILED) == ["terminated", "waiting", "waiting", "waiting"]
    assert status(raw, task=RUNS)["containerStatuses"][0]["state"] == waiting("PodInitializing")


def test_a_sidecar_does_not_wait_for_what_stands_behind_it():
    assert kinds(pod(HOLD, init=[SIDECAR, TASK]), task=RUNS) == ["running", "running", "waiting"]


def test_a_sidecar_that_does_not_run_blocks_what_is_behind_it():
    assert kinds(pod(TASK, init=[SIDECAR]), sidecar=WAITS) == ["waiting", "waiting"]


def test_a_pod_without_init_containers_has_no_status_of_any():
    assert "initContainerStatuses" not in status(pod(TASK))


def test_a_row_has_what_is_known_of_its_container():
    (row,) = status(pod(TASK), task=BACK_OFF)["containerStatuses"]
    assert row == {
        "name": "task",
        "state": backs_off(),
        "lastState": terminated(1),
        "restartCount": 1,
        "ready": False,
    }


def test_an_init_container_is_ready_once_it_has_succeeded():
    raw = pod(HOLD, init=[TASK])
    for known, is_ready in ((RUNS, False), (FAILED, False), (DONE, True)):
        assert status(raw, task=known)["initContainerStatuses"][0]["ready"] is is_ready


def test_the_reason_of_a_wait_depends_on_init_containers():
    assert default_waiting_reason(pod(TASK)) == "ContainerCreating"
    assert default_waiting_reason(pod(TASK, init=[SETUP])) == "PodInitializing"


def test_only_init_containers_that_always_run_are_sidecars():
    assert sidecars(pod(TASK, init=[SETUP, SIDECAR])) == ["sidecar"]
    assert sidecars(pod(TASK)) == []


# --- phase -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (WAITS, "Pending"),
        (RUNS, "Running"),
        (FAILED, "Running"),
        (DONE, "Running"),
        (BACK_OFF, "Running"),
    ],
    ids=["waits", "runs", "failed", "done", "backs-off"],
)
def test_a_pod_that_always_restarts_runs_once_it_has_started(known, expected):
    assert phase(pod(TASK), task=known) == expected


@pytest.mark.parametrize(
    ("policy", "known", "expected"),
    [
        ("Never", DONE, "Succeeded"),
        ("Never", FAILED, "Failed"),
        ("OnFailure", DONE, "Succeeded"),
        ("OnFailure", FAILED, "Running"),
    ],
)
def test_the_restart_policy_decides_the_phase_of_ended_containers(policy, known, expected):
    assert phase(pod(TASK, policy=policy), task=known) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [(WAITS, "Pending"), (RUNS, "Pending"), (FAILED, "Pending"), (BACK_OFF, "Pending")],
    ids=["waits", "runs", "failed", "backs-off"],
)
def test_a_pod_is_pending_until_its_init_containers_have_succeeded(known, expected):
    assert phase(pod(HOLD, init=[TASK]), task=known) == expected
    assert phase(pod(HOLD, init=[TASK]), task=DONE) == "Running"


def test_a_failed_init_container_fails_a_pod_that_never_restarts():
    assert phase(pod(HOLD, init=[TASK], policy="Never"), task=FAILED) == "Failed"
    assert phase(pod(HOLD, init=[TASK], policy="OnFailure"), task=FAILED) == "Pending"


def test_a_pod_whose_containers_are_not_all_known_is_pending():
    raw = pod(TASK, HOLD)
    assert phase_of(raw, {"containerStatuses": status(pod(TASK))["containerStatuses"]}) == "Pending"
    assert phase_of(pod(), {}) == "Pending"


def test_a_container_that_waits_makes_a_pod_pending_beside_one_that_runs():
    assert phase(pod(TASK, HOLD), task=WAITS) == "Pending"


def test_when_no_container_starts_again_the_exit_codes_decide():
    assert ended_phase(pod(TASK), task=DONE) == "Succeeded"
    assert ended_phase(pod(TASK), task=FAILED) == "Failed"
    assert ended_phase(pod(TASK), task=RUNS) == "Running"
    assert ended_phase(pod(TASK, HOLD), task=DONE, hold=FAILED) == "Failed"


# --- Ready -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "found", "expected"),
    [
        (RUNS, "Running", ("True", None)),
        (BACK_OFF, "Running", ("False", "ContainersNotReady")),
        (RUNS, "Failed", ("False", "PodFailed")),
        (DONE, "Succeeded", ("False", "PodCompleted")),
    ],
)
def test_a_pod_is_ready_when_all_its_containers_are(known, found, expected):
    raw = pod(TASK)
    condition = ready_condition(raw, status(raw, task=known), found)
    assert (condition["status"], condition.get("reason")) == expected


def test_a_sidecar_counts_for_ready_and_another_init_container_does_not():
    raw = pod(HOLD, init=[SETUP, SIDECAR])
    assert ready_condition(raw, status(raw), "Running")["status"] == "True"
    shown = status(raw, sidecar=WAITS, hold=RUNS)
    assert ready_condition(raw, shown, "Running")["status"] == "False"
    assert (
        ready_condition(raw, status(raw, setup=FAILED, hold=RUNS), "Running")["status"] == "False"
    )


def test_a_pod_without_statuses_is_not_ready():
    assert ready_condition(pod(TASK), {}, "Pending")["status"] == "False"
