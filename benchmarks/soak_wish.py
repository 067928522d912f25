"""What a Job of a soak run consists of: its script, its spec, its user's steps, its expected end.

Every Job runs one script on the nodes, which appends its starts and ends to a file of the Job on
the node. Simulated nodes run nothing and always succeed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.workload import RESULTS, TASK_IMAGE, TOLERATIONS

FOLDER = "/var/tmp/daemonset-job-soak"  # noqa: S108 - on the nodes of a development cluster
CONFIG_MAP = "soak-task"
EVERY_NODE = "*"
# Appends "WORD EPOCH" to the node's file: start, stopped (by TERM), failed, end.
SCRIPT = """#!/bin/sh
# task FILE SECONDS BEHAVIOUR NODE EXIT-CODE-ON-TERM
file=/basetarget/$1 code=$5
say() { echo "$1 $(date +%s)" >>"$file"; }
trap 'say stopped; exit "$code"' TERM
say start
sleep "$2" & wait $!
case $3 in
flaky) grep -q failed "$file" || { say failed; exit 3; } ;;
broken) [ -e "$file.fixed" ] || { say failed; exit 3; } ;;
hang) if [ "$4" = '*' ] || [ "$4" = "$NODE_NAME" ]; then sleep 86400 & wait $!; fi ;;
noisy) yes 0123456789abcdef0123456789abcdef | head -c 1048576; echo ;;
results) for r in RESULTS; do echo "dsjob:result $r"; done ;;
esac
say end
""".replace("RESULTS", " ".join(f"{name}={value}" for name, value in RESULTS.items()))

Phase = Literal["Succeeded", "Failed", "Cancelled"]
When = Literal["created", "started", "Suspended", "Failed", "Complete"]
Do = Literal["patch", "retry", "fix", "delete"]


@dataclass(frozen=True, slots=True)
class Step:
    """What the user does, `seconds` after the Job has come so far."""

    when: When
    seconds: float
    do: Do
    patch: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wish:
    """One Job, and what its user expects of it."""

    kind: str
    namespace: str
    name: str
    file: str
    """The file on each node in which its task counts."""
    spec: Mapping[str, Any]
    phase: Phase = "Succeeded"
    """The phase of its report in the end."""
    steps: Sequence[Step] = ()
    leaves_by_itself: bool = True
    """Whether the system deletes it."""
    may_fail_on_nodes: bool = False
    work_seconds: float = 0

    @property
    def has_unique_name(self) -> bool:
        """Whether no other Job has this name; reports of others are left to the history limit."""
        return not self.name.startswith("nightly-")


@dataclass(frozen=True, slots=True)
class Place:
    """Where Jobs can run."""

    namespaces: Sequence[str]
    real: Sequence[str]
    simulated: Sequence[str]


def plain_spec(file: str, seconds: float) -> dict[str, Any]:
    """Return the spec of a Job in mode Log whose task works for `seconds` and succeeds."""
    mounts = [{"name": "task", "mountPath": "/task.d"}]
    return {
        "image": TASK_IMAGE,
        "args": [file, str(seconds), "good", EVERY_NODE, "143"],
        "mountPath": FOLDER,
        "template": {
            "spec": {
                "tolerations": TOLERATIONS,
                "containers": [{"name": "job-container", "volumeMounts": mounts}],
                "volumes": [{"name": "task", "configMap": {"name": CONFIG_MAP}}],
            }
        },
    }


def manifest(wish: Wish) -> dict[str, Any]:
    """Return the Job as its user applies it."""
    return {
        "apiVersion": "daemonset.darkowlzz.space/v1beta1",
        "kind": "Job",
        "metadata": {"name": wish.name, "namespace": wish.namespace},
        "spec": dict(wish.spec),
    }


def task_config_map(namespace: str) -> dict[str, Any]:
    """Return the ConfigMap with the script that every task runs."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": namespace},
        "data": {"task": SCRIPT},
    }
