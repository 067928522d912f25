"""The last status of a pod in the model."""

import pytest

from tests.fakekube.conditions import find_condition
from tests.fakekube.containers import Container, backs_off, running, terminated, waiting
from tests.fakekube.pod_endings import (
    EVICTED,
    collected,
    disrupted,
    ended_by_kubelet,
    final_status,
    rejected,
)
from tests.fakekube.pod_status import container_statuses

TASK, HOLD = {"name": "task"}, {"name": "hold"}
LOG = {"spec": {"containers": [TASK]}}
EXIT = {"spec": {"initContainers": [TASK], "containers": [HOLD]}}
SCHEDULED = {"type": "PodScheduled", "status": "True"}


def final(pod, state, last=None, **others):
    known = {"task": Container(state, last or {})}
    known |= {name: Container(found) for name, found in others.items()}
    return final_status(pod, container_statuses(pod, known, "begin"))


def ends(status, group):
    return [row["state"].get("terminated", {}).get("reason") for row in status[group]]


def test_a_rejected_pod_has_failed_before_anything_started():
    status = rejected("SysctlForbidden", "forbidden sysctl", "now")
    assert status == {
        "phase": "Failed",
        "reason": "SysctlForbidden",
        "message": "Pod was rejected: forbidden sysctl",
        "startTime": "now",
    }


def test_a_pod_that_its_kubelet_ends_keeps_its_other_conditions():
    before = {"phase": "Running", "startTime": "then", "conditions": [SCHEDULED]}
    status = ended_by_kubelet(before, EVICTED)
    assert (status["phase"], status["reason"], status["startTime"]) == ("Failed", "Evicted", "then")
    assert SCHEDULED in status["conditions"]
    assert find_condition(status, "DisruptionTarget")["reason"] == "TerminationByKubelet"


def test_a_pod_is_the_target_of_one_disruption():
    status = disrupted(disrupted({}, "PreemptionByScheduler"), "EvictionByEvictionAPI")
    assert [found["reason"] for found in status["conditions"]] == ["EvictionByEvictionAPI"]


def test_a_pod_without_a_node_fails_before_it_is_removed():
    status = collected({"status": {"phase": "Running", "startTime": "then"}})
    assert (status["phase"], status["startTime"]) == ("Failed", "then")
    assert find_condition(status, "DisruptionTarget")["reason"] == "DeletionByPodGC"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_removed_as_it_is(phase):
    assert collected({"status": {"phase": phase}}) == {"phase": phase}


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (143, "Failed"), (137, "Failed")])
def test_a_deleted_pod_has_the_phase_of_its_ends(code, phase):
    assert final(LOG, terminated(code, "begin", "end"))["phase"] == phase


def test_a_container_that_was_not_seen_to_end_has_failed():
    status = final(LOG, running("begin"))
    assert status["phase"] == "Failed"
    (row,) = status["containerStatuses"]
    assert row["state"]["terminated"]["exitCode"] == 137
    assert row["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert "startedAt" not in row["state"]["terminated"]
    assert not row["ready"]


def test_a_pod_deleted_between_two_starts_has_failed():
    assert final(LOG, backs_off(), terminated(1))["phase"] == "Failed"


def test_containers_behind_a_failed_init_container_stay_waiting():
    status = final(EXIT, terminated(143, "begin", "end"))
    assert status["phase"] == "Failed"
    assert ends(status, "initContainerStatuses") == ["Error"]
    assert ends(status, "containerStatuses") == [None]


def test_a_container_that_did_not_start_behind_a_success_has_failed():
    status = final(EXIT, terminated(0, "begin", "end"), hold=waiting("PodInitializing"))
    assert status["phase"] == "Failed"
    assert ends(status, "containerStatuses") == ["ContainerStatusUnknown"]


def test_a_success_before_a_restart_counts_as_initialized():
    status = final(EXIT, waiting("PodInitializing"), terminated(0))
    assert ends(status, "containerStatuses") == ["ContainerStatusUnknown"]


def test_of_init_containers_that_never_began_only_the_first_has_failed():
    setup = {"name": "setup"}
    pod = {"spec": {"initContainers": [setup, TASK], "containers": [HOLD]}}
    status = final(pod, waiting("PodInitializing"), setup=waiting("PodInitializing"))
    assert ends(status, "initContainerStatuses") == ["ContainerStatusUnknown", None]
    begun = final(pod, running("begin"), setup=terminated(0))
    assert ends(begun, "initContainerStatuses") == ["Completed", "ContainerStatusUnknown"]


def test_a_pod_without_any_status_fails_when_it_goes():
    assert final_status(LOG, {})["phase"] == "Failed"
