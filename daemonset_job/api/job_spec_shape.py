"""What types the fields of a Job's spec have to have that are read."""

from __future__ import annotations

from typing import Final

from daemonset_job.api.drain import DRAIN_SHAPE
from daemonset_job.api.node_changes import ON_SUCCESS_SHAPE
from daemonset_job.api.notifications import NOTIFY_SHAPE
from daemonset_job.api.owned_task import OWNED_TASK_SHAPE
from daemonset_job.api.rollout import (
    ROLLOUT_SHAPE,
    SUCCESS_POLICY_SHAPE,
    number_or_percentage,
)
from daemonset_job.api.script_source import SCRIPT_SOURCE_SHAPE
from daemonset_job.api.shape import (
    BOOLEAN,
    LIST,
    NUMBER,
    REQUIREMENTS,
    STRING,
    STRINGS,
    fields,
    list_of,
)

# The fields that are read of a Job. The API server checks the inside of its template.
_POD_SPEC: Final = fields(
    containers=LIST,
    initContainers=LIST,
    volumes=LIST,
    schedulingGates=LIST,
    tolerations=LIST,
    imagePullSecrets=LIST,
)
SPEC_SHAPE: Final = fields(
    image=STRING,
    script=STRING,
    scriptFrom=SCRIPT_SOURCE_SHAPE,
    hostExec=BOOLEAN,
    command=list_of(STRING),
    args=list_of(STRING),
    mountPath=STRING,
    mounts=list_of(fields(hostPath=STRING, mountPath=STRING, readOnly=BOOLEAN)),
    template=fields(metadata=fields(labels=STRINGS, annotations=STRINGS), spec=_POD_SPEC),
    nodes=fields(
        selector=fields(matchLabels=STRINGS, matchExpressions=REQUIREMENTS),
        include=list_of(STRING),
        exclude=list_of(STRING),
    ),
    completion=fields(
        mode=STRING,
        token=STRING,
        match=STRING,
        failureToken=STRING,
        policy=STRING,
        release=BOOLEAN,
    ),
    backoffLimit=NUMBER,
    nodeDeadlineSeconds=NUMBER,
    nodeUnreachableSeconds=NUMBER,
    activeDeadlineSeconds=NUMBER,
    failurePolicy=fields(
        action=STRING,
        maxFailedNodes=number_or_percentage,
        maxUnreachableNodes=number_or_percentage,
        rules=list_of(fields(exitCodes=list_of(NUMBER), action=STRING)),
        pods=STRING,
        unreachableSeconds=NUMBER,
    ),
    failureLogLines=NUMBER,
    ttlSecondsAfterFinished=NUMBER,
    suspend=BOOLEAN,
    results=list_of(fields(name=STRING, label=STRING, annotation=STRING)),
    onSuccess=ON_SUCCESS_SHAPE,
    cordon=BOOLEAN,
    drain=DRAIN_SHAPE,
    after=list_of(STRING),
    notify=NOTIFY_SHAPE,
    rollout=ROLLOUT_SHAPE,
    successPolicy=SUCCESS_POLICY_SHAPE,
    rollback=OWNED_TASK_SHAPE,
)
