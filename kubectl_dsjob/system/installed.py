"""What of the system is in the cluster: its namespace, its version, its components."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import Forbidden, NotFound
from daemonset_job.kube.client.resource import NAMESPACES
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.system.render import (
    NAMESPACE,
    PREFIX,
    VERSION_LABEL,
    SystemWish,
    component_names,
    component_objects,
)
from kubectl_dsjob.system.resources import DEPLOYMENTS, resource_of

CONTROLLER: Final = "daemonset-job-controller"
TERMINATOR: Final = "daemonset-job-terminator"
LABELS: Final = "app.kubernetes.io/name=daemonset-job"


@dataclass(frozen=True, slots=True)
class Installed:
    """The controller's Deployment, and what it says: "" and None for what it does not."""

    namespace: str
    deployment: Mapping[str, Any]
    version: str = ""
    wish: SystemWish | None = None


@asynccontextmanager
async def with_admin_rights() -> AsyncIterator[None]:
    """Have a refusal in the block name the rights that these verbs need."""
    try:
        yield
    except Forbidden as error:
        way = "These verbs need the rights of a cluster administrator (ClusterRole cluster-admin)."
        raise CliError(f"you may not do this: {error.message}", way) from error


async def find_namespace(client: KubeClient, given: str) -> str:
    """Return the namespace of the system: the given one, the usual one, or where it is.

    A namespace without the system's label is not taken: any user who may create Deployments
    there can make one of this name. Without the right to list Deployments everywhere, or to read
    the namespace of one, it is the usual one.
    """
    if given:
        return given
    try:
        page = await client.list(DEPLOYMENTS, label_selector=LABELS, metadata_only=True)
    except Forbidden:
        return NAMESPACE
    found = [
        str(each["metadata"]["namespace"])
        for each in page.get("items") or ()
        if each["metadata"]["name"] == CONTROLLER
    ]
    if NAMESPACE in found:
        return NAMESPACE
    for each in found:
        if await is_system_namespace(client, each):
            return each
    return NAMESPACE


async def is_system_namespace(client: KubeClient, name: str) -> bool:
    """Return whether a namespace has the system's label; False if it may not be read."""
    try:
        return is_ours(await client.get(NAMESPACES, name))
    except (Forbidden, NotFound):
        return False


def is_ours(raw: Mapping[str, Any]) -> bool:
    """Return whether a raw object has the system's label."""
    key, _, value = LABELS.partition("=")
    return bool((raw["metadata"].get("labels") or {}).get(key) == value)


async def find_installed(client: KubeClient, namespace: str) -> Installed | None:
    """Return the system in a namespace, None if it is not there."""
    try:
        deployment = await client.get(DEPLOYMENTS, CONTROLLER, namespace)
    except NotFound:
        return None
    return describe(deployment, namespace)


def describe(deployment: Mapping[str, Any], namespace: str) -> Installed:
    """Return what the controller's Deployment says. Pure."""
    metadata = deployment["metadata"]
    version = (metadata.get("labels") or {}).get(VERSION_LABEL) or _tag(deployment)
    text = (metadata.get("annotations") or {}).get(names.ANNOTATION_INSTALL)
    return Installed(namespace, deployment, version, _wish(text, namespace) if text else None)


def annotation(wish: SystemWish) -> str:
    """Return the value of the annotation for a wish; the namespace is that of the object."""
    content = {
        "components": sorted(wish.components),
        "imagePrefix": wish.image_prefix,
        "tag": wish.tag,
    }
    return json.dumps(content, sort_keys=True)


async def present_components(client: KubeClient, namespace: str) -> list[str]:
    """Return the components of which the cluster has objects. Forbidden if they may not be read."""

    async def is_there(manifest: Mapping[str, Any]) -> bool:
        resource = resource_of(dict(manifest))
        where = manifest["metadata"].get("namespace")
        try:
            await client.get(resource, manifest["metadata"]["name"], where)
        except NotFound:
            return False
        return True

    found = []
    for name in component_names():
        objects = component_objects(name, SystemWish(namespace=namespace))
        if any(await asyncio.gather(*map(is_there, objects))):
            found.append(name)
    return found


def _tag(deployment: Mapping[str, Any]) -> str:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    image = next((str(c.get("image")) for c in containers if c.get("name") == "controller"), "")
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def _wish(text: str, namespace: str) -> SystemWish | None:
    """Return what the annotation says, None if another client wrote something else there."""
    try:
        found = json.loads(text)
        components = tuple(str(each) for each in found["components"])
        prefix, tag = str(found.get("imagePrefix") or PREFIX), str(found.get("tag") or "")
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
    return SystemWish(components, namespace, prefix, tag)
