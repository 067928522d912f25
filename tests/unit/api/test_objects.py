"""Pods, nodes and DaemonSets from their JSON, as Kubernetes writes it."""

from datetime import UTC, datetime

import pytest

from daemonset_job.api.container import Container
from daemonset_job.api.daemon_set import parse_daemon_set
from daemonset_job.api.names import CONTAINER_NAME, FIRST_VERSION_GATE, START_GATE
from daemonset_job.api.node import parse_node
from daemonset_job.api.owners import controller_uid
from daemonset_job.api.pod import affinity_node, parse_pod

AT = "2026-01-01T00:00:00Z"
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
OWNER = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "ds"}


def affinity(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def by_name(*values, operator="In", key="metadata.name"):
    return {"matchFields": [{"key": key, "operator": operator, "values": list(values)}]}


def raw_pod(spec=None, status=None, **meta):
    return {
        "metadata": {"name": "p", "namespace": "here", "uid": "u", "resourceVersion": "7", **meta},
        "spec": spec or {},
        "status": status or {},
    }


def with_task(task, group="containerStatuses", **status):
    return raw_pod(status={group: [{"name": "other"}, {"name": CONTAINER_NAME, **task}], **status})


# --- pods --------------------------------------------------------------------------------


def test_a_gated_pod_knows_its_node_from_its_affinity():
    pod = parse_pod(
        raw_pod(
            {"schedulingGates": [{"name": "x"}, {"name": START_GATE}], **affinity(by_name("n"))}
        )
    )
    assert (pod.node_name, pod.is_scheduled, pod.is_gated) == ("n", False, True)
    assert pod.gates == ("x", START_GATE)


def test_the_gate_of_the_first_version_counts_as_the_gate():
    template = {"spec": {"schedulingGates": [{"name": FIRST_VERSION_GATE}]}}
    assert parse_pod(raw_pod(template["spec"])).is_gated
    raw = {"metadata": {"name": "d", "uid": "u"}, "spec": {"template": template}}
    assert parse_daemon_set(raw).is_gated


def test_a_bound_pod_is_where_it_is_bound():
    pod = parse_pod(raw_pod({"nodeName": "m", **affinity(by_name("n"))}))
    assert (pod.node_name, pod.is_scheduled, pod.is_gated) == ("m", True, False)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": None},
        affinity(),
        affinity({"matchExpressions": []}),
        affinity(by_name("n", operator="NotIn")),
        affinity(by_name("n", "m")),
        affinity(by_name("n", key="metadata.namespace")),
    ],
)
def test_an_affinity_that_names_no_one_node_names_none(spec):
    assert affinity_node(spec) == ""


def test_only_the_controlling_owner_counts():
    both = [{**OWNER, "uid": "x"}, {**OWNER, "controller": True}]
    assert controller_uid({"ownerReferences": both}) == "ds"
    assert controller_uid({"ownerReferences": [OWNER]}) == ""
    assert controller_uid({}) == ""


def test_the_whole_of_a_pod():
    pod = parse_pod(
        raw_pod(
            {"nodeName": "n"},
            {
                "phase": "Failed",
                "reason": "Evicted",
                "message": "low",
                "startTime": AT,
                "conditions": [
                    {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByAPI"}
                ],
            },
            ownerReferences=[{**OWNER, "controller": True}],
            creationTimestamp=AT,
            deletionTimestamp=AT,
        )
    )
    assert (pod.owner_uid, pod.phase, pod.reason, pod.message) == ("ds", "Failed", "Evicted", "low")
    assert (pod.created_at, pod.started_at, pod.is_terminating) == (MOMENT, MOMENT, True)
    assert pod.disruption_reason == "EvictionByAPI"
    assert pod.container is None


def test_a_pod_that_was_only_just_made_is_pending():
    pod = parse_pod({"metadata": {"name": "p"}})
    assert (pod.phase, pod.node_name, pod.uid, pod.container) == ("Pending", "", "", None)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"status": "False", "reason": "Unschedulable", "message": "no room"}, "no room"),
        ({"status": "False", "reason": "SchedulingGated", "message": "gated"}, ""),
        ({"status": "True", "reason": "Unschedulable", "message": "stale"}, ""),
    ],
)
def test_only_a_pod_without_room_is_unschedulable(condition, message):
    pod = parse_pod(raw_pod(status={"conditions": [{"type": "PodScheduled", **condition}]}))
    assert pod.unschedulable_message == message


@pytest.mark.parametrize(
    ("status", "started"),
    [
        ({"state": {"running": {"startedAt": AT}}}, True),
        ({"state": {"terminated": {"exitCode": 143, "startedAt": AT}}}, True),
        ({"state": {"waiting": {}}, "lastState": {"terminated": {"startedAt": AT}}}, True),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, False),
        ({"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}, False),
        ({}, False),
    ],
)
def test_the_container_that_holds_a_pod_has_started(status, started):
    task = {"name": CONTAINER_NAME, "state": {"terminated": {"exitCode": 0, "startedAt": AT}}}
    pause = {"name": "pause", **status}
    raw = {"initContainerStatuses": [task], "containerStatuses": [pause]}
    assert parse_pod(raw_pod(status=raw)).hold_started is started
    assert not parse_pod(raw_pod(status={"containerStatuses": [task]})).hold_started


@pytest.mark.parametrize(
    ("status", "has_run"),
    [
        ({}, False),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, False),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}, "restartCount": 0}, False),
        # The kubelet's last status of a container that it has never created.
        ({"state": {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}}}, False),
        # Created and not started: the runtime may have begun to start it.
        ({"state": {"waiting": {"reason": "RunContainerError"}}, "containerID": "x://1"}, True),
        ({"state": {"running": {"startedAt": AT}}}, True),
        ({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}, True),
        (
            {"state": {"terminated": {"reason": "ContainerStatusUnknown", "startedAt": AT}}},
            True,
        ),
        ({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 1}}}, True),
        ({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}, True),
    ],
)
@pytest.mark.parametrize("group", ["initContainerStatuses", "containerStatuses"])
@pytest.mark.parametrize("name", [CONTAINER_NAME, "other"])
def test_a_pod_has_run_once_any_container_of_it_was_created(group, name, status, has_run):
    waits = {"name": "waits", "state": {"waiting": {"reason": "PodInitializing"}}}
    raw = {group: [waits, {"name": name, **status}]}
    pod = parse_pod(raw_pod(status=raw))
    assert pod.has_run is has_run
    if pod.container is not None:
        has_ended = pod.container.state == "terminated"
        assert pod.container.was_never_created is (has_ended and not has_run)


@pytest.mark.parametrize(
    ("state", "ready", "has_ended"),
    [
        ({"terminated": {"exitCode": 143}}, "False", True),
        ({"terminated": {"exitCode": 143}}, "True", False),
        ({"terminated": {"exitCode": 143}}, None, False),
        # Its sandbox is not there yet, or not there again.
        ({"waiting": {"reason": "ContainerCreating"}}, "False", False),
        ({"running": {}}, "False", False),
    ],
)
def test_the_sandbox_of_a_pod_has_ended_with_its_task(state, ready, has_ended):
    conditions = [{"type": "PodReadyToStartContainers", "status": ready}] if ready else []
    task = {"name": CONTAINER_NAME, "state": state}
    raw = {"initContainerStatuses": [task], "conditions": conditions}
    assert parse_pod(raw_pod(status=raw)).sandbox_ended is has_ended
    assert not parse_pod(raw_pod(status={"conditions": conditions})).sandbox_ended


def test_a_pod_without_statuses_of_containers_has_not_run():
    assert not parse_pod(raw_pod(status={"phase": "Failed", "reason": "NodeAffinity"})).has_run


# --- containers --------------------------------------------------------------------------


def test_a_running_task_after_a_restart():
    pod = parse_pod(
        with_task(
            {
                "state": {"running": {"startedAt": AT}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": AT}},
                "restartCount": 2,
                "containerID": "c",
            }
        )
    )
    assert pod.container == Container(
        "running",
        started_at=MOMENT,
        restart_count=2,
        last_exit_code=3,
        last_reason="Error",
        last_finished_at=MOMENT,
    )


def test_a_task_that_ended_with_exit_code_0_has_one():
    terminated = {"exitCode": 0, "reason": "Completed", "startedAt": AT, "finishedAt": AT}
    pod = parse_pod(with_task({"state": {"terminated": terminated}}))
    assert pod.container == Container(
        "terminated", "Completed", exit_code=0, started_at=MOMENT, finished_at=MOMENT
    )


def test_a_task_that_waits_says_why():
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    pod = parse_pod(with_task({"state": {"waiting": waiting}}))
    assert pod.container == Container("waiting", "ImagePullBackOff", "no such image")


def test_an_init_container_can_be_the_task():
    pod = parse_pod(with_task({"state": {"running": {}}}, "initContainerStatuses"))
    assert pod.container == Container("running")


@pytest.mark.parametrize(("policy", "is_running"), [(None, True), ("Always", False)])
def test_a_sidecar_is_no_init_container_at_work(policy, is_running):
    container = {"name": "proxy", **({"restartPolicy": policy} if policy else {})}
    status = {"initContainerStatuses": [{"name": "proxy", "state": {"running": {}}}]}
    pod = parse_pod(raw_pod({"initContainers": [container]}, status))
    assert pod.has_init_running is is_running


def test_a_state_that_is_not_known_is_unknown():
    assert parse_pod(with_task({})).container == Container("unknown")
    assert parse_pod(with_task({"state": {}})).container == Container("unknown")


# --- DaemonSets and nodes ----------------------------------------------------------------


def test_a_daemon_set_is_read():
    found = parse_daemon_set(
        {
            "metadata": {
                "name": "d", "namespace": "here", "uid": "u", "resourceVersion": "7",
                "generation": 4, "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{**OWNER, "controller": True, "uid": "job"}],
            },
            "spec": {"template": {"spec": {"schedulingGates": [{"name": START_GATE}]}}},
            "status": {"observedGeneration": 3, "desiredNumberScheduled": 5},
        }
    )  # fmt: skip
    assert (found.owner_uid, found.desired, found.is_observed, found.is_gated) == (
        "job",
        5,
        False,
        True,
    )
    assert (found.labels, found.annotations, found.is_terminating) == (
        {"a": "b"},
        {"c": "d"},
        False,
    )


def test_a_new_daemon_set_is_not_observed_and_wants_nothing_yet():
    found = parse_daemon_set({"metadata": {"name": "d", "generation": 1}})
    assert (found.desired, found.is_observed, found.is_gated) == (0, False, False)


@pytest.mark.parametrize(
    ("status", "ready"), [("True", True), ("False", False), ("Unknown", False)]
)
def test_a_node_is_ready_when_its_condition_is_true(status, ready):
    condition = {"type": "Ready", "status": status, "lastTransitionTime": AT}
    node = parse_node(
        {
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "creationTimestamp": AT},
            "spec": {"unschedulable": True},
            "status": {"conditions": [{"type": "DiskPressure", "status": "True"}, condition]},
        }
    )
    assert (node.ready, node.ready_changed_at, node.created_at) == (ready, MOMENT, MOMENT)
    assert (node.is_cordoned, node.labels, node.namespace) == (True, {"a": "b"}, "")


def test_a_node_has_the_time_since_when_it_has_a_network_or_none():
    condition = {"type": "NetworkUnavailable", "status": "True", "lastTransitionTime": AT}
    node = parse_node({"metadata": {"name": "n"}, "status": {"conditions": [condition]}})
    assert (node.network_changed_at, node.ready_changed_at) == (MOMENT, None)


def test_a_nodes_metadata_alone_can_be_read():
    node = parse_node({"metadata": {"name": "n", "uid": "u"}})
    assert (node.name, node.uid) == ("n", "u")
    assert (node.ready_changed_at, node.network_changed_at) == (None, None)
