"""The objects of the system as they are installed: components, namespace and images chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.system.kustomize import Manifest, build, containers, own_objects

NAMESPACE: Final = "daemonset-job-system"
PREFIX: Final = "docker.io/darkowlzz"
VERSION_LABEL: Final = "app.kubernetes.io/version"
_NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# In names of policies it is a part of a longer name.
_OUR_NAMESPACE: Final = re.compile(rf"(?<![\w-]){NAMESPACE}(?![\w-])")
_PREFIX: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class SystemWish:
    """What is installed: names of components, the namespace, and where the images are.

    `tag` is that of the images of the system and of the task image, "" for the version's own.
    """

    components: tuple[str, ...] = ()
    namespace: str = NAMESPACE
    image_prefix: str = PREFIX
    tag: str = ""


def version() -> str:
    """Return the version of this program, and so of the manifests that it has."""
    return metadata.version("daemonset-job")


def files() -> Path:
    """Return the folder that has deploy/ and crds/: within the wheel, or the clone."""
    package = Path(__file__).parents[1]
    in_wheel = package / "system_files"
    return in_wheel if in_wheel.is_dir() else package.parent


def component_names() -> list[str]:
    """Return the names of all components."""
    found = (files() / "deploy" / "components").iterdir()
    return sorted(each.name for each in found if (each / "kustomization.yaml").exists())


def component_objects(name: str, wish: SystemWish) -> list[Manifest]:
    """Return the objects that a component adds; none for one that only changes others."""
    return _changed(own_objects(files() / "deploy" / "components" / name), wish)


def render(wish: SystemWish) -> list[Manifest]:
    """Return the objects in the order in which they are applied. CliError for wrong options."""
    _check(wish)
    deploy = files() / "deploy"
    # In one order, whatever the user's is: control-plane changes what split adds.
    chosen = sorted(set(wish.components), key=lambda name: (name == "control-plane", name))
    return _changed(build(deploy, [deploy / "components" / name for name in chosen]), wish)


def crds() -> list[Manifest]:
    """Return the CRDs of this version."""
    return [m for m in render(SystemWish()) if m["kind"] == "CustomResourceDefinition"]


def _changed(manifests: Sequence[Manifest], wish: SystemWish) -> list[Manifest]:
    found = [_in_namespace(each, wish.namespace) for each in manifests]
    for manifest in found:
        manifest["metadata"].setdefault("labels", {})[VERSION_LABEL] = version()
        for container in containers(manifest):
            container["image"] = image(container["image"], wish)
        if manifest["kind"] == "ConfigMap" and "TASK_IMAGE" in manifest["data"]:
            manifest["data"]["TASK_IMAGE"] = image(manifest["data"]["TASK_IMAGE"], wish)
    return found


def image(name: str, wish: SystemWish) -> str:
    """Return one of our images with the prefix and tag that were asked for."""
    if not name.startswith(f"{PREFIX}/"):
        return name
    short, _, tag = name.removeprefix(f"{PREFIX}/").partition(":")
    return f"{wish.image_prefix}/{short}:{wish.tag or tag}"


def _in_namespace(value: Any, namespace: str) -> Any:
    """Return an object with the other namespace, also in the expressions of the policies."""
    match value:
        case str():
            return _OUR_NAMESPACE.sub(namespace, value)
        case list():
            return [_in_namespace(each, namespace) for each in value]
        case dict():
            return {key: _in_namespace(each, namespace) for key, each in value.items()}
        case _:
            return value


def _check(wish: SystemWish) -> None:
    if unknown := sorted(set(wish.components) - set(component_names())):
        way = f"There are: {', '.join(component_names())}."
        raise _usage(f"there is no component {', '.join(unknown)}", way)
    if not _NAMESPACE_NAME.fullmatch(wish.namespace):
        raise _usage(f"{wish.namespace[:80]!r} is no name of a namespace", "Use a DNS label.")
    if wish.namespace == "default" or wish.namespace.startswith("kube-"):
        way = f"Leave --namespace out: {NAMESPACE} is then created."
        raise _usage(f"the namespace {wish.namespace} has other things in it", way)
    if not _PREFIX.fullmatch(wish.image_prefix):
        way = "Write it as REGISTRY/PATH, in lower case and without a slash at the end."
        raise _usage(f"{wish.image_prefix[:80]!r} is no prefix of an image", way)
    if wish.tag and not _TAG.fullmatch(wish.tag):
        raise _usage(f"{wish.tag[:80]!r} is no tag of an image", "Write it as v0.1.0-1a2b3c4.")


def _usage(message: str, way_out: str) -> CliError:
    return CliError(message, way_out, ExitCode.USAGE)
