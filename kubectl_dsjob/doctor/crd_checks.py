"""Checks the CRDs of the cluster against those of this program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.resource import JOBS
from daemonset_job.kube.client.selection import Selection
from kubectl_dsjob.doctor.findings import Area, Finding, Level
from kubectl_dsjob.doctor.reads import Missing, read, read_all
from kubectl_dsjob.proposals import CLUSTER
from kubectl_dsjob.system.crds import compare_crds
from kubectl_dsjob.system.render import VERSION_LABEL, crds, version
from kubectl_dsjob.system.resources import CRDS

_FIELDS_SHOWN: Final = 3


async def check_crds(client: KubeClient, namespace: str) -> list[Finding]:
    """Return what there is to say about each CRD."""
    found = []
    for expected in crds():
        name = expected["metadata"]["name"]
        there = await read(client, CRDS, name)
        if there is Missing.FORBIDDEN:
            found.append(await _by_a_list(client, name, namespace))
        elif isinstance(there, Missing):
            found.append(_absent(name))
        else:
            found += compare(there, expected)
    return found


def compare(there: Mapping[str, Any], expected: Mapping[str, Any]) -> list[Finding]:
    """Return what there is to say about a CRD of the cluster. Pure."""
    name = there["metadata"]["name"]
    if broken := _find_fault(there, expected):
        return [Finding(Area.CRDS, Level.PROBLEM, f"{name} {broken[0]}", broken[1])]
    changes = compare_crds(there, expected)
    label = (there["metadata"].get("labels") or {}).get(VERSION_LABEL)
    which = f" (version {label})" if label else ""
    if changes.versions_added or changes.versions_removed:
        text = f"{name}{which} has other versions of the API than this program, {version()}"
        return [Finding(Area.CRDS, Level.PROBLEM, text, _WAY_OLD)]
    if changes.added:
        text = f"{name}{which} is older than this program, {version()}: it lacks "
        return [Finding(Area.CRDS, Level.PROBLEM, text + _some(changes.added), _WAY_OLD)]
    if changes.removed:
        text = f"{name}{which} is newer than this program, {version()}: it also has "
        way = "Install the version of kubectl dsjob that the cluster has."
        return [Finding(Area.CRDS, Level.NOTE, text + _some(changes.removed), way)]
    if changes.changed:
        text = f"{name}{which} differs from that of this program, {version()}, in "
        return [Finding(Area.CRDS, Level.NOTE, text + _some(changes.changed), _WAY_OLD)]
    return [Finding(Area.CRDS, Level.OK, f"{name} is that of version {version()}")]


_WAY_OLD: Final = f"Upgrade the system: kubectl dsjob upgrade{CLUSTER}"


def _find_fault(there: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what keeps a CRD from its work whatever its fields are, and the way out."""
    if there["metadata"].get("deletionTimestamp"):
        way = "Once all of its objects are gone, install the system again: kubectl dsjob install"
        return "is being deleted, with all of its objects", way + CLUSTER
    conditions = (there.get("status") or {}).get("conditions") or ()
    kinds: dict[str, Any] = {each.get("type"): each for each in conditions}
    established = kinds.get("Established") or {}
    if established.get("status") != "True":
        way = f"kubectl describe crd {there['metadata']['name']}{CLUSTER}"
        way += "; another CRD may have the same names."
        return f"is not established: {established.get('message') or 'not yet'}", way
    known = {each.get("name"): each for each in there["spec"].get("versions") or ()}
    for wanted in expected["spec"]["versions"]:
        name = wanted["name"]
        if (found := known.get(name)) is None:
            continue
        if not found.get("served"):
            return f"does not serve version {name}, so no program can read it", _WAY_OLD
        lacks = set(wanted.get("subresources") or ()) - set(found.get("subresources") or ())
        if lacks:
            return f"lacks the subresource {', '.join(sorted(lacks))} of version {name}", _WAY_OLD
    return None


async def _by_a_list(client: KubeClient, name: str, namespace: str) -> Finding:
    """Say whether the API has the type, which a list shows that any user may try."""
    text = f"you may not read the CRD {name}"
    if name.startswith(f"{JOBS.plural}."):
        jobs = await read_all(client, Selection(JOBS, namespace), 1)
        if jobs is Missing.ABSENT:
            return _absent(name)
        if not isinstance(jobs, Missing):
            text += ", but Jobs can be listed, so it exists"
    return Finding(Area.CRDS, Level.UNKNOWN, text)


def _absent(name: str) -> Finding:
    install = f"kubectl dsjob install{CLUSTER}"
    way = f"Install the system: {install}. Or name another cluster with --context."
    return Finding(Area.CRDS, Level.PROBLEM, f"there is no CRD {name}", way)


def _some(paths: Sequence[str]) -> str:
    left = len(paths) - _FIELDS_SHOWN
    return ", ".join(paths[:_FIELDS_SHOWN]) + (f" and {left} more fields" if left > 0 else "")
