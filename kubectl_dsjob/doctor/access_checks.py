"""Checks what the user may do, by SelfSubjectAccessReviews, and says it in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden
from daemonset_job.kube.client.resource import (
    DAEMON_SETS,
    JOB_REPORTS,
    JOBS,
    POD_LOGS,
    PODS,
    Resource,
)
from kubectl_dsjob.doctor.findings import Area, Finding, Level

_REVIEWS: Final = Resource(
    *("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    namespaced=False,
)
_EDIT: Final = "Ask for the ClusterRole edit, or daemonset-job-edit, in this namespace."
_VIEW: Final = "Ask for the ClusterRole view, or daemonset-job-view, in this namespace."
_DAEMON_SETS: Final = (
    "Ask for the verb create on daemonsets.apps in this namespace: an admission policy requires it."
)


@dataclass(frozen=True, slots=True)
class Ability:
    """Something a user of Jobs does, the rights that it needs, and how to get them."""

    sentence: str
    rights: Sequence[tuple[str, Resource]]
    way_out: str


ABILITIES: Final = (
    Ability("see Jobs", [("get", JOBS), ("list", JOBS), ("watch", JOBS)], _VIEW),
    Ability("read reports", [("get", JOB_REPORTS), ("list", JOB_REPORTS)], _VIEW),
    Ability("create Jobs", [("create", JOBS)], _EDIT),
    Ability("have Jobs start pods", [("create", DAEMON_SETS)], _DAEMON_SETS),
    Ability("pause, resume and retry Jobs", [("patch", JOBS)], _EDIT),
    Ability("delete Jobs", [("delete", JOBS)], _EDIT),
    Ability("read the logs of tasks", [("list", PODS), ("get", POD_LOGS)], _VIEW),
)


async def check_access(client: KubeClient, namespace: str) -> list[Finding]:
    """Return what the user may and may not do in a namespace."""
    allowed: list[str] = []
    refused: list[Finding] = []
    for ability in ABILITIES:
        missing = []
        for verb, resource in ability.rights:
            try:
                if not await _may(client, verb, resource, namespace):
                    missing.append(f"{verb} {resource.name}")
            except Forbidden:
                text = "you may not ask what you may do (selfsubjectaccessreviews)"
                return [Finding(Area.RIGHTS, Level.UNKNOWN, text)]
        if missing:
            text = f"you may not {ability.sentence} in namespace {namespace}"
            text += f": you lack {', '.join(missing)}"
            refused.append(Finding(Area.RIGHTS, Level.NOTE, text, ability.way_out))
        else:
            allowed.append(ability.sentence)
    if not allowed:
        return refused
    text = f"in namespace {namespace} you may {'; '.join(allowed)}"
    return [Finding(Area.RIGHTS, Level.OK, text), *refused]


async def _may(client: KubeClient, verb: str, resource: Resource, namespace: str) -> bool:
    attributes = {
        "verb": verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": resource.subresource,
        "namespace": namespace,
    }
    body = {
        "apiVersion": _REVIEWS.api_version,
        "kind": _REVIEWS.kind,
        "spec": {"resourceAttributes": attributes},
    }
    review = await client.create(_REVIEWS, body)
    return bool((review.get("status") or {}).get("allowed"))
