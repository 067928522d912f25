"""Which resource type of the API a manifest is of."""

from __future__ import annotations

from typing import Final

from daemonset_job.kube.client.resource import Resource
from kubectl_dsjob.system.kustomize import Manifest

_CLUSTER_SCOPED: Final = frozenset(
    {
        *("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"),
        *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
)
_PLURALS: Final = {
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
CRDS: Final = Resource(
    *("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
    namespaced=False,
)
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", namespaced=True)


def resource_of(manifest: Manifest) -> Resource:
    """Return the resource type. The kinds of deploy/ have regular plurals, but for two."""
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return Resource(group, version, plural, kind, namespaced=kind not in _CLUSTER_SCOPED)


def title(manifest: Manifest) -> str:
    """Return what users read of an object, such as `ConfigMap daemonset-job-controller`."""
    return f"{manifest['kind']} {manifest['metadata']['name']}"
