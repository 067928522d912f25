"""A Job on three nodes with all that belongs to it, as the API server sends it, at some stages.

The fields that are read are all there, so that each of them can be changed.
"""

import json
from functools import cache
from random import Random
from typing import Any

from daemonset_job.api import names
from tests.mutation.job_histories import JobHistory

Raw = dict[str, Any]

JOB, DAEMON_SET, POD, NODE, REPORT = "jobs", "daemonsets", "pods", "nodes", "jobreports"
STAGES = ("new", "running", "ended")
_TIME, _LATER = "2026-01-02T03:04:00Z", "2026-01-02T03:05:00Z"
_SPEC: Raw = {
    "image": "example/task:v1",
    "command": ["run"],
    "args": ["it"],
    "mountPath": "/data",
    "template": {
        "spec": {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
            "containers": [{"name": names.CONTAINER_NAME, "env": [{"name": "A", "value": "b"}]}],
            "schedulingGates": [{"name": "x/y"}],
        }
    },
    "nodes": {
        "selector": {
            "matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
        },
        "include": ["node-0", "node-1", "node-2"],
        "exclude": ["node-9"],
    },
    "completion": {"mode": "Log", "token": "done", "match": "Line", "failureToken": "broken"},
    "backoffLimit": 1,
    "nodeDeadlineSeconds": 600,
    "activeDeadlineSeconds": 6000,
    "failurePolicy": {
        "action": "Continue",
        "maxFailedNodes": "50%",
        "rules": [{"exitCodes": [3], "action": "Retry"}],
        "pods": "Keep",
    },
    "failureLogLines": 5,
    "ttlSecondsAfterFinished": 60,
    "suspend": False,
    "results": [{"name": "ip"}],
}


@cache
def _stage_text(stage: str) -> str:
    life = JobHistory(Random(0), json.loads(json.dumps(_SPEC)), nodes=0)
    life.job["metadata"]["name"] = "sample"
    life.job["metadata"]["annotations"][names.ANNOTATION_RETRY] = "1"
    life.nodes = [_node(index) for index in range(3)]
    life.change = life._sync_daemon_set  # type: ignore[method-assign]
    if stage != "new":
        for _ in range(4):
            assert list(life.step()) == []
        for index, pod in enumerate(life.pods):
            _fill(pod, index if stage == "ended" else 0)
        report = life.reports[0]
        if stage == "ended":
            report["evidence"] = {raw["metadata"]["name"]: _evidence(raw) for raw in life.nodes[:2]}
            assert list(life.step()) == []
    if life.daemon_set is not None:
        life.daemon_set["metadata"]["managedFields"] = _managers()
    objects = {
        JOB: [life.job],
        DAEMON_SET: [life.daemon_set] if life.daemon_set else [],
        POD: life.pods,
        NODE: life.nodes,
        REPORT: life.reports,
    }
    for raws in objects.values():
        for raw in raws:
            raw["metadata"] |= {"creationTimestamp": _TIME, "resourceVersion": "5"}
    if life.daemon_set is not None:
        life.daemon_set["metadata"]["ownerReferences"] = [_owner(life.job["metadata"]["uid"])]
    return json.dumps(objects)


def read_stage(stage: str) -> dict[str, list[Raw]]:
    """Return the objects of a stage by the plural of their resource, the caller's own."""
    stored: dict[str, list[Raw]] = json.loads(_stage_text(stage))
    return stored


def _owner(uid: str) -> Raw:
    return {"kind": "x", "name": "x", "uid": uid, "controller": True}


def _node(index: int) -> Raw:
    return {
        "metadata": {
            "name": f"node-{index}",
            "uid": f"node-uid-{index}",
            "labels": {"a": "b"},
        },
        "spec": {
            "unschedulable": False,
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        },
        "status": {
            "conditions": [
                {"type": "DiskPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastTransitionTime": _TIME},
            ]
        },
    }


def _fill(pod: Raw, how: int) -> None:
    """Give a pod a status with all that is read of one."""
    ended = {
        "exitCode": how,
        "reason": "Error",
        "message": "boom",
        "startedAt": _TIME,
        "finishedAt": _LATER,
    }
    node = pod["spec"]["nodeName"]
    pod["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                ]
            }
        }
    }
    pod["spec"]["initContainers"] = [{"name": "helper", "restartPolicy": "Always"}]
    pod["status"] = {
        "phase": "Running",
        "startTime": _TIME,
        "reason": "",
        "message": "",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "reason": "", "message": ""},
            {"type": "DisruptionTarget", "status": "False", "reason": "x"},
        ],
        "initContainerStatuses": [
            {"name": "helper", "state": {"running": {"startedAt": _TIME}}},
            {"name": "other", "state": {"terminated": {"exitCode": 0, "message": "m"}}},
        ],
        "containerStatuses": [
            {
                "name": names.CONTAINER_NAME,
                "restartCount": how,
                "containerID": "containerd://x",
                "state": {"terminated": ended} if how else {"running": {"startedAt": _TIME}},
                "lastState": {"terminated": ended} if how else {},
            },
            {"name": "side", "state": {"waiting": {"reason": "PodInitializing"}}},
        ],
    }


def _evidence(node: Raw) -> Raw:
    return {
        "nodeUID": node["metadata"]["uid"],
        "completedAt": "2026-01-02T03:04:05.123456789Z",
        "pod": "pod",
        "podUID": "pod-uid",
        "results": {"ip": "10.0.0.1"},
        "lastLines": ["a line"],
        "lastReadAttempt": 1,
    }


def _managers() -> list[Raw]:
    return [
        {
            "manager": names.FIELD_MANAGER,
            "operation": "Apply",
            "fieldsV1": {"f:spec": {"f:template": {".": {}, "f:spec": {}}}},
        },
        {
            "manager": "kubectl-patch",
            "operation": "Update",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:hostPID": {}}}}},
        },
    ]
