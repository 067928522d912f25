"""Checks that the service accounts of the programs have the rights that their roles give them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden
from daemonset_job.kube.client.resource import Resource
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.crds import is_older
from kubectl_dsjob.system.installed import CONTROLLER, describe, present_components
from kubectl_dsjob.system.kustomize import Manifest
from kubectl_dsjob.system.render import SystemWish, render, version
from kubectl_dsjob.system.resources import DEPLOYMENTS

_REVIEWS: Final = Resource(
    *("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
    namespaced=False,
)
_CLUSTER_SCOPED: Final = frozenset(
    {"nodes", "validatingadmissionpolicies", "validatingadmissionpolicybindings"}
)
_SHOWN_LIMIT: Final = 8
_AT_A_TIME: Final = 8


@dataclass(frozen=True, slots=True)
class Right:
    """A right that a role of the system gives an account; `namespace` empty: everywhere."""

    account: str
    role: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""


async def check_system_rights(client: KubeClient, namespace: str) -> list[Finding]:
    """Return which rights the programs lack; nothing if they are of another version, or missing."""
    deployment = await read(client, DEPLOYMENTS, CONTROLLER, namespace)
    if deployment is Missing.ABSENT:
        return []
    unknown = Finding(
        Area.PROGRAMS,
        Level.UNKNOWN,
        "you may not ask which rights the programs have (subjectaccessreviews)",
    )
    if isinstance(deployment, Missing):
        return [unknown]
    found = describe(deployment, namespace).version
    if is_older(found, version()) or is_older(version(), found):
        # The roles of this version are not those that they need.
        return []
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def is_missing(right: Right) -> bool:
        async with limit:
            return not await _has(client, right, namespace)

    try:
        wish = SystemWish(tuple(await present_components(client, namespace)), namespace)
        rights = wanted_rights(render(wish), watched_namespaces(deployment))
        missing = await asyncio.gather(*map(is_missing, rights))
    except Forbidden:
        return [unknown]
    return judge_rights([right for right, lacks in zip(rights, missing, strict=True) if lacks])


def watched_namespaces(deployment: Mapping[str, Any]) -> list[str]:
    """Return the namespaces that the controller's Deployment names, empty for all. Pure."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if variable.get("name") == "WATCH_NAMESPACES":
                names = str(variable.get("value") or "").split(",")
                return sorted({each.strip() for each in names if each.strip()})
    return []


def wanted_rights(objects: Sequence[Manifest], namespaces: Sequence[str]) -> list[Right]:
    """Return each right that the manifests give to the system's accounts, once. Pure."""
    rules = {
        (each["kind"], each["metadata"]["name"]): each.get("rules") or ()
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    found: dict[Right, None] = {}
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        role = binding["roleRef"]
        inside = binding["metadata"].get("namespace", "")
        for subject in binding.get("subjects") or ():
            title = f"{role['kind']} {role['name']}"
            for right in _of_rules(rules.get((role["kind"], role["name"]), ())):
                own = replace(right, account=subject["name"], role=title)
                where = [inside] if inside else list(namespaces) or [""]
                if right.resource in _CLUSTER_SCOPED:
                    where = [""]
                found.update({replace(own, namespace=each): None for each in where})
    return list(found)


def judge_rights(missing: Sequence[Right]) -> list[Finding]:
    """Return a finding for each role of which an account lacks rights. Pure."""
    if not missing:
        text = "the programs have all rights that their roles give them"
        return [Finding(Area.PROGRAMS, Level.OK, text)]
    way = f"Apply the manifests again: kubectl dsjob upgrade{CLUSTER}, or your kustomization."
    lists: dict[tuple[str, str, str], dict[str, None]] = {}
    for each in missing:
        lacks = lists.setdefault((each.account, each.role, each.namespace), {})
        lacks[f"{each.verb} {each.resource}"] = None
    found = []
    for (account, role, namespace), lacks in lists.items():
        lacking = list(lacks)
        left = len(lacking) - _SHOWN_LIMIT
        words = ", ".join(lacking[:_SHOWN_LIMIT]) + (f", and {left} more" if left > 0 else "")
        where = f" in namespace {namespace}" if namespace else ""
        text = f"the service account {account} lacks rights of the {role}{where}: {words}"
        found.append(Finding(Area.PROGRAMS, Level.PROBLEM, text, way))
    return found


def _of_rules(rules: Iterable[Mapping[str, Any]]) -> Iterable[Right]:
    for rule in rules:
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in rule.get("verbs") or ():
                    for name in rule.get("resourceNames") or ("",):
                        yield Right("", "", verb, group, resource, name)


async def _has(client: KubeClient, right: Right, system: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    spec = {
        "user": f"system:serviceaccount:{system}:{right.account}",
        "groups": [
            "system:serviceaccounts",
            f"system:serviceaccounts:{system}",
            "system:authenticated",
        ],
        "resourceAttributes": attributes,
    }
    body = {"apiVersion": _REVIEWS.api_version, "kind": _REVIEWS.kind, "spec": spec}
    review = await client.create(_REVIEWS, body)
    return bool((review.get("status") or {}).get("allowed"))
