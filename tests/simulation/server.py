"""The model of the API server: its objects, and the effect of every write.

The rules are those of tests/fakekube: metadata of new objects, patches, server-side apply, the
status subresource, generations, preconditions, deletion. Here are UIDs, resourceVersions (one
counter for everything, as in etcd), who wrote, and whose clock is wrong. Not modelled: admission
and CEL rules, foreground deletion, pages of lists, owners of fields other than by apply.

A stored object never changes: a write makes a new dict that shares the unchanged parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from zlib import crc32

from daemonset_job.api.names import FIELD_MANAGER
from daemonset_job.kube.client.errors import AlreadyExists, NotFound
from daemonset_job.kube.client.resource import GROUP
from daemonset_job.kube.client.status_errors import error_from_status
from tests.fakekube import objects
from tests.fakekube.apply import Apply, Owners, applied, body_of_new, first_owners
from tests.fakekube.deletion import deleted, is_gone
from tests.fakekube.kinds import STATUS, kind_of
from tests.fakekube.patches import merge_patch
from tests.fakekube.refusals import Refused
from tests.fakekube.selectors import carries

if TYPE_CHECKING:
    from tests.simulation.loop import SimClock
    from tests.simulation.watch import Watch

# An object of the API as JSON, or a part of one. One that is stored is never changed.
Raw = Mapping[str, Any]

PODS, NODES, EVENTS, CONFIG_MAPS = "pods", "nodes", "events", "configmaps"
JOBS, REPORTS, DAEMON_SETS = "jobs", "jobreports", "daemonsets"
SCHEDULED_JOBS = "scheduledjobs"
_KINDS = {
    PODS: kind_of("", PODS),
    NODES: kind_of("", NODES),
    EVENTS: kind_of("", EVENTS),
    CONFIG_MAPS: kind_of("", CONFIG_MAPS),
    JOBS: kind_of(GROUP, JOBS),
    REPORTS: kind_of(GROUP, REPORTS),
    SCHEDULED_JOBS: kind_of(GROUP, SCHEDULED_JOBS),
    DAEMON_SETS: kind_of("apps", DAEMON_SETS),
}
_APPLIED_METADATA = ("labels", "annotations", "ownerReferences", "uid")

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Write:
    """One change of an object: the actor, the resource, and the object before and after it.

    A created object has no `old`, a removed one no `new`.
    """

    actor: str
    plural: str
    old: Raw | None
    new: Raw | None

    @property
    def raw(self) -> Raw:
        """The object after the write, or as it was when it was removed."""
        found = self.old if self.new is None else self.new
        assert found is not None
        return found


class Server:
    """Objects by resource and (namespace, name). `on_write` receives every write.

    `watches` by resource get every event, in order; who lags behind sees to that himself.
    """

    def __init__(
        self,
        clock: SimClock,
        on_write: Callable[[Write], None],
        skews: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._clock = clock
        self._skews = skews
        self._on_write = on_write
        self.version = 100
        self._uids = 0
        self.objects: dict[str, dict[tuple[str, str], Raw]] = {plural: {} for plural in _KINDS}
        self.watches: dict[str, list[Watch]] = {plural: [] for plural in _KINDS}
        # Who owns which fields of a DaemonSet, by its UID.
        self._owners: dict[str, Owners] = {}

    # --- reading -------------------------------------------------------------------------

    def get(self, plural: str, name: str, namespace: str) -> Raw | None:
        """Return the object or None; nodes are in the namespace ""."""
        return self.objects[plural].get((namespace, name))

    def now(self, plural: str, raw: Raw) -> Raw | None:
        """Return an object as it is now, None if it is gone or another one of its name is."""
        meta = raw["metadata"]
        found = self.objects[plural].get((meta["namespace"], meta["name"]))
        return found if found is not None and found["metadata"]["uid"] == meta["uid"] else None

    def find(self, plural: str, name: str, namespace: str) -> Raw:
        """Return the object; NotFound when there is none, as a GET answers."""
        return self._existing(plural, name, namespace)

    def all(self, plural: str) -> list[Raw]:
        return list(self.objects[plural].values())

    def select(
        self,
        plural: str,
        labels: Mapping[str, str] | None = None,
        namespace: str | None = None,
        name: str | None = None,
    ) -> list[Raw]:
        """Return the objects that carry all `labels` (a dict), and have that namespace and name."""
        return [
            raw
            for raw in self.objects[plural].values()
            if carries(raw, labels)
            and namespace in {None, raw["metadata"]["namespace"]}
            and name in {None, raw["metadata"]["name"]}
        ]

    # --- writing -------------------------------------------------------------------------

    def create(
        self, actor: str, plural: str, body: Raw, namespace: str, *, age: float = 0.0
    ) -> Raw:
        """Store an object that was created `age` seconds ago, and return it; AlreadyExists."""
        meta = body["metadata"]
        key = (namespace, meta["name"])
        if key in self.objects[plural]:
            raise AlreadyExists(f"{plural} {meta['name']} exists")
        self._uids += 1
        uid, stamp = f"{self._uids:05x}000-{plural}", self._clock.stamp(self.skew(actor) - age)
        kind = _KINDS[plural]
        new = _ask(objects.created, kind, body, namespace=namespace, uid=uid, stamp=stamp)
        new["metadata"].setdefault("namespace", "")
        return self._store(actor, plural, key, None, new)

    def patch(
        self, actor: str, plural: str, name: str, body: Raw, *, namespace: str, status: bool = False
    ) -> tuple[Raw, bool]:
        """Apply a merge patch to the object or to its status; returns (object, changed)."""
        old = self._existing(plural, name, namespace)
        requested = merge_patch(old, body)
        new = _ask(objects.patched, _KINDS[plural], old, requested, STATUS if status else "")
        return self._changed(actor, plural, (namespace, name), old, new)

    def check_apply(self, name: str, body: Raw, namespace: str) -> None:
        """Raise what `apply` would raise."""
        self._applied(name, body, namespace)

    def apply(self, actor: str, name: str, body: Raw, namespace: str) -> tuple[Raw, bool]:
        """Server-side apply of a DaemonSet; returns (object, changed)."""
        old = self.get(DAEMON_SETS, name, namespace)
        new, owners = self._applied(name, body, namespace)
        if old is None:
            stored = self.create(actor, DAEMON_SETS, new, namespace)
            self._owners[stored["metadata"]["uid"]] = owners
            return stored, True
        self._owners[old["metadata"]["uid"]] = owners
        return self._changed(actor, DAEMON_SETS, (namespace, name), old, new)

    def _applied(self, name: str, body: Raw, namespace: str) -> tuple[Raw, Owners]:
        """Return what an apply of a DaemonSet makes of it, or what it creates."""
        meta = {key: value for key, value in body["metadata"].items() if key in _APPLIED_METADATA}
        requested = {
            "metadata": {"name": name, **meta},
            "spec": {"revisionHistoryLimit": 10, **body["spec"]},
        }
        kind, how = _KINDS[DAEMON_SETS], Apply(FIELD_MANAGER, force=True)
        old = self.get(DAEMON_SETS, name, namespace)
        if old is None:
            return _ask(body_of_new, requested, name), first_owners(kind, requested, how.owner)
        return _ask(applied, kind, old, self._owners[old["metadata"]["uid"]], requested, how)

    def check(
        self,
        plural: str,
        name: str,
        *,
        namespace: str,
        uid: str | None = None,
        version: str | None = None,
    ) -> None:
        """Check the preconditions of a write; NotFound, Conflict."""
        _ask(objects.check_preconditions, self._existing(plural, name, namespace), uid, version)

    def delete(self, actor: str, plural: str, name: str, *, namespace: str) -> None:
        """Delete the object; a pod with a node lives on until its kubelet has ended it."""
        old = self._existing(plural, name, namespace)
        new = deleted(_KINDS[plural], old, {}, self._clock.stamp(self.skew(actor)))
        if new is None:
            self.remove(actor, plural, name, namespace)
        else:
            self._changed(actor, plural, (namespace, name), old, new)

    def remove(self, actor: str, plural: str, name: str, namespace: str) -> None:
        """Take the object away at once."""
        key = (namespace, name)
        old = self.objects[plural].pop(key)
        self._owners.pop(old["metadata"]["uid"], None)
        self.version += 1
        meta = {**old["metadata"], "resourceVersion": str(self.version)}
        self._on_write(Write(actor, plural, old, None))
        self._send_event(plural, "DELETED", {**old, "metadata": meta})

    def set_status(self, actor: str, plural: str, raw: Raw, status: Raw) -> None:
        """Replace the status of the object as it is now, if it still exists (UID)."""
        old = self.now(plural, raw)
        if old is not None:
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            requested = {"metadata": old["metadata"], "status": status}
            new = objects.updated(_KINDS[plural], old, requested, STATUS)
            self._changed(actor, plural, key, old, new)

    def set_spec(self, actor: str, plural: str, raw: Raw, spec: Raw) -> None:
        """Replace the spec of the object as it is now, if it still exists (UID)."""
        old = self.now(plural, raw)
        if old is not None:
            key = (old["metadata"]["namespace"], old["metadata"]["name"])
            new = objects.updated(_KINDS[plural], old, {**old, "spec": spec})
            self._changed(actor, plural, key, old, new)

    def drop(self, actor: str, plural: str, raw: Raw) -> None:
        """Delete the object as a user or a controller does, if it still exists."""
        if self.now(plural, raw) is not None:
            meta = raw["metadata"]
            self.delete(actor, plural, meta["name"], namespace=meta["namespace"])

    def skew(self, actor: str) -> float:
        """Return by how much the clock of the API server that an actor talks to is ahead."""
        return self._skews[crc32(actor.encode()) % 2]

    # --- shared --------------------------------------------------------------------------

    def _existing(self, plural: str, name: str, namespace: str) -> Raw:
        old = self.objects[plural].get((namespace, name))
        if old is None:
            raise NotFound(f"{plural} {name} not found")
        return old

    def _changed(
        self, actor: str, plural: str, key: tuple[str, str], old: Raw, new: Raw
    ) -> tuple[Raw, bool]:
        if new is old:
            return old, False
        if is_gone(new):
            self.remove(actor, plural, key[1], key[0])
            return new, True
        return self._store(actor, plural, key, old, new), True

    def _store(
        self, actor: str, plural: str, key: tuple[str, str], old: Raw | None, new: Raw
    ) -> Raw:
        self.version += 1
        meta = {**new["metadata"], "resourceVersion": str(self.version)}
        stored = {**new, "metadata": meta}
        self.objects[plural][key] = stored
        self._on_write(Write(actor, plural, old, stored))
        self._send_event(plural, "ADDED" if old is None else "MODIFIED", stored)
        return stored

    def _send_event(self, plural: str, kind: str, raw: Raw) -> None:
        for watch in list(self.watches[plural]):
            watch.push(kind, raw)


def _ask(rule: Callable[Given, Answer], *args: Given.args, **kwargs: Given.kwargs) -> Answer:
    """Return the answer of a rule of tests/fakekube; a refusal is the client's error."""
    try:
        return rule(*args, **kwargs)
    except Refused as refused:
        causes = [{"field": refused.field}] if refused.field else []
        status = {"code": refused.status, "reason": refused.reason, "message": refused.message}
        raise error_from_status({**status, "details": {"causes": causes}}) from refused


def controller_of(raw: Mapping[str, Any]) -> str:
    """Return the UID of the controlling owner, "" for none."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return ""


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the node that a pod is on or meant for."""
    return str(pod["spec"].get("nodeName") or pod["spec"]["meant_for"])
