"""The verbs install and upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml

from daemonset_job.api import names
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.errors import NotFound
from daemonset_job.kube.client.resource import NAMESPACES
from kubectl_dsjob.edge import Answer, say
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.exit_codes import ExitCode
from kubectl_dsjob.node_tables import format_objects
from kubectl_dsjob.outputs import Output
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.applying import Change, Effect, apply_all, check_apply, wait_for_programs
from kubectl_dsjob.system.crds import CrdChanges, compare_crds, is_downgrade, is_older
from kubectl_dsjob.system.installed import (
    CONTROLLER,
    LABELS,
    Installed,
    annotation,
    find_installed,
    find_namespace,
    is_ours,
    present_components,
    with_admin_rights,
)
from kubectl_dsjob.system.kustomize import Manifest
from kubectl_dsjob.system.render import (
    NAMESPACE,
    PREFIX,
    VERSION_LABEL,
    SystemWish,
    crds,
    render,
    version,
)
from kubectl_dsjob.system.resources import CRDS
from kubectl_dsjob.target import Target

_FIELDS_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class InstallWish:
    """What is asked for: None and "" for what is not given, which an upgrade then keeps."""

    components: tuple[str, ...] | None = None
    namespace: str = ""
    image_prefix: str = ""
    tag: str = ""
    is_dry_run: bool = False
    is_forced: bool = False
    # Seconds to wait for the programs, None to return at once.
    limit_seconds: float | None = None

    def system(self, before: SystemWish | None = None) -> SystemWish:
        """Return what is installed, with what is not given as it was before."""
        kept = before or SystemWish()
        return SystemWish(
            kept.components if self.components is None else self.components,
            self.namespace or (before.namespace if before else NAMESPACE),
            self.image_prefix or kept.image_prefix or PREFIX,
            self.tag or (kept.tag if before else ""),
        )


def manifests_of(wish: SystemWish) -> list[Manifest]:
    """Return the objects to apply; the controller's Deployment says what was asked for."""
    found = render(wish)
    for manifest in found:
        metadata = manifest["metadata"]
        if manifest["kind"] == "Deployment" and metadata["name"] == CONTROLLER:
            metadata.setdefault("annotations", {})[names.ANNOTATION_INSTALL] = annotation(wish)
    return found


def show_manifests(wish: InstallWish, output: Output) -> Answer:
    """Return the manifests for `kubectl apply --server-side -f -`, in their order."""
    found = manifests_of(wish.system())
    if output == Output.JSON:
        body = {"apiVersion": "v1", "kind": "List", "items": found}
        return Answer(format_objects(body, output))
    return Answer(yaml.safe_dump_all(found, sort_keys=False))


async def install(target: Target, wish: InstallWish) -> Answer:
    """Install the system, or apply the same version again."""
    system = wish.system()
    manifests = manifests_of(system)
    async with with_admin_rights(), await target.connect() as client:
        await _check_namespace(client, system.namespace)
        there = await find_namespace(client, "")
        if there != system.namespace and await find_installed(client, there) is not None:
            way = f"Repeat it with --namespace {there}, or uninstall that one first."
            raise CliError(f"the system is installed in namespace {there} already", way)
        before = await find_installed(client, system.namespace)
        if before is not None and is_older(before.version, version()):
            way = f"Upgrade it: kubectl dsjob upgrade{CLUSTER}"
            raise CliError(f"version {before.version} is installed, an earlier one", way)
        await _check_version(client, before)
        await _check_components(client, system)
        return await _apply(client, manifests, wish)


async def upgrade(target: Target, wish: InstallWish) -> Answer:
    """Bring an installed system to the version of this program, with the options it has."""
    async with with_admin_rights(), await target.connect() as client:
        namespace = await find_namespace(client, wish.namespace)
        before = await find_installed(client, namespace)
        if before is None:
            install = f"kubectl dsjob install{CLUSTER}"
            way = f"Install it: {install}. Or name its namespace with --namespace."
            raise CliError(f"the system is not installed in namespace {namespace}", way)
        await _check_namespace(client, namespace)
        is_bare = wish.components is None and not wish.image_prefix and not wish.tag
        if before.wish is None and is_bare:
            way = (
                "Upgrade it with its kustomization. To have kubectl dsjob manage it, name its "
                "--components ('' for none) and --image-prefix, with --force-conflicts."
            )
            raise CliError("the system was not installed by kubectl dsjob install", way)
        changes = await _check_version(client, before)
        # A tag belongs to one version: that of the earlier one is not kept.
        kept = replace(before.wish, tag="") if before.wish else None
        system = replace(wish.system(kept), namespace=namespace)
        await _check_components(client, system)
        for name, change in changes:
            say(_describe(name, change))
        say(f"upgrade from {before.version or 'an unknown version'} to {version()}")
        return await _apply(client, manifests_of(system), wish)


async def _apply(client: KubeClient, manifests: Sequence[Manifest], wish: InstallWish) -> Answer:
    # Everything is checked before anything is written: a conflict leaves no half of an upgrade.
    planned = await check_apply(client, manifests, is_forced=wish.is_forced)
    if wish.is_dry_run:
        lines = [f"{each.title} {_WOULD[each.effect]}" for each in planned if _is_shown(each)]
        return Answer("\n".join(lines), _sum(planned, "would be ") + " (dry run)")

    def note(change: Change) -> None:
        if _is_shown(change):
            say(f"{change.title} {change.effect}")

    await apply_all(client, planned, note, is_forced=wish.is_forced)
    if wish.limit_seconds is None:
        return Answer(words=_sum(planned) + ". The programs may not be ready yet: see doctor.")
    say("waiting for the programs")
    await wait_for_programs(client, manifests, wish.limit_seconds)
    return Answer(words=_sum(planned) + f". Version {version()} is ready.")


_WOULD: Final = {Effect.CREATED: "would be created", Effect.CHANGED: "would be changed"}


def _is_shown(change: Change) -> bool:
    return change.effect != Effect.UNCHANGED


def _sum(changes: Sequence[Change], verb: str = "") -> str:
    counts = {effect: sum(each.effect == effect for each in changes) for effect in Effect}
    return ", ".join(f"{count} objects {verb}{effect}" for effect, count in counts.items() if count)


async def _check_namespace(client: KubeClient, name: str) -> None:
    """Raise CliError for a namespace of others: the system's has a policy for its pods."""
    try:
        there = await client.get(NAMESPACES, name)
    except NotFound:
        return
    if not is_ours(there):
        way = f"Name one that does not exist yet, or label it as the system's: {LABELS}"
        raise CliError(f"there is a namespace {name} that is not the system's", way)


async def _check_version(
    client: KubeClient, before: Installed | None
) -> list[tuple[str, CrdChanges]]:
    """Return how the CRDs change. CliError for a downgrade."""
    way = "Use the version of kubectl dsjob that the cluster has, or a later one."
    if before is not None and is_older(version(), before.version):
        text = f"version {before.version} is installed: {version()} would be a downgrade"
        raise CliError(text, way)
    found = []
    for expected in crds():
        name = expected["metadata"]["name"]
        there = await _find_crd(client, name)
        if there is None:
            continue
        changes = compare_crds(there, expected)
        stored = set((there.get("status") or {}).get("storedVersions") or ())
        if lost := sorted(stored & set(changes.versions_removed)):
            text = f"objects of {name} are stored in version {', '.join(lost)}, which is no more"
            raise CliError(text, "Upgrade to an earlier version first: see the changelog.")
        # The CRD stays when the system is uninstalled: then only its label has a version.
        label = (there["metadata"].get("labels") or {}).get(VERSION_LABEL)
        if is_downgrade(changes, label or (before.version if before else ""), version()):
            shown = ", ".join(changes.removed[:_FIELDS_SHOWN]) or "another version"
            text = f"{name} of the cluster has what {version()} does not know: {shown}"
            raise CliError(f"{text}. This would be a downgrade", way)
        if changes:
            found.append((name, changes))
    return found


async def _find_crd(client: KubeClient, name: str) -> dict[str, Any] | None:
    try:
        return await client.get(CRDS, name)
    except NotFound:
        return None


async def _check_components(client: KubeClient, system: SystemWish) -> None:
    """Raise CliError for a component that is there and not asked for: it would be half of it."""
    present = await present_components(client, system.namespace)
    if left := sorted(set(present) - set(system.components)):
        chosen = ",".join(sorted({*system.components, *present}))
        way = f"Keep it: --components {chosen}. Without it: uninstall, then install again."
        raise CliError(f"the component {', '.join(left)} is installed", way, ExitCode.USAGE)


def _describe(name: str, changes: CrdChanges) -> str:
    parts = {
        "new versions": changes.versions_added,
        "versions that are gone": changes.versions_removed,
        "new fields": changes.added,
        "fields that are gone": changes.removed,
        "changed fields": changes.changed,
    }
    return f"{name}: " + "; ".join(
        f"{len(paths)} {word} ({', '.join(paths[:_FIELDS_SHOWN])}"
        f"{' and others' if len(paths) > _FIELDS_SHOWN else ''})"
        for word, paths in parts.items()
        if paths
    )
