"""Checks that the admission policies exist and are bound: everything else works without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden
from daemonset_job.kube.client.resource import ADMISSION_BINDINGS, ADMISSION_POLICIES
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.installed import present_components
from kubectl_dsjob.system.render import SystemWish, component_objects


async def check_policies(client: KubeClient, namespace: str) -> list[Finding]:
    """Return what there is to say about the policies, one finding if all are well.

    Those of the components that are there are included.
    """
    try:
        present = await present_components(client, namespace)
    except Forbidden:
        present = []
    found = []
    for name in [*names.ADMISSION_POLICIES, *_of_components(present)]:
        policy = await read(client, ADMISSION_POLICIES, name)
        binding = await read(client, ADMISSION_BINDINGS, name)
        if Missing.FORBIDDEN in (policy, binding):
            text = "you may not read the admission policies"
            return [Finding(Area.POLICIES, Level.UNKNOWN, text)]
        found.append(judge_policy(name, policy, binding))
    problems = [each for each in found if each.level != Level.OK]
    well = Finding(Area.POLICIES, Level.OK, f"all {len(found)} policies exist and are bound")
    return problems or [well]


def _of_components(present: Sequence[str]) -> list[str]:
    return [
        each["metadata"]["name"]
        for component in present
        for each in component_objects(component, SystemWish())
        if each["kind"] == ADMISSION_POLICIES.kind
    ]


def judge_policy(
    name: str, policy: Mapping[str, Any] | Missing, binding: Mapping[str, Any] | Missing
) -> Finding:
    """Return what there is to say about a policy and its binding. Pure."""
    way = f"Apply the manifests again: kubectl dsjob upgrade{CLUSTER}, or your kustomization."
    if isinstance(policy, Missing):
        text = f"the policy {name} does not exist: what it forbids is allowed"
        return Finding(Area.POLICIES, Level.PROBLEM, text, way)
    if isinstance(binding, Missing):
        text = f"the policy {name} is not bound: what it forbids is allowed"
        return Finding(Area.POLICIES, Level.PROBLEM, text, way)
    spec = binding.get("spec") or {}
    if spec.get("policyName", name) != name:
        text = f"the binding {name} is of another policy: what {name} forbids is allowed"
        return Finding(Area.POLICIES, Level.PROBLEM, text, way)
    if "Deny" not in (spec.get("validationActions") or ()):
        text = f"the binding of the policy {name} does not deny: what it forbids is allowed"
        return Finding(Area.POLICIES, Level.PROBLEM, text, way)
    if spec.get("matchResources"):
        text = f"the binding of the policy {name} has matchResources: it may not hold everywhere"
        return Finding(Area.POLICIES, Level.NOTE, text)
    return Finding(Area.POLICIES, Level.OK, f"the policy {name} exists and is bound")
