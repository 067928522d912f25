"""Valid Jobs with their tasks, which mutations begin with, and parts of valid pod templates."""

from typing import Any

from daemonset_job.api import names
from tests.mutation.tasks import Task

Raw = dict[str, Any]
IMAGE = "example/task:v1"

BASES: tuple[tuple[Raw, Task], ...] = (
    ({}, Task()),
    ({"mountPath": "/tmp", "command": ["a", "b"], "args": ["c", "d"]}, Task(seconds=0.5)),
    ({"nodes": {"selector": {"matchLabels": {"zone": "x"}}}}, Task(seconds=1.5)),
    ({"nodes": {"include": ["node-a", "node-b"]}}, Task(seconds=1)),
    ({"nodes": {"exclude": ["node-c"]}}, Task(seconds=1)),
    (
        {"nodes": {"selector": {"matchExpressions": [
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "In", "values": ["x", "y"]},
        ]}}},
        Task(seconds=1),
    ),
    ({"completion": {"mode": "Exit"}}, Task(seconds=1)),
    ({"completion": {"mode": "Exit", "failureToken": "no"}, "backoffLimit": 1}, Task(failures=9)),
    ({"completion": {"token": "all done", "match": "Contains", "failureToken": "no"}}, Task()),
    ({"completion": {"token": "^all .*$", "match": "Regex"}}, Task(seconds=0.5)),
    ({"completion": {"failureToken": "no"}}, Task(failures=9, says=True)),
    ({"backoffLimit": 2, "failureLogLines": 3}, Task(failures=2)),
    ({"backoffLimit": 0, "failurePolicy": {"action": "Continue", "maxFailedNodes": "50%"}},
     Task(failures=1)),
    ({"backoffLimit": 0, "failurePolicy": {"action": "Pause"}}, Task(failures=1)),
    ({"failurePolicy": {"pods": "Delete", "rules": [
        {"exitCodes": [3, 4], "action": "Fail"}, {"exitCodes": [1], "action": "Ignore"}]}},
     Task(failures=2, code=3)),
    ({"activeDeadlineSeconds": 2, "ttlSecondsAfterFinished": 3600}, Task(seconds=4)),
    ({"nodeDeadlineSeconds": 2, "ttlSecondsAfterFinished": 1}, Task(seconds=4)),
    ({"ttlSecondsAfterFinished": 3600, "results": [{"name": "version"}, {"name": "mode"}]},
     Task(seconds=0.5)),
    ({"suspend": True}, Task(seconds=0.5)),
    ({"template": {
        "metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {"name": "job-container", "env": [{"name": "A", "value": "b"}]},
                {"name": "sidecar", "image": "example/sidecar:v1"},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }}},
     Task(seconds=0.5)),
    ({"rollout": {"maxParallel": 1, "order": "Spread"}}, Task()),
    ({"rollout": {"maxParallel": "50%", "maxParallelPerZone": 1, "steps": [
        {"nodes": 1, "soakSeconds": 1}, {"nodes": "50%", "approval": "Required"}]}},
     Task()),
    ({"rollout": {"pullImagesFirst": True, "steps": [
        {"selector": {"matchLabels": {"zone": "x"}}, "check": {"nodeReady": True}}]}},
     Task()),
    ({"rollout": {"steps": [
        {"nodes": 1, "check": {"script": {"script": "exit 0"}, "timeoutSeconds": 10}}]}},
     Task()),
    ({"rollout": {"steps": [
        {"nodes": 1, "check": {"http": {"source": "web"}, "timeoutSeconds": 1}},
        {"nodes": 2, "check": {"pods": {"matchLabels": {"app": "x"}}}}]}},
     Task()),
    ({"rollout": {"exclusive": "disk", "window": {
        "start": "* * * * *", "duration": "1h", "timeZone": "Europe/Berlin"}}},
     Task(seconds=0.5)),
    ({"backoffLimit": 0, "failurePolicy": {"action": "Rollback"}, "rollback": {"args": ["undo"]}},
     Task(failures=1)),
    ({"successPolicy": {"minCompleted": "50%"}, "failurePolicy": {"maxUnreachableNodes": 1}},
     Task(seconds=0.5)),
    ({"onSuccess": {"labels": {"example.com/done": "yes"}, "annotations": {"example.com/a": "b"},
                    "removeTaints": ["example.com/new"]},
      "results": [{"name": "version", "label": "example.com/version"}]},
     Task()),
    ({"drain": {"timeoutSeconds": 5, "podSelector": {"matchLabels": {"app": "x"}}}}, Task()),
    ({"cordon": True, "rollout": {"maxParallel": 1}}, Task(seconds=0.5)),
    ({"after": ["no-such-job"]}, Task()),
    ({"notify": [{"receiver": "chat", "events": ["Failed", "Succeeded"]}]}, Task()),
    ({"completion": {"policy": "Continuous"}}, Task(seconds=0.5)),
    ({"completion": {"release": True}}, Task(seconds=0.5)),
    ({"mounts": [{"hostPath": "/etc/x", "mountPath": "/mnt/x", "readOnly": True}]}, Task()),
)  # fmt: skip

# Parts of a pod template that a person may well write.
POD_SPECS: tuple[Raw, ...] = (
    {"containers": [{"name": "job-container", "env": [{"name": "A", "value": "b"}]}]},
    {"containers": [{"name": "job-container", "env": [{"name": "NODE_NAME", "value": "b"}]}]},
    {"containers": [{"name": "job-container", "image": None}]},
    {"containers": [{"name": "job-container", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
    {"containers": [{"name": "sidecar", "image": "example/sidecar:v1"}]},
    {"containers": [{"image": "example/sidecar:v1"}]},
    {"containers": [{"name": "job-container", "resources": {"limits": {"memory": "x"}}}]},
    {"containers": [{"name": "job-container", "resources": {"limits": {"memory": 1e3}}}]},
    {"containers": [{"name": "job-container", "noSuchField": 1}]},
    {"initContainers": [{"name": "job-container", "image": "example/init:v1"}]},
    {"initContainers": [{"name": "before", "image": "example/init:v1"}]},
    {"volumes": [{"name": "daemonset-job-state", "configMap": {"name": "x"}}]},
    {"volumes": []},
    {"tolerations": [{"operator": "Exists"}]},
    {"tolerations": [{"operator": "Exists", "value": "x"}]},
    {"priorityClassName": "no-such-class"},
    {"priorityClassName": "system-node-critical"},
    {"runtimeClassName": "no-such-class"},
    {"schedulingGates": [{"name": names.START_GATE}]},
    {"nodeSelector": {"zone": "x"}},
    {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"},
    {"terminationGracePeriodSeconds": 2**63 - 1},
    {"terminationGracePeriodSeconds": -1},
    {"securityContext": None, "volumes": None},
    {"containers": None},
)
