"""Every name that appears in the API, in a label, an annotation or a manifest, once.

The names of the DaemonSet, its labels, the container and the mount are those of the seed manifests.
They are part of the API and never change within v1beta1.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from typing import Final

from daemonset_job.api.times import format_time

GROUP: Final = "daemonset.darkowlzz.space"
VERSION: Final = "v1beta1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
JOB_KIND: Final = "Job"
REPORT_KIND: Final = "JobReport"
SCHEDULED_KIND: Final = "ScheduledJob"

# Field manager of everything the controller applies.
FIELD_MANAGER: Final = "daemonset-job-controller"
# Field manager of what the terminator writes: its user agent.
TERMINATOR_FIELD_MANAGER: Final = "daemonset-job-terminator"

# Where deploy/ puts this system, and how its pods are labelled.
SYSTEM_NAMESPACE: Final = "daemonset-job-system"
LABEL_APP: Final = "app.kubernetes.io/name"
SYSTEM_APPS: Final = frozenset({"daemonset-job", "daemonset-job-terminator"})

# --- generated objects -----------------------------------------------------------------
DAEMON_SET_SUFFIX: Final = "-daemonset-job"
CONTAINER_NAME: Final = "job-container"
TARGET_VOLUME: Final = "basetarget"
TARGET_MOUNT_PATH: Final = "/basetarget"

# Labels of DaemonSet and pods. The last one is what the terminator selects by.
LABEL_DAEMON_SET: Final = "daemonset"
LABEL_JOB: Final = "job"
LABEL_MANAGED: Final = "daemonset-job"
LABEL_MANAGED_VALUE: Final = "true"
MANAGED_SELECTOR: Final = f"{LABEL_MANAGED}={LABEL_MANAGED_VALUE}"
# UID of the Job, on DaemonSet, pods and reports: two Jobs of one name, one after the other,
# never share a child.
LABEL_JOB_UID: Final = f"{GROUP}/job-uid"
# A node's operating system, by the kubelet of it (k8s.io/api core/v1 LabelOSStable).
LABEL_OS: Final = "kubernetes.io/os"
OS_WINDOWS: Final = "windows"
# The zone of a node, by its cloud (k8s.io/api core/v1 LabelTopologyZone).
LABEL_ZONE: Final = "topology.kubernetes.io/zone"
# Which part of a sharded report an object is ("0" for the first).
LABEL_SHARD: Final = f"{GROUP}/shard"

# On the DaemonSet: the hash of the spec that was applied, and that of the Job's spec.nodes which it
# was applied for. They show whether the DaemonSet is that of the Job's present spec: the first to
# the controller, the second to the terminator.
ANNOTATION_SPEC_HASH: Final = f"{GROUP}/spec-hash"
ANNOTATION_NODES_HASH: Final = f"{GROUP}/nodes-hash"
# On a report: the hash of the selection of nodes with which its run started.
ANNOTATION_SELECTION_HASH: Final = f"{GROUP}/selection-hash"
# On the DaemonSet of a Job of policy Continuous that has had another selection since.
ANNOTATION_SELECTION_CHANGED: Final = f"{GROUP}/selection-changed"

# On a Job of a ScheduledJob: the name of that, and the time that the Job was scheduled for.
LABEL_SCHEDULED_JOB: Final = f"{GROUP}/scheduled-job"
ANNOTATION_SCHEDULED_AT: Final = f"{GROUP}/scheduled-at"

# On the DaemonSet while its pods are refused. Each new value has the DaemonSet controller create
# pods at once, and not after its own back-off of up to 15 minutes.
ANNOTATION_CREATE_AGAIN: Final = f"{GROUP}/create-pods-again"

# kubectl takes this container for `logs` and `exec` (kubectl pkg/cmd/util/podcmd).
ANNOTATION_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
# Set to any new value, it lets the failed nodes of a run, and those only, try again.
ANNOTATION_RETRY: Final = f"{GROUP}/retry"
# Names nodes on which a Job of policy Continuous runs its task again.
ANNOTATION_RERUN: Final = f"{GROUP}/rerun"
# The number of the step of a rollout that a person approves, `all` to leave out the remaining soaks
# and approvals, and why a run ends at once.
ANNOTATION_APPROVE: Final = f"{GROUP}/approve"
ANNOTATION_PROMOTE: Final = f"{GROUP}/promote"
ANNOTATION_ABORT: Final = f"{GROUP}/abort"
# Why a run is to be rolled back, by a person.
ANNOTATION_ROLLBACK: Final = f"{GROUP}/rollback"
# On the DaemonSet of a Job of policy Continuous and on its pods: the revision that they run.
ANNOTATION_REVISION: Final = f"{GROUP}/revision"

# On a Job that a rollout has created: what it is for, with a hash of what asked for it.
ANNOTATION_PURPOSE: Final = f"{GROUP}/purpose"
PURPOSE_LIMIT: Final = 64

# On a node: which Job has cordoned it, written in the patch that cordons.
ANNOTATION_CORDONED_BY: Final = f"{GROUP}/cordoned-by"
# On the pods of a Job with spec.rollout.exclusive: the key.
LABEL_EXCLUSIVE: Final = f"{GROUP}/exclusive"

# What the plugin writes, and nothing else reads. On a Job: the folder that it was bundled from.
LABEL_BUNDLE: Final = f"{GROUP}/bundle"
# On the controller's Deployment: the options of `kubectl dsjob install`.
ANNOTATION_INSTALL: Final = f"{GROUP}/install"

# The volumes of spec.mounts, by their number from 0.
MOUNT_VOLUME_PREFIX: Final = "daemonset-job-mount-"

# Where a task keeps what must survive its container but not its pod (see images/task/run-once).
STATE_VOLUME: Final = "daemonset-job-state"
STATE_MOUNT_PATH: Final = "/run/daemonset-job"
ENV_STATE: Final = "DAEMONSET_JOB_STATE"
ENV_TOKEN: Final = "COMPLETION_TOKEN"  # noqa: S105 - a word in a log, no secret
# How often the work may be started in one pod: known to run-once, which keeps to it by itself.
ENV_ATTEMPTS_LIMIT: Final = "ATTEMPTS_LIMIT"
ENV_NODE_NAME: Final = "NODE_NAME"
# Known to run-once: whether it ends after the work, and whether it runs it outside the container.
ENV_MODE: Final = "COMPLETION_MODE"
ENV_HOST_EXEC: Final = "HOST_EXEC"

# Where the script of `spec.script` or `spec.scriptFrom` is: the folder that run-once looks in.
SCRIPT_VOLUME: Final = "daemonset-job-script"
SCRIPT_MOUNT_PATH: Final = "/task.d"
SCRIPT_FILE: Final = "script"
# Holds the text of `spec.script`, which a downward API volume shows as a file.
ANNOTATION_SCRIPT: Final = f"{GROUP}/script"

# The container that keeps the pod of a task in Exit mode running once the task has ended.
PAUSE_CONTAINER_NAME: Final = "pause"
# Nodes have this image anyway, for the sandbox of every pod.
DEFAULT_PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"

# The image of a Job with a script and without an image of its own.
DEFAULT_TASK_IMAGE: Final = "docker.io/darkowlzz/daemonset-job-task:v0.1.0"

# The scheduling gate of a pod whose node may not start yet.
START_GATE: Final = f"{GROUP}/start"
# The name that version 0.1.0 gave to it. Pods that wait during the upgrade have it.
FIRST_VERSION_GATE: Final = f"{GROUP}/turn"
START_GATES: Final = (START_GATE, FIRST_VERSION_GATE)

# The ConfigMap in the system's namespace that stops all Jobs of the cluster.
STOP_CONFIG_MAP: Final = "daemonset-job-stop"

# The admission policies of deploy/, each with a binding of its name.
ADMISSION_POLICIES: Final = (
    "daemonset-job-needs-daemonsets",
    "daemonset-job-needs-nodes",
    "daemonset-job-needs-status",
    "daemonset-job-system-pods",
    "daemonset-job-system-daemonsets",
    "daemonset-job-system-jobreports",
    "daemonset-job-system-jobs",
)

# --- completion ------------------------------------------------------------------------
DEFAULT_TOKEN: Final = "done"  # noqa: S105 - a word in a log, no secret

# Characters of a retry request that are kept in status and records (the CRDs' maxLength).
RETRY_LIMIT: Final = 256

# A label value and a DNS label hold 63 characters, an object name 253 (RFC 1123).
LABEL_VALUE_LIMIT: Final = 63
OBJECT_NAME_LIMIT: Final = 253
_HASH_CHARACTERS: Final = 8
# Characters of the UID in the name of a report. Two Jobs of one name that were created within one
# second have the same ones in one of a million cases.
_UID_CHARACTERS: Final = 5
_REPORT_TIME: Final = re.compile(rf"-([0-9]{{14}})-[^-]{{{_UID_CHARACTERS}}}(?:-[0-9]+)?$")
# "-999": a cluster has 5,000 nodes at most, five shards (Kubernetes, considerations for large
# clusters).
_SHARD_CHARACTERS: Final = 4


def shorten(name: str, limit: int) -> str:
    """Return `name`, or when longer than `limit`, its start and a hash of the whole of it.

    The same name always gives the same result, so a retried create finds the object of the first
    try. The result is a valid RFC 1123 name and label value: the cut never ends in a dot or a dash.
    """
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_CHARACTERS]
    return f"{name[: limit - _HASH_CHARACTERS - 1].rstrip('.-_')}-{digest}"


def daemon_set_name(job_name: str) -> str:
    """Return the DaemonSet's name for a Job: `<job>-daemonset-job`, 63 characters at most."""
    return shorten(job_name, LABEL_VALUE_LIMIT - len(DAEMON_SET_SUFFIX)) + DAEMON_SET_SUFFIX


def report_name(job_name: str, job_uid: str, created_at: datetime) -> str:
    """Return the name of a run's first JobReport: `<job>-<yyyymmddhhmmss>-<first 5 of the UID>`.

    The time is when the Job was created, in UTC: the reports of one name are listed in the order of
    their runs. It leaves room for the number of a shard.
    """
    digits = "".join(filter(str.isdigit, format_time(created_at)))
    tail = f"-{digits}-{job_uid[:_UID_CHARACTERS]}"
    return shorten(job_name, OBJECT_NAME_LIMIT - len(tail) - _SHARD_CHARACTERS) + tail


def report_time(name: str) -> datetime | None:
    """Return the time in the name of a run's report, None for another name."""
    found = _REPORT_TIME.search(name)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def first_version_report_name(job_name: str, job_uid: str) -> str:
    """Return the name that version 0.1.0 gave to it: `<job>-<first 8 of the UID>`.

    A run that was in progress during the upgrade keeps it.
    """
    tail = f"-{job_uid[:8]}"
    return shorten(job_name, OBJECT_NAME_LIMIT - len(tail)) + tail


def shard_name(first: str, shard: int) -> str:
    """Return the name of a shard of the report whose first shard has the name `first`."""
    tail = f"-{shard}" if shard else ""
    return shorten(first, OBJECT_NAME_LIMIT - len(tail)) + tail


def job_label(job_name: str) -> str:
    """Return the value of the label `job` for a Job's name: 63 characters at most."""
    return shorten(job_name, LABEL_VALUE_LIMIT)
